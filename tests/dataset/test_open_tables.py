"""rm.open takes tables: pandas, polars, Arrow, DuckDB and Hugging Face datasets."""

from __future__ import annotations

import io
import os
import pickle
from datetime import datetime
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa
import pytest
from PIL import Image

import recmap as rm
from tests.frameworks import datasets

ROWS = 50
N = np.arange(ROWS)


def columns() -> dict[str, Any]:
    return {
        "i": N,
        "f": np.where(N % 7 == 0, np.nan, N / 3).astype(np.float32),
        "b": N % 2 == 0,
        "text": [f"row {n} é" for n in N],
        "raw": [bytes([n, 0, n]) for n in N],
        "tokens": [list(range(n % 4)) for n in N],
    }


SCHEMA = {
    "i": "int64",
    "f": "float32",
    "b": "bool",
    "text": "text",
    "raw": "bytes",
    "tokens": "int64[*]",
}


def chunked() -> pa.Table:
    table = pa.table(columns())
    return pa.concat_tables([table.slice(0, 20), table.slice(20, 1), table.slice(21)])


TABLES: dict[str, Any] = {
    "pyarrow": lambda: pa.table(columns()),
    "pyarrow, in chunks": chunked,
    "pyarrow.RecordBatch": lambda: pa.RecordBatch.from_pydict(columns()),
    "pandas": lambda: pd.DataFrame(columns()),
    "pandas with Arrow types": lambda: pa.table(columns()).to_pandas(types_mapper=pd.ArrowDtype),
    "pandas, some rows": lambda: pd.DataFrame(columns(), index=N + 100).iloc[::-1].iloc[::-1],
    "polars": lambda: pl.DataFrame(columns()),
    "datasets": lambda: datasets.Dataset(pa.table(columns())),
}


def assert_rows(ds: rm.Dataset, rows: list[int]) -> None:
    """Compare rows, read as a span and by number, with the columns they were made of."""
    batch = ds[rows]
    for name, values in columns().items():
        wanted = [np.asarray(values)[row] if name in "ifb" else values[row] for row in rows]
        found = [np.asarray(cell).tolist() if name == "tokens" else cell for cell in batch[name]]
        if name == "f":
            assert np.array_equal(found, wanted, equal_nan=True)
        else:
            assert found == wanted


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_read_many_times_and_by_number(name: str) -> None:
    ds = rm.open(TABLES[name]())
    assert len(ds) == ROWS
    assert ds.schema == SCHEMA
    rows = [3, 49, 0, 20, 3, 21]
    for _ in range(2):
        assert_rows(ds, rows)
        assert_rows(ds, list(range(ROWS)))
    assert ds[:]["text"][7] == "row 7 é"
    assert_rows(pickle.loads(pickle.dumps(ds)), rows)
    ds.save("x.npz", verify="full")
    assert_rows(rm.open("x.npz"), rows)
    seen = [int(i) for batch in ds.shuffle(seed=1).batch(8) for i in batch["i"]]
    assert sorted(seen) == list(range(ROWS))
    assert seen != list(range(ROWS))


STREAMS: dict[str, Any] = {
    "pyarrow.RecordBatchReader": lambda: pa.table(columns()).to_reader(max_chunksize=8),
    "duckdb": lambda: duckdb.connect().from_arrow(pa.table(columns())),
}


@pytest.mark.parametrize("name", STREAMS)
def test_streams_are_read_once_in_order(name: str) -> None:
    ds = rm.open(STREAMS[name]())
    assert ds.schema == SCHEMA
    assert rm.convert(ds, "x.tfrecord").rows == ROWS
    assert_rows(rm.open("x.tfrecord", fields={"text": "text", ...: None}), list(range(ROWS)))
    with pytest.raises(rm.OptionError, match="once, in order|by number"):
        ds[3]
    assert rm.convert(STREAMS[name](), "y.npz", shards=1).rows == ROWS


def test_a_single_column_is_a_table_too() -> None:
    named = pd.Series([1, 2, 3], name="x")
    for one in (named, pl.Series("x", [1, 2, 3])):
        assert rm.open(one)["x"][:].tolist() == [1, 2, 3]
    for one in (pd.Series([1, 2, 3]), pa.array([1, 2, 3]), pa.chunked_array([[1], [2, 3]])):
        assert rm.open(one)["data"][:].tolist() == [1, 2, 3]
        assert rm.open({"y": one})["y"][:].tolist() == [1, 2, 3]
    assert rm.open({"text": pd.Series(["a", "b"])})[1]["text"] == "b"
    assert rm.open({"x": pl.Series("y", ["a", "b"])})[1]["x"] == "b"


