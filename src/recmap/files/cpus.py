"""What the machine offers, and amounts of it."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from recmap.errors import OptionError

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

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


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


def parse_size(size: int | str) -> int:
    """Bytes: a number, or a text such as ``"512MB"`` or ``"2GiB"``.

    >>> parse_size("512MB"), parse_size("2 GiB"), parse_size(1000)
    (512000000, 2147483648, 1000)
    """
    if isinstance(size, int | np.integer) and not isinstance(size, bool):
        return int(size)
    if not isinstance(size, str):
        raise OptionError(f"cannot read the size {size!r}: write it like '512MB' or '2GiB'")
    match = re.fullmatch(r"\s*(\d{1,30}(?:\.\d+)?)\s*([KMGT]?)(I?)B?\s*", size.upper())
    if match is None:
        raise OptionError(f"cannot read the size {size!r}: write it like '512MB' or '2GiB'")
    number, unit, binary = match.groups()
    return int(float(number) * (_BINARY if binary else _UNITS)[unit])


def size_text(size: float) -> str:
    """Bytes for people.

    >>> size_text(1536), size_text(2.5e9)
    ('1.54 kB', '2.5 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size) < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
