"""How many threads to use: the machine's CPUs, and this thread's share of them."""

from __future__ import annotations

import contextlib
import math
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from recmap.errors import OptionError

_allowed: int | None = None
_CGROUPS, _OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_NO_QUOTA = 1 << 16
_thread = threading.local()


def thread_count() -> int:
    """Return how many threads a call may use.

    This is the number of CPUs that this process may use, or the environment variable
    ``RECMAP_THREADS``.
    A memory budget may allow fewer.
    """
    limit = own_limit()
    return _cpus() if limit is None else min(limit.each, _cpus())


def pool_size() -> int:
    """Return how many threads to start in a pool that several workers share."""
    limit = own_limit()
    return _cpus() if limit is None else min(limit.together, _cpus())


def _cpus() -> int:
    if _allowed is not None:
        return _allowed
    asked = os.environ.get("RECMAP_THREADS")
    if asked:
        return _parse_threads(asked)
    if hasattr(os, "sched_getaffinity"):
        return min(len(os.sched_getaffinity(0)), _quota())
    return os.cpu_count() or 1


@cache
def _quota() -> int:
    """Return how many CPUs the control groups of this process allow; many if they do not say.

    A container may see all CPUs of its machine, and be stopped for most of the time if it uses
    more than its quota.
    """
    quotas = [_NO_QUOTA]
    for folder in _control_groups():
        for reading in (_cpu_max, _cfs_quota):
            with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
                quotas.append(max(1, math.ceil(reading(folder))))
    return min(quotas)


def _control_groups() -> Iterator[Path]:
    """Yield the folders of this process's control groups, and of those around them."""
    with contextlib.suppress(OSError, ValueError):
        for line in os.fsdecode(_OWN_CGROUPS.read_bytes()).splitlines():
            _, controllers, own = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            # Version 2 has one tree for all controllers. A container may see itself as the root.
            roots = [_CGROUPS / controllers, _CGROUPS / "cpu"] if controllers else [_CGROUPS]
            for root in roots:
                place = root / own.lstrip("/")
                yield from (each for each in (place, *place.parents) if each.is_relative_to(root))


def _cpu_max(folder: Path) -> float:
    quota, period = (folder / "cpu.max").read_text("ascii").split()
    return _NO_QUOTA if quota == "max" else int(quota) / int(period)


def _cfs_quota(folder: Path) -> float:
    quota = int((folder / "cpu.cfs_quota_us").read_text("ascii"))
    period = int((folder / "cpu.cfs_period_us").read_text("ascii"))
    return _NO_QUOTA if quota < 0 else quota / period


@lru_cache(maxsize=1)
def _parse_threads(text: str) -> int:
    if not re.fullmatch(r"0*[1-9][0-9]{0,3}", text.strip()):
        raise OptionError(f"RECMAP_THREADS={text!r}: give a number of threads, 1 or more")
    return int(text)


def thread_share() -> int:
    """Return how many threads a call may use while other threads work alongside this one."""
    return max(1, thread_count() // getattr(_thread, "beside", 1))


def work_beside(count: int) -> None:
    """Set how many threads do the same work, including this one, so that they share the CPUs."""
    _thread.beside = count


class ThreadLimit(NamedTuple):
    """The number of threads a memory budget allows, per worker and for all workers together."""

    each: int
    together: int


@contextmanager
def within(limit: ThreadLimit | None) -> Iterator[None]:
    """Limit the threads that this thread, and those it starts, may use. Each takes memory."""
    before, _thread.limit = own_limit(), limit
    try:
        yield
    finally:
        _thread.limit = before


def own_limit() -> ThreadLimit | None:
    """Return the limit of this thread, if it has one."""
    limit: ThreadLimit | None = getattr(_thread, "limit", None)
    return limit


@contextmanager
def using_threads(count: int) -> Iterator[None]:
    """Let the whole process use ``count`` threads.

    A cluster may assign CPUs to a process without telling the operating system.
    """
    global _allowed  # noqa: PLW0603 - there is one machine
    before, _allowed = _allowed, count
    try:
        yield
    finally:
        _allowed = before
