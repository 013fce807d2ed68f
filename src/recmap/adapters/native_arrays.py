"""Convert columns to native byte order, and refuse those without a dense array."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError
from recmap.model.ragged import Ragged

__all__ = ["as_native", "refuse_ragged", "unknown_dtype"]


def as_native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert numbers to native byte order and dates to integers."""
    if array.dtype.kind in "mM":
        return array.astype(np.int64)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def refuse_ragged(name: str, column: Any, no_bytes: str) -> None:
    """Raise if a column is ragged. ``no_bytes`` says why byte strings are not supported."""
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
    """Return the error for a column with a dtype that the framework lacks."""
    return OptionError(
        f"column {name!r}: {framework} has no type {dtype}; cast it with map, or leave it out "
        "with select"
    )
