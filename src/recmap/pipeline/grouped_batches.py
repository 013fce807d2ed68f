"""Batches of rows that are filtered, bucketed or packed.

Here, a block that is read is not a batch. A grouper (transforms/batch.py) takes in the rows of
each block and gives out batches. Every batch comes with the cursor after it, which records
the rows that the grouper still holds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice

import numpy as np

from recmap.errors import DataError
from recmap.machine.mapped import NO_FILES, Guard
from recmap.model.batch import Positions, interleave, pick
from recmap.model.schema import Batch
from recmap.model.source import Source
from recmap.pipeline.executor import Blocks, BlockSpan, block_task
from recmap.pipeline.meter import Meter
from recmap.pipeline.ready_plan import ReadyPlan
from recmap.pipeline.state import Cursor
from recmap.pipeline.transforms.base import Block, Transform, run_transforms
from recmap.pipeline.transforms.batch import END, Group, Grouper
from recmap.pipeline.trial import run_once
from recmap.pipeline.workers import open_pool
from recmap.pipeline.workers.pool import Request, Result


def grouped_batches(
    ready: ReadyPlan, cursor: Cursor, meter: Meter
) -> Generator[tuple[Batch, Cursor], None, None]:
    """Yield the batches from a cursor on, each with the cursor after it."""
    groups = _last_marked(ready, cursor, _Groups(ready, meter).run(cursor))
    if not ready.batch_transforms:
        yield from map(_batch_and_cursor, groups)
        return
    cursors: deque[Cursor] = deque()

    def request(number: int, group: _PlacedGroup) -> Request:
        cursors.append(group.after)
        assert group.positions is not None
        return Request(number, group.epoch, group.positions, group.batch)

    def finished(answer: tuple[Request, Result]) -> tuple[Batch, Cursor]:
        meter.spend(answer[1].seconds, 1 + len(ready.transforms))
        return answer[1].batches.pop(), cursors.popleft()

    work = partial(_transformed, ready.plan.rows, ready.batch_transforms)
    with closing(open_pool(work, ready.plan.pool)) as pool:
        requests = map(request, count(), groups)
        yield from map(finished, pool.run(requests, ready.blocks_ahead))


def _transformed(rows: Source, transforms: Sequence[Transform], request: Request) -> Result:
    """Transform a batch."""
    assert request.batch is not None
    block = Block(request.batch, request.positions, request.epoch, rows)
    with Guard(NO_FILES):
        block, seconds = run_transforms(block, transforms)
    return Result([block.batch], seconds=seconds)


@dataclass(frozen=True)
class _PlacedGroup:
    """A batch, the positions of its rows if transforms need them, and the cursor after it.

    ``last`` is true for a batch that is known to be the last of its epoch.
    """

    batch: Batch
    positions: Positions | None
    epoch: int
    after: Cursor
    last: bool


def _batch_and_cursor(group: _PlacedGroup) -> tuple[Batch, Cursor]:
    return group.batch, group.after


def _last_marked(
    ready: ReadyPlan, cursor: Cursor, groups: Iterator[_PlacedGroup]
) -> Iterator[_PlacedGroup]:
    """Yield the groups, with the cursor after an epoch's last group moved to the next epoch.

    If the last group is not known beforehand, hold one group back.
    """
    plan = ready.plan
    if plan.counted:
        yield from groups
        return
    waiting: deque[_PlacedGroup] = deque()
    try:
        while group := list(islice(groups, 1)):
            waiting.append(group.pop())
            if len(waiting) > 1:
                yield _closed(waiting, plan.repeat)
            if waiting[0].last:
                yield waiting.popleft()
    except DataError:
        # More rows follow, though they are bad, so none of these is the last.
        while waiting:
            yield waiting.popleft()
        raise
    if waiting:
        # The epochs after it may have no batch.
        end = Cursor(epoch=cursor.epoch - cursor.turn + (plan.repeat or 1))
        yield replace(waiting.popleft(), after=end)


def _closed(waiting: deque[_PlacedGroup], repeat: int | None) -> _PlacedGroup:
    """Take the first of two groups; it ends its epoch if the second is in another one."""
    group = waiting.popleft()
    if group.epoch == waiting[0].epoch:
        return group
    return replace(group, after=group.after.following(repeat))


class _Groups:
    """The groups of one run."""

    def __init__(self, ready: ReadyPlan, meter: Meter) -> None:
        self._ready, self._plan = ready, ready.plan
        self._grouping = ready.plan.groups
        self._blocks = Blocks(ready, meter)
        self._slices = [each for _, each in ready.plan.row_slices]
        self._wanted, self._counted = ready.plan.batch_slice, ready.plan.counted
        before = (transforms for transforms, _ in ready.plan.row_slices)
        stops = tuple(each for each in before if each < len(ready.transforms))
        task = block_task(ready)
        size = task.size * ready.batches_per_block
        self._task = replace(task, batch_transforms=(), stops=stops, size=size)
        # In the epoch being read: batches so far, and rows that reached each slice.
        self._given = 0
        self._reached: list[int] = []

    def run(self, cursor: Cursor) -> Iterator[_PlacedGroup]:
        """Yield the groups from a cursor on."""
        plan = self._plan
        slices = (self._wanted, *self._slices)
        if plan.repeat is not None and any(each.take == 0 for each in slices):
            return
        self._given = cursor.given
        grouper: Grouper | None = None
        last_span: BlockSpan | None = None
        spans = self._blocks.spans(cursor, self._ready.batches_per_block)
        for span, result in self._blocks.results(self._task, spans):
            if grouper is None:
                grouper = self._begin_epoch(span)
            reached, kept = self._numbers(span, result)
            wanted = self._apply_slices(reached)
            groups = grouper.add(*_rows_of(result.batches.pop(), kept, wanted))
            yield from self._placed(groups, span, reached)
            self._reached = [n + len(each) for n, each in zip(self._reached, reached, strict=False)]
            full = any(n >= s.stop for n, s in zip(self._reached, self._slices, strict=True))
            final = span.cursor.turn + 1 == plan.repeat
            if span.last or (final and full):
                yield from self._placed(grouper.flush(), span, [])
                self._blocks.check_progress(span.cursor, self._wanted.wanted(0, self._given))
                grouper = None
            if final and (full or self._given >= self._wanted.stop):
                return
            last_span = span
        if self._blocks.failed and grouper is not None and last_span is not None:
            # The rows of an incomplete batch come before the bad one.
            yield from self._placed(grouper.flush(), last_span, [], broken=True)
        self._blocks.raise_failure()

    def _begin_epoch(self, span: BlockSpan) -> Grouper:
        """Begin at the cursor of a span, with the rows the grouper held there."""
        begun = span.cursor
        self._given = begun.given
        self._reached = list(begun.kept) or [0] * len(self._slices)
        grouper = self._grouping.start()
        if self._grouping.held_numbers(begun.held):
            grouper.restore(begun.held, self._fetcher(span))
        return grouper

    def _numbers(self, span: BlockSpan, result: Result) -> tuple[list[Positions], Positions]:
        """Return the numbers of the rows that reached each slice, then of those that passed all
        transforms; also return the numbers of all rows in the batch.
        """
        numbers = np.arange(span.start, span.stop)
        kept = numbers if result.kept is None else numbers[result.kept]
        reached = [numbers[each] for each in result.reached]
        # The rows that all transforms keep reach the slices after them.
        reached += [kept] * (len(self._slices) - len(reached) + 1)
        # Rows given out before the run was resumed do not count again.
        at = span.cursor.at
        return [each[np.searchsorted(each, at) :] for each in reached], kept

    def _apply_slices(self, reached: list[Positions]) -> Positions:
        """Return the rows that the slices keep.

        Rows that a slice drops do not reach later slices, so remove them from ``reached``.
        """
        for i, (each, before) in enumerate(zip(self._slices, self._reached, strict=True)):
            left = reached[i][max(0, each.skip - before) : max(0, each.stop - before)]
            reached[i + 1 :] = [numbers[np.isin(numbers, left)] for numbers in reached[i + 1 :]]
        return reached[-1]

    def _placed(
        self,
        groups: Iterator[Group],
        span: BlockSpan,
        reached: Sequence[Positions],
        *,
        broken: bool = False,
    ) -> Iterator[_PlacedGroup]:
        """Yield the groups that ``take`` and ``skip`` keep, each with the cursor after it."""
        while group := list(islice(groups, 1)):
            self._given += 1
            if self._wanted.skip < self._given <= self._wanted.stop:
                yield self._place(group.pop(), span, reached, broken)

    def _place(
        self, group: Group, span: BlockSpan, reached: Sequence[Positions], broken: bool
    ) -> _PlacedGroup:
        """Return a group with the cursor after it.

        If a bad row follows (``broken``), the group is not the last of its epoch.
        """
        at = group.at
        if at == END:
            at = span.stop if broken else len(span.share)
        counted_last = self._counted and span.last and at >= span.stop
        last = self._given == self._wanted.stop or counted_last
        after = span.following
        if not last:
            after = self._cursor(group, span, at, reached)
        positions = None
        if self._ready.batch_transforms:
            positions = span.share.numbers(group.numbers)
        return _PlacedGroup(group.batch, positions, span.cursor.epoch, after, last)

    def _cursor(
        self, group: Group, span: BlockSpan, at: int, reached: Sequence[Positions]
    ) -> Cursor:
        kept: tuple[int, ...] = ()
        if self._slices:
            kept = tuple(
                before + (int(np.searchsorted(reached[i], at)) if reached else 0)
                for i, before in enumerate(self._reached)
            )
        epoch, turn, _, _, _, _, left, done, ahead = span.cursor
        # Calling Cursor takes three times as long, and this runs for every batch.
        fields = epoch, turn, at, group.held, self._given, kept, left, done, ahead
        return tuple.__new__(Cursor, fields)

    def _fetcher(self, span: BlockSpan) -> Callable[[Sequence[int]], Batch]:
        """Return a function that reads rows again by number.

        It reads them in their original blocks, because a function may have seen them together.
        """

        def fetch(numbers: Sequence[int]) -> Batch:
            wanted, size = np.asarray(numbers, np.int64), self._blocks.size
            starts = wanted - wanted % size
            batches, places = [], []
            for start in np.unique(starts).tolist():
                positions = span.share.positions(start, start + size)
                request = Request(0, span.cursor.epoch, positions)
                result = run_once(self._plan.workers, self._task, request) or self._task(request)
                kept = np.arange(len(positions)) if result.kept is None else result.kept
                mine = np.flatnonzero(starts == start)
                rows = np.searchsorted(kept, wanted[mine] - start)
                batches.append(pick(result.batches[0], rows))
                places.append(mine)
            return interleave(batches, places)

        return fetch


def _rows_of(batch: Batch, numbers: Positions, wanted: Positions) -> tuple[Batch, Positions]:
    """Return the wanted rows of a block; ``numbers`` are the numbers of all its rows."""
    if len(wanted) == len(numbers):
        return batch, numbers
    places = np.searchsorted(numbers, wanted)
    begin, end = (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)
    consecutive = end - begin == len(places)
    return pick(batch, slice(begin, end) if consecutive else places), wanted
