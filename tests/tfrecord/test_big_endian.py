"""Big-endian columns are written little-endian, and keep their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.tfrecord.test_embedded_schema import copied

BIG = [">f4", ">f8", ">f2", ">i2", ">i4", ">i8", ">u2", ">u4", ">u8", ">c8", ">c16", ">M8[ns]",
       ">m8[s]"]  # fmt: skip


@pytest.mark.parametrize("dtype", BIG)
@pytest.mark.parametrize("shape", [(), (3,), (2, 20)])
@pytest.mark.parametrize("way", ["writer", "inferred", "save", "convert", "gzip", "ragged"])
def test_big_endian_columns_are_written_little_endian(dtype: str, shape: Any, way: str) -> None:
    x = np.arange(5 * int(np.prod(shape, dtype=int))).astype(dtype).reshape(5, *shape)
    native = x.astype(x.dtype.newbyteorder("="))
    given: Any = {"x": x}
    if way == "ragged":
        x, native = x.reshape(-1), native.reshape(-1)
        given = {"x": rm.Ragged(x, [0, 2, len(x)])}
    if way in ("writer", "ragged"):
        field = rm.Field(dtype, (None,) if way == "ragged" else shape)
        with rm.TFRecordWriter("x.tfrecord", {"x": field}) as w:
            w.write(given)
    elif way == "inferred":
        with rm.TFRecordWriter("x.tfrecord") as w:
            w.write(given)
    elif way in ("save", "gzip"):
        compression = "gzip" if way == "gzip" else None
        rm.from_arrays(given).save("x.tfrecord", verify="full", compression=compression)
    else:
        np.save("x.npy", x)
        rm.open("x.npy").rename({"data": "x"}).save("x.tfrecord", verify="full")
    with rm.TFRecordWriter("native.tfrecord") as w:
        w.write({"x": rm.Ragged(native, [0, 2, len(x)]) if way == "ragged" else native})
    for path in ("x.tfrecord", copied("x.tfrecord")):
        ds = rm.open(path)
        assert ds.schema == rm.open("native.tfrecord").schema
        found = ds[:]["x"].flat if way == "ragged" else ds[:]["x"]
        assert found.dtype == native.dtype
        assert np.array_equal(found, native)
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
