"""``repeat``: the same rows, several times or without end."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from recmap.errors import OptionError
from recmap.model.batch import Positions, RowArray
from recmap.model.order import Order, Turn, counted_order
from recmap.model.ordered_rows import OrderedRows
from recmap.model.source import Source


def repeated(rows: Source, times: int | None) -> OrderedRows:
    """Return all rows, ``times`` times or without end."""
    if rows.facts.endless:
        raise OptionError("endless rows cannot be repeated")
    if times is not None and times < 0:
        raise OptionError(f"repeat({times}): give a number of times, or nothing to repeat forever")
    make = partial(Repeat, times=times)
    return OrderedRows(rows, counted_order(rows, make, endless=times is None))


@dataclass(frozen=True)
class Repeat(Order):
    """Rows 0 to ``each``, ``times`` times or without end; each time is a separate epoch."""

    each: int
    times: int | None

    @property
    def count(self) -> int | None:
        return None if self.times is None and self.each > 0 else self.each * (self.times or 0)

    def numbers(self, positions: Positions, epoch: int = 0) -> RowArray:
        del epoch
        return positions % max(self.each, 1)

    def turns(self, positions: Positions, epoch: int) -> list[Turn]:
        # A batch has rows of at most two epochs, unless epochs are tiny.
        turns = positions // max(self.each, 1)
        found = []
        for turn in np.unique(turns):
            mine = np.flatnonzero(turns == turn)
            within = positions[mine] - turn * self.each
            found.append(Turn(epoch * (self.times or 1) + int(turn), within, mine))
        return found
