"""OrderedRows: the rows of a source in an order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from functools import partial

import numpy as np

from recmap.model.batch import (
    Allocate,
    PaddedRows,
    PadSpec,
    Positions,
    RowArray,
    RowNumbers,
    interleave,
)
from recmap.model.facts import SourceFacts, with_facts
from recmap.model.fetching import Coming, Fetching, fetching_all
from recmap.model.order import Order, Span, counted_order, finite
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
        return with_facts(
            facts,
            in_order=False,
            table_index=None,
            endless=self._order.endless,
            searched=facts.searched and self._order.searched,
            open_ended=facts.open_ended and self._order.open_ended,
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
        # Within a limit, fewer rows may be returned, so they need not be counted.
        span = None if limit is None else self._order.open_span(start, stop)
        if span is None:
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

    def gather_sized(self, rows: RowArray, limit: int) -> Batch | None:
        turns = self._turns(rows)
        if len(turns) != 1 or turns[0][2] is not None:
            return super().gather_sized(rows, limit)
        # A shuffle takes a while to find out the numbers, so it is not asked twice.
        source, numbers, _ = turns[0]
        return source.gather_sized(numbers, limit)

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
