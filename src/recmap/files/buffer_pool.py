"""Reuse memory: a batch that has been freed makes room for the next."""

from __future__ import annotations

import math
import mmap
import weakref
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Buffers"]

# Below this, malloc reuses memory just as well. Above, new pages cost as much as filling
# them; but very large buffers are not worth keeping.
_SMALLEST = 1 << 18
_LARGEST = 1 << 24
_BYTE = np.dtype(np.uint8)
# Bytes kept for reuse, at most.
_KEPT = 1 << 26


class Buffers:
    """Makes arrays over buffers that return to the pool when the array is freed.

    Every view holds the array, so none is left then. Arrays begin on a page; those below
    ``smallest`` or above ``largest`` bytes are NumPy's own. Any thread may use the pool.
    """

    def __init__(
        self, smallest: int = _SMALLEST, largest: int = _LARGEST, kept: int = _KEPT
    ) -> None:
        self._smallest, self._largest = smallest, largest
        self._kept = kept
        self._free: deque[mmap.mmap] = deque()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Make an array with arbitrary content."""
        size = dtype.itemsize * math.prod(shape)
        if not self._smallest <= size <= self._largest or dtype.hasobject:
            return np.empty(shape, dtype)
        try:
            buffer = self._get(size)
        except OSError:  # out of memory: NumPy raises the usual error
            self._free.clear()
            return np.empty(shape, dtype)
        # Directly over the buffer: views of an array over another array hold only that one.
        array: npt.NDArray[Any] = np.ndarray(shape, dtype, buffer)
        weakref.finalize(array, self._return, buffer).atexit = False
        return array

    def bytes(self, size: int) -> npt.NDArray[np.uint8]:
        """Make an array of ``size`` bytes with arbitrary content."""
        return self.empty((size,), _BYTE)

    def _return(self, buffer: mmap.mmap) -> None:
        # No lock: the garbage collector may call this at any moment. At worst two threads
        # keep one buffer too many.
        if sum(map(len, tuple(self._free))) + len(buffer) <= self._kept:
            self._free.append(buffer)

    def _get(self, size: int) -> mmap.mmap:
        try:
            buffer = self._free.pop()
        except IndexError:
            return mmap.mmap(-1, _rounded(size), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # A small batch should not hold a buffer that is much too large.
        if size <= len(buffer) <= 2 * size:
            return buffer
        return self._get(size)

    def __reduce__(self) -> tuple[type[Buffers], tuple[int, ...]]:
        return Buffers, (self._smallest, self._largest, self._kept)


def _rounded(size: int) -> int:
    """Round up by at most an eighth, so that a slightly larger batch fits next time. The extra
    pages are never touched.
    """
    step = 1 << max(size.bit_length() - 4, 0)
    return -(-size // step) * step
