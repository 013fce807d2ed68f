"""Columns that are views of the mapped file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests import wire


def mapped(array: Any) -> bool:
    """Return whether an array lies in a mapped file."""
    address = array.ctypes.data
    for line in Path("/proc/self/maps").read_text().splitlines():
        stretch, _, _, _, inode, *_ = line.split()
        begin, end = (int(place, 16) for place in stretch.split("-"))
        if begin <= address < end:
            return inode != "0"
    return False


X = np.random.default_rng(0).standard_normal((500, 10), dtype=np.float32)


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("encoding", ["float_list", "raw"])
@pytest.mark.parametrize("align", [None, 64])
def test_float_and_raw_columns_are_views(encoding: str, align: int | None, index: bool) -> None:
    with rm.TFRecordWriter("x.tfrecord", encoding={"x": encoding}, align=align, index=index) as w:
        w.write({"x": X})
    column = rm.open("x.tfrecord", {"x": "float32[10]"})["x"]
    assert mapped(column)
    assert np.array_equal(column, X)
    assert not column.flags.writeable
    assert np.shares_memory(column, rm.open("x.tfrecord", {"x": "float32[10]"})["x"]) is False
    if align:
        assert column.flags.aligned
        assert column.ctypes.data % align == 0
        assert column.strides[0] % align == 0


@pytest.mark.parametrize("dtype", ["float64", "uint8", "int16", "complex64", "float16", ">f4"])
def test_raw_columns_of_other_dtypes_are_views(dtype: str) -> None:
    values = (np.arange(120).reshape(20, 6) % 100).astype(dtype)
    with rm.TFRecordWriter("x.tfrecord", encoding={"x": "raw"}, align=64) as w:
        w.write({"x": values})
    column = rm.open("x.tfrecord")["x"]
    assert mapped(column)
    assert np.array_equal(column, values)


def test_views_outlive_the_dataset() -> None:
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write({"x": X})
    column = rm.open("x.tfrecord")["x"]
    Path("x.tfrecord").unlink()
    assert np.array_equal(column, X)


def test_labels_of_any_size_do_not_move_aligned_columns() -> None:
    labels = np.array([0, 1, 2**20, -1, 2**62] * 100)
    with rm.TFRecordWriter("x.tfrecord", align=64) as w:
        w.write({"a": labels, "x": X, "z": X.astype(np.float64)})
    ds = rm.open("x.tfrecord")
    for name, values in (("x", X), ("z", X.astype(np.float64))):
        assert mapped(ds[name])
        assert np.array_equal(ds[name], values)
    assert np.array_equal(ds[:]["a"], labels)
    assert isinstance(ds["a"], rm.ColumnView)


def test_records_of_one_size_whose_payloads_move_are_not_mapped() -> None:
    # Two labels whose sizes add up to the same total.
    records = [
        wire.example(a=wire.int64_list(a), b=wire.float_list(b), c=wire.int64_list(c))
        for a, b, c in [(1, 10, 300), (300, 11, 1)]
    ]
    assert len(records[0]) == len(records[1])
    wire.write("x.tfrecord", *records)
    column = rm.open("x.tfrecord")["b"]
    assert isinstance(column, rm.ColumnView)
    assert column[:].tolist() == [10, 11]


def test_a_damaged_file_gives_no_views() -> None:
    with rm.TFRecordWriter("x.tfrecord", index=False) as w:
        w.write({"x": X})
    data = bytearray(Path("x.tfrecord").read_bytes())
    data[len(data) // 2 + 40] ^= 1
    Path("x.tfrecord").write_bytes(data)
    with pytest.raises(rm.CorruptRecordError, match="data CRC"):
        rm.open("x.tfrecord")["x"]
    assert mapped(rm.open("x.tfrecord", verify=False)["x"])


def test_batches_and_rows_are_copies() -> None:
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write({"x": X})
    ds = rm.open("x.tfrecord")
    batch = ds[10:20]["x"]
    assert batch.flags.writeable
    assert not np.shares_memory(batch, ds["x"])
