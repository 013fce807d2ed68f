"""Memory that TensorFlow takes as it is, used again and again.

A tensor shares the memory of an array that begins on a cache line; of any other,
TensorFlow makes a copy in memory that is new to the system, and holds the interpreter
meanwhile. A copy into memory that was used before costs less than half of that.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Aligned"]

_LINE = 64
# Below this, a copy costs less than its bookkeeping.
_SMALL = 1 << 16
# Buffers that wait to be used again.
_SPARE = 8


class Aligned:
    """Copies arrays where they have to be; their memory comes back when they are gone."""

    def __init__(self) -> None:
        self._spare: deque[npt.NDArray[np.uint8]] = deque(maxlen=_SPARE)

    def of(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The array, or a copy that begins on a cache line."""
        if array.nbytes < _SMALL or array.dtype.hasobject:
            return array
        if array.flags.c_contiguous and array.ctypes.data % _LINE == 0:
            return array
        buffer = self._buffer(array.nbytes + _LINE)
        begin = -buffer.ctypes.data % _LINE
        # Of a memoryview, so that all views of it hold on to this array, not the buffer.
        memory = np.frombuffer(buffer.data[begin : begin + array.nbytes], np.uint8)
        # Arrays go whenever they go, in any thread: an append is all that is safe then.
        weakref.finalize(memory, self._spare.append, buffer).atexit = False
        copy = memory.view(array.dtype).reshape(array.shape)
        np.copyto(copy, array)
        return copy

    def _buffer(self, size: int) -> npt.NDArray[np.uint8]:
        try:
            buffer = self._spare.popleft()
        except IndexError:
            return np.empty(size, np.uint8)
        # One that is too small goes, so that they grow to what is wanted.
        return buffer if buffer.nbytes >= size else np.empty(size, np.uint8)
