"""Missing values: refused, filled, or marked in a column of their own."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recmap as rm
from recmap.model.arrow import ArrowReader
from recmap.model.schema import Batch, Schema


def read(columns: dict[str, Any], **options: Any) -> tuple[Schema, Batch]:
    reader = ArrowReader(pa.table(columns), **options)
    return reader.schema, next(reader.batches())


def lists(batch: Batch) -> dict[str, Any]:
    return {name: column.tolist() for name, column in batch.items()}


def fields(**texts: str) -> dict[str, rm.Field]:
    return {name: rm.Field.parse(text) for name, text in texts.items()}


def test_a_null_is_an_error_that_names_column_and_row() -> None:
    table = pa.concat_tables([pa.table({"x": [1, 2, 3]}), pa.table({"x": [4, None]})])
    batches = ArrowReader(table).batches()
    next(batches)
    with pytest.raises(rm.DataError, match="column 'x' has no value in row 4") as caught:
        next(batches)
    assert (caught.value.field, caught.value.record) == ("x", 4)
    assert 'use nulls="keep" or nulls="mask" to read it' in str(caught.value)


def test_null_numbers_are_filled_with_nan_or_the_value_given() -> None:
    columns = {"f": [1.5, None], "i": [1, None], "b": [None, True], "t": ["a", None]}
    given = fields(i="int64 = -1", b="bool = true", t="text = n/a")
    _, batch = read(columns, nulls="fill", fields=given)
    assert np.isnan(batch["f"][1])
    del batch["f"]
    assert lists(batch) == {"i": [1, -1], "b": [True, True], "t": ["a", "n/a"]}
    assert lists(read({"t": ["a", None]}, nulls="fill")[1]) == {"t": ["a", ""]}
    assert lists(read({"t": [[1], None]}, nulls="fill")[1]) == {"t": [[1], []]}


@pytest.mark.parametrize("values", [[1, None], [True, None]])
def test_integers_and_booleans_need_a_fill_value(values: list[Any]) -> None:
    with pytest.raises(rm.DataError, match="'x'.*row 1.*nothing to fill it with") as caught:
        read({"x": values}, nulls="fill")
    assert "columns=" in str(caught.value)


def test_a_mask_says_where_values_are_missing() -> None:
    days = pa.array([None, 5], pa.date32())
    columns = {"i": [1, None], "t": [None, "a"], "l": [[1], None], "d": days}
    schema, batch = read(columns, nulls="mask")
    assert schema == Schema(
        {
            "i": "int64",
            "i/is_null": "bool",
            "t": "text",
            "t/is_null": "bool",
            "l": "int64[*]",
            "l/is_null": "bool",
            "d": "datetime64[D]",  # NaT needs no mask
        }
    )
    assert np.isnat(batch.pop("d")[0])
    assert lists(batch) == {
        "i": [1, 0],
        "i/is_null": [False, True],
        "t": ["", "a"],
        "t/is_null": [True, False],
        "l": [[1], []],
        "l/is_null": [False, True],
    }


def test_columns_that_cannot_be_null_get_no_mask() -> None:
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False), pa.field("y", pa.int64())])
    table = pa.table({"x": [1], "y": [2]}, schema=schema)
    assert list(ArrowReader(table, nulls="mask").schema) == ["x", "y", "y/is_null"]


def test_a_mask_needs_a_name_of_its_own() -> None:
    with pytest.raises(rm.OptionError, match="'x/is_null'"):
        read({"x": [1], "x/is_null": [2]}, nulls="mask")


def test_rows_of_null_vectors_are_filled_whole() -> None:
    vectors = pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2))
    _, batch = read({"x": vectors}, nulls="fill")
    np.testing.assert_array_equal(batch["x"], np.array([[1, 2], [np.nan, np.nan]], "f4"))
    whole = pa.array([None, [1, 2]], pa.list_(pa.int64(), 2))
    given = {"x": rm.Field("int64", (2,), fill=[7, 8])}
    assert lists(read({"x": whole}, nulls="fill", fields=given)[1]) == {"x": [[7, 8], [1, 2]]}
    strings = pa.array([["a", "b"], None], pa.list_(pa.string(), 2))
    _, batch = read({"x": strings}, nulls="fill", fields=fields(x="text[2] = ?"))
    assert [row.tolist() for row in batch["x"]] == [["a", "b"], ["?", "?"]]


def test_nulls_in_lists_are_filled_only_if_that_can_be_seen() -> None:
    floats, whole = [[1.0, None], []], [[1, None], []]
    with pytest.raises(rm.DataError, match="'x', row 0: a list holds a null"):
        read({"x": floats})
    assert np.isnan(read({"x": floats}, nulls="fill")[1]["x"][0][1])
    for nulls in ("fill", "mask"):
        with pytest.raises(rm.DataError, match="'x', row 1: a list holds a null"):
            read({"x": whole[::-1]}, nulls=nulls)


def test_what_a_null_list_holds_does_not_matter() -> None:
    items = pa.array([1, None, 3, 4])
    lists_ = pa.ListArray.from_arrays(
        pa.array([0, 1, 3, 4], pa.int32()), items, mask=pa.array([False, True, False])
    )
    assert lists(read({"x": lists_}, nulls="fill")[1]) == {"x": [[1], [], [4]]}
    strings = pa.Array.from_buffers(
        pa.string(),
        3,
        [
            pa.py_buffer(b"\x05"),
            pa.py_buffer(np.array([0, 1, 2, 3], "i4")),
            pa.py_buffer(b"a\xffb"),
        ],
    )
    assert lists(read({"x": strings}, nulls="fill")[1]) == {"x": ["a", "", "b"]}


def test_members_of_a_null_struct_are_null() -> None:
    rows = pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "z"}])
    with pytest.raises(rm.DataError, match="'s/a' has no value in row 1"):
        read({"s": rows})
    _, batch = read({"s": rows}, nulls="mask")
    assert lists(batch) == {
        "s/a": [1, 0, 0],
        "s/a/is_null": [False, True, True],
        "s/b": ["x", "", "z"],
        "s/b/is_null": [False, True, False],
    }


def test_a_column_of_nulls_takes_the_type_given() -> None:
    nothing = pa.nulls(2)
    with pytest.raises(rm.DataError, match="'x'.*nothing to fill it with"):
        read({"x": nothing}, nulls="fill")
    schema, batch = read({"x": nothing}, nulls="keep")
    assert (str(schema["x"]), lists(batch)) == ("bool?", {"x": [None, None]})
    _, batch = read({"x": nothing}, nulls="fill", fields=fields(x="int64 = 3"))
    assert lists(batch) == {"x": [3, 3]}
    _, batch = read({"x": nothing}, nulls="fill", fields=fields(x="float32[*]"))
    assert lists(batch) == {"x": [[], []]}


def test_times_are_nat_unless_a_value_is_given() -> None:
    times = pa.array([None, 5], pa.timestamp("s"))
    for nulls in ("error", "fill", "mask"):
        assert np.isnat(read({"x": times}, nulls=nulls)[1]["x"][0])
    given = {"x": rm.Field("datetime64[s]", fill=np.datetime64(7, "s"))}
    assert read({"x": times}, nulls="fill", fields=given)[1]["x"][0] == np.datetime64(7, "s")


def masked_table() -> pa.Table:
    return pa.table({"x": pa.array([1, None, 3]), "y": [1.0, 2.0, 3.0], "t": ["a", None, "c"]})


WANTED = {"x": [1, 0, 3], "x/is_null": [False, True, False]}


def as_lists(batch: Any) -> dict[str, Any]:
    return {name: column.tolist() for name, column in batch.items()}


def test_the_mask_of_a_column_goes_wherever_the_column_goes() -> None:
    pq.write_table(masked_table(), "x.parquet")
    with pa.ipc.new_stream("x.arrows", masked_table().schema) as writer:
        writer.write_table(masked_table())
    frame = masked_table().to_pandas(types_mapper=pd.ArrowDtype)
    for each in ["x.parquet", "x.arrows", ["x.parquet"], masked_table(), frame]:
        for fields in (["x"], "x", {"x": None}, {"x": "int64 = 0"}):
            assert as_lists(rm.open(each, fields, nulls="mask")[:]) == WANTED
        assert as_lists(rm.open(each, {"x": "int64 = 7"}, nulls="mask")[:])["x"] == [1, 7, 3]
        ds = rm.open(each, nulls="mask")
        assert as_lists(rm.open(ds, ["x"])[:]) == WANTED
        assert as_lists(next(iter(ds.select("x").batch(3)))) == WANTED
        assert as_lists(next(iter(ds.batch(3).select("x")))) == WANTED
        assert as_lists(next(iter(ds.map(dict).select("x").batch(3)))) == WANTED
        assert as_lists(next(iter(ds.select("x/is_null").batch(3)))) == {
            "x/is_null": WANTED["x/is_null"]
        }
        assert list(ds.select("x/is_null", "y", "x").schema) == ["x/is_null", "y", "x"]
        ds.select("x").save("y.npz", overwrite=True)
        assert as_lists(rm.open("y.npz")[:]) == WANTED
    rm.open("x.parquet", nulls="mask").select("x").save("z.arrow")
    assert as_lists(rm.open("z.arrow")[:]) == WANTED
    beside = rm.open({"x": "x.parquet", "z": np.arange(3)}, nulls="mask")
    assert as_lists(beside[:]) == {**WANTED, "z": [0, 1, 2]}
    other = rm.open({"n": masked_table().select(["x"])}, nulls="mask")
    assert as_lists(other[:]) == {"n": [1, 0, 3], "n/is_null": [False, True, False]}


def test_a_renamed_column_keeps_its_mask() -> None:
    pq.write_table(masked_table(), "x.parquet")
    wanted = {name.replace("x", "z"): values for name, values in WANTED.items()}
    ds = rm.open("x.parquet", ["x", "t"], nulls="mask")
    renamed = ds.rename({"x": "z", "t": "x"})
    assert sorted(renamed.columns) == ["x", "x/is_null", "z", "z/is_null"]
    assert as_lists(next(iter(renamed.select("z").batch(3)))) == wanted
    ds.select("x").rename({"x": "z"}).save("y.npz")
    rm.open("y.npz").rename({"z": "n"}).save("z.arrow")
    assert as_lists(rm.open("y.npz")[:]) == wanted
    assert rm.open("z.arrow").columns == ["n", "n/is_null"]
    own = ds.rename({"x": "z", "x/is_null": "missing"})
    assert {"z", "missing"} < set(own.columns)
    with pytest.raises(rm.OptionError, match="two columns would have the same name"):
        ds.rename({"x": "z", "t": "z/is_null"})


def test_features_of_a_model_do_not_lose_their_mask() -> None:
    torch = pytest.importorskip("torch")
    ds = rm.open(masked_table().select(["x", "y"]), nulls="mask")
    with pytest.raises(rm.OptionError, match="'x/is_null'.*features=.*nulls=\"fill\""):
        ds.batch(3).to_torch(features="x")
    batch = next(iter(ds.batch(3).to_torch(features=["x", "x/is_null"])))
    assert torch.equal(batch["x/is_null"], torch.tensor([False, True, False]))
    filled = rm.open(masked_table(), {"x": "int64 = 7"}, nulls="fill")
    assert next(iter(filled.batch(3).to_torch(features="x"))).tolist() == [1, 7, 3]


def test_a_mask_does_not_hide_a_column_of_its_name() -> None:
    rm.open(masked_table(), ["x"], nulls="mask").save("x.parquet")
    assert as_lists(rm.open("x.parquet")[:]) == WANTED
    for nulls in ("mask", "fill"):  # there are no nulls any more
        assert as_lists(rm.open("x.parquet", nulls=nulls)[:]) == WANTED
    pq.write_table(pa.table({"x": [1, None], "x/is_null": [1, 2]}), "y.parquet")
    with pytest.raises(rm.OptionError, match="there is already a column 'x/is_null'"):
        rm.open("y.parquet", nulls="mask")


ADVICE = re.compile(r'nulls="(\w+)"|columns=(\{.*?\.\.\.: None\})')


def follow_advice(each: Any) -> dict[str, Any]:
    """Open and read a table; do what each error and warning says until there is none."""
    options: dict[str, Any] = {}
    for _ in range(5):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                return as_lists(rm.open(each, **options)[:])
        except (rm.DataError, rm.LeftOutWarning) as e:
            before, said = str(options), str(e)
            for nulls, fields in ADVICE.findall(said):
                options |= {"nulls": nulls} if nulls else {}
                if fields:
                    options["columns"] = {**options.get("columns", {}), **eval(fields)}
        assert str(options) != before, said
    raise AssertionError(options)


NULLS = {
    "in lists": pa.array([[1, None], None, []]),
    "in lists of lists": pa.array([[[1, None], None], [], None]),
    "in fixed lists": pa.array([[1, None], None, [3, 4]], pa.list_(pa.int8(), 2)),
    "in lists of booleans": pa.array([[True, None], None, []]),
    "in structs": pa.array([{"a": None, "b": [1, None]}, None, {"a": 3, "b": []}]),
    "in lists of structs": pa.array([[{"a": None}, None], None, [{"a": 3}]]),
    "in maps": pa.array([[("k", None)], None, []], pa.map_(pa.string(), pa.int32())),
    "fixed-size binary": pa.array([b"abc", None, b"def"], pa.binary(3)),
    "in lists of binary": pa.array([[b"abc", None], None, []], pa.list_(pa.binary(3))),
    "in fixed lists of binary": pa.array([[b"ab", None]] * 3, pa.list_(pa.binary(2), 2)),
    "integers": pa.array([1, None, 3], pa.uint16()),
    "booleans": pa.array([True, None, False]),
    "dictionary": pa.array([5, None, 5], pa.int32()).dictionary_encode(),
    "nothing": pa.nulls(3),
    "lists of nothing": pa.array([[None], [], None], pa.list_(pa.null())),
    "fixed lists of nothing": pa.array([[None] * 2] * 3, pa.list_(pa.null(), 2)),
    "floats in lists": pa.array([[1.0, None], None, []], pa.list_(pa.float32())),
    "text in lists": pa.array([["a", None], None, []]),
}  # fmt: skip


@pytest.mark.parametrize("name", NULLS)
def test_the_advice_of_every_error_about_nulls_works(name: str) -> None:
    table = pa.table({"x": NULLS[name], "other": [1, 2, 3]})
    with pa.ipc.new_file("x.arrow", table.schema) as writer:
        writer.write_table(table)
    files: list[Any] = ["x.arrow", table]
    if name != "fixed lists of nothing":
        pq.write_table(table, "x.parquet")
        files.append("x.parquet")
    for each in files:
        read = follow_advice(each)
        assert read["other"] == [1, 2, 3]
        assert any(column.startswith("x") for column in read)


def test_null_items_are_filled_with_the_value_that_is_given() -> None:
    table = pa.table({"l": NULLS["in lists"], "f": NULLS["in fixed lists"]})
    fields = {"l": "int64[*] = -1", "f": "int8[2] = 9"}
    read = rm.open(table, fields, nulls="fill")
    assert as_lists(read[:]) == {"l": [[1, -1], [], []], "f": [[1, 9], [9, 9], [3, 4]]}
    assert read.schema["l"] == rm.Field.parse("int64[*]")
    read.save("x.tfrecord")
    assert as_lists(rm.open("x.tfrecord")[:])["l"] == [[1, -1], [], []]
    with pytest.raises(rm.FieldTextError, match="a missing ragged row is empty, not filled"):
        rm.open("x.tfrecord", {"l": "int64[*] = -1"})


def test_masks_are_written_to_hdf5_when_they_are_renamed_as_the_error_says() -> None:
    table = pa.table({"x": [1, None], "s": pa.array([{"a": 1}, None])})
    ds = rm.open(table, nulls="mask")
    with pytest.raises(rm.ColumnError, match="rename") as found:
        ds.save("x.h5")
    ds.rename(eval(str(found.value).partition("as in rename")[2])).save("x.h5")
    read = rm.open("x.h5")[:]
    assert read["x_is_null"].tolist() == read["s_a_is_null"].tolist() == [False, True]
