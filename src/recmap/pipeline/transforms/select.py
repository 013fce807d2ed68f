"""``select``, ``take`` and ``skip``: some of the columns, or some of the rows by number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy.typing as npt

from recmap.errors import OptionError, RecmapError
from recmap.model.arguments import as_slice
from recmap.model.batch import Positions, RowArray, chosen_rows
from recmap.model.nulls import with_masks
from recmap.model.order import ENDLESS, Late, Picked, Span, counted_order, is_counted
from recmap.model.ordered_rows import OrderedRows, count_up_to, sliced
from recmap.model.row_key import condition_hint, row_key
from recmap.model.schema import Schema
from recmap.model.source import Source
from recmap.pipeline.row_source import is_damaged, reach_of
from recmap.pipeline.transforms.base import Block, Transform

RowNumbersLike: TypeAlias = slice | range | Sequence[int] | Sequence[bool] | npt.NDArray[Any]


@dataclass(frozen=True)
class SelectColumns(Transform):
    """Keeps the columns with these names, after functions that need other columns too."""

    columns: tuple[str, ...]
    name = "select"

    def prepared(self, schema: Schema, sample: Block) -> tuple[Transform, Schema]:
        return SelectColumns(tuple(with_masks(self.columns, schema))), self.output(schema)

    def output(self, schema: Schema) -> Schema:
        return schema.select(with_masks(self.columns, schema))

    def leaves(self, name: str) -> bool:
        return name in self.columns

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


def span_of(rows: Source, skip: int, take: int | None) -> OrderedRows:
    """Drop the first ``skip`` rows, and return the first ``take`` of the others."""
    if rows.facts.endless:
        return OrderedRows(rows, Span(range(skip, ENDLESS if take is None else skip + take)))
    known = rows.known_rows()
    if known is not None:
        return OrderedRows(rows, _span_of(rows, known, skip=skip, take=take))
    return OrderedRows(rows, OpenSpan(rows, skip, take))


class OpenSpan(Late):
    """The rows after the first ``skip``, at most ``take``, of rows that are not counted yet."""

    def __init__(self, rows: Source, skip: int, take: int | None) -> None:
        super().__init__(partial(_reached_span, rows, skip, take), partial(is_counted, rows))
        self._rows, self._skip, self._take = rows, skip, take

    @property
    def open_ended(self) -> bool:
        return True

    @property
    def gap(self) -> int:
        return 1

    def up_to(self, stop: int) -> int:
        if not self.counted:
            wanted = stop if self._take is None else min(stop, self._take)
            last = self._skip + wanted
            if self._rows.up_to(last) == last:
                return wanted
        return super().up_to(stop)

    def _is_early(self, stop: int) -> bool:
        """Return whether rows up to a position are there, and it is too early to count all."""
        return not self.counted and self.up_to(stop) == stop

    def numbers(self, positions: Positions, epoch: int = 0) -> RowArray:
        if self._is_early(int(positions.max(initial=-1)) + 1):
            return positions + self._skip
        return super().numbers(positions, epoch)

    def turns(self, positions: Positions, epoch: int) -> None:
        del positions, epoch  # all rows are of the epoch that is asked for

    def span(self, start: int, stop: int | None) -> range | None:
        if stop is not None and self._is_early(stop):
            return range(self._skip + start, self._skip + stop)
        return super().span(start, stop)

    def open_span(self, start: int, stop: int) -> range | None:
        last = stop if self._take is None else min(stop, self._take)
        return None if self.counted else range(self._skip + start, self._skip + max(start, last))

    def prepare(self) -> None:
        if not self._rows.facts.open_ended:
            super().prepare()


def _reached_span(rows: Source, skip: int, take: int | None) -> Span:
    count = _reach_up_to(rows, None if take is None else skip + take)
    return _span_of(rows, count, skip, take)


def _reach_up_to(rows: Source, stop: int | None) -> int:
    """Count the rows that may be asked for in order, and no more of them than needed."""
    return (reach_of(rows) or 0) if stop is None else rows.up_to(stop)


def _span_of(rows: Source, count: int, skip: int, take: int | None) -> Span:
    damaged = is_damaged(rows) and count == reach_of(rows)
    # What follows a bad row is unknown, so the bad row cannot be skipped.
    start = min(skip, count - damaged)
    stop = count if take is None else min(start + take, count)
    return Span(range(start, stop), damaged and start < stop == count)


def column_names(what: Any, more: Sequence[str]) -> list[str] | None:
    """Return the columns that ``select(what, *more)`` names; None if it selects rows."""
    if isinstance(what, str):
        return [what, *more]
    if isinstance(what, list | tuple) and what and all(isinstance(name, str) for name in what):
        return [*what, *more]
    if more:
        raise OptionError("select: give names of columns, or one collection of row numbers")
    return None


def selected(rows: Source, what: Any) -> OrderedRows:
    """Return the rows that ``select(what)`` selects by number."""
    if rows.facts.endless:
        raise OptionError("select: the rows repeat forever; use take and skip")
    if isinstance(what, slice):
        return sliced(rows, as_slice("rows", what))
    numbers = _row_numbers(what)
    from_start = numbers.dtype.kind != "b" and (not len(numbers) or numbers.min() >= 0)
    stop = int(numbers.max()) + 1 if from_start and len(numbers) else 0
    count = partial(count_up_to, stop=stop) if from_start else len
    return OrderedRows(rows, counted_order(rows, partial(_picked, numbers), count))


def _picked(numbers: npt.NDArray[Any], count: int) -> Picked:
    return Picked(chosen_rows(numbers, count))


def _row_numbers(what: Any) -> npt.NDArray[Any]:
    try:
        numbers = row_key(what)
    except RecmapError:  # of the column that was given
        raise
    except (TypeError, ValueError) as e:
        raise OptionError(f"select: {what!r} is not a list of row numbers: {e}") from None
    if numbers is None:
        raise OptionError(
            "select: give names of columns, or numbers of rows, a slice or a mask"
            f"{condition_hint(what)}"
        )
    return numbers.copy()
