"""Fetch the rows of coming requests from a store while those before are worked on.

The order of rows is computed, so what comes next is known. Rows are fetched for several
requests at once: neighbours then come in one piece.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

import numpy as np

from recmap.model.source import Source, at_epoch
from recmap.pipeline.workers.pool import Intake, Request
from recmap.store.read_ahead import Begun, far_ahead

_T = TypeVar("_T")

# Places that are fetched ahead. Far more than there are requests at a time gain nothing.
_MOST_SPANS = 1024
# Bytes of the rows that are fetched together.
_TOGETHER = 8 << 20
# Rows this close to each other are fetched with one request.
_SHARED_GAP = 64 << 10


def requests_of_shuffle(rows: int, row_bytes: int, size: int) -> int:
    """Estimate how many requests an epoch of shuffled rows takes, of ``size`` bytes in all.

    Rows that are fetched together and lie close to each other share a request.
    """
    together = min(rows, max(1, _TOGETHER // max(1, row_bytes)))
    return round(rows * math.exp(-together * _SHARED_GAP / max(1, size)))


class Lookahead:
    """Fetches rows ahead. Call ``done`` when a request has been read, and ``close`` at the end.

    Any thread may call ``done`` and ``close``.
    """

    def __init__(self, rows: Source, most: int) -> None:
        """Fetch at most about ``most`` bytes ahead."""
        self._rows, self._most = rows, most
        self._row_bytes = rows.row_bytes()
        self._together = max(1, min(_TOGETHER, most // 4) // self._row_bytes)
        # The requests of each group that are still to be read, by the number of each request.
        self._groups: dict[int, set[int]] = {}
        self._begun = Begun()
        #: Give up what was fetched.
        self.close = self._begun.close

    def over(self, requests: Iterable[Request]) -> Iterator[Request]:
        """Yield the requests, while the rows of those that follow are fetched."""
        taken = _Taken(requests)
        given = 0
        while True:
            while taken.rows <= far_ahead(given) and self._has_room():
                group = taken.take(far_ahead(given, least=1, most=self._together))
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
        group = {request.number for request in requests}
        self._groups.update(dict.fromkeys(group, group))
        rows = at_epoch(self._rows, requests[0].epoch)
        fetch = partial(rows.fetch_ahead, positions)
        self._begun.begin(id(group), len(positions) * self._row_bytes, fetch)

    def done(self, request: Request) -> None:
        """Note that a request has been read, or has failed."""
        group = self._groups.pop(request.number, None)
        if group is not None:
            group.discard(request.number)
            if not group:
                self._begun.end(id(group))

    def around(self, read: Callable[[Request], _T]) -> Callable[[Request], _T]:
        """Return a function that reads requests and calls ``done`` for each."""

        def reading(request: Request) -> _T:
            try:
                return read(request)
            finally:
                self.done(request)

        return reading

    def _has_room(self) -> bool:
        return self._begun.size < self._most and self._begun.spans < _MOST_SPANS


def lookahead_of(work: object) -> Lookahead | None:
    """Return what fetches the rows of coming requests for this work, if anything does."""
    lookahead: Callable[[], Lookahead | None] | None = getattr(work, "lookahead", None)
    return None if lookahead is None else lookahead()


class _Taken:
    """Requests that were taken from an iterator in advance.

    If the iterator fails, the error is raised after the requests before it.
    """

    def __init__(self, requests: Iterable[Request]) -> None:
        self._requests = Intake(requests)
        self._waiting: deque[Request] = deque()
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
            if request is None:
                self._requests.raise_error()
            return request
        request = self._waiting.popleft()
        self.rows -= len(request.positions)
        return request

    def _pull(self) -> Request | None:
        if self._held is None:
            return self._requests.next()
        held, self._held = self._held, None
        return held
