"""Reuse the memory of freed batches, measure memory, and return it to the system."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.native import _core

# Below this size, malloc reuses memory just as well. Above it, new pages cost as much as
# filling them.
_SMALLEST = 1 << 18
# The same if pages are locked: a GPU would have to wait for a copy of other memory.
_SMALLEST_LOCKED = 1 << 12
_BYTE = np.dtype(np.uint8)
_STATM = "/proc/self/statm"

_thread = threading.local()
# What returns the memory of other libraries.
_others: list[Callable[[], object]] = []


def empty(
    shape: tuple[int, ...], dtype: np.dtype[Any], *, smallest: int = _SMALLEST
) -> npt.NDArray[Any]:
    """Make an uninitialized array in memory that earlier arrays may have used.

    The memory is used again when the last view of the array is gone, or returns to the system
    after a second or two. The array begins on a page, unless it has fewer than ``smallest``
    bytes; then NumPy allocates it.
    """
    size = dtype.itemsize * math.prod(shape)
    locked = locks_pages()
    if locked:
        smallest = min(smallest, _SMALLEST_LOCKED)
    if smallest <= size <= _core.most_kept_bytes() and not dtype.hasobject:
        with contextlib.suppress(MemoryError):  # NumPy raises the usual error
            memory: Any = _core.Memory(size, locked)
            return np.ndarray(shape, dtype, memory)
    return np.empty(shape, dtype)


def empty_bytes(size: int) -> npt.NDArray[np.uint8]:
    """Make an uninitialized array of ``size`` bytes, as ``empty`` does."""
    return empty((size,), _BYTE)


@contextmanager
def locked_pages(gpu: int | None) -> Iterator[None]:
    """Make arrays from which GPUs can copy by themselves, if there is a GPU of this number.

    This holds for this thread and for those that recmap starts in this context. Whoever has a
    GPU copy such an array must keep it until that is done: the memory is used again when the
    last view is gone, and PyTorch does not know about it.
    """
    lockable = gpu is not None and _core.prepare_to_lock_pages(gpu)
    with page_locking(lockable):
        yield


def locks_pages() -> bool:
    """Return whether this thread makes arrays from which GPUs can copy by themselves."""
    return getattr(_thread, "locks_pages", False)


@contextmanager
def page_locking(on: bool) -> Iterator[None]:
    """Make arrays as the thread did that started this one."""
    before, _thread.locks_pages = locks_pages(), on
    try:
        yield
    finally:
        _thread.locks_pages = before


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

    Memory of freed batches waits for the next ones. And if threads free what others
    allocated, glibc may keep as much freed memory as is in use.
    """
    _core.release_buffers()
    for release in _others:
        release()
    trim = _trim()
    if trim is not None:
        trim(0)


def also_give_back(release: Callable[[], object]) -> None:
    """Make ``give_back`` call a function of a library that keeps freed memory for itself."""
    _others.append(release)


@cache
def _trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
