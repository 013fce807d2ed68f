"""Rows by number or by mask, as users give them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import RowNotFoundError
from recmap.model.batch import RowArray


def chosen_rows(key: npt.NDArray[Any], count: int) -> RowArray:
    """Return the numbers of the rows that an array of numbers or a mask chooses of ``count``.

    Negative numbers count from the end.
    """
    if key.dtype.kind == "b":
        if len(key) != count:
            raise RowNotFoundError(f"a mask of {len(key):,} values, but there are {count:,} rows")
        return np.flatnonzero(key)
    rows = key.astype(np.int64, copy=False)
    if not len(rows):
        return rows
    if key.dtype == np.uint64 and int(key.max()) >= count:
        raise RowNotFoundError(f"row {int(key.max()):,} is out of range: there are {count:,}")
    wrapped = np.where(rows < 0, rows + count, rows)
    wrong = (wrapped < 0) | (wrapped >= count)
    if wrong.any():
        raise RowNotFoundError(f"row {int(rows[wrong][0]):,} is out of range: there are {count:,}")
    return wrapped
