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

from recmap.errors import DataError, OptionError
from recmap.files.read_ahead import read_ahead
from recmap.model.batch import interleave, pick
from recmap.model.schema import Batch
from recmap.pipeline.meter import Meter
from recmap.pipeline.plan import Settled
from recmap.pipeline.row_source import Positions, sound_rows
from recmap.pipeline.sharding import ENDLESS, Share
from recmap.pipeline.state import Cursor
from recmap.pipeline.task import FinishTask, RowsTask, filler, opened, pieces_of
from recmap.pipeline.transforms.batch import END, Block, Group
from recmap.pipeline.trial import done_by
from recmap.pipeline.workers import open_pool
from recmap.pipeline.workers.pool import Request

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
    following: Cursor

    def after(self, given: int) -> Cursor:
        """The place after all of it."""
        return self.following if self.last else replace(self.cursor, at=self.stop, given=given)


def stream(
    ready: Settled, cursor: Cursor, meter: Meter
) -> Generator[tuple[Batch, Cursor], None, None]:
    """The batches from a place on, each with the place after it."""
    run = _Run(ready, meter)
    batches = run.plain(cursor) if ready.plan.plain else run.grouped(cursor)
    overall = ready.plan.overall
    if not overall:
        yield from batches
        return
    if overall.take == 0:
        return
    turns, done = ready.plan.repeat or 1, cursor.done
    while done < overall.stop and (made := list(islice(batches, 1))):
        done += 1
        if done == overall.stop:
            yield made.pop()[0], Cursor(epoch=cursor.epoch - cursor.turn + turns)
        elif done > overall.skip:
            yield _counted(made.pop(), done)


def _counted(made: tuple[Batch, Cursor], done: int) -> tuple[Batch, Cursor]:
    batch, after = made
    # At the end of all turns the count begins anew.
    return batch, replace(after, done=done) if after != Cursor(epoch=after.epoch) else after


