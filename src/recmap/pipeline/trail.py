"""The places a run has been at, for those who take batches before they use them."""

from __future__ import annotations

from collections import deque

from recmap.errors import OptionError
from recmap.pipeline.state import Cursor

__all__ = ["Trail"]

# Batches that may be ahead of their use.
_KEPT = 256


class Trail:
    """The places after each of the last batches of an iteration."""

    def __init__(self, begin: Cursor) -> None:
        self._places = deque([begin], maxlen=_KEPT + 1)
        self._given = 0

    def add(self, place: Cursor) -> None:
        """Another batch was given out."""
        self._places.append(place)
        self._given += 1

    def end(self, place: Cursor) -> None:
        """There are no more: what comes after the last batch is the end."""
        self._places[-1] = place

    def after(self, batches: int | None) -> Cursor:
        """The place after so many batches; None is after all that were given out."""
        back = 0 if batches is None else self._given - batches
        if 0 <= back < len(self._places):
            return self._places[-1 - back]
        raise OptionError(
            f"state(batches={batches}): {self._given:,} have been given out in this iteration, and "
            f"the places after the last {_KEPT} are known"
        )
