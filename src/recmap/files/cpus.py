"""What the machine offers, and amounts of it."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

from recmap.errors import OptionError
from recmap.model.byte_size import parse_size, size_text

__all__ = [
    "Share",
    "own_share",
    "parse_size",
    "pool_size",
    "size_text",
    "thread_count",
    "thread_share",
    "using_threads",
    "within",
    "work_beside",
]

_allowed: int | None = None
_here = threading.local()


def thread_count() -> int:
    """The processors this process may use: as many as the system says, or the variable
    ``RECMAP_THREADS`` of the environment. Fewer where a budget allows no more.
    """
    share = own_share()
    return _processors() if share is None else min(share.each, _processors())


def pool_size() -> int:
    """Threads of a pool that many share, as this thread does."""
    share = own_share()
    return _processors() if share is None else min(share.together, _processors())


def _processors() -> int:
    if _allowed is not None:
        return _allowed
    asked = os.environ.get("RECMAP_THREADS")
    if asked:
        return _parse_threads(asked)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@lru_cache(maxsize=1)
def _parse_threads(text: str) -> int:
    if not re.fullmatch(r"0*[1-9][0-9]{0,3}", text.strip()):
        raise OptionError(f"RECMAP_THREADS={text!r}: give a number of threads, 1 or more")
    return int(text)


def thread_share() -> int:
    """The processors for one call of this thread, if others do the same beside it."""
    return max(1, thread_count() // getattr(_here, "beside", 1))


def work_beside(count: int) -> None:
    """Has this thread know that it is one of so many that do the same."""
    _here.beside = count


class Share(NamedTuple):
    """What a budget leaves of the machine: to each of some workers, and to all of them."""

    each: int
    together: int


@contextmanager
def within(share: Share | None) -> Iterator[None]:
    """Has this thread, and those it starts, use no more threads than that: each one that
    works holds blocks in memory.
    """
    before, _here.share = own_share(), share
    try:
        yield
    finally:
        _here.share = before


def own_share() -> Share | None:
    """What this thread is limited to, if it is."""
    share: Share | None = getattr(_here, "share", None)
    return share


@contextmanager
def using_threads(count: int) -> Iterator[None]:
    """Has all threads of this process take it for one that may use so many processors:
    whoever shares out a machine does not always tell the system.
    """
    global _allowed  # noqa: PLW0603 - there is one machine
    before, _allowed = _allowed, count
    try:
        yield
    finally:
        _allowed = before