def test_a_series_of_paths_is_opened_as_paths() -> None:
    np.save("a.npy", np.arange(3))
    assert len(rm.open(pd.Series(["a.npy", "a.npy"]))) == 6
    with pytest.raises(rm.PathNotFoundError, match="column of text"):
        rm.open(pd.Series(["a cat"]))


def test_numbers_of_pandas_are_not_copied() -> None:
    frame = pd.DataFrame({"x": np.arange(10.0), "y": np.arange(10)})
    assert np.shares_memory(rm.open(frame)["x"], frame["x"].to_numpy())


def test_lists_of_one_length_in_pandas_are_dense() -> None:
    frame = pd.DataFrame({"x": [np.zeros((2, 3), "f4")] * 4, "y": [[1, 2]] * 4})
    assert rm.open(frame).schema == {"x": "float32[2,3]", "y": "int64[2]"}
    assert rm.open(pd.DataFrame({"y": [[1, 2], None]})).schema == {"y": "int64[*]?"}


def test_types_of_pandas_that_numpy_lacks() -> None:
    frame = pd.DataFrame(
        {
            "category": pd.Categorical(["a", "b", "a"]),
            "nullable": pd.array([1, 2, 3], "Int16"),
            "time": pd.to_datetime(["2026-01-01", "2026-01-02", None]),
            "zone": pd.to_datetime(["2026-01-01"] * 3).tz_localize("Europe/Berlin"),
            "struct": [{"a": 1, "b": "x"}] * 3,
        }
    )
    ds = rm.open(frame)
    assert ds.columns == ["category", "nullable", "time", "zone", "struct/a", "struct/b"]
    assert list(ds[:]["category"]) == ["a", "b", "a"]
    assert ds["nullable"].dtype == np.int16
    assert np.isnat(ds["time"][2])
    assert ds["zone"][0].astype(datetime) in (
        datetime(2025, 12, 31, 23),  # noqa: DTZ001
        int(np.datetime64("2025-12-31T23", "ns").astype(int)),
    )


@pytest.mark.parametrize("make", [pa.table, pd.DataFrame, pl.DataFrame])
def test_nulls_are_kept_filled_masked_or_an_error(make: Any) -> None:
    values: dict[str, Any] = {"i": [1, 2, 3], "x": [5, None, 7], "s": ["a", "b", None]}
    if make is pd.DataFrame:
        values["x"] = pd.array(values["x"], "Int64")
    table = make(values)
    with pytest.raises(rm.DataError, match="'x' has no value in row 1"):
        rm.open(table, nulls="error")
    assert rm.open(table)[1] == {"i": 2, "x": None, "s": "b"}
    with pytest.raises(rm.DataError, match="nothing to fill"):
        rm.open(table, nulls="fill")
    filled = rm.open(table, {"x": "int64 = -1", ...: None}, nulls="fill")
    assert filled["x"][:].tolist() == [5, -1, 7]
    assert list(filled[:]["s"]) == ["a", "b", ""]
    masked = rm.open(table, nulls="mask")
    assert masked["x/is_null"][:].tolist() == [False, True, False]
    assert masked["s/is_null"][:].tolist() == [False, False, True]
    assert masked.columns[0] == "i"
    report = rm.convert(table, "x.npz", nulls="mask")
    assert report.rows == 3
    assert rm.open("x.npz")["x/is_null"][:].tolist() == [False, True, False]
    assert rm.convert(table, "x.tfrecord", nulls="mask").rows == 3


def test_only_the_fields_that_are_asked_for_are_read() -> None:
    table = pa.table({"x": [1, 2], "decimal": pa.array([1, 2], pa.decimal128(5, 0))})
    assert rm.open(table, fields=["x"]).columns == ["x"]
    assert rm.open(pd.DataFrame({"a": [1], "b": [2]}), fields=["b"]).columns == ["b"]


def test_a_named_index_is_left_out_with_a_warning() -> None:
    frame = pd.DataFrame({"id": [7, 8], "x": [1, 2]}).set_index("id")
    with pytest.warns(rm.LeftOutWarning, match="reset_index"):
        assert rm.open(frame).columns == ["x"]
    assert rm.open(frame.reset_index()).columns == ["id", "x"]


