"""What ``take`` and ``skip`` leave of things that come one after the other."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Cut"]

_ENDLESS = 1 << 62


@dataclass(frozen=True)
class Cut:
    """Like the slice ``[skip : skip + take]``; ``take`` of None goes on to the end.

    >>> Cut().then(0, 3).then(1, None)
    Cut(skip=1, take=2)
    """

    skip: int = 0
    take: int | None = None

    def __bool__(self) -> bool:
        """Whether anything is left out."""
        return self.skip > 0 or self.take is not None

    @property
    def stop(self) -> int:
        """The number of the first that is not wanted any more."""
        return _ENDLESS if self.take is None else self.skip + self.take

    def then(self, skip: int, take: int | None) -> Cut:
        """A cut of what this one leaves."""
        left = None if self.take is None else max(0, self.take - skip)
        counts = [count for count in (left, take) if count is not None]
        return Cut(self.skip + skip, min(counts, default=None))

    def wanted(self, before: int, count: int) -> int:
        """How many of the next ``count`` it leaves, when ``before`` came already."""
        return max(0, min(before + count, self.stop) - max(before, self.skip))
