"""Rows on their way from a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Fetching", "fetching_all"]


class _Hold(Protocol):
    def close(self) -> None: ...


@dataclass(frozen=True)
class Fetching:
    """Rows that are being fetched, to be read soon. Close it once they have been read.

    ``size`` is their bytes, and ``spans`` the number of places they are in.
    """

    size: int
    spans: int
    holds: Sequence[_Hold]

    def close(self) -> None:
        for hold in self.holds:
            hold.close()


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
