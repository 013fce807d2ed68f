"""Compare columns: bit by bit, or row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.model.ragged import BYTE, TEXT_BYTE, Column, Ragged, has_mask, null_mask

# Bytes to compare at a time. NumPy's result is as large as its input.
_STEP = 1 << 18


def same_bits(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    """Compare arrays of the same type and shape bit by bit.

    NaN equals NaN, and -0.0 differs from 0.0.
    """
    one, other = np.ascontiguousarray(a), np.ascontiguousarray(b)
    if one.dtype.hasobject:
        return one.tobytes() == other.tobytes()
    one, other = one.reshape(-1).view(np.uint8), other.reshape(-1).view(np.uint8)
    spans = (slice(at, at + _STEP) for at in range(0, len(one), _STEP))
    return all(np.array_equal(one[span], other[span]) for span in spans)


def unlike_rows(a: Column, b: Column) -> npt.NDArray[np.bool_]:
    """Tell which rows of two columns of equal length differ.

    Values are equal if they are the same number or string, whatever their types. NaN equals NaN,
    and null equals null.

    >>> unlike_rows(np.array([1.0, np.nan, 3.0]), np.array([1.0, np.nan, 4.0])).tolist()
    [False, False, True]
    """
    if has_mask(a) or has_mask(b):
        return _unlike_with_nulls(a, b)
    if isinstance(a, Ragged) or isinstance(b, Ragged):
        mine, theirs = _as_ragged(a), _as_ragged(b)
        if mine is None or theirs is None:
            return np.ones(len(a), np.bool_)
        return _unlike_ragged(mine, theirs)
    return _unlike_arrays(a, b)


def _unlike_with_nulls(a: Column, b: Column) -> npt.NDArray[np.bool_]:
    """Compare the rows that are not null in both. A null equals only a null."""
    null, other = null_mask(a), null_mask(b)
    unlike = null != other
    both = np.flatnonzero(~(null | other))
    unlike[both] = unlike_rows(_without_mask(a)[both], _without_mask(b)[both])
    return np.asarray(unlike, np.bool_)


def _without_mask(column: Column) -> Column:
    if isinstance(column, Ragged):
        return Ragged(column.values, column.offsets)
    return np.asarray(column)


def _as_ragged(column: Column) -> Ragged | None:
    """Return rows of a fixed length as ragged ones; None if a row is a single value."""
    if isinstance(column, Ragged):
        return column
    if column.ndim == 1:
        return None
    rows, length = column.shape[:2]
    values = column.reshape(rows * length, *column.shape[2:])
    return Ragged(values, np.arange(rows + 1, dtype=np.int64) * length)


def _unlike_ragged(a: Ragged, b: Ragged) -> npt.NDArray[np.bool_]:
    unlike: npt.NDArray[np.bool_] = a.lengths != b.lengths
    if unlike.any():
        alike = np.flatnonzero(~unlike)
        unlike[alike] = _unlike_ragged(a[alike], b[alike])
        return unlike
    # Rows of equal length have their values at the same places.
    before = np.concatenate([[0], np.cumsum(unlike_rows(_numbers(a.flat), _numbers(b.flat)))])
    ends = np.cumsum(a.lengths)
    return np.asarray(before[ends] != before[ends - a.lengths], np.bool_)


def _numbers(values: Column) -> Column:
    """View the bytes of strings as numbers."""
    if isinstance(values, np.ndarray) and values.dtype in (BYTE, TEXT_BYTE):
        return values.view(np.uint8)
    return values


def _unlike_arrays(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    if a.shape[1:] != b.shape[1:]:
        return np.ones(len(a), np.bool_)
    unlike = np.zeros(len(a), np.bool_)
    if a.dtype == b.dtype and same_bits(a, b):
        return unlike
    row = max(1, a[:1].nbytes, b[:1].nbytes)
    step = max(1, _STEP // row)
    for at in range(0, len(a), step):
        some = _unlike_values(a[at : at + step], b[at : at + step])
        unlike[at : at + step] = some.reshape(len(some), -1).any(axis=1)
    return unlike


def _unlike_values(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    if a.dtype.kind in "iu" and b.dtype.kind not in "biumM":
        a, b = b, a
    with np.errstate(invalid="ignore"):
        if a.dtype.kind not in "biumM" and b.dtype.kind in "iu":
            # NumPy would round integers to floats. A float beyond all integers becomes any of them.
            least, beyond = float(np.iinfo(b.dtype).min), float(np.iinfo(b.dtype).max) + 1
            real = a.real.astype(np.float64)
            whole = a.real.astype(b.dtype)
            outside = ~((real >= least) & (real < beyond))
            return np.asarray(outside | (whole != b) | (whole.astype(a.dtype) != a), np.bool_)
        try:
            unlike = a != b
            unlike &= ~((a != a) & (b != b))  # noqa: PLR0124  # NaN and NaT
        except TypeError:  # such as a date and a number
            return np.ones(a.shape, np.bool_)
    return np.asarray(unlike, np.bool_)
