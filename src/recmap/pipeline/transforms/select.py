"""``select``, ``take`` and ``skip``: some of the columns, or some of the rows by number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError, RecmapError, RowNotFoundError
from recmap.model.arguments import as_slice
from recmap.model.batch import Positions
from recmap.model.nulls import with_masks
from recmap.model.schema import Schema
from recmap.pipeline.row_source import Rows, is_damaged, reach_of, sound_rows
from recmap.pipeline.sharding import ENDLESS
from recmap.pipeline.transforms.base import Block, ReorderedRows, Transform

RowNumbersLike: TypeAlias = slice | range | Sequence[int] | npt.NDArray[Any]


@dataclass(frozen=True)
class SelectColumns(Transform):
    """Keeps the columns with these names, after functions that need other columns too."""

    columns: tuple[str, ...]

    @property
    def name(self) -> str:
        return "select"

    def prepared(self, schema: Schema, sample: Block) -> tuple[Transform, Schema]:
        columns = with_masks(self.columns, schema)
        return SelectColumns(tuple(columns)), schema.select(columns)

    def apply(self, block: Block) -> Block:
        return replace(block, batch={name: block.batch[name] for name in self.columns})


@dataclass(frozen=True)
class Slice:
    """The slice ``[skip : skip + take]``; ``take`` None means everything to the end.

    >>> Slice().then(0, 3).then(1, None)
    Slice(skip=1, take=2)
    """

    skip: int = 0
    take: int | None = None

    def __bool__(self) -> bool:
        """Return whether anything is left out."""
        return self.skip > 0 or self.take is not None

    @property
    def stop(self) -> int:
        """The number of the first item after the slice."""
        return ENDLESS if self.take is None else self.skip + self.take

    def then(self, skip: int, take: int | None) -> Slice:
        """Return a slice of this slice."""
        left = None if self.take is None else max(0, self.take - skip)
        counts = [count for count in (left, take) if count is not None]
        return Slice(self.skip + skip, min(counts, default=None))

    def wanted(self, before: int, count: int) -> int:
        """Count how many of the next ``count`` items are in the slice, after ``before`` others."""
        return max(0, min(before + count, self.stop) - max(before, self.skip))


class PickedRows(ReorderedRows):
    """The rows with these numbers."""

    def __init__(self, rows: Rows, numbers: Positions) -> None:
        super().__init__(rows, len(numbers))
        self._numbers = numbers

    def _over(self, rows: Rows) -> Rows:
        return PickedRows(rows, self._numbers)

    def numbers(self, positions: Positions, epoch: int) -> Positions:
        del epoch
        return self._numbers[positions]


class SpanRows(ReorderedRows):
    """The rows from ``start`` to ``stop``."""

    def __init__(self, rows: Rows, start: int, stop: int | None) -> None:
        self.reach = None if stop is None else stop - start
        super().__init__(rows, self.reach)
        self._start, self._stop = start, stop
        #: Whether reading the last of these rows raises.
        self.damaged = is_damaged(rows) and stop == reach_of(rows) and self.reach != 0

    @property
    def count(self) -> int | None:
        """The number of rows. Raises the damage that makes it unknown."""
        return self._rows.count if self.damaged else self.reach

    def sound(self, positions: Positions) -> int:
        """Count the consecutive rows before a bad one."""
        return sound_rows(self._rows, positions + self._start)

    def _over(self, rows: Rows) -> Rows:
        return SpanRows(rows, self._start, self._stop)

    def numbers(self, positions: Positions, epoch: int) -> Positions:
        del epoch
        return positions + self._start


def sliced(rows: Rows, skip: int, take: int | None) -> Rows:
    """Drop the first ``skip`` rows, and return the first ``take`` of the others."""
    count = reach_of(rows)
    # What follows a bad row is unknown, so the bad row cannot be skipped.
    start = skip if count is None else min(skip, count - is_damaged(rows))
    stop = count if take is None else start + take
    if count is not None and stop is not None:
        stop = min(stop, count)
    return SpanRows(rows, start, stop)


def column_names(what: Any, more: Sequence[str]) -> list[str] | None:
    """Return the columns that ``select(what, *more)`` names; None if it selects rows."""
    if isinstance(what, str):
        return [what, *more]
    if isinstance(what, list | tuple) and what and all(isinstance(name, str) for name in what):
        return [*what, *more]
    if more:
        raise OptionError("select: give names of columns, or one collection of row numbers")
    return None


def row_numbers(what: Any, count: int | None) -> Positions:
    """Return the numbers of the rows that ``select(what)`` selects, of ``count`` rows."""
    if count is None:
        raise OptionError("select: the rows repeat forever; use take and skip")
    if isinstance(what, slice):
        return np.arange(*as_slice("rows", what).indices(count), dtype=np.int64)
    try:
        numbers = np.asarray(what)
    except RecmapError:  # of the column that was given
        raise
    except (TypeError, ValueError) as e:
        raise OptionError(f"select: {what!r} is not a list of row numbers: {e}") from None
    if numbers.dtype == bool and numbers.shape == (count,):
        return np.flatnonzero(numbers)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise OptionError("select: give names of columns, or numbers of rows, a slice or a mask")
    wrapped = numbers.astype(np.int64)
    wrapped = np.where(wrapped < 0, wrapped + count, wrapped)
    wrong = (wrapped < 0) | (wrapped >= count)
    if wrong.any():
        raise RowNotFoundError(f"row {int(numbers[wrong][0]):,} of {count:,}")
    return wrapped
