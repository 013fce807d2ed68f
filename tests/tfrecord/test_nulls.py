"""Nulls in TFRecord files: features that are missing."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import recmap as rm
from recmap.cli import main
from tests.wire import example, feature_list, field, float_list, int64_list, sequence, write

KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "int64": (pa.int64(), lambda r: r.randrange(-(2**63), 2**63)),
    "uint64": (pa.uint64(), lambda r: r.randrange(2**64)),
    "int8": (pa.int8(), lambda r: r.randrange(-128, 128)),
    "bool": (pa.bool_(), lambda r: r.random() < 0.5),
    "float16": (pa.float16(), lambda r: np.float16(r.randrange(9))),
    "float32": (pa.float32(), lambda r: float(r.randrange(99))),
    "float64": (pa.float64(), lambda r: r.random()),
    "text": (pa.string(), lambda r: r.choice(["", "a", "é" * 9])),
    "bytes": (pa.binary(), lambda r: r.choice([b"", b"\xff", b"abc" * 99])),
    "V3": (pa.binary(3), lambda r: bytes(r.randrange(256) for _ in range(3))),
}


def some(r: random.Random, make: Any, share: float) -> Any:
    return None if r.random() < share else make()


def random_column(r: random.Random, rows: int) -> pa.Array:
    kind, value = r.choice(list(KINDS.values()))
    share = r.choice([0, 0.02, 0.5, 1])
    form = r.choice(["one", "one", "list", "fixed", "nested"])

    def items(count: int) -> list[Any]:
        return [value(r) for _ in range(count)]

    def row() -> Any:
        match form:
            case "one":
                return value(r)
            case "list":
                return items(r.choice([0, 1, 5]))
            case "fixed":
                return items(2)
        return [items(r.choice([0, 2])) for _ in range(r.choice([0, 1, 3]))]

    of = {"one": kind, "list": pa.list_(kind), "fixed": pa.list_(kind, 2)}
    type_ = of.get(form, pa.list_(pa.list_(kind)))
    return pa.array([some(r, row, share) for _ in range(rows)], type_)


def plain(value: Any) -> Any:
    if isinstance(value, np.void):
        return value.tobytes()
    if isinstance(value, rm.Ragged | np.ndarray | list):
        return [plain(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value


@pytest.mark.slow
def test_every_kind_of_column_keeps_its_nulls() -> None:
    for seed in range(25):
        r = random.Random(seed)
        rows = r.choice([1, 2, 40])
        table = pa.table({f"c{i}": random_column(r, rows) for i in range(r.choice([1, 4]))})
        path = r.choice(["x.tfrecord", "x.tfrecord.gz"])
        options = r.choice([{}, {}, {"index": False}, {"describe": False}])
        ds = rm.open(table)
        ds.save(path, overwrite=True, options=options)
        back = rm.open(path)
        assert back.schema == ds.schema, seed
        model = table.to_pylist()
        assert [{n: plain(v) for n, v in row.items()} for row in back] == model, seed
        chosen = [r.randrange(rows) for _ in range(5)]
        assert back[chosen].keys() == ds[chosen].keys()
        for name in table.column_names:
            wanted = [model[i][name] for i in chosen]
            assert plain(list(back[chosen][name])) == plain(wanted), (seed, name)
        assert rm.verify(path).ok
        assert rm.diff(ds, back).same
        assert {n: s.nulls for n, s in back.stats().items()} == {
            n: table[n].null_count for n in table.column_names
        }


def test_an_index_made_later_keeps_them(tmp_path: Path) -> None:
    table = pa.table({"x": [1, None], "l": [None, [1]], "y": [1, 2]})
    rm.open(table).save("x.tfrecord", options={"index": False})
    rm.index("x.tfrecord")
    assert rm.open("x.tfrecord").to_arrow().to_pylist() == table.to_pylist()
    shutil.copy("x.tfrecord", tmp_path / "y.tfrecord")
    assert rm.open(tmp_path / "y.tfrecord").to_arrow().to_pylist() == table.to_pylist()


def test_a_missing_feature_is_null_if_the_field_says_so() -> None:
    write(
        "x.tfrecord",
        example(x=int64_list(1), f=float_list(0.5, 1.5), l=int64_list()),
        example(x=int64_list(), l=int64_list(7)),
        example(f=float_list(2, 3)),
        example(x=b"", f=float_list(2, 3), l=b""),  # without a kind
    )
    fields = {"x": "int64?", "f": "float32[2]?", "l": "int64[*]?"}
    wanted = [
        {"x": 1, "f": [0.5, 1.5], "l": []},
        {"x": None, "f": None, "l": [7]},
        {"x": None, "f": [2, 3], "l": None},
        {"x": None, "f": [2, 3], "l": None},
    ]
    errors: Any
    for errors in ("raise", "skip"):
        ds = rm.open("x.tfrecord", fields, errors=errors)
        assert ds.to_arrow().to_pylist() == wanted
        assert len(ds) == 4
    # Without, such features are lists, as they always were.
    assert rm.open("x.tfrecord").schema == {"x": "int64[*]", "f": "float32[*]", "l": "int64[*]"}
    assert rm.open("x.tfrecord", {"absent": "int64?"})[:]["absent"].mask.all()
    rm.open("x.tfrecord", fields).save("y.parquet")
    assert rm.open("y.parquet").to_arrow().to_pylist() == wanted


def test_an_error_about_a_missing_feature_says_how_to_read_it_as_null(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write("x.tfrecord", example(x=int64_list(1)), example(y=int64_list(1)))
    with pytest.raises(rm.FieldMismatchError, match=r'read it as null, columns={"x": "int64\?"}'):
        rm.open("x.tfrecord", {"x": "int64"})[:]
    assert rm.open("x.tfrecord", {"x": "int64?"})["x"][1] is None
    assert main(["head", "x.tfrecord", "--field", "x=int64"]) == 1
    assert "read it as null, --column x='int64?'" in capsys.readouterr().err
    for verb in ("head", "stats", "info"):
        assert main([verb, "x.tfrecord", "--field", "x=int64?"]) == 0


def test_a_feature_list_may_be_null() -> None:
    write(
        "x.tfrecord",
        sequence({"a": int64_list(1)}, {"s": feature_list(int64_list(1), int64_list())}),
        sequence({}, {"s": feature_list()}),
        sequence({"a": int64_list(1)}, {}),
    )
    ds = rm.open("x.tfrecord", {"a": "int64?", "s": "int64[*,*]?"})
    assert [plain(row["s"]) for row in ds] == [[[1], []], [], None]
    assert [plain(row["a"]) for row in ds] == [1, None, 1]
    ds.save("y.tfrecord")
    assert rm.diff(ds, "y.tfrecord").same


def test_nulls_inside_lists_are_refused_with_the_ways_on() -> None:
    ds = rm.open(pa.table({"l": [[1, None], [2]], "x": [1, None]}))
    with pytest.raises(rm.ColumnError, match=r"'l' is int64\[\*\?\].*fill_null.*drop_null") as e:
        ds.save("x.tfrecord")
    assert "mask_null" not in str(e.value)
    assert not Path("x.tfrecord").exists()
    with pytest.raises(rm.ColumnError, match="cannot hold nulls"):
        rm.TFRecordWriter("x.tfrecord", ds.schema)
    ds.fill_null({"l": 0}).save("x.tfrecord")
    assert plain(rm.open("x.tfrecord")["x"][1]) is None
    with pytest.raises(rm.OptionError, match=r"hold no nulls; write 'int64\[\*\]\?'"):
        rm.open("x.tfrecord", {"l": "int64[*?]?"})


def test_the_writer_takes_masked_arrays_and_none() -> None:
    with rm.TFRecordWriter("x.tfrecord", {"x": "int64?", "t": "text?"}) as writer:
        writer.write({"x": np.ma.array([1, 2], mask=[False, True]), "t": ["a", None]})
        writer.write({"x": np.array([3]), "t": ["b"]})
    assert [row["x"] for row in rm.open("x.tfrecord")] == [1, None, 3]
    assert [row["t"] for row in rm.open("x.tfrecord")] == ["a", None, "b"]
    with (
        rm.TFRecordWriter("y.tfrecord") as writer,
        pytest.raises(rm.ColumnError, match="null"),
    ):
        writer.write({"x": np.array([1])})
        writer.write({"x": np.ma.array([1, 2], mask=[False, True])})
    with pytest.raises(rm.OptionError, match="align"):
        rm.TFRecordWriter("z.tfrecord", {"x": "float32?"}, align=64)


def test_files_are_nullable_together_if_one_of_them_is() -> None:
    one = pa.table({"x": pa.array([1, 2], pa.int8()), "y": [1, 2]})
    other = pa.table({"x": pa.array([None, 4], pa.int8()), "y": [3, 4]})
    Path("d").mkdir()
    rm.open(one).save("d/a.tfrecord")
    rm.open(other).save("d/b.tfrecord")
    rows = [*one.to_pylist(), *other.to_pylist()]
    assert rm.open("d/*.tfrecord").to_arrow().to_pylist() == rows
    for path in Path("d").glob(".*"):
        path.unlink()
    assert rm.open("d/*.tfrecord").to_arrow().to_pylist() == rows
    joined = Path("d/b.tfrecord").read_bytes() + Path("d/a.tfrecord").read_bytes()
    Path("ba.tfrecord").write_bytes(joined)
    assert rm.open("ba.tfrecord").to_arrow().to_pylist() == rows[2:] + rows[:2]
    Path("ab.tfrecord").write_bytes(Path("d/a.tfrecord").read_bytes() + joined)
    with pytest.raises(rm.FieldMismatchError, match=r"\"x\": \"int8\?\""):
        rm.open("ab.tfrecord")[:]


def test_a_claimed_size_takes_no_memory_where_the_first_row_is_null() -> None:
    rm.open(pa.table({"x": pa.array([None, [1.0, 2.0]], pa.list_(pa.float64(), 2))})).save(
        "x.tfrecord", options={"index": False}
    )
    content = Path("x.tfrecord").read_bytes()
    assert b"float64[2]?" in content
    big = {"x": "float64[99999999]?"}
    from recmap.model.schema import Schema
    from recmap.tfrecord.embedded_schema import description

    write("y.tfrecord", description(Schema(big)) + field(1, b""))
    with pytest.raises(rm.FieldMismatchError, match="the file is too short for it"):
        rm.open("y.tfrecord")


@pytest.mark.slow
def test_other_libraries_find_no_feature_where_a_row_is_null() -> None:
    tf = pytest.importorskip("tensorflow")
    rm.open(pa.table({"x": [1, None], "f": pa.array([None, 2], pa.float32())})).save(
        "x.tfrecord", options={"describe": False}
    )
    found = [dict(tf.train.Example.FromString(r).features.feature) for r in records("x.tfrecord")]
    assert [sorted(each) for each in found] == [["x"], ["f"]]
    with pytest.raises(rm.OptionError, match="TensorFlow has no nulls.*'int64 = 0'"):
        rm.tf.feature_spec({"x": "int64?"})
    assert main(["schema", "x.tfrecord", "--as", "tf"]) == 0


def records(path: str) -> list[bytes]:
    return [bytes(record) for record in rm.tfrecord.records(path)]


def test_training_refuses_and_padding_is_not_fooled() -> None:
    ds = rm.open(pa.table({"l": [[1], None, [2, 3]], "x": [1, 2, 3]}))
    ds.save("x.tfrecord")
    back = rm.open("x.tfrecord")
    with pytest.raises(rm.ColumnError, match="fill_null"):
        next(iter(back.batch(2, pad={"l": 3})))
    filled = next(iter(back.fill_null({"l": []}).batch(3, pad={"l": 2})))
    assert filled["l"].tolist() == [[1, 0], [0, 0], [2, 3]]
    kept = next(iter(back.drop_null("l").batch(2, pad={"l": 2})))
    assert kept["l"].tolist() == [[1, 0], [2, 3]]
