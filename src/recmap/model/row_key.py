"""What chooses rows: their numbers or a mask, in anything that holds an array."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.model.casting import exact_array
from recmap.model.field import Field


def row_key(key: Any) -> npt.NDArray[Any] | None:
    """Return row numbers or a mask as an array with one axis; None if it is neither.

    >>> row_key([True, None, False]), row_key((3, -1)), row_key([1.5])
    (array([ True, False, False]), array([ 3, -1]), None)
    """
    array = index_array_of(key)
    if array.shape == (0,) and not isinstance(key, np.ndarray) and array.dtype.kind not in "iub":
        return array.astype(np.int64)
    return array if array.ndim == 1 and array.dtype.kind in "iub" else None


def index_array_of(key: Any) -> npt.NDArray[Any]:
    """Return what indexes an array as an array. A null in a mask is False, as in ``where``."""
    field = getattr(key, "field", None)
    if isinstance(field, Field) and field.has_nulls:
        key = key[:]  # a column with nulls refuses to become an array
    ma = sys.modules.get("numpy.ma")
    if ma is not None and isinstance(key, ma.MaskedArray) and key.dtype == np.bool_:
        return np.asarray(key.filled(False))
    array = exact_array(key)
    if array.dtype != object or array.ndim != 1 or not array.size:
        return array
    mask = _mask_of_objects(array)
    untyped = isinstance(key, list | tuple | np.ndarray)
    all_null = untyped and not any(isinstance(each, bool | np.bool_) for each in array)
    return array if mask is None or all_null else mask


def condition_hint(key: Any) -> str:
    """Return a hint for ``ds[rm.col("x") > 1]``; it is empty if ``key`` is no condition."""
    from recmap.model.expression import Expression

    return f"; for a condition, use ds.where({key!r})" if isinstance(key, Expression) else ""


def _mask_of_objects(objects: npt.NDArray[Any]) -> npt.NDArray[np.bool_] | None:
    """Return the mask of booleans and nulls; None if there is anything else."""
    na = getattr(sys.modules.get("pandas"), "NA", None)
    mask = np.zeros(len(objects), np.bool_)
    for row, each in enumerate(objects):
        if isinstance(each, bool | np.bool_):
            mask[row] = each
        elif each is not None and each is not na and not _is_nan(each):
            return None
    return mask


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
