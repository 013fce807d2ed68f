"""Reuse the memory of freed batches, measure memory, and return it to the system."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import weakref
from collections import deque
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Buffers", "anonymous_memory", "give_back"]

# Below this size, malloc reuses memory just as well. Above it, new pages cost as much as
# filling them. Very large buffers are not worth keeping.
_SMALLEST = 1 << 18
_LARGEST = 1 << 24
_BYTE = np.dtype(np.uint8)
# The most bytes kept for reuse.
_KEPT = 1 << 26
_STATM = "/proc/self/statm"


class Buffers:
    """Makes arrays over buffers that return to the pool when the array is freed.

    Every view keeps its array alive, so a buffer returns only when no view is left. Arrays
    begin on a page boundary. NumPy allocates those below ``smallest`` or above ``largest``
    bytes. Any thread may use the pool.
    """

    def __init__(
        self, smallest: int = _SMALLEST, largest: int = _LARGEST, kept: int = _KEPT
    ) -> None:
        self._smallest, self._largest = smallest, largest
        self._kept = kept
        self._free: deque[mmap.mmap] = deque()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Make an uninitialized array."""
        size = dtype.itemsize * math.prod(shape)
        if not self._smallest <= size <= self._largest or dtype.hasobject:
            return np.empty(shape, dtype)
        try:
            buffer = self._get(size)
        except OSError:  # out of memory: let NumPy raise the usual error
            self._free.clear()
            return np.empty(shape, dtype)
        # Build it directly on the buffer. If it were a view of another array, its own views
        # would keep only that other array alive.
        array: npt.NDArray[Any] = np.ndarray(shape, dtype, buffer)
        weakref.finalize(array, self._return, buffer).atexit = False
        return array

    def bytes(self, size: int) -> npt.NDArray[np.uint8]:
        """Make an uninitialized array of ``size`` bytes."""
        return self.empty((size,), _BYTE)

    def _return(self, buffer: mmap.mmap) -> None:
        # No lock, because the garbage collector may call this at any time. At worst, two
        # threads keep one buffer too many.
        if sum(map(len, tuple(self._free))) + len(buffer) <= self._kept:
            self._free.append(buffer)

    def _get(self, size: int) -> mmap.mmap:
        try:
            buffer = self._free.pop()
        except IndexError:
            return mmap.mmap(-1, _rounded(size), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # A small batch should not occupy a buffer that is much too large.
        if size <= len(buffer) <= 2 * size:
            return buffer
        return self._get(size)

    def __reduce__(self) -> tuple[type[Buffers], tuple[int, ...]]:
        return Buffers, (self._smallest, self._largest, self._kept)


def _rounded(size: int) -> int:
    """Round up by at most an eighth, so that a slightly larger batch fits next time.

    The extra pages are never touched.
    """
    step = 1 << max(size.bit_length() - 4, 0)
    return -(-size // step) * step


def anonymous_memory() -> int:
    """Return the bytes this process holds, without mapped files.

    Return 0 where the system does not report it.
    """
    if not os.path.exists(_STATM):
        return 0
    with open(_STATM, "rb", buffering=0) as file:
        _, resident, of_files, *_ = map(int, file.read().split())
    return (resident - of_files) * os.sysconf("SC_PAGE_SIZE")


def give_back() -> None:
    """Return freed memory to the system.

    If threads free what others allocated, glibc may keep as much freed memory as is in use.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
