"""Nulls are values: they are shown, counted, kept, and decided upon before training."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recmap as rm
from recmap.cli import main

TABLE = pa.table(
    {
        "i": [1, None, 3],
        "t": ["a", None, ""],
        "l": [[1, None], None, []],
        "v": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)),
        "s": [["a", None], [], ["b"]],
        "b": pa.array([b"ab", None, b"cd"], pa.binary(2)),
        "clean": [1, 2, 3],
    }
)
FIELDS = {
    "i": "int64?",
    "t": "text?",
    "l": "int64[*?]?",
    "v": "int64[2]?",
    "s": "text[*?]",
    "b": "V2?",
    "clean": "int64",
}


def plain(value: Any) -> Any:
    if isinstance(value, np.void):
        return value.tobytes()
    return value.tolist() if hasattr(value, "tolist") else value


def rows(ds: rm.Dataset) -> list[dict[str, Any]]:
    return [{name: plain(value) for name, value in row.items()} for row in ds]


def opened() -> dict[str, rm.Dataset]:
    pq.write_table(TABLE, "x.parquet", row_group_size=2)
    with pa.ipc.new_file("x.arrow", TABLE.schema) as writer:
        writer.write_table(TABLE, 2)
    return {
        "parquet": rm.open("x.parquet"),
        "arrow": rm.open("x.arrow"),
        "table": rm.open(TABLE),
        "polars": rm.open(pl.from_arrow(TABLE.drop(["b", "v"]))),
        "pandas": rm.open(TABLE.to_pandas(types_mapper=pd.ArrowDtype)),
    }


def test_rows_of_tables_and_files_have_none_where_they_are_null() -> None:
    for name, ds in opened().items():
        wanted = TABLE.select(ds.columns).to_pylist()
        assert rows(ds) == wanted, name
        assert [plain(ds[i]["l"]) for i in range(3)] == [[1, None], None, []]
        assert [plain(row) for row in ds[[2, 1]]["i"]] == [3, None]
        assert ds.schema["clean"] == rm.Field("int64")
        assert ds.schema["i"] == rm.Field.parse("int64?")
    assert opened()["table"].schema == FIELDS


def test_dense_columns_with_nulls_are_masked_arrays() -> None:
    column = opened()["parquet"][:]["i"]
    assert isinstance(column, np.ma.MaskedArray)
    assert column.sum() == 4
    assert column.mask.tolist() == [False, True, False]
    assert type(opened()["parquet"][:]["clean"]) is np.ndarray


def test_parquet_and_arrow_files_without_nulls_are_not_nullable() -> None:
    table = pa.table({"x": [1, 2], "l": [[1], [2, 3]], "t": ["a", "b"], "s": [{"a": 1}, {"a": 2}]})
    pq.write_table(table, "x.parquet")
    with pa.ipc.new_stream("x.arrows", table.schema) as writer:
        writer.write_table(table)
    wanted = {"x": "int64", "l": "int64[*]", "t": "text", "s/a": "int64"}
    for each in ("x.parquet", "x.arrows", table):
        assert rm.open(each).schema == wanted
    next(iter(rm.open("x.parquet").batch(2)))


def test_an_empty_list_in_parquet_is_not_a_null() -> None:
    deep = pa.array([[[]], [[None]]], pa.list_(pa.list_(pa.int64())))
    pq.write_table(pa.table({"l": [[1], []], "m": [[1], None], "n": deep}), "x.parquet")
    assert rm.open("x.parquet").schema == {"l": "int64[*]", "m": "int64[*]?", "n": "int64[*,*?]"}
    next(iter(rm.open("x.parquet", ["l"]).batch(2)))


def test_a_parquet_file_without_statistics_may_have_nulls() -> None:
    table = pa.table({"x": [1, 2], "l": [[1], []]})
    pq.write_table(table, "x.parquet", write_statistics=False)
    assert rm.open("x.parquet").schema["x"] == rm.Field.parse("int64?")
    known = rm.open("x.parquet", {"x": "int64", "l": "int64[*]"})
    assert known.schema == {"x": "int64", "l": "int64[*]"}
    next(iter(known.batch(2)))
    rm.open(table).save("y.parquet")
    assert rm.open("y.parquet").schema == {"x": "int64", "l": "int64[*]"}


def test_a_field_without_nulls_refuses_one_that_is_met() -> None:
    opened()
    for path in ("x.parquet", "x.arrow"):
        ds = rm.open(path, {"i": "int64"})
        with pytest.raises(rm.DataError, match="column 'i' has no value in row 1"):
            ds[:]


def test_files_are_nullable_together_if_one_of_them_has_nulls() -> None:
    pq.write_table(pa.table({"x": [1, 2], "l": [[1, 2]] * 2}), "a.parquet")
    pq.write_table(pa.table({"x": [None, 4], "l": [None, [3]]}), "b.parquet")
    ds = rm.open(["a.parquet", "b.parquet"])
    assert ds.schema == {"x": "int64?", "l": "int64[*]?"}
    assert [plain(x) for x in ds["x"][:]] == [1, 2, None, 4]
    assert ds[[3, 2, 0]]["l"].tolist() == [[3], None, [1, 2]]


def test_training_refuses_nulls_and_its_advice_works() -> None:
    torch = pytest.importorskip("torch")
    ds = opened()["table"]
    for refused in (
        lambda: next(iter(ds.batch(2))),
        ds.to_torch,
        lambda: ds.batch(2).to_torch(),
        lambda: ds.select("t").batch(1).to_jax(),
        lambda: ds.batch(2, pad={"l": 3}).to_torch(),
    ):
        with pytest.raises(rm.ColumnError, match="may hold nulls.*fill_null.*drop_null"):
            refused()
    advised = eval("ds.fill_null({'i': 0})", {"ds": rm.open(TABLE.select(["i"]))})
    assert torch.equal(next(iter(advised.batch(3).to_torch()))["i"], torch.tensor([1, 0, 3]))
    assert len(rm.open(TABLE).drop_null("i")) == 2
    marked = next(iter(rm.open(TABLE.select(["i"])).mask_null("i").batch(3)))
    assert marked["i/is_null"].tolist() == [False, True, False]
    clean = rm.open(TABLE, ["clean"])
    assert next(iter(clean.batch(3)))["clean"].tolist() == [1, 2, 3]


def test_fill_null_fills_rows_and_items() -> None:
    ds = rm.open(TABLE)
    filled = ds.fill_null({"i": -1, "t": "none", "l": 7, "v": [8, 9], "s": "x", "b": 0})
    assert not any(field.has_nulls for field in filled.schema.values())
    assert rows(filled)[:2] == [
        {"i": 1, "t": "a", "l": [1, 7], "v": [1, 2], "s": ["a", "x"], "b": b"ab", "clean": 1},
        {"i": -1, "t": "none", "l": [], "v": [8, 9], "s": [], "b": b"\0\0", "clean": 2},
    ]
    assert ds.fill_null(0).schema["t"] == rm.Field.parse("text?")
    assert ds.fill_null(0).fill_null("")[1]["t"] == ""
    dates = rm.open(pa.table({"d": pa.array([None, 5], pa.date32())}))
    assert dates.fill_null({"d": np.datetime64("2020-01-01")})["d"][0] == np.datetime64(
        "2020-01-01"
    )


def test_fill_null_refuses_values_that_do_not_fit() -> None:
    ds = rm.open(TABLE)
    refused: list[Any] = [{"i": 0.5}, {"t": 0}, {"l": []}, {"i": "a"}, 0.5j, {"v": [1, 2, 3]}]
    for value in refused:
        with pytest.raises(rm.OptionError, match="fill_null"):
            ds.fill_null(value)
    with pytest.raises(rm.FieldNotFoundError):
        ds.fill_null({"none": 0})
    with pytest.raises(rm.OptionError, match="no column with nulls holds such values"):
        rm.open(TABLE, ["i"]).fill_null("a")


def test_drop_null_leaves_out_rows_with_nulls_in_some_columns() -> None:
    ds = rm.open(TABLE)
    assert ds.drop_null("i")["clean"][:].tolist() == [1, 3]
    assert ds.drop_null("l", "i")["clean"][:].tolist() == [3]
    assert ds.drop_null("l", "i").schema["l"] == rm.Field.parse("int64[*]")
    assert len(ds.drop_null()) == 1
    assert len(ds.drop_null("clean")) == 3
    dates = rm.open(pa.table({"d": pa.array([None, 5], pa.date32())}))
    assert len(dates.drop_null("d")) == 1


def test_verbs_of_nulls_work_in_worker_processes_and_conversions() -> None:
    pq.write_table(TABLE, "x.parquet")
    ds = rm.open("x.parquet", ["i", "t"]).drop_null("t").fill_null({"i": 0})
    ds.save("out/", format="parquet", shards=2, workers="processes:1")
    assert rows(rm.open("out/")) == [{"i": 1, "t": "a"}, {"i": 3, "t": ""}]
    kept = rm.open("x.parquet").map(double, workers="processes:1")
    assert [row["i"] for row in kept] == [2, None, 6]
    assert [plain(row["l"]) for row in kept] == [[1, None], None, []]


def double(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "i": None if row["i"] is None else 2 * row["i"]}


def test_nulls_are_counted_compared_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    opened()
    ds = rm.open("x.parquet")
    stats = ds.stats()
    assert (stats["i"].nulls, stats["l"].nulls, stats["s"].nulls) == (1, 2, 1)
    numbers = stats["i"].values  # noqa: PD011  # not of pandas
    assert numbers is not None
    assert (numbers.count, numbers.min, numbers.mean) == (2, 1, 2)
    assert "int64?, 1 null" in repr(stats)
    assert rm.diff("x.parquet", "x.arrow").same
    changed = rm.diff(ds, ds.fill_null({"i": 0, "l": 0}))
    assert {each.name: (each.row, each.rows) for each in changed.columns} == {
        "i": (1, 1),
        "l": (0, 2),
    }
    assert rm.verify("x.parquet").ok
    assert main(["head", "x.parquet", "--json"]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = shown[0] if isinstance(shown[0], list) else shown
    assert found[1]["i"] is None
    assert found[0]["l"] == [1, None]
    assert "[2] 1 -" in repr(ds)


def test_tables_of_other_libraries_get_the_nulls_back() -> None:
    ds = rm.open(TABLE)
    assert ds.to_arrow().to_pylist() == TABLE.to_pylist()
    assert ds.select("i", "t", "l").to_polars().to_dicts() == (
        TABLE.select(["i", "t", "l"]).to_pylist()
    )
    frame = ds.select("i", "t").to_pandas()
    assert str(frame["i"].dtype) == "Int64"
    assert frame["i"].isna().tolist() == frame["t"].isna().tolist() == [False, True, False]


def test_masked_arrays_and_none_in_lists_are_nulls() -> None:
    x = np.ma.array([1, 2], mask=[False, True])
    ds = rm.from_arrays({"x": x, "y": ["a", None], "z": [None, [1, 2]], "w": [None, b"x"]})
    assert ds.schema == {"x": "int64?", "y": "bytes?", "z": "int64[2]?", "w": "bytes?"}
    assert rows(ds)[1] == {"x": None, "y": None, "z": [1, 2], "w": b"x"}
    assert rm.open([{"a": 1}, {"a": None}])[1] == {"a": None}
    partly = np.ma.array([[1, 2]], mask=[[False, True]])
    with pytest.raises(rm.ColumnError, match="only parts of a row of this array are masked"):
        rm.from_arrays({"x": partly})


def test_a_cast_keeps_nulls() -> None:
    ds = rm.open(TABLE).cast({"i": "float32", "l": "int32", "t": "bytes"})
    assert {n: str(ds.schema[n]) for n in "ilt"} == {
        "i": "float32?",
        "l": "int32[*?]?",
        "t": "bytes?",
    }
    assert rows(ds)[:2] == [
        {**TABLE.to_pylist()[0], "t": b"a"},
        {**TABLE.to_pylist()[1]},
    ]


def test_an_array_of_a_column_with_nulls_is_refused() -> None:
    pq.write_table(TABLE, "x.parquet")
    column = rm.open("x.parquet")["i"]
    assert column[1] is None
    with pytest.raises(rm.OptionError, match="fill_null"):
        np.asarray(column)
    with pytest.raises(rm.OptionError, match="fill_null"):
        column.sum()


@pytest.mark.parametrize("form", ["numpy", "pandas", "arrow", "polars", "objects", "column"])
def test_a_null_in_a_mask_chooses_no_row(form: str) -> None:
    values = [True, None, False, True]
    frame = pd.DataFrame({"m": pd.array(values, dtype="boolean")})
    forms: dict[str, list[Any]] = {
        "numpy": [np.ma.masked_array([True, True, False, True], [False, True, False, False])],
        "pandas": [frame["m"], frame["m"].array, frame["m"].astype("bool[pyarrow]")],
        "arrow": [pa.array(values), pa.chunked_array([values[:1], values[1:]])],
        "polars": [pl.Series(values)],
        "objects": [
            values,
            np.array(values),
            pd.Series([True, np.nan, False, True]),
        ],
        "column": [rm.open(frame)["m"], rm.open(frame)["m"][:]],
    }
    rows = rm.from_arrays({"x": np.arange(4), "r": rm.Ragged.from_rows([[0], [1], [2], [3]])})
    rows.save("rows.tfrecord")
    for ds in (rows, rm.open("rows.tfrecord"), rows.map(lambda row: row)):
        for mask in forms[form]:
            assert ds[mask]["x"].tolist() == [0, 3]
            assert ds.select(mask)["x"][:].tolist() == [0, 3]
            assert ds["r"][mask].tolist() == [[0], [3]]
            if isinstance(ds["x"], rm.ColumnView):
                assert ds["x"][mask].tolist() == [0, 3]


def test_a_mask_of_nulls_chooses_nothing_and_a_number_is_not_null() -> None:
    ds = rm.from_arrays({"x": np.arange(2)})
    for nulls in (pa.array([None, None], pa.bool_()), pd.array([None, None], dtype="boolean")):
        assert ds[nulls]["x"].tolist() == []
    others: list[Any] = [[None, 1], [None, None], np.array([True, 1], object), np.array([], object)]
    for numbers in others:
        with pytest.raises(rm.OptionError, match="indexed by"):
            ds[numbers]
    with pytest.raises(rm.ColumnError, match="mask would be lost"):
        ds[np.ma.masked_array([1, 0], [True, False])]


def test_a_condition_in_brackets_is_one_for_where() -> None:
    ds = rm.from_arrays({"x": np.arange(2)})
    uses: list[Any] = [ds.__getitem__, ds.select]
    for use in uses:
        with pytest.raises(rm.OptionError, match=r"ds\.where\(col\('x'\) > 1\)"):
            use(rm.col("x") > 1)
