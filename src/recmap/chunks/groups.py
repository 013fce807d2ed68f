"""Decoded row groups: those that are kept for the next read, and those that are decoded ahead.

``for_each`` decodes chunks on several threads.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import cache
from threading import Lock
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy.typing as npt

from recmap.machine.cpus import pool_size, thread_count
from recmap.machine.lru import Lru
from recmap.machine.threads import Threads

Values = npt.NDArray[Any]
# Row groups by the label of their array, and their number (see ``Grid``).
ChunkCache = Lru[tuple[str, int], Values]
Item = TypeVar("Item")
_T = TypeVar("_T")
_P = ParamSpec("_P")
# Bytes of partially read row groups to keep.
_KEPT_SIZE = 64 << 20
# A row group larger than this is decoded again on every read.
_LARGEST_KEPT = 256 << 20
# Reads in order before anything is decoded ahead.
_READS = 2


def chunk_cache() -> ChunkCache:
    """Return a cache for the most recently used row groups of a file.

    A row group larger than the whole cache is kept alone, so that a pass in small batches
    decodes it only once.
    """
    return ChunkCache(_KEPT_SIZE, lambda rows: rows.nbytes)


def worth_keeping(size: int, already: int) -> bool:
    """Tell whether to keep ``size`` bytes, given ``already`` bytes kept by the same read."""
    return size <= (_KEPT_SIZE - already if already else _LARGEST_KEPT)


class ExpectedRead(NamedTuple):
    """A read that is expected next, and the row groups that are decoded into its place."""

    stop: int
    rows: Values
    groups: frozenset[int]
    begun: Future[None]


class ReadsAhead:
    """Notices that rows are read in order, and holds what is decoded for the next reads."""

    def __init__(self) -> None:
        self._next = self._reads = 0
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._process = os.getpid()
        self._lock = Lock()
        self._expected: dict[int, ExpectedRead] = {}
        # Row groups that no read is expected to take as a whole.
        self._groups: dict[int, Future[Values]] = {}

    def _locked(self) -> Lock:
        if self._process != os.getpid():  # threads do not survive a fork
            self._begin_anew()
        return self._lock

    def in_order(self, start: int, stop: int) -> bool:
        """Note a read, and tell whether it goes on where the last ones ended."""
        with self._locked():
            if start != self._next:
                self._reads = 0
                self._forget()
            self._reads, self._next = self._reads + 1, stop
            return self._reads > _READS

    def begin(
        self,
        reads: Iterable[range],
        prepare: Callable[[range], ExpectedRead],
        groups: Iterable[int],
        decode: Callable[[int], Values],
    ) -> None:
        """Prepare the reads and decode the row groups that have not been begun."""
        with self._locked():
            for read in reads:
                if read.start not in self._expected:
                    self._expected[read.start] = prepare(read)
            whole = {group for read in self._expected.values() for group in read.groups}
            for group in groups:
                if group not in self._groups and group not in whole:
                    self._groups[group] = begin(decode, group)

    def take_read(self, start: int, stop: int) -> ExpectedRead | None:
        """Return what is decoded for a read; None if it was not expected, or nothing has begun."""
        with self._locked():
            read = self._expected.pop(start, None)
            if read is not None and read.stop != stop:
                self._forget()
                return None
        return None if read is None or read.begun.cancel() else read

    def take_group(self, group: int) -> Values | None:
        """Wait for a row group; None if no thread has begun to decode it."""
        with self._locked():
            for earlier in [each for each in self._groups if each < group]:
                self._groups.pop(earlier).cancel()
            future = self._groups.pop(group, None)
        return None if future is None or future.cancel() else future.result()

    def _forget(self) -> None:
        for future in self._groups.values():
            future.cancel()
        for read in self._expected.values():
            read.begun.cancel()
        self._groups.clear()
        self._expected.clear()


def begin(method: Callable[_P, _T], *args: _P.args, **options: _P.kwargs) -> Future[_T]:
    """Call a method on another thread, unless its object is gone by then."""
    return submit(_call, weakref.WeakMethod(method), *args, **options)


def _call(method: weakref.WeakMethod[Any], *args: Any, **options: Any) -> Any:
    call = method()
    if call is None:
        raise RuntimeError("these rows are no longer being read")
    return call(*args, **options)


def for_each(items: Iterable[Item], work: Callable[[Item], None]) -> None:
    """Call ``work`` on each item, on this thread and as many others as there are CPUs."""
    waiting = deque(items)

    def help_out() -> None:
        try:
            while True:
                try:
                    item = waiting.popleft()
                except IndexError:
                    return
                work(item)
        except BaseException:
            waiting.clear()
            raise

    helpers = min(thread_count(), len(waiting)) - 1
    futures = [submit(help_out) for _ in range(helpers)]
    try:
        help_out()
    finally:
        for future in futures:
            # One that has not begun finds nothing to do.
            if not future.cancel():
                future.exception()
    for future in futures:
        if not future.cancelled():
            future.result()


def submit(function: Callable[_P, _T], *args: _P.args, **options: _P.kwargs) -> Future[_T]:
    """Call a function on another thread."""
    return _threads(os.getpid(), pool_size()).submit(function, *args, **options)


@cache
def _threads(process: int, count: int) -> Threads:
    """Return a pool. Threads do not survive a fork, and a memory budget may allow fewer."""
    return Threads(count, f"recmap-chunks-{process}")
