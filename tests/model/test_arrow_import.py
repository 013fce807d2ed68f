"""Arrow data of other libraries, read as batches."""

from __future__ import annotations

import datetime as dt
import decimal
import gc
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import recmap as rm
from recmap.model.arrow import ArrowBatches, ArrowReader
from recmap.model.batch import join
from recmap.model.schema import Batch, Schema
from tests.model.arrow_cases import (
    NUMBERS,
    STRINGS,
    TIMES,
    assert_same,
    random_batch,
    random_schema,
)


def read(source: Any, **options: Any) -> tuple[Schema, Batch]:
    """Read all batches as one."""
    reader = ArrowReader(source, **options)
    return reader.schema, join(list(reader.batches()))


def column(array: Any, **options: Any) -> Any:
    """Read one array as the column ``x``; a Ragged becomes lists."""
    found = read(pa.table({"x": array}), **options)[1]["x"]
    return found.tolist()


@pytest.mark.parametrize("seed", range(15))
def test_slices_of_tables_read_like_slices_of_batches(seed: int) -> None:
    rng = np.random.default_rng(seed)
    schema = random_schema(rng, NUMBERS + STRINGS + TIMES)
    batch = random_batch(rng, schema, 40)
    table = pa.table(ArrowBatches(schema, [batch], "extension" if seed % 2 else "list"))
    for start, stop in [(0, 40), (3, 40), (9, 23), (8, 16), (39, 40), (17, 17)]:
        part = table.slice(start, stop - start)
        found = list(ArrowReader(part).batches())
        if start == stop:
            assert not found
            continue
        assert_same(found[0], {name: each[start:stop] for name, each in batch.items()})
        pieces = list(ArrowReader(part).batches(rows=5))
        assert len(pieces) == -(-(stop - start) // 5)
        second = {name: each[start:stop][5:10] for name, each in batch.items()}
        if len(pieces) > 1:
            assert_same(pieces[1], second)


@pytest.mark.parametrize("seed", range(15))
def test_what_polars_holds_comes_back(seed: int) -> None:
    rng = np.random.default_rng(seed)
    schema = random_schema(rng, NUMBERS + STRINGS + ["M8[ms]", "m8[ns]"])
    batches = [random_batch(rng, schema, rows) for rows in (9, 30)]
    frame = pl.DataFrame(ArrowBatches(schema, batches, "extension" if seed % 2 else "list"))
    assert len(frame) == 39
    found, rows = read(frame)  # strings are views
    assert found == schema
    both = join(batches)
    assert_same(rows, both)
    _, rows = read(frame.slice(7, 20))
    assert_same(rows, {name: each[7:27] for name, each in both.items()})


@pytest.mark.parametrize("seed", range(8))
def test_what_duckdb_computes_comes_back(seed: int) -> None:
    rng = np.random.default_rng(seed)
    simple = [each for each in NUMBERS if each != "float16"]
    schema = random_schema(rng, simple + STRINGS + ["M8[us]"])
    batches = [random_batch(rng, schema, rows) for rows in (9, 30)]
    table = ArrowBatches(schema, batches, "list")
    with duckdb.connect() as connection:
        connection.register("batches", table)
        found, rows = read(connection.sql("select * from batches"))
    assert found == schema
    assert_same(rows, join(batches))


def test_structs_become_columns_of_their_members() -> None:
    rows = [{"a": 1, "b": {"c": [1.0], "d": "x"}}, {"a": 2, "b": {"c": [], "d": "yz"}}]
    schema, batch = read(pa.table({"s": rows, "t": [True, False]}))
    assert schema == Schema({"s/a": "int64", "s/b/c": "float64[*]", "s/b/d": "text", "t": "bool"})
    assert {name: each.tolist() for name, each in batch.items()} == {
        "s/a": [1, 2],
        "s/b/c": [[1.0], []],
        "s/b/d": ["x", "yz"],
        "t": [True, False],
    }


def test_lists_of_structs_become_lists_of_their_members() -> None:
    steps = [[{"x": 1, "y": "a"}, {"x": 2, "y": "b"}], [], [{"x": 3, "y": "c"}]]
    schema, batch = read(pa.table({"steps": steps}).slice(1))
    assert schema == Schema({"steps/x": "int64[*]", "steps/y": "text[*]"})
    assert batch["steps/x"].tolist() == [[], [3]]
    assert [row.tolist() for row in batch["steps/y"]] == [[], ["c"]]


def test_maps_become_keys_and_values() -> None:
    array = pa.array([[("a", 1), ("b", 2)], []], pa.map_(pa.string(), pa.int64()))
    schema, batch = read(pa.table({"m": array}))
    assert schema == Schema({"m/key": "text[*]", "m/value": "int64[*]"})
    assert batch["m/value"].tolist() == [[1, 2], []]


def test_dictionaries_are_decoded() -> None:
    array = pa.array(["a", "b", "a", "c"]).dictionary_encode()
    assert column(array) == ["a", "b", "a", "c"]
    assert column(array.slice(2)) == ["a", "c"]
    lists = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], pa.uint8()), pa.array([[1], [2, 3]]))
    assert column(lists) == [[2, 3], [1], [2, 3]]
    with_nulls = pa.DictionaryArray.from_arrays(pa.array([1, None, 0]), pa.array(["x", None]))
    assert column(with_nulls, nulls="fill") == ["", "", "x"]
    nothing = pa.DictionaryArray.from_arrays(pa.array([None], pa.int8()), pa.array([], pa.int64()))
    assert column(nothing, nulls="mask") == [0]
    category = pl.DataFrame({"x": pl.Series(["u", "v", "u"], dtype=pl.Categorical)})
    assert read(category)[1]["x"].tolist() == ["u", "v", "u"]


