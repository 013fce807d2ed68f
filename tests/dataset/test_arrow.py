"""Datasets and pipelines in the libraries that read Arrow."""

from __future__ import annotations

import threading
from typing import Any

import duckdb
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa
import pytest

import recmap as rm
from tests.frameworks import datasets

LABELS = [n % 3 for n in range(1000)]


@pytest.fixture(params=["tfrecord", "npz"])
def ds(request: pytest.FixtureRequest, tmp_path: Any) -> rm.Dataset:
    rng = np.random.default_rng(0)
    path = tmp_path / f"x.{request.param}"
    rm.from_arrays(
        {
            "label": np.array(LABELS),
            "image": rng.integers(0, 255, (1000, 4, 3), np.uint8),
            "vector": rng.normal(size=(1000, 2)).astype(np.float32),
            "tokens": rm.Ragged.from_rows([range(n % 5) for n in range(1000)], np.int64),
            "data": rm.Ragged.from_bytes([b"\xff" * (n % 7) for n in range(1000)]),
            "caption": rm.Ragged.from_text(["é" * (n % 4) for n in range(1000)]),
        }
    ).save(path)
    return rm.open(path)


def test_polars(ds: rm.Dataset) -> None:
    for frame in (pl.DataFrame(ds), ds.to_polars()):
        assert frame.columns == ds.columns
        assert frame["label"].to_list() == LABELS
        assert frame["caption"].to_list() == ds["caption"][:].tolist()
        assert frame["data"].to_list() == ds["data"][:].tolist()
        assert frame["tokens"].to_list() == [row.tolist() for row in ds["tokens"][:]]
        np.testing.assert_array_equal(frame["vector"].to_numpy(), ds["vector"][:])
    assert ds.to_polars()["image"].dtype == pl.Array(pl.UInt8, (4, 3))
    np.testing.assert_array_equal(ds.to_polars()["image"].to_numpy(), ds["image"][:])


def test_duckdb(ds: rm.Dataset) -> None:
    with duckdb.connect() as connection:
        connection.register("ds", ds)
        count = connection.sql("select label, count(*) from ds group by 1 order by 1").fetchall()
        assert count == [(0, 334), (1, 333), (2, 333)]
        longest = connection.sql("select max(length(caption)), max(len(tokens)) from ds").fetchall()
        assert longest == [(3, 4)]
        first = connection.sql("select vector, data from ds limit 3").fetchall()
    assert first[2] == (tuple(ds[2]["vector"].tolist()), b"\xff\xff")


def test_duckdb_finds_datasets_by_the_names_of_variables(ds: rm.Dataset) -> None:
    rows = ds.select("label")
    assert len(rows) == 1000
    assert duckdb.sql("select sum(label) from rows").fetchall() == [(sum(LABELS),)]


def test_pyarrow(ds: rm.Dataset) -> None:
    table = pa.table(ds)
    table.validate(full=True)
    assert table == ds.to_arrow()
    assert pa.schema(ds) == table.schema
    images = table["image"].combine_chunks().to_numpy_ndarray()
    np.testing.assert_array_equal(images, ds["image"][:])
    lists = ds.to_arrow(tensors="list")
    assert lists["image"].type == pa.list_(pa.list_(pa.uint8(), 3), 4)
    assert lists["image"][7].as_py() == ds[7]["image"].tolist()
    with pytest.raises(rm.OptionError, match="tensors"):
        ds.to_arrow(tensors="array")  # type: ignore[arg-type]  # on purpose


def test_pandas(ds: rm.Dataset) -> None:
    frame = pd.DataFrame.from_arrow(ds)
    assert frame["label"].tolist() == LABELS
    own = ds.to_pandas()
    assert own["label"].dtype == np.int64
    assert own["label"].tolist() == LABELS
    assert own["caption"].dtype == "str"
    assert own["caption"].tolist() == frame["caption"].tolist() == ds["caption"][:].tolist()
    for name in ("image", "vector", "tokens"):
        np.testing.assert_array_equal(own[name][7], ds[7][name])
    assert own["data"][6] == b"\xff" * 6


