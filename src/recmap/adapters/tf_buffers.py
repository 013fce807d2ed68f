"""Memory that TensorFlow takes as it is, used again and again.

A tensor shares the memory of an array that begins on a cache line; of any other,
TensorFlow makes a copy in memory that is new to the system, and holds the interpreter
meanwhile. A copy into memory that was used before costs less than half of that.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.files.buffer_pool import Buffers

__all__ = ["Aligned"]

_LINE = 64
# Below this, a copy costs less than its bookkeeping.
_SMALL = 1 << 16
# Bytes that wait to be used again.
_SPARE = 1 << 28


class Aligned:
    """Copies arrays where they have to be; their memory comes back when they are gone."""

    def __init__(self) -> None:
        self._buffers = Buffers(_SMALL, sys.maxsize, _SPARE)

    def of(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The array, or a copy that begins on a cache line."""
        if array.nbytes < _SMALL or array.dtype.hasobject:
            return array
        if array.flags.c_contiguous and array.ctypes.data % _LINE == 0:
            return array
        copy = self._buffers.empty(array.shape, array.dtype)
        np.copyto(copy, array)
        return copy
