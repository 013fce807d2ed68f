"""Measure the memory of this process, and return freed memory to the system."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

__all__ = ["anonymous_memory", "give_back"]

_STATM = "/proc/self/statm"


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
