"""Columns whose Arrow types say too little: the null type, and decimals of more than 18 digits."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recmap as rm

WIDE = pa.decimal128(38)
LARGE = 10**30
# Columns of one shard, and the type that they have beside a shard of nulls.
SHARDS: dict[str, tuple[pa.Array, str]] = {
    "integers": (pa.array([1, 2, 3], pa.int16()), "int16?"),
    "text": (pa.array(["a", None, "c"]), "text?"),
    "categories": (pa.array(["a", "b", "a"]).dictionary_encode(), "text?"),
    "dates": (pa.array([1, 2, None], pa.timestamp("us")), "datetime64[us]"),
    "lists": (pa.array([[1, 2], [], None]), "int64[*]?"),
    "fixed lists": (pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.float32(), 2)), "float32[2]?"),
    "lists of lists": (pa.array([[["a"], []], [], None]), "text[*,*]?"),
    "bools": (pa.array([True, None, False]), "bool?"),
    "small decimals": (pa.array([Decimal(5), None, Decimal(-1)], pa.decimal128(9)), "int64?"),
    "bytes of one size": (pa.array([b"ab", b"cd", b"ef"], pa.binary(2)), "V2?"),
    "nulls": (pa.nulls(3), "bool?"),
}


def write(path: str, column: pa.Array, **options: Any) -> None:
    table = pa.table({"n": range(len(column)), "x": column})
    if path.endswith(".parquet"):
        pq.write_table(table, path, **options)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize("name", SHARDS)
def test_a_shard_of_the_null_type_joins_any_other(name: str, suffix: str) -> None:
    column, type = SHARDS[name]
    wanted = column.to_pylist()
    for first in (True, False):
        paths = [f"{first}-{i}.{suffix}" for i in range(2)]
        for path, part in zip(paths, (column, pa.nulls(2))[:: 1 if first else -1], strict=True):
            write(path, part)
        ds = rm.open(paths)
        assert ds.schema["x"] == rm.Field.parse(type)
        found = [*wanted, None, None] if first else [None, None, *wanted]
        assert ds["x"][:].tolist() == found
        assert rm.open(paths, ["x"]).schema == {"x": type}
        ds.save("joined.parquet", overwrite=True)
        assert rm.open("joined.parquet")["x"][:].tolist() == found


def test_empty_lists_of_the_null_type_join_lists() -> None:
    write("0.parquet", pa.array([[], None], pa.list_(pa.null())))
    write("1.parquet", pa.array([["a"], ["b", "c"]]))
    assert rm.open("[01].parquet")["x"][:].tolist() == [[], None, ["a"], ["b", "c"]]
    write("1.parquet", pa.array([1, 2]))
    with pytest.raises(rm.FieldMismatchError, match=r"'x' is int64, not bool\[\*\]"):
        rm.open("[01].parquet")


def test_shards_of_the_null_type_among_many() -> None:
    for i in range(70):  # more than are kept open
        write(f"{i:02}.parquet", pa.array([i]) if i == 5 else pa.nulls(1))
    ds = rm.open("*.parquet")
    assert ds.schema == {"n": "int64", "x": "int64?"}
    assert ds["x"][:].tolist() == [None] * 5 + [5] + [None] * 64


@pytest.mark.parametrize("columns", [None, ["x"], [...], {"x": None, ...: None}])
def test_masks_of_shards_of_the_null_type(columns: Any) -> None:
    write("0.parquet", pa.array([5, None]))
    write("1.parquet", pa.nulls(2))
    ds = rm.open("[01].parquet", columns, nulls="mask")
    assert ds["x"][:].tolist() == [5, 0, 0, 0]
    assert ds["x/is_null"][:].tolist() == [False, True, True, True]
    # Null dates are NaT, and have no mask.
    write("0.parquet", pa.array([5, None], pa.timestamp("us")))
    ds = rm.open("[01].parquet", columns, nulls="mask")
    assert "x/is_null" not in ds.schema
    assert np.isnat(ds["x"][:]).tolist() == [False, True, True, True]


def test_a_column_called_like_a_mask_stays() -> None:
    for i, column in enumerate((pa.array([5, None]), pa.nulls(2))):
        table = pa.table({"x": column, "x/is_null": [7, 8]})
        pq.write_table(table, f"{i}.parquet")
    ds = rm.open("[01].parquet")
    assert ds["x"][:].tolist() == [5, None, None, None]
    assert ds["x/is_null"][:].tolist() == [7, 8, 7, 8]


def test_lists_of_a_fixed_size_do_not_join_numbers() -> None:
    write("0.parquet", pa.array([[None, None]], pa.list_(pa.null(), 2)))
    write("1.parquet", pa.array([3]))
    for nulls in ("keep", "mask"):
        with pytest.raises(rm.FieldMismatchError, match="'x' is int64, not bool"):
            rm.open("[01].parquet", nulls=nulls)


def test_structs_of_nulls_join_others() -> None:
    write("0.parquet", pa.array([{"a": None, "b": 1}]))
    write("1.parquet", pa.array([{"a": "text", "b": 2}]))
    assert rm.open("[01].parquet")["x/a"][:].tolist() == [None, "text"]


def decimals(*numbers: int | None) -> pa.Array:
    return pa.array([None if n is None else Decimal(n) for n in numbers], WIDE)


def test_decimals_are_integers_where_the_statistics_say_that_int64_holds_them() -> None:
    small, large = decimals(1, None, -(2**63)), decimals(1, LARGE, None)
    lists = pa.array([[Decimal(1), None], None], pa.list_(WIDE))
    structs = pa.array([{"a": Decimal(7)}, None], pa.struct({"a": pa.decimal256(60)}))
    for column, name, type in (
        (small, "x", "int64?"),
        (large, "x", "text?"),
        (lists, "x", "int64[*?]?"),
        (structs, "x/a", "int64?"),
    ):
        write("t.parquet", column)
        text = type.replace("int64", "text")
        assert rm.open("t.parquet").schema[name] == rm.Field.parse(type)
        assert rm.open(pa.table({"x": column})).schema[name] == rm.Field.parse(type)
        write("u.parquet", column, write_statistics=False)
        write("u.arrow", column)
        for path in ("u.parquet", "u.arrow"):
            ds = rm.open(path)
            assert ds.schema[name] == rm.Field.parse(text)
            asked = rm.open(path, {name: "text?"} if type == "text?" else {name: type})
            assert len(asked[:][name]) == len(column)
            if name == "x":
                assert ds.to_arrow().column("x").to_pylist() == column.to_pylist()
    write("t.parquet", small)
    assert rm.open("t.parquet")["x"][:].tolist() == [1, None, -(2**63)]
    write("t.parquet", large)
    assert rm.open("t.parquet")["x"][:].tolist() == ["1", str(LARGE), None]


@pytest.mark.parametrize("nulls", ["keep", "mask", "error"])
@pytest.mark.parametrize("numbers", [(1, 2), (1, LARGE)])
def test_decimals_have_one_type_whatever_becomes_of_nulls(
    numbers: tuple[int, int], nulls: Any
) -> None:
    write("t.parquet", decimals(*numbers))
    write("t.arrow", decimals(*numbers))
    wanted = list(numbers) if max(numbers) < LARGE else list(map(str, numbers))
    for source in ("t.parquet", pa.table({"x": decimals(*numbers)})):
        assert rm.open(source, nulls=nulls)["x"][:].tolist() == wanted
    assert rm.open("t.arrow", nulls=nulls)["x"][:].tolist() == list(map(str, numbers))


def test_shards_of_small_and_of_large_decimals_are_text() -> None:
    write("0.parquet", decimals(1, None))
    write("1.parquet", decimals(LARGE))
    write("2.parquet", pa.nulls(1))
    ds = rm.open("[012].parquet")
    assert ds["x"][:].tolist() == ["1", None, str(LARGE), None]
    assert ds.to_arrow().column("x").to_pylist() == [Decimal(1), None, Decimal(LARGE), None]


def test_decimals_and_strings_do_not_join() -> None:
    write("0.parquet", decimals(1, None))
    write("1.parquet", pa.array(["a"]))
    with pytest.raises(rm.FieldMismatchError, match="'x' is text, not int64"):
        rm.open("[01].parquet")


def test_tasks_of_a_cluster_read_a_shard_with_the_types_of_all() -> None:
    from recmap.formats.open_spec import Opening, OpenOptions
    from recmap.ray.file_partitions import file_partitions

    for i, part in enumerate((pa.nulls(1), decimals(1), decimals(LARGE))):
        write(f"{i}.parquet", part)
    opening = Opening(["0.parquet", "1.parquet", "2.parquet"], None, OpenOptions())
    rows: list[Any] = []
    for partition in file_partitions(opening(), opening, skip=False):
        rows += partition.open(["x"])(0, 1, None)["x"].tolist()
    assert rows == [None, "1", str(LARGE)]


def test_statistics_that_promise_too_much_raise_an_error() -> None:
    write("t.parquet", decimals(1, LARGE))
    ds = rm.open("t.parquet", {"x": "int64"})
    with pytest.raises(rm.DataError, match="'x', row 1: int64 cannot hold the decimal number"):
        ds[:]


def test_decimals_that_are_text_are_neither_compared_nor_sorted_as_text() -> None:
    column = pa.array([Decimal("9.50"), Decimal("10.25")], pa.decimal128(20, 2))
    pq.write_table(pa.table({"x": column}), "t.parquet")
    ds = rm.open("t.parquet")
    assert ds["x"][:].tolist() == ["9.50", "10.25"]
    ds.save("t.tfrecord")
    for each in (ds, rm.open(pa.table({"x": column})), rm.open("t.tfrecord")):
        with pytest.raises(rm.OptionError, match="'x' has decimal numbers of more digits"):
            each.sort("x")
        for condition in ("x > '5'", "x == '9.5'", "not (x in ['9.5', '3'])"):
            with pytest.raises(rm.OptionError, match="'x' has decimal numbers of more digits"):
                each.where(condition)
        assert len(each.where("not (x is null)")) == 2
        # What the errors advise.
        rounded = each.map(lambda row: {**row, "x": float(row["x"])}).sort("x", descending=True)
        assert rounded["x"][:].tolist() == [10.25, 9.5]
        assert len(each.filter(lambda row: Decimal(row["x"]) > 10)) == 1
        named = each.map(lambda row: {"x": f"no. {row['x']}"})  # which is text
        assert named.sort("x")["x"][0] == "no. 10.25"


def test_decimals_that_are_text_are_known_in_many_shards_and_in_structs() -> None:
    for i in range(70):
        write(f"many-{i}.parquet", decimals(LARGE + i))
    for digits in (20, 22):
        price = pa.array([{"a": Decimal("9.50")}], pa.struct({"a": pa.decimal128(digits, 2)}))
        write(f"struct-{digits}.parquet", price)
    for paths, name in (("many-*.parquet", "x"), ("struct-*.parquet", "x/a")):
        ds = rm.open(paths)
        with pytest.raises(rm.OptionError, match=f"'{name}' has decimal numbers of more digits"):
            ds.sort(name)
        assert pa.types.is_decimal(ds.to_arrow().schema.field(name).type)


def test_a_file_of_nothing_but_nulls_has_rows() -> None:
    for path in ("t.arrow", "t.parquet"):
        table = pa.table({"x": pa.nulls(1 << 21)})
        if path == "t.arrow":
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table)
        else:
            pq.write_table(table, path)
        assert rm.open(path)["x"][-2:].tolist() == [None, None]


@pytest.mark.parametrize("seed", range(20))
def test_random_decimals_are_what_python_makes_of_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    most = 63 if seed % 2 else 100  # bits
    numbers: list[int | None] = []
    for bits in rng.integers(0, most + 1, 50).tolist():
        number = int.from_bytes(rng.bytes(13)) % (1 << bits) if bits else 2**63 - 1
        numbers.append([number, -number, None][int(rng.integers(3))])
    column = decimals(*numbers)
    write("t.parquet", column, row_group_size=int(rng.integers(1, 60)))
    for source, first in (("t.parquet", 0), (pa.table({"x": column.slice(7)}), 7)):
        fits = all(n is None or -(2**63) <= n < 2**63 for n in numbers[first:])
        wanted = [n if n is None or fits else str(n) for n in numbers[first:]]
        assert rm.open(source)["x"][:].tolist() == wanted
