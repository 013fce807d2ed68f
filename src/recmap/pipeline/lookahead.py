"""Fetch the rows of coming requests from a store while those before are worked on.

The order of rows is computed, so what comes next is known. Rows are fetched for several
requests at once: neighbours then come in one piece.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import TypeVar

import numpy as np

from recmap.errors import RecmapError
from recmap.model.fetching import Fetching
from recmap.model.source import Source, at_epoch
from recmap.pipeline.workers.pool import Request

_T = TypeVar("_T")

# The most that is fetched ahead: bytes, a fraction of the memory limit, and places. Far more
# places than there are requests at a time gain nothing.
_MOST_BYTES, _MEMORY_PART, _MOST_SPANS = 64 << 20, 4, 1024
# Bytes of the rows that are fetched together.
_TOGETHER = 8 << 20
# Rows this close to each other are fetched with one request.
_SHARED_GAP = 64 << 10
# Fetch this many times what has been read, so that a few batches cost little.
_GROWTH = 2


def bytes_ahead(memory: int) -> int:
    """Return how many bytes to fetch ahead with this memory limit."""
    return max(1, min(_MOST_BYTES, memory // _MEMORY_PART))


def requests_of_shuffle(rows: int, row_bytes: int, size: int) -> int:
    """Estimate how many requests an epoch of shuffled rows takes, of ``size`` bytes in all.

    Rows that are fetched together and lie close to each other share a request.
    """
    together = min(rows, max(1, _TOGETHER // max(1, row_bytes)))
    return round(rows * math.exp(-together * _SHARED_GAP / max(1, size)))


@dataclass
class _FetchGroup:
    """Requests whose rows are fetched together."""

    fetching: Fetching | None
    size: int
    spans: int
    left: int


class Lookahead:
    """Fetches rows ahead. Call ``done`` when a request has been read, and ``close`` at the end.

    Any thread may call ``done`` and ``close``.
    """

    def __init__(self, rows: Source, most: int) -> None:
        """Fetch at most about ``most`` bytes ahead."""
        self._rows, self._most = rows, most
        self._row_bytes = rows.row_bytes()
        self._together = max(1, min(_TOGETHER, most // 4) // self._row_bytes)
        self._groups: dict[int, _FetchGroup] = {}
        self._size = self._spans = 0
        self._closed = False
        self._lock = Lock()

    def over(self, requests: Iterable[Request]) -> Iterator[Request]:
        """Yield the requests, while the rows of those that follow are fetched."""
        taken = _Taken(requests)
        given = 0
        while True:
            while taken.rows <= _GROWTH * given and self._has_room():
                group = taken.take(max(1, min(self._together, _GROWTH * given)))
                if not group:
                    break
                self.begin(group)
            request = taken.next()
            if request is None:
                return
            given += len(request.positions)
            yield request

    def begin(self, requests: list[Request]) -> None:
        """Begin to fetch the rows of requests of one epoch, all together."""
        positions = np.concatenate([request.positions for request in requests])
        try:
            fetching = at_epoch(self._rows, requests[0].epoch).fetch_ahead(positions)
        except (RecmapError, OSError):
            fetching = None  # reading these rows raises it, in their turn
        if fetching is None:
            group = _FetchGroup(None, len(positions) * self._row_bytes, 0, len(requests))
        else:
            group = _FetchGroup(fetching, fetching.size, fetching.spans, len(requests))
        with self._lock:
            closed = self._closed
            if not closed:
                self._groups.update((request.number, group) for request in requests)
                self._size += group.size
                self._spans += group.spans
        if closed and fetching is not None:
            fetching.close()

    def done(self, request: Request) -> None:
        """Note that a request has been read, or has failed."""
        with self._lock:
            group = self._groups.pop(request.number, None)
            if group is None:
                return
            group.left -= 1
            if group.left:
                return
            self._size -= group.size
            self._spans -= group.spans
        if group.fetching is not None:
            group.fetching.close()

    def around(self, read: Callable[[Request], _T]) -> Callable[[Request], _T]:
        """Return a function that reads requests and calls ``done`` for each."""

        def reading(request: Request) -> _T:
            try:
                return read(request)
            finally:
                self.done(request)

        return reading

    def close(self) -> None:
        """Give up what was fetched."""
        with self._lock:
            self._closed = True
            groups = {id(group): group for group in self._groups.values()}
            self._groups.clear()
        for group in groups.values():
            if group.fetching is not None:
                group.fetching.close()

    def _has_room(self) -> bool:
        with self._lock:
            return self._size < self._most and self._spans < _MOST_SPANS


class _Taken:
    """Requests that were taken from an iterator in advance.

    If the iterator fails, the error is raised after the requests before it.
    """

    def __init__(self, requests: Iterable[Request]) -> None:
        self._requests = iter(requests)
        self._waiting: deque[Request] = deque()
        self._ended = False
        self._error: Exception | None = None
        # The first of the next group, which belongs to another epoch.
        self._held: Request | None = None
        self.rows = 0

    def take(self, rows: int) -> list[Request]:
        """Take requests of one epoch with this many rows or more; none at the end."""
        group: list[Request] = []
        count = 0
        while count < rows and (request := self._pull()) is not None:
            if group and request.epoch != group[0].epoch:
                self._held = request
                break
            group.append(request)
            count += len(request.positions)
        self._waiting += group
        self.rows += count
        return group

    def next(self) -> Request | None:
        """Return the next request; None at the end."""
        if not self._waiting:
            request = self._pull()
            if request is None and self._error is not None:
                raise self._error
            return request
        request = self._waiting.popleft()
        self.rows -= len(request.positions)
        return request

    def _pull(self) -> Request | None:
        if self._held is not None:
            held, self._held = self._held, None
            return held
        if self._ended:
            return None
        try:
            return next(self._requests)
        except StopIteration:
            self._ended = True
        except Exception as e:
            self._ended, self._error = True, e
        return None
