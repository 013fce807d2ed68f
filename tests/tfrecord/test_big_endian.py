"""Big-endian columns are written little-endian, and keep their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.tfrecord.test_embedded_schema import copied

BIG = [">f4", ">f8", ">f2", ">i2", ">i4", ">i8", ">u2", ">u4", ">u8", ">c8", ">c16", ">M8[ns]",
       ">m8[s]"]  # fmt: skip


@pytest.mark.parametrize("shape", [(), (3,), (2, 20)])
@pytest.mark.parametrize("way", ["writer", "inferred", "save", "convert", "gzip", "ragged"])
def test_big_endian_columns_are_written_little_endian(shape: Any, way: str) -> None:
    numbers = np.arange(5 * int(np.prod(shape, dtype=int))).reshape(5, *shape)
    given: Any = {dtype: numbers.astype(dtype) for dtype in BIG}
    native: Any = {dtype: x.astype(x.dtype.newbyteorder("=")) for dtype, x in given.items()}
    if way == "ragged":
        offsets = [0, 2, numbers.size]
        given, native = (
            {dtype: rm.Ragged(x.reshape(-1), offsets) for dtype, x in columns.items()}
            for columns in (given, native)
        )
    if way in ("writer", "ragged"):
        inner = (None,) if way == "ragged" else shape
        schema = {dtype: rm.Field(dtype, inner) for dtype in BIG}
        with rm.TFRecordWriter("x.tfrecord", schema) as w:
            w.write(given)
    elif way == "inferred":
        with rm.TFRecordWriter("x.tfrecord") as w:
            w.write(given)
    elif way in ("save", "gzip"):
        compression = "gzip" if way == "gzip" else None
        rm.from_arrays(given).save("x.tfrecord", verify="full", compression=compression)
    else:
        for dtype, x in given.items():
            np.save(f"{dtype}.npy", x)
        rm.open({dtype: f"{dtype}.npy" for dtype in BIG}).save("x.tfrecord", verify="full")
    with rm.TFRecordWriter("native.tfrecord") as w:
        w.write(native)
    for path in ("x.tfrecord", copied("x.tfrecord")):
        ds = rm.open(path)
        assert ds.schema == rm.open("native.tfrecord").schema
        for dtype, column in ds[:].items():
            found, wanted = (
                each.flat if way == "ragged" else each for each in (column, native[dtype])
            )
            assert found.dtype == wanted.dtype
            assert np.array_equal(found, wanted)
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