def test_hugging_face(ds: rm.Dataset) -> None:
    made = datasets.Dataset(ds.to_arrow(tensors="list"))
    assert len(made) == 1000
    assert made[7]["image"] == ds[7]["image"].tolist()
    assert made[7]["caption"] == ds[7]["caption"]
    with pytest.raises(ValueError, match="fixed_shape_tensor"):
        datasets.Dataset(pa.table(ds))
    made = datasets.Dataset(pa.table(ds.select("label", "tokens", "vector")))
    assert made[8]["tokens"] == [0, 1, 2]


def test_pipelines_are_tables_of_their_rows(ds: rm.Dataset) -> None:
    train = ds.select("label", "vector").shuffle(seed=1)
    order = [row["label"].item() for row in ds.select("label", "vector").shuffle(seed=1)]
    for _ in range(2):  # always the first epoch
        assert pl.DataFrame(train)["label"].to_list() == order
        assert train.to_pandas()["label"].tolist() == order
    assert train.epoch == 0
    kept = ds.filter(lambda row: row["label"] == 2).select("label").to_arrow()
    assert kept["label"].to_pylist() == [2] * 333
    padded = ds.select("tokens").batch(100, pad={"tokens": 4})
    table = pa.table(padded)
    assert table["tokens"].type == pa.list_(pa.int64(), 4)
    assert table["tokens"].num_chunks == 10
    assert table["tokens"][3].as_py() == [0, 1, 2, 0]


def test_rows_are_read_as_they_are_asked_for(tmp_path: Any) -> None:
    np.save(tmp_path / "x.npy", np.zeros((100, 1 << 20), np.uint8))
    ds = rm.open(tmp_path / "x.npy")
    stream = pa.RecordBatchReader.from_stream(ds)
    sizes = [batch.num_rows for batch in stream]
    assert sum(sizes) == 100
    assert max(sizes) <= 32
    column = pa.table(ds).column(0)
    address = column.chunk(1).flatten().buffers()[1].address
    mapped = ds[next(iter(ds.schema))]
    begin = mapped.ctypes.data
    assert begin <= address < begin + mapped.nbytes  # not a copy


def test_empty_datasets_are_empty_tables() -> None:
    ds = rm.from_arrays({"x": np.zeros((0, 3)), "s": rm.Ragged.from_bytes([])})
    assert pl.DataFrame(ds).shape == (0, 2)
    assert pa.table(ds).num_rows == 0
    assert ds.to_pandas().shape == (0, 2)
    assert duckdb.sql("select count(*) from ds").fetchall() == [(0,)]


def test_an_error_of_the_data_is_raised_as_it_is(tmp_path: Any) -> None:
    path = tmp_path / "x.tfrecord"
    rm.from_arrays({"x": np.arange(1000)}).save(path)
    (tmp_path / ".x.tfrecord.recmap").unlink()  # an index would be out of date
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    with pytest.raises(rm.CorruptRecordError):
        rm.open(path).to_arrow()
    with pytest.raises(rm.CorruptRecordError):
        rm.open(path).to_polars()
    with pytest.raises(OSError, match="CorruptRecordError"):
        pa.table(rm.open(path))
    broken = rm.from_arrays({"x": np.arange(3)}).map(lambda row: {"x": 1 // row["x"]})
    with pytest.raises(rm.MapError):
        broken.to_arrow()


def test_a_type_that_arrow_lacks_is_refused_at_once() -> None:
    ds = rm.from_arrays({"x": np.zeros(3, complex), "y": np.arange(3)})
    with pytest.raises(rm.FieldMismatchError, match="'x' is complex128"):
        pa.table(ds)
    assert ds.select("y").to_arrow().num_rows == 3
    assert ds.to_pandas()["x"].dtype == complex  # pandas has it


def test_threads_may_read_one_dataset_at_once(ds: rm.Dataset) -> None:
    results: list[Any] = [None] * 4

    def read(number: int) -> None:
        frame = pl.DataFrame(ds) if number % 2 else pl.from_arrow(pa.table(ds))
        results[number] = frame["label"].sum()

    threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [sum(LABELS)] * 4
