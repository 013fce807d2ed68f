"""The feed of a pipeline: its batches, iteration after iteration, and its current place.

``Stream`` shows users what they need of it. Adapters get the feed itself, which also
counts epochs, gives rows and batches by number, and can be divided among worker processes.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from recmap.adapters.feed import ExternalReader, HandedOut, ImagesOnDevice, LoaderWorkers
from recmap.errors import OptionError, OptionTypeError, RowNotFoundError, UnshardedWarning
from recmap.model.arguments import Workers, as_whole
from recmap.model.progress import Counter, ProgressOption
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source
from recmap.pipeline.batch_counts import (
    advanced,
    batches_left,
    count_batches,
    count_rows_from,
    later,
    on_rank,
    steps_of,
)
from recmap.pipeline.executor import batch_at, plain_batches
from recmap.pipeline.grouped_batches import grouped_batches
from recmap.pipeline.meter import Meter, Timings
from recmap.pipeline.plan import Plan
from recmap.pipeline.ready_plan import ReadyPlan, ready
from recmap.pipeline.sharding import Remaining, divided_by_others, reads_for_itself
from recmap.pipeline.signature import Seed, compare, signed
from recmap.pipeline.state import Cursor, CursorLog, NextCursor, load, redealt, save
from recmap.pipeline.state_check import check_world, checked
from recmap.warn import warn

_T = TypeVar("_T")


class PipelineFeed:
    """The batches of a pipeline (rows without ``batch``), epoch after epoch."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._ready: ReadyPlan | None = None
        self._next = NextCursor(Cursor())
        self._log = CursorLog(Cursor())  # where this iteration has been
        self._meter: Meter | None = None
        # External readers of batches, each with the number of iterations it had begun when
        # this feed was last up to date about what comes next.
        self._elsewhere: list[tuple[ExternalReader, int]] = []
        self._out_of_turn = False
        self._warned = False
        self.moves = 0  # how often the place of the next iteration was chosen

    @property
    def ready(self) -> ReadyPlan:
        """The plan after its functions have been tried on the first rows."""
        if self._ready is None:
            self._ready = ready(self._plan)
        return self._ready

    @property
    def schema(self) -> Schema:
        """The fields of the rows or batches that come out."""
        made = {name: images.field for name, images in self.images_on_device.items()}
        shown = self._without_places(self.ready.schema)
        return Schema({**shown, **made}) if made else self.ready.schema

    def sample(self) -> Batch:
        """Return the transformed first rows, which tell ragged columns from padded ones."""
        return self._without_places(self.ready.sample)

    def _without_places(self, columns: Mapping[str, _T]) -> dict[str, _T]:
        """Leave out the columns that are only for cropping images on a device."""
        places = {images.place_column for images in self._plan.images_on_device}
        return {name: each for name, each in columns.items() if name not in places}

    @property
    def images_on_device(self) -> Mapping[str, ImagesOnDevice]:
        """The columns of images that a device decodes or crops."""
        images = {each.column: each for each in self._plan.images_on_device}
        # A later select may have left some out.
        found = {name: each for name, each in images.items() if name in self.ready.schema}
        for name, each in found.items():
            if each.field_of(self.ready.schema[name]) is None:
                raise OptionError(f"decode_image: {name!r} is {self.ready.schema[name]}, not bytes")
        return found

    @property
    def batched(self) -> bool:
        """Whether batches come out rather than rows."""
        return self._plan.grouping is not None

    @property
    def mask(self) -> str | None:
        """The column that tells real rows from those that ``even="pad"`` repeats."""
        return self._plan.mask

    @property
    def varies(self) -> bool:
        """Whether epochs differ, as after a shuffle."""
        return self._plan.varies

    @property
    def world(self) -> int | None:
        """The number of ranks that rows are dealt to; None without ``shard``."""
        return None if self._plan.rank is None else self._plan.rank.world

    def warn_if_unsharded(self) -> None:
        """Warn once if this rank, one of several, reads the rows of all."""
        if self._warned or self.world is not None:
            return
        self._warned = True
        if (found := reads_for_itself()) is not None:
            warn(
                f"rank {found[0]} of {found[1]} reads every row, like all the others; add "
                "shard() to divide the rows, or shard(0, 1) if every rank should read all of them",
                UnshardedWarning,
            )

    @property
    def numbered(self) -> bool:
        """Whether rows have numbers: none are dropped, batched or dealt to ranks."""
        plan = self._plan
        whole = plan.grouping is None and plan.rank is None and plan.bucket is None
        return whole and not plan.drops and not plan.rows.facts.endless

    @property
    def turns(self) -> int:
        """Epochs of one iteration."""
        return self._plan.repeat or 1

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration begins with, or resumes."""
        return self._next.get().epoch

    @epoch.setter
    def epoch(self, number: int) -> None:
        self.begin_at(Cursor(epoch=as_whole("epoch", number)))

    def choose_epoch(self, epoch: int) -> None:
        """Make the next iteration begin with an epoch, or resume in it if it already would."""
        left = self._next.get().left
        is_over = left is not None and not left
        resumes = {self.first_epoch} if is_over else {self.epoch, self.first_epoch}
        if as_whole("epoch", epoch) not in resumes:
            self.epoch = epoch

    def choose_rest_of(self, epoch: int) -> None:
        """Make the next iteration the rest of one that began with ``epoch``: no batch."""
        last = self.turns - 1
        total = self._plan.remaining.total
        self.begin_at(Cursor(epoch + last, last, left=Remaining(total, total)))

    @property
    def first_epoch(self) -> int:
        """The first epoch of the next iteration, even if that resumes in a later one."""
        return self._next.get().first_epoch

    @property
    def resumed(self) -> bool:
        """Whether the next iteration begins in the middle of an epoch."""
        return self._next.get().is_middle

    @property
    def remote(self) -> bool:
        """Whether rows are fetched from a store, which a process that is forked cannot do."""
        return self._plan.remote

    @property
    def in_turn(self) -> bool:
        """Whether batches are best made in order: by workers, or from a compressed file."""
        return self._plan.workers is not None or self._plan.in_order

    @property
    def end_to_end(self) -> bool:
        """Whether several batches of one size may be adjacent in memory."""
        if not self._plan.plain or self._plan.groups.by_cost is not None:
            return False
        ready = self.ready
        dense = all(isinstance(column, np.ndarray) for column in ready.sample.values())
        return self.batched and dense and ready.batches_per_block > 1 and not ready.batch_transforms

    @property
    def batch_size(self) -> int:
        """Rows of a batch; the last may have fewer."""
        return self._plan.groups.block

    @property
    def fixed_batch_size(self) -> int | None:
        """Rows of every batch, if all have the same number.

        They do with ``drop_last``, unless a function of batches may change the number.
        """
        grouping = self._plan.grouping
        if grouping is None or not grouping.drop_last:
            return None
        fixed = not any(each.calls_user_code for each in self.ready.batch_transforms)
        return grouping.full_size if fixed else None

    def __len__(self) -> int:
        count = count_batches(self._plan, Cursor(epoch=self.first_epoch))
        if count is None:
            raise OptionTypeError(
                "the length of this pipeline is not known: it repeats forever, or it filters, "
                "buckets or packs rows"
            )
        return count

    def left(self) -> int:
        """Count the batches, or rows, of the next iteration, which may be a resumed one."""
        count = count_batches(self._plan, self._next.get())
        return len(self) if count is None else count

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.read_ahead(None)

    def read_ahead(self, handed_out: HandedOut | None) -> Iterator[dict[str, Any]]:
        """Run an iteration for a reader that takes batches before its loop gets them."""
        self._ready = self.ready  # raises now if a function fails on the first rows
        return self._iteration(handed_out)

    def _iteration(self, handed_out: HandedOut | None) -> Iterator[dict[str, Any]]:
        """Run an iteration, which begins when the first batch is asked for."""
        cursor, meter = self._next.take(self._following), self._new_meter()
        log = self._log = CursorLog(cursor, handed_out)
        self._meter = meter
        self._known_here()
        with closing(self._batches(cursor, meter)) as batches:
            # The list holds one batch and is emptied here: a variable would keep the batch
            # alive until the next one is asked for.
            while made := self._next_batch(batches, log, meter):
                yield made.pop()
            log.end(self._following(cursor))

    def _following(self, cursor: Cursor) -> Cursor:
        """Return where the iteration after that of a cursor begins."""
        return Cursor(epoch=cursor.first_epoch + self.turns)

    def _batches(self, cursor: Cursor, meter: Meter) -> Generator[tuple[Batch, Cursor], None, None]:
        """Return the batches from a cursor on that ``take`` and ``skip`` after ``repeat`` keep."""
        plan = self._plan
        ready = self.ready.remembering()
        batches = (plain_batches if plan.plain else grouped_batches)(ready, cursor, meter)
        return self._sliced(batches, cursor) if plan.total_slice else batches

    def _sliced(
        self, batches: Iterator[tuple[Batch, Cursor]], cursor: Cursor
    ) -> Generator[tuple[Batch, Cursor], None, None]:
        wanted, done = self._plan.total_slice, cursor.done
        if wanted.take == 0:
            return
        while done < wanted.stop and (made := list(islice(batches, 1))):
            done += 1
            if done == wanted.stop:
                yield made.pop()[0], self._following(cursor)
            elif done > wanted.skip:
                yield _counted(made.pop(), done)

    def _next_batch(
        self, batches: Iterator[tuple[Batch, Cursor]], log: CursorLog, meter: Meter
    ) -> list[Batch]:
        asked = time.perf_counter()
        made = next(batches, None)
        if made is None:
            return []
        batch, cursor = made
        log.add(cursor)
        rows = len(next(iter(batch.values()), ())) if self._plan.grouping is not None else 1
        meter.got(batch, rows, asked)
        return [batch]

    def run(self, epochs: int, progress: ProgressOption) -> Iterator[dict[str, Any]]:
        """Yield the batches of several epochs, and report the progress of each."""
        for _ in range(epochs):
            # Rows that are not counted yet can be read before that.
            unknown = self._plan.open_ended
            total = None if unknown else count_rows_from(self._plan, self._next.get())
            with Counter(total, progress) as counter:
                batches = iter(self)
                while batch := list(islice(batches, 1)):
                    if counter.watched:
                        counter.reach(*self._done())
                    yield batch.pop()
                counter.finish()

    def _done(self) -> tuple[int, int]:
        """Return the rows that came out, and the bytes that went in.

        Functions change the size of rows and filters drop some, so these bytes, and the rate, are
        those of the rows that were read.
        """
        meter = self._meter or self._new_meter()
        transforms = self.ready.transforms or self.ready.batch_transforms
        if not transforms and self._plan.plain:
            return meter.rows, meter.bytes
        return meter.rows, meter.rows_read * self._plan.rows.row_bytes()

    def timings(self) -> Timings:
        """Return where the time of the last iteration went."""
        return (self._meter or self._new_meter()).timings()

    def _new_meter(self) -> Meter:
        transforms = (*self.ready.transforms, *self.ready.batch_transforms)
        names = ["read", *(transform.name for transform in transforms)]
        counters = {id(c): c for source in self._plan.sources for c in source.counters}
        return Meter(names, self._plan.pool.count, tuple(counters.values()))

    def rows(self) -> Source:
        """Return the rows by position; raise OptionError if they have none."""
        return self._plan.random_access("rows by number")

    def batch_at(self, number: int, epoch: int) -> Batch:
        """Make one batch of the iteration that begins with ``epoch``, in this thread."""
        count = len(self) if self.batched else 0
        if not 0 <= number < count:
            raise RowNotFoundError(f"batch {number:,} is out of range: there are {count:,}")
        self._out_of_turn = True
        return batch_at(self.ready, number, epoch)

    def part(self, index: int, count: int) -> PipelineFeed:
        """Return every ``count``-th batch, for processes of one rank that take turns.

        Each process does its own work: most such processes may not start others.
        """
        feed = self._part(index, count)
        if self.resumed:
            feed.begin_at(self._divisible(self._next.get()))
        return feed

    def _part(self, index: int, count: int) -> PipelineFeed:
        count = as_whole("count", count, 1)
        index = as_whole("index", index, 0, count - 1)
        plan = self._plan
        if plan.row_slices or plan.batch_slice or plan.total_slice:
            raise OptionError(
                "take and skip after filter, batch or repeat need a single process that counts; "
                "use num_workers=0"
            )
        processes = plan.workers is not None and plan.workers.kind == "processes"
        workers = Workers("serial", 1) if processes else plan.workers
        feed = PipelineFeed(replace(plan, part=(index, count), workers=workers))
        feed._ready = None if self._ready is None else replace(self._ready, plan=feed._plan)
        return feed

    def _divisible(self, cursor: Cursor) -> Cursor:
        """Return a cursor at which several processes of this rank can begin."""
        if not cursor.is_middle:
            return cursor
        share = self._plan.share.in_epoch(cursor.epoch)
        return redealt(cursor, share, self._plan.groups, self._plan.rows_per_step)

    def share_with_workers(self) -> None:
        """Let the workers that this process starts know which epoch is next, and all they need."""
        self._plan.prepare()
        self._next.share()

    def part_of_worker(
        self,
        index: int,
        workers: LoaderWorkers,
        state: Mapping[str, Any] | None = None,
        epoch: int | None = None,
    ) -> PipelineFeed:
        """Begin an iteration in one of several workers, and return its part.

        With ``state``, a state of such a part, resume an iteration that began with ``epoch``.
        """
        feed = self._part(index, workers.size)
        if state is None:
            # What cannot be divided is refused before it is taken.
            cursor = self._next.take_with(workers, lambda at: self._following(self._divisible(at)))
            feed.begin_at(self._divisible(cursor))
            return feed
        feed.restore(state)
        first = feed.first_epoch if epoch is None else epoch
        if feed.first_epoch == first:
            check_world(state, self._plan.share.world, workers.size)
        self._next.take_with(workers, self._following, Cursor(epoch=first))
        return feed

    def state(self, batches: int | None = None) -> dict[str, Any]:
        """Return the state after the last batch given out, or after ``batches`` of them."""
        if batches is not None:
            batches = as_whole("batches", batches)
        cursor = self._cursor_elsewhere(batches)
        if cursor is None:
            cursor = self._log.after(batches)
        return self._saved(cursor)

    @property
    def given(self) -> int:
        """Batches, or rows, of this iteration that the loop has got."""
        return self._log.given

    def _saved(self, cursor: Cursor) -> dict[str, Any]:
        signature = signed([each.known_by for each in self._plan.sources], self._plan.records)
        return save(cursor, self._plan.share, signature)

    def later(self, state: Mapping[str, Any], batches: int) -> dict[str, Any]:
        """Return the state ``batches`` batches after one, on the rank that saved it."""
        first = checked(state, len(self._plan.row_slices))[0]
        theirs = PipelineFeed(on_rank(self._plan, first["rank"], first["world"])).restore(first)
        return theirs._saved(later(theirs._plan, theirs._next.get(), batches))  # noqa: SLF001

    def read_by(self, reader: ExternalReader) -> None:
        """Note that an external reader takes over, in processes or an order unknown here."""
        self._elsewhere.append((reader, reader.begun()))

    def _known_here(self) -> None:
        """Note that this feed is up to date again about what comes next."""
        self._elsewhere = [(each, each.begun()) for each, _ in self._elsewhere]
        self._out_of_turn = False

    def _cursor_elsewhere(self, batches: int | None) -> Cursor | None:
        """Return the cursor after ``batches`` batches of the external reader that read last.

        Return None if there is none.
        """
        if self._out_of_turn:
            raise OptionError(
                "state(): batches were asked for out of order, so there is no place to continue "
                "from; use fit(..., shuffle=False, callbacks=[train.follow()]), and train.state()"
            )
        for each, before in self._elsewhere:
            if each.begun() == before:
                continue
            epoch = each.epoch()
            in_turn = epoch is not None and self._plan.plain and self._plan.counted
            if batches is None or not in_turn:
                how = "state(batches=n) with the number that the loop has received, "
                raise OptionError(f"state(): {each.instead.format(how if in_turn else '')}")
            begun = self._next.last_of_workers or Cursor(epoch=epoch or 0)
            return advanced(self._plan, begun, batches)
        return None

    def restore(
        self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]], check: bool = True
    ) -> PipelineFeed:
        """Continue from a state, or from the states of all ranks."""
        plan = self._plan
        states = checked(state, len(plan.row_slices))
        seeds = self._compared(states) if check else []
        step, repeat = plan.rows_per_step, plan.repeat
        cursor = load(
            states, plan.share, plan.groups, step, repeat, partial(steps_of, plan), check=check
        )
        if cursor.ahead and plan.batch_slice:
            raise OptionError(
                "restore: the ranks were in different epochs, so the rows that take or skip leaves "
                "cannot be divided again; continue with the same number of ranks"
            )
        if cursor.left is not None and cursor.at == 0 and self._nothing_left(cursor):
            cursor = cursor.following(plan.repeat)
        for seed, value in seeds:
            seed.value = value
        self.begin_at(cursor)
        return self

    def begin_at(self, cursor: Cursor) -> None:
        """Begin the next iteration at a cursor."""
        self.moves += 1
        self._next.set(cursor)
        self._log = CursorLog(cursor)
        self._known_here()

    def _compared(self, states: Sequence[Mapping[str, Any]]) -> list[tuple[Seed, int]]:
        """Refuse states of other data or verbs; return the seeds to take from the states."""
        seeds: list[tuple[Seed, int]] = []
        for state in states:
            data = [each.known_by for each in self._plan.sources]
            difference, seeds = compare(state, data, self._plan.records)
            if difference is not None:
                raise OptionError(
                    f"restore: the state is not of this pipeline: {difference}. To continue "
                    "anyway, use restore(state, check=False)"
                )
            if state.get("verbs") != states[0].get("verbs"):
                raise OptionError("restore: the states are from different runs: their verbs differ")
        return seeds

    def _nothing_left(self, cursor: Cursor) -> bool:
        """Whether no rank has anything left of an epoch that was dealt again."""
        if not cursor.left or not self._plan.counted:
            return not cursor.left
        # No rank has more than the first one.
        rank = self._plan.rank
        first = None if rank is None else replace(rank, rank=0)
        return batches_left(replace(self._plan, rank=first), cursor) == 0

    def __getstate__(self) -> dict[str, Any]:
        # The meter holds a lock, and a copy in another process has its own readers.
        known = self._warned or divided_by_others()
        return {**self.__dict__, "_meter": None, "_elsewhere": [], "_warned": known}


def _counted(made: tuple[Batch, Cursor], done: int) -> tuple[Batch, Cursor]:
    batch, after = made
    # After the last epoch the count starts again.
    return batch, after._replace(done=done) if after.is_middle else after
