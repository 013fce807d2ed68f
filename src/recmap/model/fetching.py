"""Rows on their way from a store."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class FetchCounts(NamedTuple):
    """What reading from stores took: bytes ``fetched``, and those of them that were ``used``.

    ``cache_hits`` are bytes that the disk cache had, and ``waited`` the seconds that threads
    waited for bytes.
    """

    requests: int = 0
    fetched: int = 0
    used: int = 0
    cache_hits: int = 0
    waited: float = 0.0

    def plus(self, other: FetchCounts) -> FetchCounts:
        return FetchCounts(*map(operator.add, self, other))

    def minus(self, other: FetchCounts) -> FetchCounts:
        return FetchCounts(*map(operator.sub, self, other))


class Closable(Protocol):
    """Something to close."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Fetching:
    """Rows that are being fetched, to be read soon. Close it once they have been read.

    ``size`` is their bytes, and ``spans`` the number of places they are in.
    """

    size: int
    spans: int
    holds: Sequence[Closable]

    def close(self) -> None:
        for hold in self.holds:
            hold.close()


@dataclass(frozen=True)
class Coming:
    """A file that comes after others when the rows of ``source`` are read in order.

    ``fetch`` begins to fetch what is read of it, at most ``size`` bytes. ``stop`` returns the
    number of the row after its last one; None as long as that is unknown.
    """

    source: object
    size: int
    fetch: Callable[[], Fetching | None]
    stop: Callable[[], int | None]


def fetching_all(parts: Iterable[Fetching | None]) -> Fetching | None:
    """Return one for several; None if nothing is fetched. They begin in the order given."""
    begun: list[Fetching] = []
    try:
        begun.extend(part for part in parts if part is not None)
    except BaseException:
        for each in begun:
            each.close()
        raise
    if len(begun) < 2:
        return begun[0] if begun else None
    holds = [hold for each in begun for hold in each.holds]
    return Fetching(sum(each.size for each in begun), sum(each.spans for each in begun), holds)