def test_names_of_pandas_columns_are_text_and_unique() -> None:
    with pytest.raises(rm.ColumnError, match=r"df\.columns\.map\(str\)"):
        rm.open(pd.DataFrame(np.zeros((2, 2))))
    with pytest.raises(rm.ColumnError, match="two columns 'x'"):
        rm.open(pd.DataFrame(np.zeros((2, 2)), columns=["x", "x"]))


def test_a_member_of_a_pandas_column_has_a_name_of_its_own() -> None:
    with pytest.raises(rm.ColumnError, match="two columns 'x/a'"):
        rm.open(pd.DataFrame({"x": [{"a": 1}], "x/a": [3]}))


def test_strings_in_lists_of_pandas_are_text() -> None:
    assert rm.open(pd.DataFrame({"x": [["a"], ["b", "ü"]]})).schema == {"x": "text[*]"}


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (["a", 1], "cannot give its columns to Arrow"),
        (pd.arrays.SparseArray([0, 1]), "Sparse"),
    ],
)
def test_what_pandas_cannot_give_is_an_error_of_the_data(values: Any, why: str) -> None:
    with pytest.raises(rm.DataError, match=why):
        rm.open(pd.DataFrame({"x": values}))


@pytest.mark.parametrize("text", ["Infinity", "-Infinity"])
def test_an_infinite_decimal_of_pandas_is_named(text: str) -> None:
    values = [Decimal("1.5"), None, Decimal("NaN"), Decimal(text)]
    frame = pd.DataFrame({"n": range(4), "x": values}, index=list("abcd"))
    with pytest.raises(rm.DataError, match=rf"Decimal\('{text}'\) in column 'x', row 3,") as e:
        rm.open(frame)
    assert e.value.field == "x"
    frame["x"] = frame["x"].astype(float)
    assert rm.open(frame)["x"][3] == float(text)


def test_decimals_of_pandas_that_are_no_numbers_are_null() -> None:
    frame = pd.DataFrame({"x": [Decimal("1.5"), Decimal("NaN"), Decimal("sNaN")]})
    assert rm.open(frame)["x"][:].tolist() == [1.5, None, None]


def test_empty_tables_have_a_schema() -> None:
    for table in (pa.table(columns()).slice(0, 0), pl.DataFrame({"i": [1], "text": ["a"]})[:0]):
        ds = rm.open(table)
        assert len(ds) == 0
        assert ds.schema["text"].is_text


def hugging_face() -> datasets.Dataset:
    made = datasets.Dataset.from_dict({"i": N, "text": [f"t{n}" for n in N]})
    made.save_to_disk("hf")
    return datasets.load_from_disk("hf")


def test_rows_that_were_selected_or_shuffled_are_those_of_hugging_face() -> None:
    whole = hugging_face()
    for chosen in (
        whole,
        whole.select([5, 3, 40, 3]),
        whole.shuffle(seed=1),
        whole.shuffle(seed=1).select(range(10, 30)),
        whole.filter(lambda row: row["i"] % 3 == 0),
    ):
        ds = rm.open(chosen)
        assert len(ds) == len(chosen)
        assert ds[:]["i"].tolist() == list(chosen["i"])
        assert list(ds[[3, 0]]["text"]) == [chosen[3]["text"], chosen[0]["text"]]
        assert pickle.loads(pickle.dumps(ds))[:]["i"].tolist() == list(chosen["i"])
        rm.convert(chosen, "x.npz", overwrite=True, verify="full")
        assert rm.open("x.npz")["i"][:].tolist() == list(chosen["i"])


def test_workers_map_the_files_of_a_hugging_face_dataset() -> None:
    whole = hugging_face().select(range(40))
    train = rm.open(whole).map(_plus_one, workers="spawn:1").batch(8)
    assert [int(i) for batch in train for i in batch["i"]] == list(range(1, 41))


def _plus_one(row: dict[str, Any]) -> dict[str, Any]:
    return {"i": row["i"] + 1}


def png(value: int) -> bytes:
    content = io.BytesIO()
    Image.fromarray(np.full((4, 5, 3), value, np.uint8)).save(content, "png")
    return content.getvalue()


