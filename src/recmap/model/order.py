"""Order: which rows come, and in which order.

A slice, a selection, a split, a shuffle or a repetition is an order: the row number at each
position is computed when it is asked for. Nothing is copied, and reading can begin anywhere.
To add one, write a small ``Order``; ``OrderedRows`` (ordered_rows.py) does the reading.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy.typing as npt

from recmap.errors import OptionTypeError
from recmap.model.batch import Positions, RowArray
from recmap.model.source import Source

#: Stands for an endless number of rows; larger than any real one.
ENDLESS = 1 << 62


class Turn(NamedTuple):
    """Rows of one epoch: their numbers, and their places among those asked for."""

    epoch: int
    numbers: RowArray
    places: Positions


class Order(ABC):
    """The row number at each position, in each epoch. Orders are never changed, and are pickled."""

    @property
    @abstractmethod
    def count(self) -> int | None:
        """The number of positions; None if endless."""

    @abstractmethod
    def numbers(self, positions: Positions, epoch: int = 0) -> RowArray:
        """Return the row numbers at these positions."""

    @property
    def counted(self) -> bool:
        """Whether the count is known already, so that asking for it takes no time."""
        return True

    @property
    def searched(self) -> bool:
        """Whether the numbers are known already, or computed without reading rows."""
        return self.counted

    @property
    def open_ended(self) -> bool:
        """Whether rows come in file order, and ``up_to`` looks no further than it is asked to."""
        return False

    @property
    def endless(self) -> bool:
        """Whether it is endless."""
        return self.count is None

    @property
    def varies(self) -> bool:
        """Whether the numbers differ from epoch to epoch."""
        return False

    @property
    def damaged(self) -> bool:
        """Whether reading the last of the rows raises, so how many follow is unknown.

        This is known once the count is.
        """
        return False

    def up_to(self, stop: int) -> int:
        """Return ``stop``, or the number of positions if there are fewer."""
        count = self.count
        return stop if count is None else min(stop, count)

    def prepare(self) -> None:  # noqa: B027  # most have nothing to compute
        """Compute now what would be computed when a row is first asked for."""

    def permutation(self, epoch: int) -> Order | None:
        """Return the order of an epoch if every row has one place in it, chosen at random."""
        del epoch
        return None

    def positions_of(self, rows: npt.ArrayLike) -> Positions:
        """Return the positions of these rows; only a permutation knows them."""
        raise NotImplementedError

    def turns(self, positions: Positions, epoch: int) -> Sequence[Turn] | None:
        """Return the rows by their own epochs; None if all are of the epoch that is asked for."""
        del positions, epoch
        return None

    @property
    def gap(self) -> int:
        """The least distance from one row to the next; 0 if rows do not come in file order."""
        return 0

    def span(self, start: int, stop: int | None) -> range | None:
        """Return the rows from one position to another, if they are evenly spaced."""
        del start, stop
        return None

    def open_span(self, start: int, stop: int) -> range | None:
        """Return consecutive rows of which nobody knows yet how many there are; None if known."""
        del start, stop
        return None


@dataclass(frozen=True)
class Span(Order):
    """Evenly spaced rows, such as those of a slice; without end if they stop at ``ENDLESS``."""

    rows: range
    damaged: bool = False

    @property
    def count(self) -> int | None:
        return None if self.rows.stop >= ENDLESS else len(self.rows)

    def numbers(self, positions: Positions, epoch: int = 0) -> RowArray:
        del epoch
        return self.rows.start + self.rows.step * positions

    @property
    def gap(self) -> int:
        return max(0, self.rows.step)

    def span(self, start: int, stop: int | None) -> range:
        return self.rows[start:stop]


@dataclass(frozen=True, eq=False)
class Picked(Order):
    """The rows with these numbers."""

    rows: RowArray

    @property
    def count(self) -> int:
        return len(self.rows)

    def numbers(self, positions: Positions, epoch: int = 0) -> RowArray:
        del epoch
        return self.rows[positions]


@dataclass(frozen=True)
class Chained(Order):
    """An order of what another order makes: ``first`` is applied to the rows."""

    first: Order
    second: Order

    @property
    def count(self) -> int | None:
        return self.second.count

    @property
    def counted(self) -> bool:
        return self.second.counted

    @property
    def searched(self) -> bool:
        return self.first.searched and self.second.searched

    @property
    def varies(self) -> bool:
        return self.first.varies or self.second.varies

    def numbers(self, positions: Positions, epoch: int = 0) -> RowArray:
        return self.first.numbers(self.second.numbers(positions, epoch), epoch)

    def prepare(self) -> None:
        self.first.prepare()
        self.second.prepare()


class Late(Order):
    """An order that is made when it is first needed: rows have to be counted or read for it."""

    def __init__(
        self,
        make: Callable[[], Order],
        known: Callable[[], bool] | None = None,
        *,
        varies: bool = False,
        endless: bool = False,
        permutes: bool = False,
    ) -> None:
        """``known`` returns whether making it takes no time by now; ``endless`` is a guess."""
        self._make, self._known = make, known
        self._varies, self._endless, self._permutes = varies, endless, permutes

    @cached_property
    def made(self) -> Order:
        """The order itself."""
        return self._make()

    @property
    def count(self) -> int | None:
        return self.made.count

    @property
    def counted(self) -> bool:
        return "made" in self.__dict__ or (self._known is not None and self._known())

    @property
    def searched(self) -> bool:
        return self.counted and self.made.searched

    @property
    def endless(self) -> bool:
        return self.made.endless if "made" in self.__dict__ else self._endless

    @property
    def varies(self) -> bool:
        return self._varies

    @property
    def damaged(self) -> bool:
        return "made" in self.__dict__ and self.made.damaged

    @property
    def gap(self) -> int:
        return self.made.gap

    def span(self, start: int, stop: int | None) -> range | None:
        return self.made.span(start, stop)

    def numbers(self, positions: Positions, epoch: int = 0) -> RowArray:
        return self.made.numbers(positions, epoch)

    def turns(self, positions: Positions, epoch: int) -> Sequence[Turn] | None:
        return self.made.turns(positions, epoch)

    def permutation(self, epoch: int) -> Order | None:
        if "made" in self.__dict__:
            return self.made.permutation(epoch)
        return Late(partial(self._permutation, epoch)) if self._permutes else None

    def _permutation(self, epoch: int) -> Order:
        return self.made.permutation(epoch) or self

    def positions_of(self, rows: npt.ArrayLike) -> Positions:
        return self.made.positions_of(rows)

    def prepare(self) -> None:
        self.made.prepare()

    def __getstate__(self) -> dict[str, Any]:
        # Other processes do not count again.
        dropped = ("_make", "_known") if "made" in self.__dict__ else ()
        return {name: each for name, each in self.__dict__.items() if name not in dropped}


def counted_order(
    source: Source,
    make: Callable[[int], Order],
    count: Callable[[Source], int] = len,
    *,
    varies: bool = False,
    endless: bool = False,
    permutes: bool = False,
) -> Order:
    """Return the order that ``make`` makes for the number of rows: now, if they are counted.

    The answers to ``varies``, ``endless`` and ``permutes`` are needed before.
    """
    known = source.known_rows()
    if known is not None:
        return make(known)
    return Late(
        partial(_made, source, make, count),
        partial(is_counted, source),
        varies=varies,
        endless=endless,
        permutes=permutes,
    )


def _made(source: Source, make: Callable[[int], Order], count: Callable[[Source], int]) -> Order:
    return make(count(source))


def is_counted(source: Source) -> bool:
    """Return whether the number of rows is known."""
    return source.known_rows() is not None


def finite(count: int | None) -> int:
    """Return the number of rows; raise if endless."""
    if count is None:
        raise OptionTypeError("these rows are endless, so they have no length")
    return count