@pytest.mark.parametrize("kind", [pa.list_view, pa.large_list_view])
def test_list_views_may_overlap_and_come_in_any_order(kind: Any) -> None:
    offset = pa.int32() if kind is pa.list_view else pa.int64()
    made = pa.ListViewArray if kind is pa.list_view else pa.LargeListViewArray
    array = made.from_arrays(
        pa.array([4, 0, 3, 0], offset), pa.array([2, 3, 0, 6], offset), pa.array(range(7))
    )
    assert column(array) == [[4, 5], [0, 1, 2], [], [0, 1, 2, 3, 4, 5]]
    assert column(array.slice(1, 2)) == [[0, 1, 2], []]
    lists = pa.array([[1, None], [3]], kind(pa.int64()))
    with pytest.raises(rm.DataError, match="'x', row 0: a list holds a null"):
        column(lists)


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
    ],
)
def test_strings_of_every_layout(kind: Any) -> None:
    strings = ["", "short", "exactly12byt", "thirteen byte", "é" * 500, None, "last"]
    array = pa.array(strings, kind)
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()
    wanted = [string or "" for string in strings]
    expected = wanted if text else [string.encode() for string in wanted]
    assert column(array, nulls="fill") == expected
    assert column(array.slice(2, 3)) == expected[2:5]
    assert list(ArrowReader(pa.table({"x": pa.array([], kind)})).batches()) == []


def test_times_keep_their_values() -> None:
    day, noon = dt.date(2024, 2, 29), dt.time(12, 30, 15)
    moment = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
    table = pa.table(
        {
            "date32": pa.array([day], pa.date32()),
            "date64": pa.array([day], pa.date64()),
            "time32": pa.array([noon], pa.time32("s")),
            "time64": pa.array([noon], pa.time64("us")),
            "zone": pa.array([moment], pa.timestamp("s", "Europe/Berlin")),
            "none": pa.array([None], pa.timestamp("ms")),
            "wait": pa.array([dt.timedelta(seconds=5)], pa.duration("ns")),
        }
    )
    schema, batch = read(table)
    assert [str(each) for each in schema.values()] == [
        "datetime64[D]",
        "datetime64[ms]",
        "timedelta64[s]",
        "timedelta64[us]",
        "datetime64[s]",
        "datetime64[ms]",
        "timedelta64[ns]",
    ]
    assert batch["date32"][0] == np.datetime64("2024-02-29")
    assert batch["date64"][0] == np.datetime64("2024-02-29")
    assert batch["time32"][0] == np.timedelta64(45015, "s")
    assert batch["time64"][0] == np.timedelta64(45015, "s")
    assert batch["zone"][0] == np.datetime64("2024-02-29T12:00")  # in UTC
    assert np.isnat(batch["none"][0])
    assert batch["wait"][0] == np.timedelta64(5, "s")


@pytest.mark.parametrize(
    "kind", [pa.decimal32(9), pa.decimal64(18), pa.decimal128(38), pa.decimal256(76)]
)
def test_whole_decimals_keep_their_value(kind: Any) -> None:
    numbers = [0, 1, -1, 10**8, -(10**8), None]
    array = pa.array([n if n is None else decimal.Decimal(n) for n in numbers], kind)
    assert column(array, nulls="mask") == [0, 1, -1, 10**8, -(10**8), 0]
    assert column(array.slice(2, 3)) == [-1, 10**8, -(10**8)]


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64, 10**30])
def test_decimals_that_int64_cannot_hold_are_refused(number: int) -> None:
    array = pa.array([decimal.Decimal(1), decimal.Decimal(number)], pa.decimal128(38))
    with pytest.raises(rm.DataError, match="'x', row 1: int64 cannot hold"):
        column(array)
    fits = pa.array([decimal.Decimal(2**63 - 1), decimal.Decimal(-(2**63))], pa.decimal128(38))
    assert column(fits) == [2**63 - 1, -(2**63)]


