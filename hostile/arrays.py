"""Random arrays: every dtype, shape and layout, with values that tend to break things."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hostile.case import Case

__all__ = ["BIG", "NUMBERS", "array", "dtype", "lay_out", "name", "shape", "values"]

NUMBERS = [
    *("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"),
    *("f2", "f4", "f8", "c8", "c16"),
]
BIG = [">i2", ">u4", ">i8", ">f2", ">f4", ">f8", ">c16"]
DATES = ["M8[ns]", "M8[D]", "m8[us]"]
STRINGS = ["S1", "S7", "U1", "U5"]


def dtype(case: Case, strings: bool = True, dates: bool = True) -> np.dtype[Any]:
    kinds = [NUMBERS, NUMBERS, BIG]
    kinds += [DATES] if dates else []
    kinds += [STRINGS] if strings else []
    return np.dtype(case.pick(case.pick(kinds)))


def shape(case: Case, rows: int | None = None) -> tuple[int, ...]:
    """Draw a shape with no, one, a few or many rows."""
    if rows is None:
        rows = case.pick([0, 1, 2, case.between(3, 40), case.between(3, 40), 1000])
    inner = tuple(case.pick([1, 2, 3, 5, 16]) for _ in range(case.pick([0, 0, 1, 1, 2, 3])))
    if case.chance(0.03):
        inner = (*inner, 0)
    return (rows, *inner)


def values(case: Case, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Draw any bits: NaN with payloads, -0.0, denormals, the smallest and the largest."""
    rng = case.rng
    if dtype.kind in "SU":
        return _strings(case, shape, dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if case.chance(0.3) and dtype.kind not in "mM":
        small = rng.integers(0, 3, shape)
        return small.astype(dtype)
    return np.frombuffer(rng.bytes(count), dtype).reshape(shape).copy()


def _strings(case: Case, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    width = dtype.itemsize // (4 if dtype.kind == "U" else 1)
    letters = "ab é漢𝄞" if dtype.kind == "U" else "ab cdefg"
    made = [
        "".join(case.pick(letters) for _ in range(case.between(0, width)))
        for _ in range(int(np.prod(shape, dtype=np.int64)))
    ]
    return np.array(made, dtype).reshape(shape)


def array(case: Case, rows: int | None = None, strings: bool = True) -> npt.NDArray[Any]:
    kind = dtype(case, strings)
    size = shape(case, rows)
    if kind.kind in "SU" and size[0] > 100:
        size = (7, *size[1:])
    return values(case, size, kind)


def lay_out(case: Case, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the same values in another layout: Fortran order, strided, reversed."""
    layout = case.pick(["C", "C", "F", "strided", "reversed", "readonly"])
    if layout == "F":
        return np.asfortranarray(array)
    if layout == "strided" and array.ndim:
        wide = np.zeros((array.shape[0] * 2, *array.shape[1:]), array.dtype)
        wide[::2] = array
        return wide[::2]
    if layout == "reversed" and array.ndim:
        return np.ascontiguousarray(array[::-1])[::-1]
    if layout == "readonly":
        array = array.copy()
        array.flags.writeable = False
    return array


def name(case: Case) -> str:
    return case.pick(["x", "y", "image", "a b", "é", "tokens", "deep name", "0", "label", "x.y"])
