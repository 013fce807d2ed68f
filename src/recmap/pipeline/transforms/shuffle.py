"""Other orders of rows: some of them, from here to there, again and again, shuffled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from recmap.errors import OptionError
from recmap.model.batch import interleave
from recmap.model.permutation import Permutation
from recmap.model.schema import Batch, Schema
from recmap.pipeline.row_source import Positions, Rows, is_damaged, reach_of, sound_rows
from recmap.pipeline.signature import Seed

__all__ = ["Picked", "Rearranged", "Repeated", "Shuffled", "Stretch", "cut"]


class _Reordered:
    """Rows over others: what does not change with the order."""

    def __init__(self, rows: Rows, count: int | None) -> None:
        self._rows, self._count = rows, count
        self.in_order, self.ours = rows.in_order, rows.ours

    @property
    def count(self) -> int | None:
        """How many; None if there is no end."""
        return self._count

    @property
    def schema(self) -> Schema:
        return self._rows.schema

    def select(self, columns: Sequence[str]) -> Rows:
        return self._over(self._rows.select(columns))

    def renumbered(self, by: int) -> Rows:
        return self._over(self._rows.renumbered(by))

    def _over(self, rows: Rows) -> Rows:
        """The same order of other rows."""
        raise NotImplementedError

    def row_bytes(self) -> int:
        return self._rows.row_bytes()


class Rearranged(_Reordered):
    """Rows that are others of the same epoch."""

    @property
    def rows(self) -> Rows:
        """Those others."""
        return self._rows

    def numbers(self, positions: Positions, epoch: int) -> Positions:
        """Which of them."""
        raise NotImplementedError

    def gather(self, positions: Positions, epoch: int) -> Batch:
        return self._rows.gather(self.numbers(positions, epoch), epoch)

    def whence(self, position: int, epoch: int) -> str:
        return self._rows.whence(int(self.numbers(np.array([position]), epoch)[0]), epoch)


class Picked(Rearranged):
    """The rows with these numbers."""

    def __init__(self, rows: Rows, numbers: Positions) -> None:
        super().__init__(rows, len(numbers))
        self._numbers = numbers

    def _over(self, rows: Rows) -> Rows:
        return Picked(rows, self._numbers)

    def numbers(self, positions: Positions, epoch: int) -> Positions:
        del epoch
        return self._numbers[positions]

    def describe(self) -> list[Any]:
        marks = [int(number) for number in self._numbers[:: max(1, len(self._numbers) // 16)]]
        return ["picked", self._rows.describe(), len(self._numbers), marks]


class Stretch(Rearranged):
    """The rows from ``start`` to ``stop``, within reach."""

    def __init__(self, rows: Rows, start: int, stop: int | None) -> None:
        self.reach = None if stop is None else stop - start
        super().__init__(rows, self.reach)
        self._start, self._stop = start, stop
        #: Whether the row that raises is the last of these.
        self.damaged = is_damaged(rows) and stop == reach_of(rows) and self.reach != 0

    @property
    def count(self) -> int | None:
        """How many; the damage is raised that keeps it from being known."""
        return self._rows.count if self.damaged else self.reach

    def sound(self, positions: Positions) -> int:
        """How many rows, of those that follow each other, lie in front of a bad one."""
        return sound_rows(self._rows, positions + self._start)

    def _over(self, rows: Rows) -> Rows:
        return Stretch(rows, self._start, self._stop)

    def numbers(self, positions: Positions, epoch: int) -> Positions:
        del epoch
        return positions + self._start

    def describe(self) -> list[Any]:
        return ["stretch", self._rows.describe(), self._start, self.reach]


def cut(rows: Rows, skip: int, take: int | None) -> Rows:
    """The rows without the first ``skip``, and of those the first ``take``."""
    count = reach_of(rows)
    # Nobody knows what lies behind a bad row: who skips it meets it.
    start = skip if count is None else min(skip, count - is_damaged(rows))
    stop = count if take is None else start + take
    if count is not None and stop is not None:
        stop = min(stop, count)
    return Stretch(rows, start, stop)


class Repeated(_Reordered):
    """All rows, ``times`` times, or without end; each time is an epoch of its own."""

    def __init__(self, rows: Rows, times: int | None) -> None:
        if rows.count is None:
            raise OptionError("rows without end cannot be repeated")
        if times is not None and times < 0:
            raise OptionError(f"repeat({times}): give a number of times, or nothing for no end")
        endless = times is None and rows.count > 0
        super().__init__(rows, None if endless else rows.count * (times or 0))
        self._times, self._each = times, rows.count

    def _over(self, rows: Rows) -> Rows:
        return Repeated(rows, self._times)

    def gather(self, positions: Positions, epoch: int) -> Batch:
        # A batch has rows of two epochs at most, if epochs are not tiny.
        turns = positions // max(self._each, 1)
        parts, places = [], []
        for turn in np.unique(turns):
            mine = np.flatnonzero(turns == turn)
            within = positions[mine] - turn * self._each
            parts.append(self._rows.gather(within, self._epoch(int(turn), epoch)))
            places.append(mine)
        return interleave(parts, places) if parts else self._rows.gather(positions, epoch)

    def _epoch(self, turn: int, epoch: int) -> int:
        return epoch * (self._times or 1) + turn

    def whence(self, position: int, epoch: int) -> str:
        turn, within = divmod(position, max(self._each, 1))
        return self._rows.whence(within, self._epoch(turn, epoch))

    def describe(self) -> list[Any]:
        return ["repeated", self._rows.describe(), self._times]


class Shuffled(Rearranged):
    """All rows in a random order, which is another in every epoch unless it is kept."""

    def __init__(self, rows: Rows, seed: Seed, reshuffle: bool = True) -> None:
        if rows.count is None:
            raise OptionError("rows without end cannot be shuffled; shuffle before repeat")
        super().__init__(rows, rows.count)
        self._seed, self._reshuffle, self._each = seed, reshuffle, rows.count
        self._order: tuple[tuple[int, int], Permutation] | None = None

    def numbers(self, positions: Positions, epoch: int) -> Positions:
        order, key = self._order, (self._seed.value, epoch if self._reshuffle else 0)
        if order is None or order[0] != key:
            self._order = order = (key, Permutation(self._each, key))
        return order[1][positions]

    def _over(self, rows: Rows) -> Rows:
        return Shuffled(rows, self._seed, self._reshuffle)

    def describe(self) -> list[Any]:
        return ["shuffled", self._rows.describe(), self._seed.value]
