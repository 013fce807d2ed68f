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
_BYTE = np.dtype(np.uint8)
# Bytes that wait to be used again.
_KEPT = 1 << 26


class Buffers:
    """Makes arrays of any type, over buffers that come back when the array is garbage:
    all views of it hold it, so that none is left then. Any thread may use it. They begin
    on a page; arrays below ``smallest`` or above ``largest`` bytes are NumPy's own.
    """

    def __init__(
        self, smallest: int = _SMALLEST, largest: int = _LARGEST, kept: int = _KEPT
    ) -> None:
        self._smallest, self._largest = smallest, largest
        self._kept = kept
        self._free: deque[mmap.mmap] = deque()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """An array of its own, with anything in it."""
        size = dtype.itemsize * math.prod(shape)
        if not self._smallest <= size <= self._largest or dtype.hasobject:
            return np.empty(shape, dtype)
        try:
            buffer = self._get(size)
        except OSError:  # no memory: NumPy says so as everybody expects
            self._free.clear()
            return np.empty(shape, dtype)
        # Not of an array: NumPy would have views hold that one, and pass over this.
        array: npt.NDArray[Any] = np.ndarray(shape, dtype, buffer)
        weakref.finalize(array, self._back, buffer).atexit = False
        return array

    def bytes(self, size: int) -> npt.NDArray[np.uint8]:
        """So many bytes, with anything in them."""
        return self.empty((size,), _BYTE)

    def _back(self, buffer: mmap.mmap) -> None:
        # Not under a lock: this may come from the garbage collector, at any moment. If
        # two come at once, a buffer too many is kept.
        if sum(map(len, tuple(self._free))) + len(buffer) <= self._kept:
            self._free.append(buffer)

    def _get(self, size: int) -> mmap.mmap:
        try:
            buffer = self._free.pop()
        except IndexError:
            return mmap.mmap(-1, _rounded(size), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # One that is much too large is held by a small batch for nothing.
        if size <= len(buffer) <= 2 * size:
            return buffer
        return self._get(size)

    def __reduce__(self) -> tuple[type[Buffers], tuple[int, ...]]:
        return Buffers, (self._smallest, self._largest, self._kept)


def _rounded(size: int) -> int:
    """Up to an eighth more, of which no page is touched: the next batch, a little larger,
    shall fit.
    """
    step = 1 << max(size.bit_length() - 4, 0)
    return -(-size // step) * step
