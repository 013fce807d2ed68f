"""Types that survive a copy: the description of the columns in the first record of a file,
the manifest of a folder, and what happens where they are damaged or contradict each other.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import recmap as rm
from recmap.native import _core
from recmap.tfrecord.sidecar import sidecar_path
from tests import wire

ROWS = 12
RNG = np.random.default_rng(0)
LENGTHS = [i % 4 for i in range(ROWS)]
# Fields that records cannot tell, and a column of each.
DESCRIBED: dict[str, Any] = {
    "uint8[4,5]": RNG.integers(0, 256, (ROWS, 4, 5)).astype(np.uint8),
    "uint8": np.arange(ROWS, dtype=np.uint8),
    "bool": np.arange(ROWS) % 2 == 0,
    "int32": np.arange(ROWS, dtype=np.int32),
    "uint16[3]": np.arange(ROWS * 3, dtype=np.uint16).reshape(ROWS, 3),
    "uint64": np.arange(ROWS, dtype=np.uint64) + 2**63,
    "float16[2]": RNG.random((ROWS, 2)).astype(np.float16),
    "float64": RNG.random(ROWS),
    "complex64[2]": RNG.random((ROWS, 4)).view(np.complex64)[:, :2].copy(),
    "datetime64[ns]": np.arange(ROWS).astype("datetime64[ns]"),
    "float32[1]": RNG.random((ROWS, 1), np.float32),
    "float32[2,3]": RNG.random((ROWS, 2, 3), np.float32),
    "int64[1,1]": np.arange(ROWS).reshape(ROWS, 1, 1),
    "float32[*]": rm.Ragged.from_rows([np.arange(3, dtype=np.float32)] * ROWS),
    "int64[*]": rm.Ragged.from_rows([np.arange(n) for n in LENGTHS]),
    "int32[*,2]": rm.Ragged.from_rows([np.ones((n, 2), np.int32) for n in LENGTHS]),
    "bytes[*]": rm.Ragged(rm.Ragged.from_bytes([b"x"] * ROWS), np.arange(ROWS + 1)),
    "bytes[1]": rm.Ragged(rm.Ragged.from_bytes([b"x"] * ROWS), np.arange(ROWS + 1)),
    "bytes[2,3]": np.full((ROWS, 2, 3), b"ab"),
    "int64[*,*]": rm.Ragged(
        rm.Ragged(np.arange(ROWS), np.arange(ROWS + 1)), np.arange(ROWS + 1)
    ),
}  # fmt: skip
TOLD: dict[str, Any] = {
    "float32": RNG.random(ROWS, np.float32),
    "float32[7]": RNG.random((ROWS, 7), np.float32),
    "int64": np.arange(ROWS),
    "int64[2]": np.arange(ROWS * 2).reshape(ROWS, 2),
    "bytes": [b"x" * i for i in range(ROWS)],
    "bytes[2]": np.full((ROWS, 2), b"ab"),
}


MANIFEST: dict[str, Any] = {
    "recmap": 1,
    "format": "tfrecord",
    "complete": True,
    "files": [{"file": "data.tfrecord"}],
}


def copied(*paths: str) -> str:
    """The files alone, in another folder."""
    os.makedirs("elsewhere", exist_ok=True)
    for path in paths:
        shutil.copyfile(path, os.path.join("elsewhere", os.path.basename(path)))
    return "elsewhere/*"


def write(columns: dict[str, Any], path: str = "x.tfrecord", **options: Any) -> str:
    fields = options.pop("fields", {name: name for name in columns})
    with rm.TFRecordWriter(path, fields, overwrite=True, **options) as w:
        w.write(columns)
    return path


def values(column: Any) -> Any:
    return column.tolist()


def with_lead(record: bytes, content: bytes, number: int = 14) -> bytes:
    return wire.tag(number, 2) + wire.varint(len(content)) + content + record


def opened_or_refused() -> Any:
    """The dataset, whose values are right, or the error that names the file."""
    try:
        ds = rm.open("x.tfrecord")
        right = ds[:]["a"].tolist() == [5, 5]
    except rm.DataError as e:
        right, ds = "x.tfrecord" in str(e), e  # type: ignore[assignment]
    assert right
    return ds


def described(text: bytes, crc: int | None = None) -> bytes:
    made = _core.crc32c(np.frombuffer(text, np.uint8)) if crc is None else crc
    return b"RECMAPSC" + made.to_bytes(4, "little") + text


@pytest.mark.parametrize("field", DESCRIBED)
@pytest.mark.parametrize("compression", [None, "gzip", "zlib"])
def test_a_copied_file_keeps_its_types(field: str, compression: Any) -> None:
    write({field: DESCRIBED[field]}, compression=compression)
    before = rm.open("x.tfrecord")
    ds = rm.open(copied("x.tfrecord"))
    assert ds.schema == before.schema == {field: field}
    assert "from the first record" in repr(ds)
    assert values(ds[:][field]) == values(before[:][field])


@pytest.mark.parametrize("field", TOLD)
def test_types_that_records_tell_add_nothing(field: str) -> None:
    write({field: TOLD[field]})
    write({field: TOLD[field]}, "plain.tfrecord", describe=False)
    assert Path("x.tfrecord").read_bytes() == Path("plain.tfrecord").read_bytes()
    for rows in (slice(0, 1), slice(None)):
        write({field: TOLD[field][rows]})
        assert rm.open(copied("x.tfrecord")).schema == {field: field}


def test_all_columns_at_once_keep_their_types_and_their_order() -> None:
    columns = {**DESCRIBED, **TOLD}
    write(columns, shards=3)
    ds = rm.open(copied(*[f"x-{i:05}-of-00003.tfrecord" for i in range(3)]))
    assert list(ds.schema) == list(columns)
    assert ds.schema == {name: name for name in columns}
    assert len(ds) == ROWS


def test_without_a_description_only_the_first_record_differs() -> None:
    write({"uint8[4,5]": DESCRIBED["uint8[4,5]"]})
    write({"uint8[4,5]": DESCRIBED["uint8[4,5]"]}, "plain.tfrecord", describe=False)
    ours = list(rm.tfrecord.records("x.tfrecord"))
    plain = list(rm.tfrecord.records("plain.tfrecord"))
    assert ours[1:] == plain[1:]
    assert ours[0].endswith(plain[0])
    assert len(ours[0]) > len(plain[0])
    assert rm.open(copied("plain.tfrecord")).schema == {"uint8[4,5]": "bytes"}


@pytest.mark.parametrize("align", [None, 8, 64, 4096])
@pytest.mark.parametrize("rows", [1, 2, ROWS])
def test_described_files_are_mapped(align: int | None, rows: int) -> None:
    columns = {
        "image": DESCRIBED["uint8[4,5]"][:rows],
        "half": DESCRIBED["float16[2]"][:rows],
        "label": np.zeros(rows, np.int32),
    }
    with rm.TFRecordWriter("x.tfrecord", align=align) as w:
        w.write(columns)
    for path in ("x.tfrecord", copied("x.tfrecord")):
        ds = rm.open(path)
        for name in ("image", "half"):
            column = ds[name]
            assert isinstance(column, np.ndarray)
            assert column.base is not None
            assert np.array_equal(column, columns[name])
            assert align is None or column.ctypes.data % align == 0
            assert align is None or column.strides[0] % align == 0
        for i in range(rows):
            assert np.array_equal(ds[i]["image"], columns["image"][i])
        order = RNG.permutation(rows)
        assert np.array_equal(ds[order]["image"], columns["image"][order])


def test_a_long_name_does_not_break_the_alignment() -> None:
    for length in range(60, 200):
        name = "n" * length
        with rm.TFRecordWriter("x.tfrecord", align=64, overwrite=True) as w:
            w.write({name: np.arange(6.0).reshape(3, 2)})
        column = rm.open(copied("x.tfrecord"))[name]
        assert column.ctypes.data % 64 == 0
        assert column.tolist() == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("first", [0, 1, 60, 200])
@pytest.mark.parametrize("describe", [True, False])
def test_a_longer_first_row_moves_no_column(first: int, describe: bool) -> None:
    # Lengths of the first string around that of the description, so that its record is as
    # long as the others, or the others as it would be.
    for more in range(first, first + 60):
        with rm.TFRecordWriter("x.tfrecord", overwrite=True, describe=describe) as w:
            w.write({"a": np.arange(12.0).reshape(4, 3), "s": [b"x" * more, *[b"y" * 100] * 3]})
        for path in ("x.tfrecord", copied("x.tfrecord")):
            ds = rm.open(path, None if describe else {"a": "float64[3]", "s": "bytes"})
            assert np.array_equal(ds["a"][:], np.arange(12.0).reshape(4, 3))
            assert [len(s) for s in ds[:]["s"].tolist()] == [more, 100, 100, 100]


def test_other_readers_skip_the_description() -> None:
    import tensorflow as tf

    write({"uint8[4,5]": DESCRIBED["uint8[4,5]"], "int32": DESCRIBED["int32"]})
    wanted = [row.tobytes() for row in DESCRIBED["uint8[4,5]"]]
    spec = {
        "uint8[4,5]": tf.io.FixedLenFeature([], tf.string),
        "int32": tf.io.FixedLenFeature([], tf.int64),
    }
    records = list(tf.data.TFRecordDataset("x.tfrecord").as_numpy_iterator())
    parsed = tf.io.parse_example(records, spec)
    assert parsed["uint8[4,5]"].numpy().tolist() == wanted
    assert parsed["int32"].numpy().tolist() == list(range(ROWS))
    one = tf.io.parse_single_example(records[0], spec)
    assert one["uint8[4,5]"].numpy() == wanted[0]
    message = tf.train.Example.FromString(records[0])
    assert message.features.feature["uint8[4,5]"].bytes_list.value[0] == wanted[0]


def test_the_tfrecord_package_skips_the_description() -> None:
    write({"uint8[4,5]": DESCRIBED["uint8[4,5]"], "int32": DESCRIBED["int32"]})
    script = (
        "from tfrecord.reader import tfrecord_loader\n"
        "rows = tfrecord_loader('x.tfrecord', None, {'int32': 'int', 'uint8[4,5]': 'byte'})\n"
        "print([(int(row['int32'][0]), bytes(row['uint8[4,5]'])) for row in rows])"
    )
    # Alone, because its messages have the names of TensorFlow's.
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    images = [row.tobytes() for row in DESCRIBED["uint8[4,5]"]]
    assert done.stdout.strip() == str(list(enumerate(images))), done.stderr


def test_tensorflow_skips_the_description_of_a_sequence() -> None:
    import tensorflow as tf

    column = rm.Ragged.from_rows([np.ones((n, 2), np.float32) for n in LENGTHS])
    with rm.TFRecordWriter("x.tfrecord", encoding={"s": "feature_list"}) as w:
        w.write({"s": column, "id": np.arange(ROWS, dtype=np.int32)})
    record = next(iter(rm.tfrecord.records("x.tfrecord")))
    spec = {"s": tf.io.FixedLenSequenceFeature([2], tf.float32)}
    context = {"id": tf.io.FixedLenFeature([], tf.int64)}
    parsed = tf.io.parse_single_sequence_example(record, context, spec)
    assert parsed[0]["id"].numpy() == 0
    assert parsed[1]["s"].shape == (0, 2)
    assert rm.open(copied("x.tfrecord")).schema == {"s": "float32[*,2]", "id": "int32"}


def test_files_put_together_or_compressed_keep_their_types() -> None:
    one, two = {"uint8[4,5]": DESCRIBED["uint8[4,5]"]}, {"uint8[4,5]": DESCRIBED["uint8[4,5]"] ^ 1}
    write(one, "a.tfrecord")
    write(two, "b.tfrecord")
    data = Path("a.tfrecord").read_bytes() + Path("b.tfrecord").read_bytes()
    Path("c.tfrecord").write_bytes(data)
    Path("d.tfrecord.gz").write_bytes(gzip.compress(data))
    wanted = np.concatenate([one["uint8[4,5]"], two["uint8[4,5]"]])
    for path in ("c.tfrecord", "d.tfrecord.gz"):
        ds = rm.open(path)
        assert ds.schema == {"uint8[4,5]": "uint8[4,5]"}
        assert np.array_equal(ds[:]["uint8[4,5]"], wanted)
        assert np.array_equal(ds[[23, 12, 0, 11]]["uint8[4,5]"], wanted[[23, 12, 0, 11]])
    assert rm.index("c.tfrecord")
    assert np.array_equal(rm.open("c.tfrecord")[:]["uint8[4,5]"], wanted)


READS: dict[str, Any] = {
    "all": lambda path: rm.open(path)[:],
    "one row": lambda path: rm.open(path)[-rows_of_a_part(path)],
    "rows": lambda path: rm.open(path)[[0, -rows_of_a_part(path)]],
    "column": lambda path: np.asarray(rm.open(path)["x"]),
    "select": lambda path: list(rm.open(path).select(["x"]).batch(2)),
    "batches": lambda path: list(rm.open(path).batch(2)),
    "shuffled": lambda path: list(rm.open(path).shuffle(seed=1, window=4).batch(2)),
    "the others given": lambda path: rm.open(path, fields={"y": "int32", ...: None})[:],
    "skip": lambda path: rm.open(path, errors="skip")[:],
    "index": rm.index,
    "stats": lambda path: rm.open(path).stats(),
    "convert": lambda path: rm.convert(path, "out.npz"),
    "save": lambda path: rm.open(path).save("out.tfrecord"),
}


def rows_of_a_part(path: str) -> int:
    return len(rm.open(path)) // 3


def put_together(rows: int, *columns: Any, compression: Any = None) -> str:
    """Files of these columns x, one after the other, as one file."""
    parts = []
    for column in columns:
        write({"x": column, "y": np.zeros(rows, np.int32)}, "part.tfrecord", fields=None)
        parts.append(Path("part.tfrecord").read_bytes())
    path = "x.tfrecord.gz" if compression else "x.tfrecord"
    Path(path).write_bytes(gzip.compress(b"".join(parts)) if compression else b"".join(parts))
    return path


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("way", READS)
# With one row each, all records are equally long, and the columns could be mapped.
@pytest.mark.parametrize("rows", [1, 2])
def test_files_of_other_types_put_together_are_an_error(
    way: str, compression: Any, rows: int
) -> None:
    first = np.arange(rows * 4, dtype=np.float16).reshape(rows, 4)
    other = first.view(np.float64)
    path = put_together(rows, first, first, other, compression=compression)
    said = r"float64\[1\].*float16\[4\].*put together"
    with pytest.raises(rm.FieldMismatchError, match=said) as e:
        READS[way](path)
    assert (e.value.file, e.value.record, e.value.field) == (path, 2 * rows, "x")
    assert rm.open(path)[rows]["x"].tolist() == [0, 1, 2, 3]
    ds = rm.open(path, fields={"x": "float16[4]", "y": "int32"})
    assert ds[:]["x"].tolist() == [*first.tolist() * 3]
    assert rm.open(path, fields=["y"])[:]["y"].tolist() == [0] * rows * 3


def test_files_described_in_other_words_can_be_put_together() -> None:
    columns = {"x": DESCRIBED["uint8[4,5]"], "y": DESCRIBED["int32"]}
    parts = []
    for align, names in ((None, "xy"), (64, "xy"), (None, "yx")):
        write({name: columns[name] for name in names}, "p.tfrecord", fields=None, align=align)
        parts.append(Path("p.tfrecord").read_bytes())
    Path("x.tfrecord").write_bytes(b"".join(parts))
    ds = rm.open("x.tfrecord")
    assert ds[:]["x"].tolist() == columns["x"].tolist() * 3
    assert ds[:]["y"].tolist() == columns["y"].tolist() * 3


def test_a_damaged_description_of_a_later_record_is_an_error_or_passed_over() -> None:
    record = wire.example(a=wire.int64_list(5))
    good = with_lead(record, described(b'{"schema":{"a":"int8"}}'))
    bad = with_lead(record, described(b'{"schema":{"a":"int8"}}', 1))
    wire.write("x.tfrecord", good, record, bad)
    with pytest.raises(rm.CorruptRecordError, match="in record 2, is damaged"):
        rm.open("x.tfrecord")[:]
    assert rm.open("x.tfrecord")[:2]["a"].tolist() == [5, 5]
    assert rm.open("x.tfrecord", errors="skip")[:]["a"].tolist() == [5, 5, 5]


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_an_index_of_a_file_without_rows_contradicts_nothing(compression: Any) -> None:
    columns = {"x": DESCRIBED["uint8[4,5]"][:1]}
    with rm.TFRecordWriter("x.tfrecord", shards=3, compression=compression) as w:
        w.write(columns)
    files = copied(*sorted(map(str, Path().glob("x-*"))))
    rm.index(files)
    ds = rm.open(files)
    assert ds.schema == {"x": "uint8[4,5]"}
    assert ds[:]["x"].tolist() == columns["x"].tolist()


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_repair_keeps_the_types_when_the_first_record_is_damaged(compression: Any) -> None:
    images = DESCRIBED["uint8[4,5]"]
    write({"uint8[4,5]": images})
    data = bytearray(Path("x.tfrecord").read_bytes())
    length = int.from_bytes(data[:8], "little")
    data[12 + length - 3] ^= 1  # in the values of the first row
    Path("x.tfrecord").write_bytes(gzip.compress(data) if compression else data)
    done = rm.repair("x.tfrecord", "y.tfrecord")
    assert done.records == ROWS - 1
    ds = rm.open(copied("y.tfrecord"))
    assert ds.schema == {"uint8[4,5]": "uint8[4,5]"}
    assert np.array_equal(ds[:]["uint8[4,5]"], images[1:])
    assert rm.verify("y.tfrecord").ok
    assert (
        list(rm.tfrecord.records("y.tfrecord"))[1:]
        == list(rm.tfrecord.records("x.tfrecord", errors="skip"))[1:]
    )


@pytest.mark.parametrize("align", [None, 64])
def test_an_index_made_of_a_described_file_is_the_one_its_writer_made(align: int | None) -> None:
    columns = {"x": DESCRIBED["uint8[4,5]"], "y": DESCRIBED["float64"]}
    with rm.TFRecordWriter("x.tfrecord", align=align) as w:
        w.write(columns)
    written = Path(sidecar_path("x.tfrecord")).read_bytes()
    os.unlink(sidecar_path("x.tfrecord"))
    rm.index("x.tfrecord")
    made = Path(sidecar_path("x.tfrecord")).read_bytes()

    def info(content: bytes) -> Any:
        told = json.JSONDecoder().raw_decode(content[24:].decode("latin-1"))[0]
        del told["encoding"], told["written"]  # the latter is not for an index to say
        return told | {"mapped": sorted(told["mapped"])}

    assert info(made) == info(written)
    assert np.array_equal(rm.open("x.tfrecord")["x"], columns["x"])


def test_a_manifest_tells_the_types_of_the_files_it_names() -> None:
    columns = {"image": DESCRIBED["uint8[4,5]"], "x": DESCRIBED["float64"]}
    rm.from_arrays(columns).save("out/", shards=2, options={"describe": False})
    names = [f"out/data-{i:05}-of-00002.tfrecord" for i in range(2)]
    copied(*names, "out/_manifest.json")
    ds = rm.open("elsewhere/")
    assert ds.schema == {"image": "uint8[4,5]", "x": "float64"}
    assert "from the manifest" in repr(ds)
    assert np.array_equal(ds[:]["image"], columns["image"])
    os.rename("elsewhere/data-00001-of-00002.tfrecord", "elsewhere/other.tfrecord")
    assert rm.open("elsewhere/other.tfrecord").schema == {"image": "bytes", "x": "bytes"}


def test_a_manifest_is_not_believed_of_a_file_that_was_replaced() -> None:
    rm.from_arrays({"x": DESCRIBED["float64"]}).save("out/", options={"describe": False})
    copied("out/data.tfrecord", "out/_manifest.json")
    wire.write("elsewhere/data.tfrecord", wire.example(x=wire.int64_list(1)))
    with pytest.warns(rm.StaleIndexWarning, match="was not used"):
        assert rm.open("elsewhere/").schema == {"x": "int64"}


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[]", "null", "1", "[" * 100_000, '"x"', "\0", "{}",
        '{"recmap": 1}',
        '{"recmap": 1, "format": "tfrecord", "complete": true, "files": 1, "schema": {}}',
        '{"recmap": 1, "format": "tfrecord", "complete": true, "files": [1], "schema": {"a": 1}}',
        json.dumps(MANIFEST | {"schema": {"a": "nonsense["}}),
        json.dumps(MANIFEST | {"states": [1, 2], "schema": {"x": "float64"}}),
    ],
)  # fmt: skip
def test_a_manifest_that_makes_no_sense_is_as_if_it_were_not_there(content: str) -> None:
    wire.write("data.tfrecord", wire.example(x=wire.int64_list(1, 2)))
    Path("_manifest.json").write_text(content)
    assert rm.open("data.tfrecord").schema == {"x": "int64[2]"}


@pytest.mark.parametrize("field", ["float64[1000000000000]", "V1000000000", "bytes[99999999]"])
def test_a_manifest_that_claims_too_much_takes_no_memory(field: str) -> None:
    wire.write("data.tfrecord", wire.example(x=wire.bytes_list(b"12345678")))
    Path("_manifest.json").write_text(json.dumps(MANIFEST | {"schema": {"x": field}}))
    with pytest.raises(rm.FieldMismatchError, match="too short"):
        rm.open("data.tfrecord")


def test_a_description_that_contradicts_the_index_or_the_manifest_is_an_error() -> None:
    rm.from_arrays({"x": np.zeros((4, 2))}).save("a/")
    rm.from_arrays({"x": np.zeros((4, 4), np.float32)}).save("b/", encoding={"x": "raw"})
    assert os.path.getsize("a/data.tfrecord") == os.path.getsize("b/data.tfrecord")
    shutil.copyfile("b/data.tfrecord", "a/data.tfrecord")
    os.unlink("a/.data.tfrecord.recmap")
    with pytest.raises(
        rm.FieldMismatchError, match=r"first record says 'x' is float32\[4\].*_manifest.json says"
    ) as caught:
        rm.open("a/")
    assert "fields={...}" in str(caught.value)
    assert rm.open("a/", {"x": "float32[4]"}).schema == {"x": "float32[4]"}
    os.unlink("a/_manifest.json")
    assert rm.open("a/").schema == {"x": "float32[4]"}


def test_files_that_describe_other_columns_are_an_error_that_names_them() -> None:
    write({"x": np.zeros((4, 2))}, "a.tfrecord", fields={"x": "float64[2]"})
    write({"x": np.zeros((4, 3))}, "b.tfrecord", fields={"x": "float64[3]"})
    for index in (True, False):
        with pytest.raises(rm.FieldMismatchError, match=r"a\.tfrecord.*b\.tfrecord"):
            rm.open(["a.tfrecord", "b.tfrecord"])
        if index:
            os.unlink(sidecar_path("a.tfrecord"))
            os.unlink(sidecar_path("b.tfrecord"))
    with pytest.raises(rm.FieldMismatchError):
        rm.open(["a.tfrecord", "b.tfrecord"], {"x": "float64[2]"})[:]


def test_of_many_files_one_of_other_types_is_noticed_when_it_is_read() -> None:
    for i in range(200):
        shape = 3 if i == 99 else 2
        write({"x": np.ones((2, shape))}, f"{i:03}.tfrecord", fields={"x": f"float64[{shape}]"},
              durable=False, index=False)  # fmt: skip
    ds = rm.open("*.tfrecord")
    assert ds[:4]["x"].tolist() == [[1, 1]] * 4
    with pytest.raises(rm.FieldMismatchError, match=r"099\.tfrecord"):
        ds[195:210]


def test_of_many_files_an_index_of_other_data_is_noticed_when_it_is_read() -> None:
    for i in range(200):
        write({"int32": np.full(2, i, np.int32)}, f"{i:03}.tfrecord", durable=False)
    write({"int32": np.full(2, 98, np.int32)}, "099.tfrecord", durable=False)
    shutil.copyfile(".100.tfrecord.recmap", ".099.tfrecord.recmap")
    ds = rm.open("*.tfrecord")
    assert len(ds) == 400
    assert ds[190:198]["int32"].tolist() == [95, 95, 96, 96, 97, 97, 98, 98]
    for rows in (slice(197, 200), [3, 199], 198):
        with pytest.raises(rm.IndexFileError, match=r"099\.tfrecord\.recmap.*recmap index"):
            ds[rows]


def test_a_file_without_a_description_joins_files_that_have_one() -> None:
    write({"x": np.ones((2, 2))}, "a.tfrecord", fields={"x": "float64[2]"})
    write({"x": np.zeros((2, 2))}, "b.tfrecord", fields={"x": "float64[2]"}, describe=False,
          index=False)  # fmt: skip
    assert rm.open(["a.tfrecord", "b.tfrecord"])[:]["x"].tolist() == [[1, 1]] * 2 + [[0, 0]] * 2
    write({"x": np.zeros((2, 2)), "y": np.ones(2)}, "b.tfrecord", describe=False, index=False,
          fields={"x": "float64[2]", "y": "float64"})  # fmt: skip
    with pytest.raises(rm.FieldMismatchError, match=r"b\.tfrecord: has the feature 'y'"):
        rm.open(["a.tfrecord", "b.tfrecord"])


def test_a_damaged_description_is_an_error_or_passed_over() -> None:
    write({"uint8[4,5]": DESCRIBED["uint8[4,5]"]})
    data = bytearray(Path("x.tfrecord").read_bytes())
    data[40] ^= 1
    Path("x.tfrecord").write_bytes(data)
    os.unlink(sidecar_path("x.tfrecord"))
    with pytest.raises(rm.CorruptRecordError, match="first record, is damaged"):
        rm.open("x.tfrecord")
    with pytest.warns(rm.SkippedRecordsWarning):
        ds = rm.open("x.tfrecord", errors="skip")
    assert len(ds) == ROWS - 1
    with pytest.warns(rm.SkippedRecordsWarning):
        ds = rm.open("x.tfrecord", {"uint8[4,5]": "uint8[4,5]"}, errors="skip")
    assert np.array_equal(ds[:]["uint8[4,5]"], DESCRIBED["uint8[4,5]"][1:])


@pytest.mark.parametrize(
    "content",
    [
        b"", b"R", b"RECMAPSC", b"RECMAPSC\0\0\0\0", described(b""), described(b"{}"),
        described(b"[]"), described(b"null"), described(b'{"schema": 1}'),
        described(b'{"schema": {}}'), described(b'{"schema": {"a": 1}}'),
        described(b'{"schema": {"a": "int64["}}'), described(b"\xff\xfe"),
        described(b"[" * 100_000), described(b'{"schema":' * 5000), described(b'{"a": 1}', crc=7),
        described(b'{"schema": {"a": "int64"}}', crc=1),
        described(b'{"schema": {"a": "int64", "b": "float32[*]"}}'),
        described(b'{"schema": {"a": "float64[1000000000000000]"}}'),
        described(b'{"schema": {"a": "int64[99999999999999999999999]"}}'),
        described(b'{"schema": {"a": "float32[1000000000] = 1"}}'),
        described(b'{"schema": {"a": "int64[*,*,*]"}}'),
        described(b'{"schema": {"a": "' + b"x" * 10_000 + b'"}}'),
        described(b'{"schema": {"a": "V999999999"}}'),
        described(b'{"schema": {"a": "object"}}'),
        described(b'{"schema": {"feature_lists/a": "int64[*]"}}'),
        b"something of another tool",
    ],
)  # fmt: skip
def test_a_hostile_description_is_an_error_or_ignored(content: bytes) -> None:
    record = wire.example(a=wire.int64_list(5))
    wire.write("x.tfrecord", with_lead(record, content), record)
    found = opened_or_refused()
    assert isinstance(found, rm.DataError) or found.schema == {"a": "int64"}
    assert rm.open("x.tfrecord", {"a": "int64"})[:]["a"].tolist() == [5, 5]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_bytes_for_a_description_are_an_error_or_ignored(data: st.DataObject) -> None:
    record = wire.example(a=wire.int64_list(5))
    text = json.dumps({"schema": {"a": "int32"}}).encode()
    content = bytearray(described(text))
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(content[: data.draw(st.integers(0, len(content)))])
    wire.write("x.tfrecord", with_lead(record, cut), record)
    found = opened_or_refused()
    refused = isinstance(found, rm.CorruptRecordError) and found.record == 0
    assert refused or found.schema in ({"a": "int64"}, {"a": "int32"})


def test_a_description_in_another_field_or_place_is_none() -> None:
    record = wire.example(a=wire.int64_list(5))
    content = described(b'{"schema": {"a": "int32"}}')
    wire.write("x.tfrecord", with_lead(record, content, 13), with_lead(record, content))
    assert rm.open("x.tfrecord").schema == {"a": "int64"}
    wire.write("x.tfrecord", with_lead(record, content), with_lead(record, b"", 15))
    assert rm.open("x.tfrecord").schema == {"a": "int32"}


def test_fields_say_more_than_a_description() -> None:
    write({"uint8[4,5]": DESCRIBED["uint8[4,5]"], "int32": DESCRIBED["int32"]})
    path = copied("x.tfrecord")
    assert rm.open(path, {"uint8[4,5]": "bytes"}).schema == {"uint8[4,5]": "bytes"}
    assert rm.open(path, ["int32"]).schema == {"int32": "int32"}
    assert rm.open(path, {"int32": "int64"})[:]["int32"].dtype == np.int64


@pytest.mark.parametrize("fill", ["float32 = 1.5", "int64 = -1", "float32 = nan", "bytes = x"])
def test_a_fill_value_survives_a_copy(fill: str) -> None:
    column = [b"x"] * 2 if fill.startswith("bytes") else np.ones(2, fill.split(maxsplit=1)[0])
    write({"x": column}, fields={"x": fill})
    assert str(rm.open(copied("x.tfrecord")).schema["x"]) == fill


def test_no_rows_are_described_by_nothing() -> None:
    with rm.TFRecordWriter("x.tfrecord", {"x": "uint8[2]"}):
        pass
    assert os.path.getsize("x.tfrecord") == 0
    assert rm.open("x.tfrecord").schema == {"x": "uint8[2]"}


def test_batches_of_any_size_make_the_same_file() -> None:
    columns = {"x": DESCRIBED["uint8[4,5]"], "s": [b"x" * i for i in range(ROWS)]}
    contents = set()
    for size in (1, 5, ROWS):
        with rm.TFRecordWriter("x.tfrecord", overwrite=True) as w:
            for start in range(0, ROWS, size):
                w.write({name: c[start : start + size] for name, c in columns.items()})
        contents.add(Path("x.tfrecord").read_bytes())
    assert len(contents) == 1


def test_convert_describes_each_file_unless_it_is_told_not_to() -> None:
    np.save("x.npy", DESCRIBED["uint8[4,5]"])
    rm.convert("x.npy", "out/", shards=3, verify="full")
    rm.convert("x.npy", "plain/", shards=3, options={"describe": False})
    for i in range(3):
        name = f"data-{i:05}-of-00003.tfrecord"
        assert rm.open(copied(f"out/{name}")).schema == {"data": "uint8[4,5]"}
        assert rm.open(copied(f"plain/{name}")).schema == {"data": "bytes"}


def test_bit_rot_behind_a_valid_index_is_noticed_by_every_pass() -> None:
    rows = 3000
    images = RNG.integers(0, 256, (rows, 500)).astype(np.uint8)
    with rm.TFRecordWriter("x.tfrecord", align=64) as w:
        w.write({"x": images})
    data = bytearray(Path("x.tfrecord").read_bytes())
    # Between two blocks that the index knows the file by.
    at = len(data) // 63 * 31 - 8000
    data[at] ^= 1
    Path("x.tfrecord").write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds = rm.open("x.tfrecord")
    bad = at // (len(data) // rows)
    for read in (
        lambda: ds[:],
        lambda: ds[np.arange(rows)],
        lambda: ds[bad - 3 : bad + 4],
        lambda: list(ds.batches(100)),
        lambda: list(ds.shuffle(seed=1).batch(64)),
        lambda: rm.convert("x.tfrecord", "y.npy"),
        ds.stats,
    ):
        with pytest.raises(rm.CorruptRecordError, match="data"):
            read()
    assert not rm.verify("x.tfrecord").ok


BIG = [">f4", ">f8", ">f2", ">i2", ">i4", ">i8", ">u2", ">u4", ">u8", ">c8", ">c16", ">M8[ns]",
       ">m8[s]"]  # fmt: skip


@pytest.mark.parametrize("dtype", BIG)
@pytest.mark.parametrize("shape", [(), (3,), (2, 20)])
@pytest.mark.parametrize("way", ["writer", "inferred", "save", "convert", "gzip", "ragged"])
def test_big_endian_columns_are_written_little_endian(dtype: str, shape: Any, way: str) -> None:
    x = np.arange(5 * int(np.prod(shape, dtype=int))).astype(dtype).reshape(5, *shape)
    native = x.astype(x.dtype.newbyteorder("="))
    given: Any = {"x": x}
    if way == "ragged":
        x, native = x.reshape(-1), native.reshape(-1)
        given = {"x": rm.Ragged(x, [0, 2, len(x)])}
    if way in ("writer", "ragged"):
        field = rm.Field(dtype, (None,) if way == "ragged" else shape)
        with rm.TFRecordWriter("x.tfrecord", {"x": field}) as w:
            w.write(given)
    elif way == "inferred":
        with rm.TFRecordWriter("x.tfrecord") as w:
            w.write(given)
    elif way in ("save", "gzip"):
        compression = "gzip" if way == "gzip" else None
        rm.from_arrays(given).save("x.tfrecord", verify="full", compression=compression)
    else:
        np.save("x.npy", x)
        rm.convert("x.npy", "x.tfrecord", verify="full", rename={"data": "x"})
    with rm.TFRecordWriter("native.tfrecord") as w:
        w.write({"x": rm.Ragged(native, [0, 2, len(x)]) if way == "ragged" else native})
    for path in ("x.tfrecord", copied("x.tfrecord")):
        ds = rm.open(path)
        assert ds.schema == rm.open("native.tfrecord").schema
        found = ds[:]["x"].flat if way == "ragged" else ds[:]["x"]
        assert found.dtype == native.dtype
        assert np.array_equal(found, native)
    theirs = list(rm.tfrecord.records("native.tfrecord"))
    assert list(rm.tfrecord.records("x.tfrecord")) == theirs


def test_members_of_big_endian_structures_are_written_little_endian() -> None:
    table = np.zeros(4, [("a", ">f4"), ("b", ">u2", (2,)), ("c", "<i8")])
    table["a"], table["b"] = [1, 2, 3, 4], [[1, 2]] * 4
    np.save("x.npy", table)
    rm.convert("x.npy", "x.tfrecord", verify="full")
    ds = rm.open("x.tfrecord")
    assert ds.schema == {"a": "float32", "b": "uint16[2]", "c": "int64"}
    assert ds[:]["a"].tolist() == [1, 2, 3, 4]
    assert ds[:]["b"].tolist() == [[1, 2]] * 4


@pytest.mark.parametrize("name", ["x.tfrecord.gz", "x.tfrecord.zlib", "X.TFRECORD.GZ"])
def test_writers_compress_by_name(name: str) -> None:
    magic = b"\x78" if name.endswith("zlib") else b"\x1f\x8b"
    with rm.TFRecordWriter(name) as w:
        w.write({"x": np.arange(5)})
    assert Path(name).read_bytes().startswith(magic)
    assert rm.open(name)[:]["x"].tolist() == [0, 1, 2, 3, 4]
    with rm.TFRecordWriter(f"a-{name}", shards=2) as w:
        w.write({"x": np.arange(5)})
    parts = sorted(Path().glob("a-*"))
    assert len(parts) == 2
    assert all(part.read_bytes().startswith(magic) for part in parts)
    rm.tfrecord.write_records(f"r-{name}", [b"one", b"two"])
    assert Path(f"r-{name}").read_bytes().startswith(magic)
    assert list(rm.tfrecord.records(f"r-{name}")) == [b"one", b"two"]
    with pytest.raises(rm.OptionError, match="align"):
        rm.TFRecordWriter(f"b-{name}", {"x": "int64"}, align=64)