def test_images_of_hugging_face_are_their_stored_bytes() -> None:
    images = [{"bytes": png(n), "path": None} for n in range(3)]
    features = datasets.Features({"image": datasets.Image(), "n": datasets.Value("int64")})
    ds = rm.open(datasets.Dataset.from_dict({"image": images, "n": [0, 1, 2]}, features))
    assert ds.schema == {"image": "bytes", "n": "int64"}
    assert ds[1]["image"] == png(1)
    assert [row["image"][0, 0, 0] for row in ds.decode_image("image")] == [0, 1, 2]
    with open("x.png", "wb") as file:
        file.write(png(1))
    elsewhere = datasets.Dataset.from_dict(
        {"image": [os.path.abspath("x.png")], "n": [0]}, features
    )
    with pytest.raises(rm.OptionError, match="embed_table_storage"):
        rm.open(elsewhere)


def test_what_hugging_face_has_besides_says_what_to_do() -> None:
    whole = datasets.Dataset.from_dict({"i": N})
    with pytest.raises(rm.OptionError, match="choose a split"):
        rm.open(datasets.DatasetDict({"train": whole}))
    with pytest.raises(rm.OptionError, match="rm.from_batches"):
        rm.open(whole.to_iterable_dataset())


def test_other_objects_of_polars_and_pyarrow_say_what_to_do() -> None:
    with pytest.raises(rm.OptionError, match="collect"):
        rm.open(pl.DataFrame({"x": [1]}).lazy())
    # Polars would hand out their addresses as 8 bytes each.
    with pytest.raises(rm.OptionError, match="Python objects"):
        rm.open(pl.DataFrame({"x": pl.Series([object()], dtype=pl.Object)}))


def test_a_dataset_that_went_through_another_library_comes_back() -> None:
    ds = rm.open({"x": np.arange(12.0).reshape(3, 2, 2), "y": [1, 2, 3]})
    again = rm.open(pa.table(ds))
    assert again.schema == ds.schema
    assert np.array_equal(again[:]["x"], ds[:]["x"])


class _Producer:
    def __init__(self, **methods: Any) -> None:
        self.__dict__.update(methods)

    def __arrow_c_stream__(self, requested: object = None) -> Any:
        return self.__dict__["stream"]()


class _Raises(_Producer):
    def __len__(self) -> int:
        raise RuntimeError("no length")


class _Negative(_Producer):
    def __len__(self) -> int:
        return -1  # noqa: PLE0303


class _Array:
    def __init__(self, given: Any) -> None:
        self._given = given

    def __arrow_c_array__(self, requested: object = None) -> Any:
        return self._given


class _BadArray:
    def __array__(self, *args: Any, **options: Any) -> Any:
        raise KeyError("x")


class _BadProperty:
    @property
    def __arrow_c_stream__(self) -> Any:
        raise RuntimeError("not now")


class _BadMapping(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("not now")


def _raise() -> Any:
    raise KeyError("x")


def _torn() -> Any:
    def batches() -> Any:
        yield pa.record_batch({"x": [1]})
        raise RuntimeError("in the middle")

    return pa.RecordBatchReader.from_batches(pa.schema([("x", pa.int64())]), batches())


@pytest.mark.parametrize(
    "thing",
    [
        _Raises(stream=lambda: pa.table({"x": [1]}).__arrow_c_stream__()),
        _Negative(stream=lambda: pa.table({"x": [1]}).__arrow_c_stream__()),
        _Producer(stream=lambda: None),
        _Producer(stream=lambda: 5),
        _Producer(stream=_raise),
        _Array(None),
        _Array((1, 2)),
        _Array(pa.array([1]).__arrow_c_array__()[:1]),
        _BadArray(),
        _BadProperty(),
        _BadMapping(x=[1]),
    ],
)
def test_an_object_that_misbehaves_is_named_in_the_error(thing: Any) -> None:
    with pytest.raises(rm.RecmapError, match=type(thing).__name__):
        rm.open(thing)
    if not isinstance(thing, _Raises | _Negative | _BadMapping):
        with pytest.raises(rm.RecmapError, match=type(thing).__name__):
            rm.open({"x": thing})


def test_a_stream_that_breaks_off_is_an_error_of_recmap() -> None:
    ds = rm.open(_Producer(stream=lambda: _torn().__arrow_c_stream__()))
    with pytest.raises(rm.DataError, match="_Producer: .*in the middle"):
        list(ds.batches(1))
