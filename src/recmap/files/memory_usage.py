"""Memory that was freed, and that the allocator keeps for later."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

__all__ = ["anonymous_memory", "give_back"]

_STATM = "/proc/self/statm"


def anonymous_memory() -> int:
    """Bytes that this process holds beside the pages of files; 0 where nobody tells."""
    if not os.path.exists(_STATM):
        return 0
    with open(_STATM, "rb", buffering=0) as file:
        _, resident, of_files, *_ = map(int, file.read().split())
    return (resident - of_files) * os.sysconf("SC_PAGE_SIZE")


def give_back() -> None:
    """Has the allocator return what it keeps to the system. glibc keeps much if threads
    free what others took: as much again as is in use was seen.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
