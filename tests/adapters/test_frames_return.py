"""A frame that is opened comes back as it was, also through Parquet and Arrow files."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa
import pytest

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
    }
)
POLARS = pl.DataFrame(
    {
        "category": pl.Series(["a", None, "b"], dtype=pl.Categorical),
        "enum": pl.Series(["a", None, "b"], dtype=pl.Enum(["b", "a", "z"])),
        "time": [dt.time(1, 2), None, dt.time(3)],
        "date": [dt.date(2020, 1, 1), None, None],
        "zone": pl.Series([NOON, None, None]).dt.replace_time_zone("Asia/Tokyo"),
        "plain": pl.Series([NOON, None, None], dtype=pl.Datetime("ms")),
        "list": [[1, None], None, []],
        "array": pl.Series([[1, 2], None, [3, 4]], dtype=pl.Array(pl.Int64, 2)),
        "nested": [[[1], None], None, []],
        "bool": [True, None, False],
        "small": pl.Series([1, None, 2], dtype=pl.UInt8),
    }
)


def classes(frame: Any) -> dict[str, list[type]]:
    return {n: [type(value) for value in frame[n]] for n in ("lists", "texts", "arrays", "pairs")}


def test_a_pandas_frame_comes_back_as_it_was() -> None:
    back = rm.open(FRAME).to_pandas()
    pd.testing.assert_frame_equal(back, FRAME)
    assert classes(back) == classes(FRAME)
    back.drop(columns="bytes").to_json(date_format="iso")
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


def test_an_arrow_table_comes_back_as_it_was() -> None:
    table = pa.table(
        {
            "dictionary": pa.array(["a", None]).dictionary_encode(),
            "zone": pa.array([1, None], pa.timestamp("us", "UTC")),
            "time": pa.array([1, None], pa.time32("s")),
            "uuid": pa.array([b"a" * 16, None], pa.uuid()),
            "json": pa.array(["{}", None], pa.json_()),
            "fixed": pa.array([b"ab", None], pa.binary(2)),
        }
    )
    assert rm.open(table).to_arrow().equals(table)
    for path in ("x.parquet", "x.arrow"):
        rm.open(table.select(["fixed"])).save(path)
        assert rm.open(path).to_arrow()["fixed"].to_pylist() == [b"ab", None]


def test_the_index_comes_back_with_all_rows_in_order_and_never_with_others() -> None:
    frame = pd.DataFrame({"x": [3, 1, 2], "l": [[1, 2], [], [3]]}, index=["a", "b", "c"])
    ds = rm.open(frame)
    pd.testing.assert_frame_equal(ds.to_pandas(), frame)
    renamed = ds.rename({"x": "y"})
    pd.testing.assert_frame_equal(renamed.to_pandas(), frame.rename(columns={"x": "y"}))
    for other in (ds.shuffle(seed=1), ds.sort("x"), ds.explode("l"), ds.sample(3, seed=1)):
        assert other.to_pandas().index.tolist() == [0, 1, 2]


def test_types_go_with_their_columns_and_are_dropped_where_they_do_not_fit() -> None:
    ds = rm.open(FRAME[["category", "zone", "Int32"]])
    assert str(ds.rename({"category": "c"}).to_pandas()["c"].dtype) == "category"
    assert str(ds.where(rm.col("Int32") > 1).to_pandas()["category"].dtype) == "category"
    assert str(ds.cast({"Int32": "float32"}).to_pandas()["Int32"].dtype) == "float32"
    other = ds.map(lambda row: {"category": "new", "zone": row["zone"], "Int32": 1})
    assert other.to_pandas()["category"].tolist() == ["new"] * 3


def test_a_note_that_is_no_type_is_ignored() -> None:
    import pyarrow.parquet as pq

    for note in (b"[", b"{}", b'{"x": 1}', b'{"x": ["int64", "pandas", "no such type"]}', b"[[]]"):
        table = pa.table({"x": [1, 2]}).replace_schema_metadata({b"recmap.table": note})
        pq.write_table(table, "x.parquet")
        assert rm.open("x.parquet").to_pandas()["x"].tolist() == [1, 2]
        assert rm.open("x.parquet").to_polars()["x"].to_list() == [1, 2]


def test_lists_without_a_table_are_lists_and_arrays_of_one_shape_stay_arrays() -> None:
    ds = rm.from_arrays({"r": rm.Ragged.from_rows([[1, 2], []]), "d": np.ones((2, 2))})
    frame = ds.to_pandas()
    assert frame["r"].tolist() == [[1, 2], []]
    assert isinstance(frame["d"][0], np.ndarray)
    with pytest.raises(AttributeError):
        frame["r"][0].offsets  # noqa: B018  # a list has none
    frame.to_json()
