"""A plan at work: blocks are asked for in order, and come back as batches.

What waits for the next batch to be asked for gives no name to the last one: it would
keep its memory when the loop has let go of it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import count, islice

import numpy as np

from recmap.errors import OptionError
from recmap.files.ahead import read_ahead
from recmap.pipeline.gathering import interleave, pick
from recmap.pipeline.grouping import END, Block, Group
from recmap.pipeline.plan import Settled
from recmap.pipeline.rows import Positions
from recmap.pipeline.share import ENDLESS, Share
from recmap.pipeline.state import Cursor
from recmap.pipeline.task import FinishTask, RowsTask, filler, opened, pieces_of
from recmap.pipeline.telemetry import Meter
from recmap.pipeline.trial import done_by
from recmap.pipeline.workers import Request, open_pool
from recmap.types import Batch

__all__ = ["stream"]

# Batches that are made before they are asked for, unless the user says how many.
_AHEAD = 2


@dataclass(frozen=True)
class _Ask:
    """A block that was asked for: rows ``start`` to ``stop`` of the rank, in an epoch
    that begins at ``cursor``; if blocks are batches, ``given`` come before it there.
    """

    cursor: Cursor
    share: Share
    start: int
    stop: int
    last: bool
    given: int

    def after(self, given: int) -> Cursor:
        """The place after all of it."""
        # What is left over of an epoch, and dropped, counts as taken.
        end = len(self.share) if self.last else self.stop
        return replace(self.cursor, at=end, given=given)


def stream(
    ready: Settled, cursor: Cursor, meter: Meter
) -> Generator[tuple[Batch, Cursor], None, None]:
    """The batches from a place on, each with the place after it."""
    run = _Run(ready, meter)
    batches = run.plain(cursor) if ready.plan.plain else run.grouped(cursor)
    skip, take = ready.plan.given
    if (skip, take) == (0, None):
        yield from batches
        return
    stop = ENDLESS if take is None else skip + take
    if stop == 0:
        return
    while made := list(islice(batches, 1)):
        after = made[0][1]
        # What comes when there was enough of an epoch is not wanted.
        if after.given < stop and after.given > skip:
            yield made.pop()
        elif after.given == stop:
            yield made.pop()[0], replace(after, at=ENDLESS, held=())
            if after.turn + 1 == ready.plan.repeat:
                return


class _Run:
    """One run of a plan."""

    def __init__(self, ready: Settled, meter: Meter) -> None:
        self._ready, self._plan, self._meter = ready, ready.plan, meter
        self._groups = ready.plan.groups
        self._drops = any(step.drops for step in ready.steps)
        self._repeat = ready.plan.repeat
        self._asked: dict[int, _Ask] = {}

    def plain(self, cursor: Cursor) -> Iterator[tuple[Batch, Cursor]]:
        """Blocks that are batches."""
        together, place = self._ready.together, cursor
        while together > 1:
            failed = yield from self._several(place, together)
            if failed is None:
                return
            # Read one by one from there, those before a bad one come first, and then it
            # raises again. Those that were only too large together come all.
            place = failed
            with closing(self._alone(place)) as batches:
                for _ in range(together):
                    if made := list(islice(batches, 1)):
                        place = made[0][1]
                        yield made.pop()
        yield from self._alone(place)

    def _alone(self, cursor: Cursor) -> Generator[tuple[Batch, Cursor], None, None]:
        """Blocks of one batch each."""
        yield from map(_alone, self._results(self._rows_task(), self._blocks(cursor)))

    def _several(
        self, cursor: Cursor, together: int
    ) -> Generator[tuple[Batch, Cursor], None, Cursor | None]:
        """Batches cut from larger blocks. The place from which a block could not be had is
        returned, if there is such a block.
        """
        size, after = self._groups.block, cursor
        try:
            for ask, _, batch in self._results(self._rows_task(), self._blocks(cursor, together)):
                at, pieces = ask.cursor, pieces_of(batch)
                for given, start in enumerate(range(ask.start, ask.stop, size), ask.given + 1):
                    stop = start + size
                    # Not by replace(), which takes longer than all the rest here.
                    after = (
                        Cursor(at.epoch, at.turn, stop, at.held, given, at.kept, at.left)
                        if stop < ask.stop
                        else ask.after(given)
                    )
                    rows = slice(start - ask.start, stop - ask.start)
                    yield (pieces.popleft() if pieces else pick(batch, rows)), after
        except Exception:
            return after
        return None

    def grouped(self, cursor: Cursor) -> Iterator[tuple[Batch, Cursor]]:
        """Blocks of which batches are made."""
        groups = self._grouped(cursor)
        if not self._ready.finish:
            yield from map(_taken, groups)
            return
        waiting: deque[Cursor] = deque()

        def request(number: int, made: _Made) -> Request:
            waiting.append(made.after)
            return Request(number, made.after.epoch, made.positions, made.batch)

        def finished(piece: tuple[Request, Batch]) -> tuple[Batch, Cursor]:
            result = opened(piece[1])
            self._meter.spend(result.seconds.tolist(), 1 + len(self._ready.steps))
            return result.batch, waiting.popleft()

        task = FinishTask(self._plan.rows, self._ready.finish)
        with open_pool(task, self._plan.pool) as pool:
            requests = map(request, count(), groups)
            yield from map(finished, pool.run(requests, self._ahead()))

    def _grouped(self, cursor: Cursor) -> Iterator[_Made]:
        task = self._rows_task(finish=False)
        skip, take = self._plan.kept
        epoch, kept, given, grouper = cursor, cursor.kept, cursor.given, None
        for ask, numbers, batch in self._results(task, self._blocks(cursor)):
            if grouper is None:
                epoch, kept, given = ask.cursor, ask.cursor.kept, ask.cursor.given
                grouper = self._groups.start()
                if self._groups.held_numbers(epoch.held):
                    grouper.restore(epoch.held, self._fetcher(task, ask))
            # Not those rows of the block that were given out before the run went on.
            block = _cut(Block(batch, numbers), int(np.searchsorted(numbers, epoch.at)), None)
            end = None if take is None else max(0, skip + take - kept)
            groups = grouper.add(_cut(block, max(0, skip - kept), end))
            while group := list(islice(groups, 1)):
                given += 1
                before = int(np.searchsorted(block.numbers, group[0].at))
                yield _made(group.pop(), ask, given, kept + before)
            kept += len(block.numbers)
            enough = take is not None and kept >= skip + take and epoch.turn + 1 == self._repeat
            if ask.last or enough:
                groups = grouper.flush()
                while group := list(islice(groups, 1)):
                    given += 1
                    yield _made(group.pop(), ask, given, kept)
                self._check_progress(epoch, given)
                grouper = None
            if enough:
                return

    def _check_progress(self, epoch: Cursor, given: int) -> None:
        """An epoch without a batch, again and again, is a loop that hangs."""
        whole = epoch.at == 0 and epoch.left is None
        if self._repeat is None and whole and given == 0:
            raise OptionError(
                "repeat() without end, but there is not one batch in an epoch: no rows are left "
                "by the filters or for this rank, or too few for a batch with drop_last"
            )

    def _fetcher(self, task: RowsTask, ask: _Ask) -> Callable[[Sequence[int]], Batch]:
        """Reads rows again by number: the blocks they were in, for a function may have
        seen them together.
        """

        def fetch(numbers: Sequence[int]) -> Batch:
            wanted = np.asarray(numbers, np.int64)
            starts = wanted - wanted % self._groups.block
            parts, places = [], []
            for start in np.unique(starts).tolist():
                positions, real = ask.share.positions(start, start + self._groups.block)
                request = Request(0, ask.cursor.epoch, filler(positions, real))
                made = done_by(self._plan.workers, task, request)
                result = opened(task(request) if made is None else made)
                kept = np.arange(len(positions)) if result.kept is None else result.kept
                mine = np.flatnonzero(starts == start)
                parts.append(pick(result.batch, np.searchsorted(kept, wanted[mine] - start)))
                places.append(mine)
            return interleave(parts, places)

        return fetch

    def _blocks(self, cursor: Cursor, together: int = 1) -> Iterator[_Ask]:
        """The blocks of this run, in order; of every epoch one at least."""
        size, repeat = self._groups.block, self._repeat
        plain = self._plan.plain
        while repeat is None or cursor.turn < repeat:
            share = self._plan.share
            if cursor.left is not None:
                share = replace(share, left=cursor.left)
            end = len(share)
            if plain and self._groups.drop_last:
                end -= end % size
            start = end if cursor.at >= end else cursor.at - cursor.at % size
            if plain:
                self._check_progress(cursor, end)
            given = cursor.given
            while start < end or not plain:
                stop = min(start + size * together, end)
                yield _Ask(cursor, share, start, stop, stop >= end, given)
                given += together
                start = stop
                if stop >= end:
                    break
            cursor = Cursor(epoch=cursor.epoch + 1, turn=cursor.turn + 1)

    def _results(
        self, task: RowsTask, asks: Iterator[_Ask]
    ) -> Iterator[tuple[_Ask, Positions, Batch]]:
        """What comes of the blocks: the numbers of the rows that were kept, and the rows."""
        with ExitStack() as stack:
            pool = stack.enter_context(open_pool(task, self._plan.pool))
            requests = self._requests(asks)
            if self._plan.rows.in_order:
                # One reader, ahead of those who work on the rows.
                read = read_ahead(map(self._read, requests), self._ahead())
                requests = stack.enter_context(closing(read))
            yield from map(self._result, pool.run(requests, self._ahead()))

    def _result(self, piece: tuple[Request, Batch]) -> tuple[_Ask, Positions, Batch]:
        ask, result = self._asked.pop(piece[0].number), opened(piece[1])
        self._meter.spend(result.seconds.tolist())
        numbers = np.arange(ask.start, ask.stop)
        if result.kept is not None:
            numbers = numbers[result.kept]
        return ask, numbers, result.batch

    def _requests(self, asks: Iterator[_Ask]) -> Iterator[Request]:
        for number, ask in enumerate(asks):
            self._asked[number] = ask
            positions, real = ask.share.positions(ask.start, ask.stop)
            yield Request(number, ask.cursor.epoch, filler(positions, real))

    def _read(self, request: Request) -> Request:
        positions = np.where(request.positions < 0, ~request.positions, request.positions)
        begun = time.perf_counter()
        batch = self._plan.rows.take(positions, request.epoch)
        self._meter.spend([time.perf_counter() - begun])
        return replace(request, batch=batch)

    def _rows_task(self, *, finish: bool = True) -> RowsTask:
        """What is done to a block; and what is done to batches, if blocks are batches."""
        ready = self._ready
        last, size = ready.finish if finish else (), self._groups.block
        most = self._plan.memory // (self._ahead() + 2)
        return RowsTask(self._plan.rows, ready.steps, last, size, ready.mask, self._drops, most)

    def _ahead(self) -> int:
        """Batches at a time within the memory, for each of those who hand some on."""
        plan = self._plan
        wanted = _AHEAD if plan.ahead is None else plan.ahead
        if plan.workers is not None:
            wanted = max(wanted, 2 * plan.workers.count)
        elif plan.readers is not None:
            wanted = max(wanted, plan.readers)
        queues = 1 + plan.rows.in_order + (not plan.plain and bool(self._ready.finish))
        size = self._ready.row_bytes * self._groups.block * self._ready.together
        return max(1, min(wanted, plan.memory // queues // max(1, size) - 1))


@dataclass(frozen=True)
class _Made:
    """A group, the positions of its rows, and the place after it."""

    batch: Batch
    positions: Positions
    after: Cursor


def _alone(made: tuple[_Ask, Positions, Batch]) -> tuple[Batch, Cursor]:
    """A block that is a batch."""
    ask, _, batch = made
    return batch, ask.after(ask.given + 1)


def _taken(made: _Made) -> tuple[Batch, Cursor]:
    return made.batch, made.after


def _made(group: Group, ask: _Ask, given: int, kept: int) -> _Made:
    at = len(ask.share) if group.at == END else group.at
    positions, _ = ask.share.positions_of(group.numbers)
    after = replace(ask.cursor, at=at, held=group.held, given=given, kept=kept)
    return _Made(group.batch, positions, after)


def _cut(block: Block, begin: int, end: int | None) -> Block:
    """Some rows of a block."""
    if begin == 0 and (end is None or end >= len(block.numbers)):
        return block
    rows = slice(begin, end)
    return Block(pick(block.batch, rows), block.numbers[rows])
