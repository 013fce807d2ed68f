"""ds.flat_map: the rows that a function makes of each row."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from threading import RLock
from typing import Any, NamedTuple

import numpy as np

from recmap.dataset.column_scan import check_same_rows, from_rows
from recmap.dataset.explode import ExplodedRows, Items
from recmap.errors import MapError, MemoryLimitError, OptionError
from recmap.model.arguments import Workers
from recmap.model.batch import Positions, RowArray, join, pick
from recmap.model.facts import SourceFacts, with_facts
from recmap.model.order import ENDLESS
from recmap.model.progress import ProgressOption
from recmap.model.ragged import offsets_of
from recmap.model.remembered import Remembered
from recmap.model.row_sizes import RowSizes, measure
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source, at_epoch, reseeded, row_name
from recmap.pipeline.feed import PipelineFeed
from recmap.pipeline.plan import Plan
from recmap.pipeline.transforms.base import Block
from recmap.pipeline.transforms.batch import Batches
from recmap.pipeline.transforms.flat_map import CountReturnedRows, FlatMapRows
from recmap.pipeline.trial import Trial, tried, try_transforms

# The function is called with so many rows at a time to count what it returns, or with fewer that
# take so many bytes.
_TOGETHER, _TOGETHER_BYTES = 1 << 12, 16 << 20
# Rows that were made before they are read are kept up to so many bytes.
_HELD_BYTES = 64 << 20


def flat_mapped(plan: Plan, transform: FlatMapRows, progress: ProgressOption) -> FlatMappedRows:
    """Return the rows that a function makes of those of a plan."""
    rows = plan.random_access("flat_map")
    check_same_rows("flat_map", rows)
    count = CountReturnedRows(transform.function)
    counting = replace(plan.with_rows(rows), transforms=(count,))
    early = None if progress else _MadeInOrder()
    items = from_rows(rows, partial(_counted, plan=counting, progress=progress, early=early))
    return FlatMappedRows(rows, transform, items, plan.workers, early)


def _counted(
    source: Source, plan: Plan, progress: ProgressOption, early: _MadeInOrder | None
) -> Items:
    """Call the function with all rows, and note how many it returns for each."""
    if early is not None and early.done:
        return early.items
    size = max(1, min(_TOGETHER, _TOGETHER_BYTES // source.row_bytes()))
    feed = PipelineFeed(replace(plan, grouping=Batches(size)))
    found = [batch["rows"] for batch in feed.run(1, progress)]
    return Items(len(source), 0, offsets_of(np.concatenate([np.empty(0, np.int64), *found])))


class _MadeRows(NamedTuple):
    """The rows made from one place to another."""

    start: int
    stop: int
    batch: Batch


class _MadeInOrder:
    """What the function made of the first rows, in order, before all of them are counted.

    What was not read yet is kept, so that the function is not called again for it.
    """

    def __init__(self) -> None:
        self.done, self.rows, self.count = False, 0, 0
        self._offsets = np.zeros(1024, np.int64)
        self._held: deque[_MadeRows] = deque()
        self._bytes = 0
        self.lock = RLock()

    @property
    def items(self) -> Items:
        """Which of the rows so far each row is made of."""
        with self.lock:
            return Items(self.rows, 0, self._offsets[: self.rows + 1])

    def add(self, counts: Positions, batch: Batch) -> None:
        """Add what was made of the next rows."""
        stop = self.rows + len(counts)
        if stop >= len(self._offsets):
            self._offsets = np.concatenate([self._offsets, np.empty(stop, np.int64)])
        self._offsets[self.rows + 1 : stop + 1] = self.count + np.cumsum(counts)
        first, self.rows, self.count = self.count, stop, int(self._offsets[stop])
        # The first ones are read first, and those that are kept have no gaps between them.
        gap = self._held and self._held[-1].stop < first
        if self._bytes <= _HELD_BYTES and not gap:
            self._held.append(_MadeRows(first, self.count, batch))
            self._bytes += measure(batch)[1]

    def take(self, start: int, stop: int) -> Batch | None:
        """Return what was made, from one place to another, if it is still there.

        What comes before it is not needed any more.
        """
        with self.lock:
            while self._held and self._held[0].stop <= start:
                self._bytes -= measure(self._held.popleft().batch)[1]
            if not self._held or not self._held[0].start <= start < stop <= self._held[-1].stop:
                return None
            parts = [
                pick(each.batch, slice(max(start - each.start, 0), stop - each.start))
                for each in self._held
                if each.start < stop
            ]
            if self.done and stop == self.count:
                self._held.clear()  # the next epoch calls the function again
        return join(parts)


class FlatMappedRows(ExplodedRows):
    """The rows that a function makes of each row of a source."""

    def __init__(
        self,
        source: Source,
        transform: FlatMapRows,
        items: Remembered[int, Items],
        workers: Workers | None,
        early: _MadeInOrder | None = None,
    ) -> None:
        super().__init__(source, (), items)
        self._transform, self._workers, self._epoch = transform, workers, 0
        # Workers count before they read: each reads other rows.
        self._early = early if workers is None and not transform.varies else None
        self._largest = 0
        # What was made last: the epoch, the row of the source, and the rows made of it. Batches of
        # consecutive rows often share a row of the source.
        self._last: tuple[int, int, Batch] | None = None

    @cached_property
    def _trial(self) -> Trial:
        return tried(self._try, [self._transform], self._workers)

    def _try(self) -> Trial:
        """Try the function on the first rows, to see the types of what it returns."""
        try:
            return try_transforms(self._source, [self._transform])
        except OptionError:
            if self._transform.fields is None:
                raise
            schema = self._transform.fields
            return Trial((replace(self._transform, found=schema),), schema, {})

    @property
    def schema(self) -> Schema:
        return self._trial.schema

    @property
    def facts(self) -> SourceFacts:
        facts = super().facts
        return with_facts(
            facts,
            functions=(*facts.functions, *self._transform.functions),
            searched=self._found.known(0) is not None,
            open_ended=self._early is not None,
            varies=self._transform.varies,
            labels={},
            descriptions={},
        )

    def row_bytes(self) -> int:
        return max(1, self._trial.row_bytes)

    def __len__(self) -> int:
        if self._early is not None and self._found.known(0) is None:
            self._make(self._early, ENDLESS)
        return super().__len__()

    def up_to(self, stop: int) -> int:
        if self._early is None or self._found.known(0) is not None:
            return super().up_to(stop)
        self._make(self._early, stop)
        return stop if self._early.count >= stop else super().up_to(stop)

    def _make(self, early: _MadeInOrder, stop: int) -> None:
        """Call the function with the next rows, until it has made ``stop``."""
        most = max(1, min(_TOGETHER, _TOGETHER_BYTES // self._source.row_bytes()))
        with early.lock:
            while early.count < stop and not early.done:
                # As many as it takes, if it goes on like that.
                size = -(-(stop - early.count) * max(1, early.rows) // max(1, early.count))
                last = early.rows + min(size, most)
                upto = self._source.up_to(last)
                if upto > early.rows:
                    rows = np.arange(early.rows, upto, dtype=np.int64)
                    early.add(*self._counts_and_rows(rows))
                early.done = upto < last

    def _items_of(self, rows: RowArray) -> Items:
        stop = int(rows.max(initial=-1)) + 1
        known = self._found.known(0)
        if known is None and self._early is not None and self.up_to(stop) == stop:
            return self._early.items
        return known or self._layout

    @property
    def _row_size(self) -> int:
        """The bytes of a row in memory: as many as the largest so far, on average of a read."""
        return max(1, self._largest, self._trial.row_bytes)

    def row_sizes(self, rows: RowArray) -> RowSizes:
        return np.full(len(rows), self._row_size)

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        stop = max(start, min(stop, len(self)))
        if limit is not None:
            stop = min(stop, start + max(1, limit // self._row_size))
        batch = self.gather(np.arange(start, stop, dtype=np.int64))
        count, size = measure(batch)
        if limit is None or size <= limit or not count:
            return batch
        if count == 1:
            raise MemoryLimitError(
                f"{self.row_name(start)} takes {size:,} bytes of memory after "
                f"{self._transform.name}, but only {limit:,} may be used for it",
                size=size,
                limit=limit,
            )
        del batch
        return self.read(start, start + count // 2, limit)

    def gather(self, rows: RowArray) -> Batch:
        items = self._items_of(rows)
        sources, places = np.unique(items.rows(rows), return_inverse=True)
        first = items.first(sources)
        starts = offsets_of(items.first(sources + 1) - first)
        batch = self._early_rows(first, starts) or self._made(sources, starts)
        count, size = measure(batch)
        self._largest = max(self._largest, size // max(1, count))
        places = places.reshape(-1)
        return pick(batch, starts[places] + rows - first[places])

    def _early_rows(self, first: Positions, starts: Positions) -> Batch | None:
        """Return what was made of consecutive rows before, if it is kept."""
        count = int(starts[-1])
        if self._early is None or not count:
            return None
        start, stop = int(first[0]), int(first[-1] + starts[-1] - starts[-2])
        return self._early.take(start, stop) if stop - start == count else None

    def _made(self, sources: RowArray, starts: Positions) -> Batch:
        """Return all rows made of those with these numbers, in ascending order."""
        last, parts = self._last, []
        if last is not None and len(sources) and (self._epoch, sources[0]) == last[:2]:
            parts = [last[2]]
        rest = sources[len(parts) :]
        if len(rest) or not parts:
            parts.append(self._called(rest, np.diff(starts)[len(parts) :]))
        batch = join(parts)
        if len(sources):
            mine = pick(batch, slice(int(starts[-2]), int(starts[-1])))
            self._last = self._epoch, int(sources[-1]), mine
        return batch

    def _called(self, sources: RowArray, counts: Positions) -> Batch:
        """Call the function; raise if it does not return as many rows as when they were counted."""
        found, made = self._counts_and_rows(sources)
        if (found != counts).any():
            row = int(np.argmax(found != counts))
            raise MapError(
                f"{row_name(self._source, int(sources[row]))}: {self._transform.name} returned "
                f"{found[row]:,} rows, and {counts[row]:,} when they were counted; for the same "
                "row, it has to return the same number each time"
            )
        return made

    def _counts_and_rows(self, sources: RowArray) -> tuple[Positions, Batch]:
        """Call the function; return how many rows it made of each, and these."""
        block = Block(self._source.gather(sources), sources, self._epoch, self._source)
        made = self._trial.transforms[0].apply(block)
        places = np.searchsorted(sources, made.positions)
        return np.bincount(places, minlength=len(sources)), made.batch

    def at_epoch(self, epoch: int) -> Source:
        if epoch == self._epoch or not self._transform.varies:
            return self
        self._trial  # noqa: B018  # tried once, and not again in every epoch
        other = self._over(at_epoch(self._source, epoch))
        other._epoch = epoch  # noqa: SLF001  # a copy of this one
        return other

    def reseeded(self, by: int) -> Source:
        transform = self._transform.reseeded(by)
        source = reseeded(self._source, by)
        return FlatMappedRows(source, transform, self._found, self._workers)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None, "_early": None}

    # The function may need all columns, and makes others.
    def select(self, names: Sequence[str]) -> Source:
        return Source.select(self, names)
