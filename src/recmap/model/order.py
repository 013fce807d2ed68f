"""Order: which rows come, and in which order; OrderedRows: the rows of a source in an order.

A slice, a selection, a split, a shuffle or a repetition is an order: the row number at each
position is computed when it is asked for. Nothing is copied, and reading can begin anywhere.
To add one, write a small ``Order``; ``OrderedRows`` does the reading.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionTypeError
from recmap.model.batch import (
    Allocate,
    PaddedRows,
    PadSpec,
    Positions,
    RowArray,
    RowNumbers,
    interleave,
)
from recmap.model.facts import SourceFacts
from recmap.model.fetching import Coming, Fetching, fetching_all
from recmap.model.ragged import Column
from recmap.model.row_sizes import RowSizes, measure
from recmap.model.schema import Batch
from recmap.model.source import (
    MappedColumns,
    Source,
    WrappedSource,
    at_epoch,
    gather_within,
    row_name,
    stored_rows,
)

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
        partial(_is_counted, source),
        varies=varies,
        endless=endless,
        permutes=permutes,
    )


def _made(source: Source, make: Callable[[int], Order], count: Callable[[Source], int]) -> Order:
    return make(count(source))


def _is_counted(source: Source) -> bool:
    return source.known_rows() is not None


def finite(count: int | None) -> int:
    """Return the number of rows; raise if endless."""
    if count is None:
        raise OptionTypeError("these rows are endless, so they have no length")
    return count


class OrderedRows(WrappedSource):
    """The rows of a source in an order, which may differ from epoch to epoch."""

    def __init__(self, source: Source, order: Order) -> None:
        super().__init__(source)
        self._order, self._epoch = order, 0

    @property
    def _count(self) -> int | None:
        return self._order.count

    @property
    def facts(self) -> SourceFacts:
        facts = self._source.facts
        return replace(
            facts,
            in_order=False,
            table_index=None,
            endless=self._order.endless,
            searched=facts.searched and self._order.searched,
            varies=facts.varies or self._order.varies,
            rows_before_damage=self._rows_before_damage,
            sound_rows=self._sound_rows,
            largest_row=self._largest_row,
        )

    def __len__(self) -> int:
        count = finite(self._count)
        return len(self._source) if self._order.damaged else count  # raises if it is damaged

    def known_rows(self) -> int | None:
        sound = self._order.counted and not self._order.endless and not self._order.damaged
        return len(self) if sound else None

    def up_to(self, stop: int) -> int:
        return self._order.up_to(stop)

    def _rows_before_damage(self) -> int | None:
        return finite(self._count) - 1 if self._order.damaged else None

    def at_epoch(self, epoch: int) -> Source:
        if epoch == self._epoch:
            return self
        other = copy(self)
        other._epoch = epoch  # noqa: SLF001  # a copy of this one
        return other

    def prepare(self) -> None:
        super().prepare()
        self._order.prepare()

    def unshuffled(self) -> tuple[Source, Order] | None:
        """Return the rows before they were shuffled, and the order; None if they were not."""
        order = self._order.permutation(self._epoch)
        return None if order is None else (at_epoch(self._source, self._epoch), order)

    def _turns(self, rows: RowNumbers) -> list[tuple[Source, RowArray, Positions | None]]:
        """Return what to read: the source in an epoch, numbers of rows, and places in ``rows``."""
        positions = np.asarray(rows, np.int64)
        turns = self._order.turns(positions, self._epoch)
        if turns is None:
            numbers = self._order.numbers(positions, self._epoch)
            return [(at_epoch(self._source, self._epoch), numbers, None)]
        return [(at_epoch(self._source, epoch), mine, places) for epoch, mine, places in turns]

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        stop = max(start, self._order.up_to(stop))
        span = self._order.span(start, stop)
        if span is not None and span.step == 1:
            source = at_epoch(self._source, self._epoch)
            return source.read(span.start, max(span.start, span.stop), limit)
        positions = np.arange(start, stop, dtype=np.int64)
        turns = self._turns(positions)
        if len(turns) != 1:
            return gather_within(self, positions, limit)
        source, rows, _ = turns[0]
        facts = source.facts
        apart = facts.calls_user_code or not 0 < self._order.gap < facts.chunk_rows()
        if limit is None or not len(rows) or apart:
            return gather_within(source, rows, limit)
        # Read the whole span: the rows in between have to be decoded anyway.
        some = source.read(int(rows[0]), int(rows[-1]) + 1, limit)
        found = rows[rows < rows[0] + measure(some)[0]] - rows[0]
        return {name: column[found] for name, column in some.items()}

    def gather(self, rows: RowArray) -> Batch:
        turns = self._order.turns(rows, self._epoch)
        if turns is None:
            numbers = self._order.numbers(rows, self._epoch)
            return at_epoch(self._source, self._epoch).gather(numbers)
        if not turns:
            return self._source.gather(rows)
        parts = [at_epoch(self._source, each.epoch).gather(each.numbers) for each in turns]
        return interleave(parts, [each.places for each in turns])

    def stored_rows(self, rows: RowArray) -> tuple[Source, RowArray]:
        turns = self._turns(rows)
        if len(turns) != 1 or turns[0][2] is not None:
            return self, rows
        source, numbers, _ = turns[0]
        return stored_rows(source, numbers)

    def read_padded(
        self, rows: RowNumbers, pads: Mapping[str, PadSpec], size: int, allocate: Allocate
    ) -> PaddedRows | None:
        span = self._order.span(rows.start, rows.stop) if isinstance(rows, range) else None
        if span is not None and span.step == 1:
            return at_epoch(self._source, self._epoch).read_padded(span, pads, size, allocate)
        turns = self._turns(rows)
        if len(turns) != 1:
            return None
        return turns[0][0].read_padded(turns[0][1], pads, size, allocate)

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        return fetching_all(source.fetch_ahead(numbers) for source, numbers, _ in self._turns(rows))

    def coming(self, start: int, stop: int | None = None) -> Iterator[Coming]:
        span = self._order.span(max(0, start), stop)
        if not span or span.step != 1:
            return iter(())  # rows of any file may be next
        return at_epoch(self._source, self._epoch).coming(span.start - (start < 0), span.stop)

    def row_sizes(self, rows: RowArray) -> RowSizes | None:
        total = np.empty(len(rows), np.int64)
        for source, numbers, places in self._turns(rows):
            sizes = source.row_sizes(numbers)
            if sizes is None or places is None:
                return sizes
            total[places] = sizes
        return total

    def row_name(self, row: int) -> str:
        [(source, numbers, _)] = self._turns(np.array([row]))
        return row_name(source, int(numbers[0]))

    def _largest_row(self, above: int) -> tuple[int, int] | None:
        span = self._order.span(0, None)
        largest = None if span is None else self._source.facts.largest_row(above)
        # The largest row of the source may not be one of these.
        if span is None or largest is None or largest[0] not in span:
            return None
        return span.index(largest[0]), largest[1]

    def _sound_rows(self, rows: Positions) -> int:
        count = self._source.facts.sound_rows
        in_files = self._order.gap == 1 and self._order.span(0, 0) is not None
        return count(self._order.numbers(rows)) if in_files and count is not None else 0

    def column(self, name: str) -> Column | None:
        del name
        return None


def unshuffled(source: Source) -> tuple[Source, Order] | None:
    """Return the rows of a source before they were shuffled, and their order.

    What became of columns since does not depend on the order. Return None if the rows were not
    shuffled, or if other verbs came after that.
    """
    if isinstance(source, OrderedRows):
        return source.unshuffled()
    if not isinstance(source, MappedColumns):
        return None
    found = unshuffled(source._source)  # noqa: SLF001  # of the same package
    return None if found is None else (source._over(found[0]), found[1])  # noqa: SLF001


def sliced(source: Source, rows: slice) -> OrderedRows:
    """Return the rows of a slice."""
    bounds = rows.start, rows.stop
    ahead = rows.stop is not None and all(bound is None or bound >= 0 for bound in bounds)
    # The rows after the slice need not be counted.
    count = partial(count_up_to, stop=rows.stop) if ahead and (rows.step or 1) > 0 else len
    return OrderedRows(source, counted_order(source, partial(_sliced, rows=rows), count))


def count_up_to(source: Source, stop: int) -> int:
    """Return ``stop``, or the number of rows if there are fewer; raise if that is unknown."""
    return stop if source.up_to(stop) == stop else len(source)  # which raises if it is unknown


def _sliced(count: int, rows: slice) -> Span:
    return Span(range(*rows.indices(count)))
