"""Memory that is used again: a batch that nobody has any more makes room for the next."""

from __future__ import annotations

import math
import mmap
import weakref
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Buffers"]

# Below this, what malloc keeps is as good. Above, pages that are given back and had anew
# cost as much as filling them; but so much is not kept without need.
_SMALLEST = 1 << 18
_LARGEST = 1 << 24
# Buffers that wait to be used again.
_KEPT = 4


class Buffers:
    """Makes arrays of any type, over buffers that come back when the array is garbage:
    all views of it hold it, so that none is left then. Any thread may use it. They begin
    on a page; arrays below ``smallest`` or above ``largest`` bytes are NumPy's own.
    """

    def __init__(
        self, smallest: int = _SMALLEST, largest: int = _LARGEST, kept: int = _KEPT
    ) -> None:
        self._smallest, self._largest = smallest, largest
        self._free: deque[mmap.mmap] = deque(maxlen=kept)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """An array of its own, with anything in it."""
        size = dtype.itemsize * math.prod(shape)
        if not self._smallest <= size <= self._largest or dtype.hasobject:
            return np.empty(shape, dtype)
        buffer = self._get(size)
        # Not of an array: NumPy would have views hold that one, and pass over this.
        array: npt.NDArray[Any] = np.ndarray(shape, dtype, buffer)
        weakref.finalize(array, self._free.append, buffer).atexit = False
        return array

    def _get(self, size: int) -> mmap.mmap:
        try:
            buffer = self._free.pop()
        except IndexError:
            return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # One that is much too large is held by a small batch for nothing.
        if size <= len(buffer) <= 2 * size:
            return buffer
        return self._get(size)

    def __reduce__(self) -> tuple[type[Buffers], tuple[int | None, ...]]:
        return Buffers, (self._smallest, self._largest, self._free.maxlen)
