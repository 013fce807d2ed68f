"""Count what is fetched from stores: each store has a counter of its own."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from threading import Lock
from typing import Any

from recmap.model.fetching import FetchCounts


class FetchCounter:
    """Counts from any thread. A copy in another process begins at zero."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests = self._fetched = self._used = self._cache_hits = 0
        self._waited = 0.0
        _counters.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return FetchCounter, ()

    def request(self) -> None:
        """Count a request."""
        with self._lock:
            self._requests += 1

    def fetch(self, size: int) -> None:
        """Count bytes that came from the store."""
        with self._lock:
            self._fetched += size

    def use(self, size: int) -> None:
        """Count bytes that were needed."""
        with self._lock:
            self._used += size

    def hit(self, size: int) -> None:
        """Count bytes that the disk cache had."""
        with self._lock:
            self._cache_hits += size

    def wait(self, seconds: float) -> None:
        """Count seconds that a thread waited for bytes."""
        with self._lock:
            self._waited += seconds

    @property
    def counts(self) -> FetchCounts:
        """What was counted so far."""
        with self._lock:
            return FetchCounts(
                self._requests, self._fetched, self._used, self._cache_hits, self._waited
            )


_counters: weakref.WeakSet[FetchCounter] = weakref.WeakSet()


def counted(counters: Iterable[FetchCounter]) -> FetchCounts:
    """Return the sum of several counters."""
    total = FetchCounts()
    for counter in counters:
        total = total.plus(counter.counts)
    return total


def counted_here() -> FetchCounts:
    """Return what this process has fetched from all stores."""
    return counted(list(_counters))
