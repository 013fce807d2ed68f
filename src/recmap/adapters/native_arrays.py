"""Columns as all frameworks take them: numbers in the byte order of this machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError
from recmap.model.ragged import Ragged

__all__ = ["as_native", "refuse_ragged", "unknown_dtype"]


def as_native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return big-endian numbers byte-swapped, dates as integers, and others as they are."""
    if array.dtype.kind in "mM":
        return array.astype(np.int64)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def refuse_ragged(name: str, column: Any, no_bytes: str) -> None:
    """Refuse a column that has no dense array; ``no_bytes`` says why byte strings have none."""
    if not isinstance(column, Ragged):
        return
    if column.is_bytes:
        raise OptionError(
            f"column {name!r}: {no_bytes}; leave it out with select or features=, or decode it "
            "with map"
        )
    raise OptionError(
        f'column {name!r}: rows differ in length; pad them: batch(n, pad={{{name!r}: "longest"}})'
    )


def unknown_dtype(name: str, framework: str, dtype: np.dtype[Any]) -> OptionError:
    """Make the error for a column of a dtype that a framework lacks."""
    return OptionError(
        f"column {name!r}: {framework} has no type {dtype}; cast it with map, or leave it out "
        "with select"
    )
