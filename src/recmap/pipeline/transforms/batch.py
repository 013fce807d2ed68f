"""``batch``: put rows into batches; and the base classes of all ways to group rows.

If no row is dropped, a block that is read is already a batch, and no grouper is needed.
Otherwise a grouper holds rows until their batch is full. With every batch it reports the rows
it holds, so that a run can resume from there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np

from recmap.errors import OptionError
from recmap.model.arguments import as_whole
from recmap.model.batch import Positions, RowArray, join, pick
from recmap.model.schema import Batch, Schema

END = -1
EpochCuts: TypeAlias = tuple[RowArray, RowArray | None]
"""Where each batch of an epoch ends, and where in the epoch each of their rows is.

The second is None if they are in order.
"""
# Rows and batches are counted in 64 bits.
_MOST = 2**62


@dataclass(frozen=True)
class Group:
    """A batch, and the numbers of its rows.

    After it, all rows before number ``at`` have been given out, except those in ``held``, or in
    what ``held`` returns when a state is saved; ``END`` is after the last row.
    """

    batch: dict[str, Any]
    numbers: Positions
    at: int
    held: Any = ()


class Grouper(ABC):
    """Makes the groups of one epoch."""

    @abstractmethod
    def add(self, batch: Batch, numbers: Positions) -> Iterator[Group]:
        """Take in rows; yield the groups they complete.

        ``numbers`` are their places among the rows of this rank, ascending.
        """

    def flush(self) -> Iterator[Group]:
        """Yield what is left at the end of the epoch."""
        return iter(())

    def restore(self, held: Any, fetch: Callable[[Sequence[int]], Batch]) -> None:  # noqa: B027
        """Hold the rows again that a state says were held; ``fetch`` reads rows by number.

        By default none are held: those that wait come after the rows given out, and are read
        again.
        """


class Grouping(ABC):
    """How rows are put into groups: batches, or packed rows."""

    #: Whether a block that is read is a group, if none of its rows are dropped.
    plain: ClassVar[bool] = False
    #: Whether groups are the same however many blocks are read at once.
    reads_several: ClassVar[bool] = False
    #: Whether rows may have nulls. Batches for training may not.
    keeps_nulls = False
    #: Whether an incomplete group at the end is dropped.
    drop_last = False
    #: Where the batches of an epoch are cut, as a function of the epoch, if that depends on what
    #: rows cost.
    by_cost: Callable[[int], EpochCuts] | None = None

    @property
    @abstractmethod
    def block(self) -> int:
        """Rows to read at once."""

    @property
    def is_open(self) -> bool:
        """Whether ``batch`` is still to come."""
        return False

    @property
    def rows_per_group(self) -> int | None:
        """Rows of every group but the last; None if groups differ."""
        return None

    @property
    def full_size(self) -> int | None:
        """Rows of a full group; None if groups differ."""
        return self.rows_per_group

    def batched(self, size: Any, drop_last: bool) -> Grouping:
        """Return the grouping with the options of ``batch``. Raise if there are batches already."""
        raise OptionError("batch: these are batches already")

    def schema(self, schema: Schema) -> Schema:
        """Return the fields of the groups."""
        return schema

    def sampled(self, batch: Batch) -> Batch:
        """Group a few rows, to see the types."""
        return batch

    @property
    def mean_rows(self) -> int:
        """Rows of a block, on average."""
        return self.block

    def prepare(self) -> None:  # noqa: B027  # most have nothing to compute
        """Compute now what would be computed for the first group."""

    @abstractmethod
    def start(self) -> Grouper:
        """Begin an epoch."""

    def held_numbers(self, held: Any) -> list[int]:
        """Return the numbers of the rows that a state holds; ValueError if they do not fit."""
        if held:
            raise ValueError("nothing is held back")
        return []


@dataclass(frozen=True)
class SingleRows(Grouping, Grouper):
    """No groups: every row of a block that is read is one, as a dict of values.

    As no row waits for others, this is also the grouper of every epoch.
    """

    block_size: int
    rows_per_group = 1
    keeps_nulls = True

    @property
    def block(self) -> int:
        return self.block_size

    def start(self) -> Grouper:
        return self

    def add(self, batch: Batch, numbers: Positions) -> Iterator[Group]:
        names, columns = list(batch), list(batch.values())
        for row, number in enumerate(numbers.tolist()):
            values = [column[row] for column in columns]
            row_number = numbers[row : row + 1]
            yield Group(dict(zip(names, values, strict=True)), row_number, number + 1)


@dataclass(frozen=True)
class Batches(Grouping):
    """Batches of ``size`` rows, in order."""

    size: int
    drop_last: bool = False
    keeps_nulls: bool = False
    plain = True

    @classmethod
    def checked(cls, size: Any, drop_last: bool) -> Batches:
        """Check the user's arguments and return the batches."""
        check_one_size(size)
        return cls(as_whole("size", size, 1, _MOST), drop_last)

    @property
    def block(self) -> int:
        return self.size

    @property
    def rows_per_group(self) -> int:
        return self.size

    def start(self) -> Grouper:
        return _Batcher(self.size, self.drop_last)


class _Batcher(Grouper):
    """Joins the rows that filters keep. It holds only the rows of the next batch."""

    def __init__(self, size: int, drop_last: bool) -> None:
        self._size, self._drop_last = size, drop_last
        self._waiting: list[tuple[Batch, Positions]] = []
        self._rows = 0

    def add(self, batch: Batch, numbers: Positions) -> Iterator[Group]:
        begin = 0
        while self._rows + len(numbers) - begin >= self._size:
            end = begin + self._size - self._rows
            self._wait(batch, numbers, slice(begin, end))
            yield self._group()
            begin = end
        self._wait(batch, numbers, slice(begin, len(numbers)))

    def _wait(self, batch: Batch, numbers: Positions, span: slice) -> None:
        if span.stop > span.start:
            self._waiting.append((pick(batch, span), numbers[span]))
            self._rows += span.stop - span.start

    def _group(self) -> Group:
        batch = join([rows for rows, _ in self._waiting])
        numbers = np.concatenate([each for _, each in self._waiting])
        self._waiting, self._rows = [], 0
        return Group(batch, numbers, int(numbers[-1]) + 1)

    def flush(self) -> Iterator[Group]:
        if self._rows and not self._drop_last:
            yield replace(self._group(), at=END)


def check_one_size(size: Any) -> None:
    """Refuse several batch sizes, which only buckets can have."""
    if isinstance(size, Sequence | np.ndarray) and not isinstance(size, str):
        raise OptionError("several batch sizes are for buckets: bucket(...) comes before")
