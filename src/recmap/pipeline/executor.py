"""Read blocks of rows, in order and ahead of the loop, and turn them into batches.

Follow one padded batch: ``rm.open(path).batch(32, pad={"tokens": 128})`` in a loop.
``rm.open`` (dataset/open.py) opens a source. ``batch`` (stream.py) records the batch size
and a ``PadBatches`` transform in a ``Plan`` (plan.py). Iterating asks a ``PipelineFeed``
(feed.py), which keeps the cursor, for the next batch, and the feed calls ``plain_batches``
in this file. ``Blocks.spans`` divides the rows of an epoch into spans of one or more batches,
and a pool (workers/pool.py) runs a ``BlockTask`` on each. The task has a ``Padding``
(transforms/pad.py) read padded rows from ``SourceRows`` (row_source.py). That asks the
format's source (formats/tfrecord_source.py), where tfrecord/decoder.py decodes each record
straight into the padded array. (Rows are padded after reading if they come from compressed
files or from sources that cannot pad, or if other transforms change them first.)
The task returns a ``Result``: the batches, which rows were kept, and the seconds each stage
took. ``plain_batches`` yields the batches in order, each with the cursor after it. If filters,
buckets or packing drop or rearrange rows, grouped_batches.py makes the batches from the rows
of each block.

No variable in this file refers to a batch while a generator is suspended: that would keep its
memory alive after the loop is done with it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, pairwise, takewhile
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError, MapError, MemoryLimitError, OptionError
from recmap.machine.mapped import NO_FILES, Guard
from recmap.machine.threads import read_ahead
from recmap.model.batch import Positions, cut
from recmap.model.order import ENDLESS
from recmap.model.row_sizes import measure
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source, at_epoch
from recmap.pipeline.batch_counts import place_of
from recmap.pipeline.meter import Meter
from recmap.pipeline.ready_plan import ReadyPlan
from recmap.pipeline.row_source import count_sound
from recmap.pipeline.sharding import Share
from recmap.pipeline.state import Cursor
from recmap.pipeline.transforms.base import Block, Transform, run_transforms
from recmap.pipeline.transforms.pad import Padding, has_ragged, padding_while_read
from recmap.pipeline.workers import open_pool
from recmap.pipeline.workers.lookahead import Lookahead
from recmap.pipeline.workers.pool import Request, Result, Work
from recmap.store.fetch import bytes_ahead

# Rows that are not counted yet are looked for by so many bytes at a time.
_LOOK_BYTES = 1 << 20


def plain_batches(
    ready: ReadyPlan, cursor: Cursor, meter: Meter
) -> Generator[tuple[Batch, Cursor], None, None]:
    """Yield the batches of a plain plan from a cursor on, each with the cursor after it."""
    plan, together = ready.plan, ready.batches_per_block
    blocks = Blocks(ready, meter)
    # The cursor after the last batch is the start of the next iteration, not of this one.
    end = ENDLESS if plan.repeat is None else cursor.epoch - cursor.turn + plan.repeat
    while together > 1:
        unread = yield from _cut_from_blocks(blocks, cursor, together)
        if unread is None:
            return
        # Read one by one from there. Batches before a bad one are yielded, then it raises.
        # If they were only too large together, all of them are yielded.
        with closing(_one_by_one(blocks, unread)) as batches:
            for _ in range(together):
                if made := list(islice(batches, 1)):
                    unread = made[0][1]
                    yield made.pop()
        if unread.epoch >= end:
            return
        cursor = unread
    yield from _one_by_one(blocks, cursor)


def _one_by_one(blocks: Blocks, cursor: Cursor) -> Generator[tuple[Batch, Cursor], None, None]:
    """Yield batches from blocks of one batch each."""
    yield from map(_only_batch, blocks.results(blocks.task, blocks.spans(cursor)))
    blocks.raise_failure()


def _only_batch(made: tuple[BlockSpan, Result]) -> tuple[Batch, Cursor]:
    span, result = made
    return result.batches.pop(), span.after(span.given + 1)


def _cut_from_blocks(
    blocks: Blocks, cursor: Cursor, together: int
) -> Generator[tuple[Batch, Cursor], None, Cursor | None]:
    """Yield batches from blocks of several batches each.

    Return the cursor of a block that could not be read as a whole, or None.
    """
    task = replace(blocks.task, may_fail=True)
    with closing(blocks.run(task, blocks.spans(cursor, together))) as results:
        for span, result in results:
            if not result.batches:
                return cursor
            for given, stop in enumerate(span.batch_stops(blocks.size), span.given + 1):
                cursor = span.within(stop, given) if stop < span.stop else span.after(given)
                yield result.batches.pop(0), cursor
    return cursor if blocks.unread else None


def batch_at(ready: ReadyPlan, number: int, epoch: int) -> Batch:
    """Make one batch of the iteration that begins with ``epoch``, in this thread."""
    plan, size = ready.plan, ready.plan.groups.block
    epoch, within = place_of(plan, number, epoch)
    start, share = within * size, plan.share.in_epoch(epoch)
    positions = share.positions(start, start + size)
    batch = block_task(ready)(Request(number, epoch, positions)).batches.pop()
    if plan.mask is not None:
        _add_mask(batch, plan.mask, share.real(start, start + size))
    return batch


def _add_mask(batch: Batch, mask: str, real: npt.NDArray[np.bool_]) -> None:
    """Add the column that marks real rows, as opposed to padding."""
    if any(len(column) != len(real) for column in batch.values()):
        raise MapError(
            f"a function of batches changed the number of rows from {len(real):,}, so the "
            f'column {mask!r} of even="pad" cannot be made'
        )
    batch[mask] = real


@dataclass(frozen=True)
class BlockSpan:
    """A block to read: rows ``start`` to ``stop`` of this rank.

    ``cursor`` is where the run entered the epoch of these rows, and ``following`` is the
    cursor after that epoch. ``last`` is true for the last block of the epoch. In a plain plan,
    ``given`` batches of the epoch come before this block.
    """

    cursor: Cursor
    share: Share
    start: int
    stop: int
    last: bool
    given: int
    following: Cursor

    def batch_stops(self, size: int) -> range:
        """Return where the batches of this block end; the last one may be shorter."""
        return range(self.start + size, self.stop + size, size)

    def within(self, at: int, given: int) -> Cursor:
        """Return the cursor at a row of this block."""
        epoch, turn, _, held, _, kept, left, done, ahead = self.cursor
        # Calling Cursor takes three times as long, and this runs for every batch.
        return tuple.__new__(Cursor, (epoch, turn, at, held, given, kept, left, done, ahead))

    def after(self, given: int) -> Cursor:
        """Return the cursor after this block."""
        return self.following if self.last else self.cursor._replace(at=self.stop, given=given)


class Blocks:
    """The blocks of one run, and the results the workers return for them."""

    def __init__(self, ready: ReadyPlan, meter: Meter) -> None:
        self._ready, self._plan, self._meter = ready, ready.plan, meter
        self._groups, self._mask = ready.plan.groups, ready.plan.mask
        self.size = self._groups.block
        #: The work on a block that is a batch.
        self.task = block_task(ready)
        self._waiting: dict[int, BlockSpan] = {}
        self._failure: DataError | None = None
        # So many rows are there, though nobody has counted all.
        self._sure = 0

    def spans(self, cursor: Cursor, batches: int = 1) -> Iterator[BlockSpan]:
        """Yield the blocks of this run, in order.

        If blocks are not batches, every epoch has at least one.
        """
        plan, plain = self._plan, self._plan.plain
        while plan.repeat is None or cursor.turn < plan.repeat:
            # Rows that are not counted yet are looked for as they are read.
            is_open = cursor.left is None and plan.open_ended
            share = plan.open_share if is_open else plan.share_at(cursor)
            following = cursor.following(plan.repeat)
            start, end, given = self._epoch_span(cursor, share, is_open)
            if plain and share.part[1] > 1:
                # Another process of the rank reads the batch after the last of this epoch.
                count = share.batches(self._groups.drop_last)
                self.check_progress(cursor, count)
                following = following._replace(done=cursor.done + count if following.turn else 0)
            elif plain:
                self.check_progress(cursor, end - start)
            while start < end or not plain:
                stop = min(start + self.size * batches, end)
                if is_open and not self._goes_on(share, stop, end):
                    is_open, share = False, plan.share_at(cursor)
                    first, end, _ = self._epoch_span(cursor, share)
                    if plain:
                        self.check_progress(cursor, end - first)
                    continue
                yield BlockSpan(cursor, share, start, stop, stop >= end, given, following)
                given += batches
                start = stop
                if stop >= end:
                    break
            if not following.turn:
                return
            cursor = following

    def _goes_on(self, share: Share, stop: int, end: int) -> bool:
        """Return whether another batch follows ``stop``, unless nothing after it is wanted."""
        tail = share.left.tail
        need = min(stop + (self.size if self._groups.drop_last else 1), end) + tail
        if need > self._sure:
            # Look a little further, so that small batches do not ask each time.
            rows = self._plan.rows
            more = 0 if rows.facts.calls_user_code else _LOOK_BYTES // max(1, self._ready.row_bytes)
            need = min(need + more, end + tail)
            self._sure = rows.up_to(need)
        return need <= self._sure

    def _epoch_span(
        self, cursor: Cursor, share: Share, is_open: bool = False
    ) -> tuple[int, int, int]:
        """Return where to start and stop reading an epoch, and the batches before that."""
        plan, size = self._plan, self.size
        end, given = len(share), cursor.given
        if plan.plain and self._groups.drop_last and (is_open or not plan.damaged):
            end -= end % size
        start = end if cursor.at >= end else cursor.at - cursor.at % size
        wanted = plan.batch_slice
        if not plan.plain or not wanted:
            return start, end, given
        stop = start + max(0, wanted.stop - given) * size
        start = min(end, start + max(0, wanted.skip - given) * size)
        return start, max(start, min(end, stop)), max(given, wanted.skip)

    def check_progress(self, epoch: Cursor, count: int) -> None:
        """Refuse to repeat forever an epoch without batches."""
        whole = epoch.at == 0 and epoch.left is None
        if self._plan.repeat is None and whole and count == 0:
            raise OptionError(
                "repeat() never ends, but an epoch has no batches: the filters or this rank have "
                "no rows left, or too few for a batch with drop_last"
            )

    def results(
        self, task: BlockTask, spans: Iterator[BlockSpan]
    ) -> Iterator[tuple[BlockSpan, Result]]:
        """Yield the workers' results for the blocks, up to a bad row.

        Then call ``raise_failure``, once all rows before the bad one have been used.
        """
        try:
            yield from self.run(task, spans)
        except DataError as e:
            self._failure = e
        if self._failure is not None:
            yield from self.run(task, iter(list(self._sound_spans())))

    def raise_failure(self) -> None:
        """Raise the error that ended the results, if a bad row did."""
        if self._failure is not None:
            raise self._failure

    @property
    def failed(self) -> bool:
        """Whether a bad row ended the results."""
        return self._failure is not None

    def _sound_spans(self) -> Iterator[BlockSpan]:
        """Yield the blocks that were requested but have no result, up to the first bad row."""
        for _, span in sorted(self._waiting.items(), key=itemgetter(0)):
            positions = span.share.positions(span.start, span.stop)
            sound = count_sound(self._plan.rows, positions)
            if sound < len(positions):
                dropped = self._plan.plain and self._groups.drop_last
                dropped = dropped or self._groups.by_cost is not None
                if sound and not dropped:
                    yield replace(span, stop=span.start + sound, last=False)
                return
            yield span

    @property
    def unread(self) -> bool:
        """Whether a requested block could not be read ahead."""
        return bool(self._waiting)

    def run(
        self, task: BlockTask, spans: Iterator[BlockSpan]
    ) -> Generator[tuple[BlockSpan, Result], None, None]:
        """Yield the workers' results for the blocks, in order."""
        self._waiting.clear()
        ahead = self._ready.blocks_ahead
        with ExitStack() as stack:
            work: Work = task
            read: Callable[[Request], Request]
            read = self._read_if_possible if task.may_fail else self._read
            requests: Iterable[Request] = self._requests(spans)
            # Worker processes fetch what they are asked for themselves.
            here = self._plan.in_order or self._plan.pool.kind != "processes"
            lookahead = task.lookahead() if here else None
            if lookahead is not None:
                stack.callback(lookahead.close)
                requests = lookahead.over(requests)
                work, read = lookahead.around(task), lookahead.around(read)
            pool = stack.enter_context(closing(open_pool(work, self._plan.pool, ahead)))
            if self._plan.in_order:
                # One thread reads ahead of the threads that transform the rows.
                reads = read_ahead(takewhile(_was_read, map(read, requests)), ahead)
                requests = stack.enter_context(closing(reads))
            yield from map(self._received, pool.run(requests, ahead))

    def _requests(self, spans: Iterator[BlockSpan]) -> Iterator[Request]:
        for number, span in enumerate(spans):
            self._waiting[number] = span
            positions = span.share.positions(span.start, span.stop)
            ends = span.share.ends(span.start, span.stop)
            yield Request(number, span.cursor.epoch, positions, ends=ends)

    def _read(self, request: Request) -> Request:
        begun = time.perf_counter()
        batch = at_epoch(self._plan.rows, request.epoch).gather(request.positions)
        self._meter.spend([time.perf_counter() - begun])
        return replace(request, batch=batch)

    def _read_if_possible(self, request: Request) -> Request:
        try:
            return self._read(request)
        except Exception:
            return request  # the caller reads its batches again, one by one

    def _received(self, answer: tuple[Request, Result]) -> tuple[BlockSpan, Result]:
        request, result = answer
        span = self._waiting.pop(request.number)
        self._meter.spend(result.seconds)
        self._meter.rows_read += len(request.positions)
        if result.fetched is not None:
            self._meter.fetch(result.fetched)
        if self._mask is not None:
            _add_mask(result.batches[0], self._mask, span.share.real(span.start, span.stop))
        return span, result