class _Run:
    """One run of a plan."""

    def __init__(self, ready: Settled, meter: Meter) -> None:
        self._ready, self._plan, self._meter = ready, ready.plan, meter
        self._groups = ready.plan.groups
        self._drops = any(step.drops for step in ready.steps)
        self._repeat = ready.plan.repeat
        self._cuts = [cut for _, cut in ready.plan.kept]
        self._counted, self._stop = ready.plan.counted, ready.plan.given.stop
        self._asked: dict[int, _Ask] = {}

    def plain(self, cursor: Cursor) -> Iterator[tuple[Batch, Cursor]]:
        """Blocks that are batches."""
        together, place = self._ready.together, cursor
        # The place after the last batch is the start of the next iteration, not of this one.
        end = cursor.epoch - cursor.turn + self._repeat if self._repeat is not None else ENDLESS
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
            if place.epoch >= end:
                return
        yield from self._alone(place)

    def _alone(self, cursor: Cursor) -> Generator[tuple[Batch, Cursor], None, None]:
        """Blocks of one batch each."""
        failures: list[DataError] = []
        yield from map(_alone, self._results(self._rows_task(), self._blocks(cursor), failures))
        if failures:
            raise failures[0]

    def _several(
        self, cursor: Cursor, together: int
    ) -> Generator[tuple[Batch, Cursor], None, Cursor | None]:
        """Batches cut from larger blocks. The place from which a block could not be had is
        returned, if there is such a block.
        """
        size, after = self._groups.block, cursor
        try:
            for ask, _, batch in self._worked(self._rows_task(), self._blocks(cursor, together)):
                at, pieces = ask.cursor, pieces_of(batch)
                for given, start in enumerate(range(ask.start, ask.stop, size), ask.given + 1):
                    stop = start + size
                    # Not by replace(), which takes longer than all the rest here.
                    after = (
                        Cursor(at.epoch, at.turn, stop, at.held, given, at.kept, at.left, at.done)
                        if stop < ask.stop
                        else ask.after(given)
                    )
                    rows = slice(start - ask.start, stop - ask.start)
                    yield (pieces.popleft() if pieces else pick(batch, rows)), after
        except Exception:
            self._asked.clear()
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
            return Request(number, made.epoch, made.positions, made.batch)

        def finished(piece: tuple[Request, Batch]) -> tuple[Batch, Cursor]:
            result = opened(piece[1])
            self._meter.spend(result.seconds.tolist(), 1 + len(self._ready.steps))
            return result.batch, waiting.popleft()

        task = FinishTask(self._plan.rows, self._ready.finish)
        with open_pool(task, self._plan.pool) as pool:
            requests = map(request, count(), groups)
            yield from map(finished, pool.run(requests, self._ahead()))

    def _grouped(self, cursor: Cursor) -> Iterator[_Made]:
        """The groups, each with the place after it: after the last of an epoch, that is the
        beginning of the next. If nobody knows which is the last, one is held back.
        """
        if self._counted:
            yield from self._groups_of(cursor)
            return
        waiting: deque[_Made] = deque()
        try:
            for made in self._groups_of(cursor):
                waiting.append(made)
                del made
                if len(waiting) > 1:
                    yield self._closed(waiting)
                if waiting[0].last:
                    yield waiting.popleft()
        except DataError:
            # Rows follow it, though they are bad.
            while waiting:
                yield waiting.popleft()
            raise
        if waiting:
            # Epochs behind it may have had no batch.
            end = Cursor(epoch=cursor.epoch - cursor.turn + (self._repeat or 1))
            yield replace(waiting.popleft(), after=end)

    def _closed(self, waiting: deque[_Made]) -> _Made:
        """The first of those that wait, which is the last of its epoch if none of that
        follows it.
        """
        made = waiting.popleft()
        if made.epoch == waiting[0].epoch:
            return made
        return replace(made, after=made.after.following(self._repeat))

    def _groups_of(self, cursor: Cursor) -> Iterator[_Made]:
        task, given, cuts = self._rows_task(finish=False), self._plan.given, self._cuts
        if self._repeat is not None and any(cut.take == 0 for cut in (given, *cuts)):
            return
        counts, number, grouper = list(cursor.kept), cursor.given, None
        failures, place = list[DataError](), None
        for ask, passed, batch in self._results(task, self._blocks(cursor), failures):
            if grouper is None:
                number = ask.cursor.given
                counts = list(ask.cursor.kept) or [0] * len(cuts)
                grouper = self._groups.start()
                if self._groups.held_numbers(ask.cursor.held):
                    grouper.restore(ask.cursor.held, self._fetcher(task, ask))
            # Not those rows of the block that were given out before the run went on.
            met = [each[np.searchsorted(each, ask.cursor.at) :] for each in passed]
            wanted = self._wanted(met, counts)
            groups = grouper.add(_rows_of(batch, passed[-1], wanted))
            while group := list(islice(groups, 1)):
                number += 1
                if given.skip < number <= given.stop:
                    yield self._made(group, ask, number, counts, met)
            counts = [n + len(each) for n, each in zip(counts, met, strict=False)]
            full = any(n >= cut.stop for n, cut in zip(counts, cuts, strict=True))
            final = ask.cursor.turn + 1 == self._repeat
            if ask.last or (final and full):
                groups = grouper.flush()
                while group := list(islice(groups, 1)):
                    number += 1
                    if given.skip < number <= given.stop:
                        yield self._made(group, ask, number, counts, [])
                self._check_progress(ask.cursor, given.wanted(0, number))
                grouper = None
            if final and (full or number >= given.stop):
                return
            place = ask
        if failures and grouper is not None and place is not None:
            # What waits for rows to come lies in front of the bad one.
            groups = grouper.flush()
            while group := list(islice(groups, 1)):
                number += 1
                if given.skip < number <= given.stop:
                    yield self._made(group, place, number, counts, [], broken=True)
        if failures:
            raise failures[0]

    def _wanted(self, met: list[Positions], counts: Sequence[int]) -> Positions:
        """The rows of a block that the cuts leave. ``met`` are those that each cut meets,
        and those that come out behind all steps; ``counts`` were met before. What one cut
        leaves out is taken from what the others meet.
        """
        for i, (cut, before) in enumerate(zip(self._cuts, counts, strict=True)):
            left = met[i][max(0, cut.skip - before) : max(0, cut.stop - before)]
            met[i + 1 :] = [numbers[np.isin(numbers, left)] for numbers in met[i + 1 :]]
        return met[-1]

    def _made(
        self,
        group: list[Group],
        ask: _Ask,
        number: int,
        counts: Sequence[int],
        met: Sequence[Positions],
        *,
        broken: bool = False,
    ) -> _Made:
        """The only group of a list, which is emptied. If the file is ``broken`` behind it, it
        is not the last of its epoch.
        """
        made = group.pop()
        end = ask.stop if broken else len(ask.share)
        at = end if made.at == END else made.at
        last = number == self._stop or (self._counted and ask.last and at >= ask.stop)
        after, begun = ask.following, ask.cursor
        if not last:
            kept = tuple(
                before + (int(np.searchsorted(met[i], at)) if met else 0)
                for i, before in enumerate(counts)
            )
            # Not by replace(), which takes longer than all the rest here.
            epoch, turn = begun.epoch, begun.turn
            after = Cursor(epoch, turn, at, made.held, number, kept, begun.left, begun.done)
        positions, _ = ask.share.positions_of(made.numbers)
        return _Made(made.batch, positions, ask.cursor.epoch, after, last)

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
        size, plain, cut = self._groups.block, self._plan.plain, self._plan.given
        while self._repeat is None or cursor.turn < self._repeat:
            share = self._plan.share_at(cursor)
            end, given = len(share), cursor.given
            following = cursor.following(self._repeat)
            if plain and self._groups.drop_last and not self._plan.damaged:
                end -= end % size
            start = end if cursor.at >= end else cursor.at - cursor.at % size
            if plain and cut:
                stop = start + max(0, cut.stop - given) * size
                start = min(end, start + max(0, cut.skip - given) * size)
                end, given = max(start, min(end, stop)), max(given, cut.skip)
            if plain and share.part[1] > 1:
                # Another process of the rank takes the next batch after the last of all.
                batches = share.batches(self._groups.drop_last)
                self._check_progress(cursor, batches)
                following = replace(following, done=cursor.done + batches if following.turn else 0)
            elif plain:
                self._check_progress(cursor, end - start)
            while start < end or not plain:
                stop = min(start + size * together, end)
                yield _Ask(cursor, share, start, stop, stop >= end, given, following)
                given += together
                start = stop
                if stop >= end:
                    break
            cursor = Cursor(cursor.epoch + 1, cursor.turn + 1, done=following.done)

    def _results(
        self, task: RowsTask, asks: Iterator[_Ask], failures: list[DataError]
    ) -> Iterator[tuple[_Ask, list[Positions], Batch]]:
        """What comes of the blocks: the numbers of the rows that each cut meets, of those
        that were kept, and the rows. If one is bad, those in front of it are the last, and
        ``failures`` says why.
        """
        try:
            yield from self._worked(task, asks)
        except DataError as e:
            failures.append(e)
        in_front = list(self._in_front()) if failures else []
        if in_front:
            yield from self._worked(task, iter(in_front))

    def _in_front(self) -> Iterator[_Ask]:
        """What was asked for and did not come, up to the first bad row."""
        waiting = [self._asked[number] for number in sorted(self._asked)]
        self._asked.clear()
        for ask in waiting:
            positions, _ = ask.share.positions(ask.start, ask.stop)
            sound = sound_rows(self._plan.rows, positions)
            if sound < len(positions):
                dropped = self._plan.plain and self._groups.drop_last
                if sound and not dropped:
                    yield replace(ask, stop=ask.start + sound, last=False)
                return
            yield ask

    def _worked(
        self, task: RowsTask, asks: Iterator[_Ask]
    ) -> Iterator[tuple[_Ask, list[Positions], Batch]]:
        """The same, as the workers give it."""
        with ExitStack() as stack:
            pool = stack.enter_context(open_pool(task, self._plan.pool))
            requests = self._requests(asks)
            if self._plan.rows.in_order:
                # One reader, ahead of those who work on the rows.
                read = read_ahead(map(self._read, requests), self._ahead())
                requests = stack.enter_context(closing(read))
            yield from map(self._result, pool.run(requests, self._ahead()))

    def _result(self, piece: tuple[Request, Batch]) -> tuple[_Ask, list[Positions], Batch]:
        ask, result = self._asked.pop(piece[0].number), opened(piece[1])
        self._meter.spend(result.seconds.tolist())
        numbers = np.arange(ask.start, ask.stop)
        kept = numbers if result.kept is None else numbers[result.kept]
        met = [numbers[there] for there in result.met]
        # A cut behind all steps meets what they leave.
        met += [kept] * (len(self._cuts) - len(met))
        return ask, [*met, kept], result.batch

    def _requests(self, asks: Iterator[_Ask]) -> Iterator[Request]:
        for number, ask in enumerate(asks):
            self._asked[number] = ask
            positions, real = ask.share.positions(ask.start, ask.stop)
            yield Request(number, ask.cursor.epoch, filler(positions, real))

    def _read(self, request: Request) -> Request:
        positions = np.where(request.positions < 0, ~request.positions, request.positions)
        begun = time.perf_counter()
        batch = self._plan.rows.gather(positions, request.epoch)
        self._meter.spend([time.perf_counter() - begun])
        return replace(request, batch=batch)

    def _rows_task(self, *, finish: bool = True) -> RowsTask:
        """What is done to a block; and what is done to batches, if blocks are batches."""
        ready = self._ready
        last, size = ready.finish if finish else (), self._groups.block
        most = self._plan.memory // (self._ahead() + 2)
        cuts = tuple(steps for steps, _ in self._plan.kept if steps < len(ready.steps))
        return RowsTask(
            self._plan.rows, ready.steps, last, size, ready.mask, self._drops, most, cuts
        )

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
    """A group, the positions of its rows, and the place after it; the ``last`` of its
    epoch if that is known.
    """

    batch: Batch
    positions: Positions
    epoch: int
    after: Cursor
    last: bool


def _alone(made: tuple[_Ask, list[Positions], Batch]) -> tuple[Batch, Cursor]:
    """A block that is a batch."""
    ask, _, batch = made
    return batch, ask.after(ask.given + 1)


def _taken(made: _Made) -> tuple[Batch, Cursor]:
    return made.batch, made.after


def _rows_of(batch: Batch, numbers: Positions, wanted: Positions) -> Block:
    """The rows of a block that are wanted, of those with these numbers."""
    if len(wanted) == len(numbers):
        return Block(batch, numbers)
    places = np.searchsorted(numbers, wanted)
    begin, end = (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)
    together = end - begin == len(places)
    return Block(pick(batch, slice(begin, end) if together else places), wanted)
