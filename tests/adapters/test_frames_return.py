"""A frame that is opened comes back as it was, also through files."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

import recmap as rm

NOON = dt.datetime.fromisoformat("2020-01-01T12:00")
DATES = pd.to_datetime(["2020-01-01", None, "2021-01-01"])
FRAME = pd.DataFrame(
    {
        "Int64": pd.array([1, None, 3], "Int64"),
        "Int32": pd.array([1, 2, 3], "Int32"),
        "int8": pd.array([1, 2, 3], "int8"),
        "Float32": pd.array([1.5, None, 2], "Float32"),
        "boolean": pd.array([True, None, False], "boolean"),
        "string": pd.array(["a", None, "c"], "string"),
        "str": pd.Series(["a", None, "c"], dtype="str"),
        "object": pd.Series(["a", None, "c"], dtype=object),
        "bytes": pd.Series([b"a", None, b"c"], dtype=object),
        "bool": pd.Series([True, None, False], dtype=object),
        "category": pd.Categorical(["x", None, "y"], categories=["y", "x", "z"]),
        "ordered": pd.Categorical(["x", "y", "y"], categories=["y", "x"], ordered=True),
        "numbered": pd.Categorical([3, 1, None]),
        "date": pd.Series([dt.date(2020, 1, 1), None, None], dtype=object),
        "time": DATES,
        "zone": DATES.tz_localize("Europe/Berlin"),
        "duration": pd.to_timedelta([1, None, 3], unit="s"),
        "lists": [[1, 2], None, []],
        "texts": [["a"], ["b", None], []],
        "nested": [[[1], [2, 3]], [], [[]]],
        "arrays": [np.array([1, 2]), np.array([3]), np.array([], int)],
        "pairs": [[1, 2], [3, 4], [5, 6]],
        "arrow": pd.array([1, None, 3], "int64[pyarrow]"),
        "nan": [1.0, np.nan, 2.0],
        "months": pd.PeriodIndex(["2020-01", None, "2020-03"], freq="M"),
        "decimals": [Decimal("1.5"), None, Decimal("-0.07")],
        "times": [dt.time(1, 2, 3, 4), None, dt.time(5)],
        "arrow decimals": pd.array(
            [Decimal("1.50"), None, Decimal(3)], pd.ArrowDtype(pa.decimal128(30, 2))
        ),
        "arrow times": pd.array([1, None, 3], pd.ArrowDtype(pa.time32("ms"))),
        "uuids": pd.array([b"a" * 16, None, b"b" * 16], pd.ArrowDtype(pa.binary(16))),
    }
)
POLARS = pl.DataFrame(
    {
        "category": pl.Series(["a", None, "b"], dtype=pl.Categorical),
        "enum": pl.Series(["a", None, "b"], dtype=pl.Enum(["b", "a", "z"])),
        "null": [None, None, None],
        "time": [dt.time(1, 2), None, dt.time(3)],
        "date": [dt.date(2020, 1, 1), None, None],
        "zone": pl.Series([NOON, None, None]).dt.replace_time_zone("Asia/Tokyo"),
        "plain": pl.Series([NOON, None, None], dtype=pl.Datetime("ms")),
        "list": [[1, None], None, []],
        "array": pl.Series([[1, 2], None, [3, 4]], dtype=pl.Array(pl.Int64, 2)),
        "nested": [[[1], None], None, []],
        "bool": [True, None, False],
        "small": pl.Series([1, None, 2], dtype=pl.UInt8),
        "decimals": [Decimal("1.5"), None, Decimal("-0.07")],
        "prices": pl.Series([Decimal("1.5"), None, Decimal(3)], dtype=pl.Decimal(10, 2)),
    }
)


def classes(frame: Any) -> dict[str, list[type]]:
    return {n: [type(value) for value in frame[n]] for n in ("lists", "texts", "arrays", "pairs")}


def test_a_pandas_frame_comes_back_as_it_was() -> None:
    back = rm.open(FRAME).to_pandas()
    pd.testing.assert_frame_equal(back, FRAME)
    assert classes(back) == classes(FRAME)
    back.loc[:, :"nan"].drop(columns="bytes").to_json(date_format="iso")
    for path in ("x.parquet", "x.arrow"):
        rm.open(FRAME).save(path)
        pd.testing.assert_frame_equal(rm.open(path).to_pandas(), FRAME)
    rm.open(FRAME).save("x/", format="parquet", shards=2)
    pd.testing.assert_frame_equal(rm.open("x/").to_pandas(), FRAME)
    rm.open("x.parquet").save("y.arrow")
    pd.testing.assert_frame_equal(rm.open("y.arrow").to_pandas(), FRAME)


def test_a_polars_frame_comes_back_as_it_was() -> None:
    assert rm.open(POLARS).to_polars().equals(POLARS)
    assert rm.open(POLARS).to_polars().schema == POLARS.schema
    for path in ("x.parquet", "x.arrow"):
        rm.open(POLARS).save(path)
        back = rm.open(path).to_polars()
        assert back.schema == POLARS.schema
        assert back.equals(POLARS)


def storable(columns: Any, path: str) -> Any:
    """Leave out what a format cannot hold: it has no such values, and refuses them."""
    lost = {
        "x.tfrecord": {"texts", "list", "nested", "uuids"},  # lists of lists, or with nulls
        "x.h5": {"uuids"},
    }
    more = {"nested"} if isinstance(columns, pl.DataFrame) else set()
    return columns[[n for n in columns.columns if n not in lost.get(path, set()) | more]]


@pytest.mark.parametrize("path", ["x.tfrecord", "x.h5", "x.zarr", "x.npz"])
def test_frames_come_back_from_formats_that_are_no_tables(path: str) -> None:
    frame, other = storable(FRAME, path), storable(POLARS, path)
    rm.open(frame).save(path)
    pd.testing.assert_frame_equal(rm.open(path).to_pandas(), frame)
    rm.open(path).save("y.parquet")
    pd.testing.assert_frame_equal(rm.open("y.parquet").to_pandas(), frame)
    rm.open("y.parquet").save(path, overwrite=True)
    pd.testing.assert_frame_equal(rm.open(path).to_pandas(), frame)
    rm.open(other).save(path, overwrite=True)
    back = rm.open(path).to_polars()
    assert back.schema == other.schema
    assert back.equals(other)


def test_an_arrow_table_comes_back_as_it_was() -> None:
    table = pa.table(
        {
            "dictionary": pa.array(["a", None]).dictionary_encode(),
            "zone": pa.array([1, None], pa.timestamp("us", "UTC")),
            "time": pa.array([1, None], pa.time32("s")),
            "uuid": pa.array([b"a" * 16, None], pa.uuid()),
            "json": pa.array(["{}", None], pa.json_()),
            "fixed": pa.array([b"ab", None], pa.binary(2)),
            "text": ["a", None],
            "large": pa.array(["a", None], pa.large_string()),
            "lists": pa.array([[1, None], None]),
            "fixed lists": pa.array([[1, None], None], pa.list_(pa.int64(), 2)),
            "nothing": pa.nulls(2),
            "price": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
            "long": pa.array([Decimal("1.50"), None], pa.decimal256(50, 2)),
            "whole": pa.array([Decimal(7), None], pa.decimal128(12)),
            "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None], pa.int8())),
            **{u: pa.array([1, None], pa.duration(u)) for u in ("s", "ms", "us", "ns")},
        }
    )
    assert rm.open(table).to_arrow().equals(table)
    for path in ("x.parquet", "x.arrow"):
        rm.open(table).save(path)
        assert rm.open(path).to_arrow().equals(table)
    made = rm.open(table).map(lambda row: {**row, "price": 1 / 3, "long": "1.5", "text": "b"})
    changed = made.to_arrow()
    assert changed["price"].to_pylist() == [1 / 3, 1 / 3]
    assert changed.schema.field("long").type == table.schema.field("long").type


def test_the_index_comes_back_with_all_rows_in_order_and_never_with_others() -> None:
    frame = pd.DataFrame({"x": [3, 1, 2], "l": [[1, 2], [], [3]]}, index=["a", "b", "c"])
    ds = rm.open(frame)
    pd.testing.assert_frame_equal(ds.to_pandas(), frame)
    renamed = ds.rename({"x": "y"})
    pd.testing.assert_frame_equal(renamed.to_pandas(), frame.rename(columns={"x": "y"}))
    pd.testing.assert_frame_equal(ds.select("x").to_pandas(), frame[["x"]])
    assert ds.map(lambda row: {"x": -row["x"]}).to_pandas().index.tolist() == ["a", "b", "c"]
    for other in (
        ds.shuffle(seed=1),
        ds.sort("x"),
        ds.explode("l"),
        ds.sample(3, seed=1),
        ds.repeat(2).take(3),
        ds.filter(lambda row: row["x"] > 0),
    ):
        assert other.to_pandas().index.tolist() == [0, 1, 2]


INDEXES = {
    "named": pd.Index(list("uvwxyz"), name="id"),
    "unnamed": pd.Index([5, 3, 1, 9, 7, 2]),
    "levels": pd.MultiIndex.from_product([["a", "b"], [1, 2, 3]], names=["k", None]),
    "dates": pd.date_range("2020-01-01", periods=6, freq="D", tz="Europe/Berlin", name="when"),
    "gaps": pd.DatetimeIndex([*DATES, *DATES]),
    "steps": pd.RangeIndex(10, 28, 3, name=7),
    "down": pd.RangeIndex(6, 0, -1),
    "named range": pd.RangeIndex(6, name="r"),
    "categories": pd.CategoricalIndex(list("aabbcc"), categories=list("cbaz")),
    "months": pd.period_range("2020-01", periods=6, freq="M"),
    "nulls": pd.Index(pd.array([1, None, 3, 4, 5, 6], "Int64")),
    "objects": pd.Index(["a", None, "c", "d", "e", "f"], dtype=object),
}


@pytest.mark.filterwarnings("ignore::recmap.LeftOutWarning")
@pytest.mark.parametrize("format", ["parquet", "arrow", "tfrecord", "hdf5", "zarr", "npz"])
def test_the_index_comes_back_from_files_and_is_not_a_column(format: str) -> None:
    columns = {"x": np.arange(6), "__index_level_0__": list("abcdef")}
    path = {"hdf5": "x.h5"}.get(format, f"x.{format}")
    slow = {"hdf5", "zarr"}
    for name in ("levels", "gaps", "months") if format in slow else INDEXES:
        index = INDEXES[name]
        frame = pd.DataFrame(columns, index=index)
        rm.open(frame).save(path, overwrite=True, verify="full")
        ds = rm.open(path)
        assert list(ds.schema) == list(columns)
        for each in (ds, pickle.loads(pickle.dumps(ds)), ds.select(*columns)):
            pd.testing.assert_frame_equal(each.to_pandas(), frame, obj=name)
        assert ds.take(2).to_pandas().index.tolist() == [0, 1]
        rm.open(frame[:0]).save(path, overwrite=True)
        assert list(rm.open(path).schema) == list(columns)
        assert rm.open(path).to_pandas().index.dtype == index.dtype
    frame = pd.DataFrame(columns, index=INDEXES["dates"])
    rm.open(frame).save("x/", format=format, shards=3)
    pd.testing.assert_frame_equal(rm.open("x/").to_pandas(), frame)
    pd.testing.assert_frame_equal(rm.open("x/", columns=["x"]).to_pandas(), frame[["x"]])
    rm.open("x/").save("y.arrow")
    pd.testing.assert_frame_equal(rm.open("y.arrow").to_pandas(), frame)
    rm.open(frame).save("x/", format=format, append=True)
    assert list(rm.open("x/").schema) == list(columns)
    assert rm.open("x/").to_pandas().index.tolist() == list(range(12))


@pytest.mark.filterwarnings("ignore::recmap.LeftOutWarning")
def test_the_index_in_tfrecord_survives_what_is_done_to_files() -> None:
    frame = pd.DataFrame({"x": [1, 2, 3], "y": pd.Categorical(list("aba"))}, index=list("uvw"))
    rm.open(frame).save("x.tfrecord", options={"index": False})
    rm.index("x.tfrecord")
    pd.testing.assert_frame_equal(rm.open("x.tfrecord").to_pandas(), frame)
    Path("twice.tfrecord").write_bytes(2 * Path("x.tfrecord").read_bytes())
    assert rm.open("twice.tfrecord").to_pandas().index.tolist() == list("uvwuvw")
    data = bytearray(Path("x.tfrecord").read_bytes())
    data[int.from_bytes(data[:8], "little") + 10] ^= 1
    Path("bad.tfrecord").write_bytes(data)
    rm.repair("bad.tfrecord", "mended.tfrecord")
    assert rm.open("mended.tfrecord").to_pandas().index.tolist() == ["v", "w"]
    rm.open(frame.reset_index(drop=True)).save("plain.tfrecord")
    for paths in (["x.tfrecord", "plain.tfrecord"], ["plain.tfrecord", "x.tfrecord"]):
        both = rm.open(paths).to_pandas()  # one of them has no index
        assert (list(both.columns), both.index.tolist()) == (["x", "y"], list(range(6)))
    rm.open(frame).save("bare.tfrecord", options={"describe": False})
    assert list(rm.open("bare.tfrecord").schema) == ["x", "y"]


def test_dtypes_that_do_not_fit_into_a_zip_are_left_out_with_a_warning() -> None:
    frame = pd.DataFrame({"c": pd.Categorical([f"category {i}" for i in range(9000)])})
    with pytest.warns(rm.LeftOutWarning, match="dtypes.*bytes"):
        rm.open(frame).save("x.npz")
    assert rm.open("x.npz").to_pandas()["c"].tolist() == frame["c"].tolist()


def test_columns_that_fields_describe_add_nothing_to_tfrecord_files() -> None:
    frame = pd.DataFrame({"x": [1.5, 2], "n": [1, 2], "t": ["a", "b"], "l": [[1], [2, 3]]})
    rm.open(frame).save("x.tfrecord")
    columns = {"x": np.array([1.5, 2]), "n": [1, 2], "t": rm.Ragged.from_text(["a", "b"])}
    rm.from_arrays(columns | {"l": rm.Ragged.from_rows([[1], [2, 3]])}).save("y.tfrecord")
    assert Path("x.tfrecord").read_bytes() == Path("y.tfrecord").read_bytes()


def test_an_index_that_no_file_can_hold_is_left_out_with_a_warning() -> None:
    frame = pd.DataFrame({"x": [1, 2]}, index=pd.interval_range(0, 2))
    pd.testing.assert_frame_equal(rm.open(frame).to_pandas(), frame)
    with pytest.warns(rm.LeftOutWarning, match="index.*intervals.*reset_index"):
        rm.open(frame).save("x.parquet")
    assert rm.open("x.parquet").to_pandas().index.tolist() == [0, 1]


def test_types_go_with_their_columns_and_are_dropped_where_they_do_not_fit() -> None:
    ds = rm.open(FRAME[["category", "zone", "Int32"]])
    assert str(ds.rename({"category": "c"}).to_pandas()["c"].dtype) == "category"
    assert str(ds.where(rm.col("Int32") > 1).to_pandas()["category"].dtype) == "category"
    assert str(ds.cast({"Int32": "float32"}).to_pandas()["Int32"].dtype) == "float32"
    other = ds.map(lambda row: {"category": "new", "zone": row["zone"], "Int32": 1})
    assert other.to_pandas()["category"].tolist() == ["new"] * 3
    assert str(other.to_pandas()["zone"].dtype) == str(FRAME["zone"].dtype)
    months = rm.open(FRAME[["months"]]).map(lambda row: {"months": 2020 + 0 * len(row)})
    assert months.to_pandas()["months"].tolist() == [2020] * 3


def test_a_note_that_is_no_type_is_ignored() -> None:
    import pyarrow.parquet as pq

    for note in (b"[", b"{}", b'{"x": 1}', b'{"x": ["int64", "pandas", "no such type"]}', b"[[]]"):
        table = pa.table({"x": [1, 2]}).replace_schema_metadata({b"recmap.table": note})
        pq.write_table(table, "x.parquet")
        assert rm.open("x.parquet").to_pandas()["x"].tolist() == [1, 2]
        assert rm.open("x.parquet").to_polars()["x"].to_list() == [1, 2]
        with h5py.File("x.h5", "w") as file:
            file["x"], file.attrs["recmap_table"] = [1, 2], note.decode()
        assert rm.open("x.h5").to_pandas()["x"].tolist() == [1, 2]


def test_lists_without_a_table_are_lists_and_arrays_of_one_shape_stay_arrays() -> None:
    ds = rm.from_arrays({"r": rm.Ragged.from_rows([[1, 2], []]), "d": np.ones((2, 2))})
    frame = ds.to_pandas()
    assert frame["r"].tolist() == [[1, 2], []]
    assert isinstance(frame["d"][0], np.ndarray)
    with pytest.raises(AttributeError):
        frame["r"][0].offsets  # noqa: B018  # a list has none
    frame.to_json()


NOON_UTC = NOON.replace(tzinfo=dt.UTC)
LISTS = {
    "decimals": pa.array([[Decimal("1.25"), None], [], None], pa.list_(pa.decimal128(10, 2))),
    "whole decimals": pa.array([[Decimal(1), None], [], None], pa.list_(pa.decimal128(10, 0))),
    "long decimals": pa.array([[Decimal("0.5"), None], None], pa.list_(pa.decimal128(38, 2))),
    "lists of decimals": pa.array(
        [[[Decimal("0.5")], None], None], pa.list_(pa.list_(pa.decimal128(9, 2)))
    ),
    "zone": pa.array([[NOON_UTC, None], [], None], pa.list_(pa.timestamp("us", "Asia/Tokyo"))),
    "time": pa.array([[dt.time(1), None], [], None], pa.list_(pa.time64("ns"))),
    "categories": pa.ListArray.from_arrays([0, 2, 2], pa.array(["a", "a"]).dictionary_encode()),
}


@pytest.mark.parametrize("rows", ["all", "nulls", "none"])
@pytest.mark.parametrize("name", LISTS)
def test_lists_of_decimals_times_and_categories_come_back(name: str, rows: str) -> None:
    lists = LISTS[name]
    if rows == "nulls":
        lists = pa.array([None, [None]], lists.type)
    table = pa.table({"x": lists[:0] if rows == "none" else lists})
    frame, arrow_frame = pl.from_arrow(table), table.to_pandas(types_mapper=pd.ArrowDtype)
    assert isinstance(frame, pl.DataFrame)
    for path in (None, "x.parquet", *(["x.h5"] if name != "lists of decimals" else [])):

        def there_and_back(source: Any, path: str | None = path) -> rm.Dataset:
            if path is None:
                return rm.open(source)
            rm.open(source).save(path, overwrite=True)
            return rm.open(path)

        made = there_and_back(table).to_arrow()
        assert made.schema == table.schema
        assert made.equals(table)
        assert there_and_back(frame).to_polars().equals(frame)
        assert there_and_back(frame).to_polars().schema == frame.schema
        assert there_and_back(arrow_frame).to_pandas().dtypes.equals(arrow_frame.dtypes)


def test_lists_of_decimals_that_were_changed_stay_numbers() -> None:
    table = pa.table({"x": pa.array([[Decimal("0.25")]], pa.list_(pa.decimal128(9, 2)))})
    third = rm.open(table).map(lambda row: {"x": row["x"] / 3})
    assert third.to_arrow()["x"].to_pylist() == [[0.25 / 3]]
    halves = rm.open(pl.from_arrow(table)).map(lambda row: {"x": row["x"] / 3})
    assert halves.to_polars()["x"].to_list() == [[0.25 / 3]]


def test_frames_without_columns_are_read() -> None:
    for frame in (pd.DataFrame(), pd.DataFrame(index=range(3))):
        ds = rm.open(frame)
        assert (list(ds), ds[:], len(ds)) == ([], {}, 0)


class Unit(pa.ExtensionType):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(pa.int64(), "tests.unit")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: Any, serialized: bytes) -> Unit:
        del storage, serialized
        return cls()


@pytest.mark.parametrize("end", ["parquet", "arrow", "tfrecord", "npz", "h5", "zarr"])
def test_extension_types_of_any_class_come_back(end: str) -> None:
    pa.register_extension_type(Unit())
    try:
        storage = pa.array([1, None, 3])
        table = pa.table({"u": pa.ExtensionArray.from_storage(Unit(), storage)})
        assert rm.open(table).to_arrow().equals(table)
        rm.open(table).save(f"x.{end}")
        assert rm.open(f"x.{end}").to_arrow().equals(table)
    finally:
        pa.unregister_extension_type("tests.unit")


@pytest.mark.parametrize("end", ["parquet", "arrow"])
def test_types_of_files_of_other_programs_reach_pandas_and_polars(end: str) -> None:
    zone = pa.timestamp("us", "Europe/Berlin")
    table = pa.table(
        {
            "zone": pa.array([NOON, None], pa.timestamp("us")).cast(zone),
            "category": pa.array(["x", None]).dictionary_encode(),
            "decimal": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
            "time": pa.array([dt.time(1, 2), None], pa.time64("us")),
        }
    )
    if end == "parquet":
        pq.write_table(table, "x.parquet")
    else:
        feather.write_feather(table, "x.arrow")
    frame = rm.open(f"x.{end}").to_pandas()
    assert frame["zone"].tolist()[0] == table["zone"].to_pylist()[0]
    assert str(frame["zone"].dtype) == "datetime64[us, Europe/Berlin]"
    assert frame["category"].dtype == "category"
    assert frame["decimal"].tolist()[0] == Decimal("1.50")
    assert frame["time"].tolist()[0] == dt.time(1, 2)
    assert rm.open(f"x.{end}").to_polars().schema == pl.from_arrow(table).schema


def test_frames_that_pandas_wrote_keep_their_dtypes() -> None:
    frame = pd.DataFrame(
        {
            "integers": pd.array([1, None, 3], "Int64"),
            "no nulls": pd.array([1, 2, 3], "Int16"),
            "floats": [1.5, np.nan, 2.0],
            "nullable floats": pd.array([1.5, None, 2], "Float32"),
            "booleans": pd.array([True, None, False], "boolean"),
            "text": ["a", None, "c"],
            "times": pd.to_datetime(["2024-01-01", None, "2024-01-03"]),
            "zones": pd.to_datetime(["2024-01-01", None, "2024-01-03"]).tz_localize("Asia/Tokyo"),
            "dates": [dt.date(2024, 1, 1), None, dt.date(2024, 1, 3)],
            "months": pd.period_range("2024-01", periods=3, freq="M"),
            "arrow": pd.array([1, None, 3], "int64[pyarrow]"),
        }
    )
    frame.to_parquet("x.parquet")
    frame.to_feather("x.feather")
    for path, wanted in (
        ("x.parquet", pd.read_parquet("x.parquet")),
        ("x.feather", pd.read_feather("x.feather")),
    ):
        ds = rm.open(path)
        pd.testing.assert_frame_equal(ds.to_pandas(), wanted)
        ds.save("y.tfrecord", overwrite=True)
        # Only the file of pandas says that its nulls are NaN.
        wanted["floats"] = wanted["floats"].astype("Float64")
        pd.testing.assert_frame_equal(rm.open("y.tfrecord").to_pandas(), wanted)
        changed = ds.map(lambda row: {"months": row["months"] + 1})  # numbers, not months
        assert changed.to_pandas()["months"].dtype == np.int64


def test_the_index_that_pandas_wrote_is_a_column() -> None:
    pd.DataFrame({"x": [1, 2]}, index=["a", "b"]).to_parquet("x.parquet")
    ds = rm.open("x.parquet")
    assert ds.to_pandas().to_dict("list") == {"x": [1, 2], "__index_level_0__": ["a", "b"]}


@pytest.mark.parametrize("note", [b"{", b"[]", b'{"columns": 3}', b'{"columns": [{}, 1]}'])
def test_a_note_of_pandas_that_cannot_be_read_is_ignored(note: bytes) -> None:
    table = pa.table({"x": [1, 2]})
    pq.write_table(table.replace_schema_metadata({b"pandas": note}), "x.parquet")
    assert rm.open("x.parquet").to_pandas()["x"].tolist() == [1, 2]


def test_members_of_extension_types_are_read_one_by_one() -> None:
    pd.DataFrame({"i": pd.interval_range(0, 4), "x": range(4)}).to_parquet("x.parquet")
    ds = rm.open("x.parquet")
    assert ds["i/left"][:].tolist() == [0, 1, 2, 3]
    assert ds.select("i/right", "x")[[3, 0]]["i/right"].tolist() == [4, 1]
    assert ds[1]["i/left"] == 1


@pytest.mark.parametrize(
    ("noted", "stored"),
    [
        (pd.Series([1, 2]), [1.25, 2.5]),
        (pd.array([1, 2], "Int8"), [300, 500]),
        (pd.Series([True, False]), [5, 7]),
        (pd.Series([1.5, 2.5]), [2**53 + 1, 1]),
        (pd.Categorical([1, 2]), [300, 500]),
        (pd.Series(["a", "b"]), [1, 2]),
    ],
)
def test_a_note_of_pandas_that_is_out_of_date_changes_no_value(noted: Any, stored: Any) -> None:
    table = pa.Table.from_pandas(pd.DataFrame({"x": noted}))
    pq.write_table(table.set_column(0, "x", pa.array(stored)), "x.parquet")
    ds = rm.open("x.parquet")
    assert ds.to_pandas()["x"].tolist() == stored
    ds.save("y.parquet")
    assert rm.open("y.parquet").to_pandas()["x"].tolist() == stored


@pytest.mark.parametrize("values", [[300, 500], [1.5, 2.5], [True, False], ["b", "a"]])
def test_categories_that_pandas_wrote_keep_their_values(values: list[Any]) -> None:
    pd.DataFrame({"x": pd.Categorical(values)}).to_parquet("x.parquet")
    assert rm.open("x.parquet").to_pandas()["x"].tolist() == values


@pytest.mark.parametrize("zone", [None, "Asia/Tokyo"])
def test_categories_of_dates_come_back(zone: str | None) -> None:
    times = pd.to_datetime(["2024-01-02", None, "2024-01-01"]).tz_localize(zone)
    dates = [dt.date(2024, 1, 2), None, dt.date(2024, 1, 1)]
    frame = pd.DataFrame({"t": pd.Categorical(times), "d": pd.Categorical(dates)})
    pd.testing.assert_frame_equal(rm.open(frame).to_pandas(), frame)