def _cut(batch: Batch, ends: Sequence[int]) -> list[Batch]:
    """Cut a batch into views that end at these rows."""
    if len(ends) == 1:
        return [batch]
    columns = [cut(column, ends) for column in batch.values()]
    return [dict(zip(batch, parts, strict=True)) for parts in zip(*columns, strict=True)]


def _was_read(request: Request) -> bool:
    return request.batch is not None


def block_task(ready: ReadyPlan) -> BlockTask:
    """Return the task for a block of one or more batches."""
    return BlockTask(
        ready.plan.rows,
        ready.transforms,
        ready.batch_transforms,
        sys.maxsize if ready.plan.groups.by_cost is not None else ready.plan.groups.block,
        ready.block_memory,
        ahead=bytes_ahead(memory=ready.plan.memory) if ready.plan.remote else 0,
    )


@dataclass(frozen=True)
class BlockTask:
    """Reads a block and transforms its rows, then its batches of ``size`` rows each.

    ``stops`` holds, for each ``take`` or ``skip`` that other transforms follow, the number of
    transforms before it. With ``may_fail``, a block that cannot be read returns no batches, so
    that the caller can read them one by one. ``ahead`` is how many bytes of coming blocks to
    fetch from a store.
    """

    rows: Source
    transforms: tuple[Transform, ...]
    batch_transforms: tuple[Transform, ...]
    size: int
    max_bytes: int = sys.maxsize
    stops: tuple[int, ...] = ()
    may_fail: bool = False
    ahead: int = 0

    def lookahead(self) -> Lookahead | None:
        """Return what fetches the rows of coming blocks; None if they are not in a store."""
        return Lookahead(self.rows, self.ahead) if self.ahead else None

    @cached_property
    def _reads_ragged(self) -> bool:
        """Whether rows that differ in size become batches as they are read."""
        return not self.transforms and has_ragged(self.rows.schema)

    @cached_property
    def _reader(self) -> tuple[Padding, Schema, tuple[Transform, ...]] | None:
        return padding_while_read(self.rows, self.batch_transforms)

    def __call__(self, request: Request) -> Result:
        try:
            with Guard(NO_FILES):
                return self._result(request)
        except Exception:
            if not self.may_fail:
                raise
            # One of the batches is bad, or they are too large together.
            return Result([])

    def _result(self, request: Request) -> Result:
        if request.batch is None and self._reads_ragged:
            return self._read_ragged(request)
        block, seconds = self._read(request)
        block, reached, spent = self._transformed(block)
        drops = any(transform.drops for transform in self.transforms)
        kept = np.searchsorted(request.positions, block.positions) if drops else None
        places = [np.searchsorted(request.positions, each) for each in reached]
        seconds += spent
        if not self.batch_transforms:
            return Result(_cut(block.batch, request.batch_ends(self.size)), kept, places, seconds)
        starts = range(0, max(1, len(block.positions)), self.size)
        blocks = [block.span(at, at + self.size) for at in starts] if len(starts) > 1 else [block]
        result = self._finished(blocks, seconds, self.batch_transforms)
        return replace(result, kept=kept, reached=places)

    def _read(self, request: Request) -> tuple[Block, list[float]]:
        begun = time.perf_counter()
        if (batch := request.batch) is None:
            batch = at_epoch(self.rows, request.epoch).gather(request.positions)
        block = Block(batch, request.positions, request.epoch, self.rows)
        return block, [time.perf_counter() - begun]

    def _read_ragged(self, request: Request) -> Result:
        """Read and transform batches of rows that differ in size, at once if that is possible."""
        begun = time.perf_counter()
        reader = self._reader
        positions, epoch = request.positions, request.epoch
        batches, transforms = list[Batch](), self.batch_transforms
        if reader is not None and request.ends is None:
            size = min(self.size, max(1, len(positions)))  # a batch by cost is a whole block
            padding, schema, left = reader
            rows = at_epoch(self.rows, epoch)
            batches = padding.read(rows, positions, size, self.max_bytes, schema)
            transforms = left if batches else transforms
        batches = batches or self._read_in_turn(request)
        # How much of that was padding is unknown.
        unknown = [0.0] * (len(self.batch_transforms) - len(transforms))
        seconds = [time.perf_counter() - begun, *unknown]
        if not transforms:
            return Result(batches, seconds=seconds)
        starts = range(0, max(1, len(positions)), self.size)
        blocks = [
            Block(batch, positions[start : start + self.size], epoch, self.rows)
            for start, batch in zip(starts, batches, strict=True)
        ]
        return self._finished(blocks, seconds, transforms)

    def _read_in_turn(self, request: Request) -> list[Batch]:
        batches, total, rows = list[Batch](), 0, at_epoch(self.rows, request.epoch)
        if (whole := rows.gather_sized(request.positions, self.max_bytes)) is not None:
            return _cut(whole, request.batch_ends(self.size))
        for begin, end in pairwise([0, *request.batch_ends(self.size)]):
            batches.append(rows.gather(request.positions[begin:end]))
            total += measure(batches[-1])[1]
            if total > self.max_bytes and len(batches) > 1:
                raise MemoryLimitError("these batches are too large to be read together")
        return batches

    def _transformed(self, block: Block) -> tuple[Block, list[Positions], list[float]]:
        """Transform the rows of a block.

        Also return the positions of the rows that reached each ``take`` or ``skip`` between
        transforms, and the seconds each transform took.
        """
        reached, seconds = list[Positions](), list[float]()
        for begin, end in pairwise([0, *self.stops, len(self.transforms)]):
            if begin:
                reached.append(block.positions)
            block, spent = run_transforms(block, self.transforms[begin:end])
            seconds += spent
        return block, reached, seconds

    def _finished(
        self, blocks: list[Block], seconds: list[float], transforms: Sequence[Transform]
    ) -> Result:
        """Transform batches."""
        done = [run_transforms(block, transforms) for block in blocks]
        spent = [sum(times) for times in zip(*(times for _, times in done), strict=True)]
        return Result([block.batch for block, _ in done], seconds=[*seconds, *spent])