def test_sums_of_duckdb_are_numbers() -> None:
    assert read(duckdb.sql("select sum(i) as s from range(10) t(i)"))[1]["s"].tolist() == [45]


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]), "no such type"),
        (pa.array([(1, 2, 3)], pa.month_day_nano_interval()), "no such type"),
        (pa.array([{}, {}], pa.struct([])), "without members"),
    ],
)
def test_types_without_a_column_are_refused(array: Any, why: str) -> None:
    with pytest.raises(rm.FieldMismatchError, match=f"'x'.*{why}"):
        column(array)


def test_tensors_may_be_stored_in_another_order_of_axes() -> None:
    values = np.arange(12, dtype=np.int32).reshape(2, 2, 3)
    kind = pa.fixed_shape_tensor(pa.int32(), [2, 3], permutation=[1, 0])
    storage = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), 6)
    array = pa.ExtensionArray.from_storage(kind, storage)
    schema, batch = read(pa.table({"x": array}))
    assert schema == Schema({"x": "int32[3,2]"})
    np.testing.assert_array_equal(batch["x"], values.transpose(0, 2, 1))


def test_fixed_lists_of_lists_are_ragged() -> None:
    array = pa.array([[[1], [2, 3]], [[], [4]]], pa.list_(pa.list_(pa.int64()), 2))
    schema, batch = read(pa.table({"x": array}))
    assert schema == Schema({"x": "int64[*,*]"})
    assert [row.tolist() for row in batch["x"]] == [[[1], [2, 3]], [[], [4]]]


def test_numbers_share_the_memory_of_the_table_and_keep_it() -> None:
    table = pa.table({"x": np.arange(1000.0), "s": ["text"] * 1000})
    address = table["x"].chunk(0).buffers()[1].address
    batch = next(ArrowReader(table).batches())
    x, s = batch["x"], batch["s"]
    assert isinstance(x, np.ndarray)
    assert x.ctypes.data == address
    assert not x.flags.writeable
    del table, batch
    gc.collect()
    assert x.sum() == 499500
    assert s[999] == "text"


def test_arrays_and_series_are_tables_of_one_column() -> None:
    assert read(pl.Series("y", [1, 2]))[1]["y"].tolist() == [1, 2]
    assert read(pa.chunked_array([[1], [2]]))[1]["data"].tolist() == [1, 2]
    assert read(pa.array([1.5]))[1]["data"].tolist() == [1.5]
    assert read(pa.record_batch({"x": [1], "y": [2]}))[1].keys() == {"x", "y"}


def test_streams_are_read_once() -> None:
    reader = ArrowReader(pa.table({"x": [1]}))
    assert len(list(reader.batches())) == 1
    assert list(reader.batches()) == []
    capsule = pa.table({"x": [1]}).__arrow_c_stream__()

    class Once:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return capsule

    ArrowReader(Once())
    with pytest.raises(rm.DataError, match="already read"):
        ArrowReader(Once())


def test_names_are_checked() -> None:
    with pytest.raises(rm.DataError, match="two columns with the name 'x'"):
        read(pa.table([[1], [2]], ["x", "x"]))
    with pytest.raises(rm.DataError, match="two columns with the name 'a/b'"):
        read(pa.table({"a": [{"b": 1}], "a/b": [1]}))
    with pytest.raises(rm.FieldNotFoundError, match="no column 'y'"):
        read(pa.table({"x": [1]}), fields={"y": rm.Field("int64")})
    with pytest.raises(rm.OptionTypeError, match="__arrow_c_stream__"):
        read([1, 2])


def test_text_that_is_not_utf8_is_refused_or_read_as_bytes() -> None:
    broken = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(np.array([0, 1, 2], "i4")), pa.py_buffer(b"a\xff")]
    )
    with pytest.raises(rm.DataError, match="'x', row 1: the text is not UTF-8") as caught:
        column(broken)
    assert (caught.value.field, caught.value.record) == ("x", 1)
    assert column(broken, fields={"x": rm.Field("bytes")}) == [b"a", b"\xff"]


def test_an_error_of_the_producer_is_an_error_of_the_data() -> None:
    def batches() -> Any:
        yield pa.record_batch({"x": [1]})
        raise ValueError("producer failed")

    schema = pa.schema({"x": pa.int64()})
    reader = ArrowReader(pa.RecordBatchReader.from_batches(schema, batches())).batches()
    assert next(reader)["x"].tolist() == [1]
    with pytest.raises(rm.DataError, match="producer failed"):
        next(reader)


def test_nulls_in_lists_of_a_sliced_array_are_seen() -> None:
    values: list[list[int | None]] = [[1, 2, 3], [4, None, 6], [None, 8, 9], [10, 11, 12]]
    array = pa.array(values, pa.list_(pa.int64(), 3))
    for start in range(4):
        for stop in range(start + 1, 5):
            ds = rm.open(pa.table({"x": array[start:stop]}))
            nulls = any(None in row for row in values[start:stop])
            assert ds.schema == {"x": "int64[*?]" if nulls else "int64[3]"}
            assert [row["x"].tolist() for row in ds] == values[start:stop]
