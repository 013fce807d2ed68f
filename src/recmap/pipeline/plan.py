"""What a chain comes to: rows, steps, groups, and how they are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from recmap.errors import DataError, OptionError
from recmap.model.byte_size import parse_size
from recmap.model.schema import Batch, Field, Schema
from recmap.model.workers import Workers
from recmap.pipeline.row_source import Leaf, Rows, is_damaged, reach_of, sound_rows
from recmap.pipeline.sharding import ENDLESS, Even, Remaining, Share
from recmap.pipeline.signature import Said
from recmap.pipeline.state import Cursor, digest
from recmap.pipeline.transforms.base import Rowset, Step, run_steps, settle
from recmap.pipeline.transforms.batch import Batches, Block, Grouping, Singles
from recmap.pipeline.transforms.pad import padded_by
from recmap.pipeline.transforms.slice import Cut
from recmap.pipeline.trial import Found, tried

__all__ = ["Plan", "Settled", "Shard"]

_MEMORY = parse_size("512MB")
_START = Cursor()
_WHOLE = Cut()
# Rows that come one by one are read so many together.
_SINGLES_SIZE = 1 << 20
_SINGLES_MOST = 256
# Blocks that are read to find a batch that functions of batches can be tried on.
_TRIED = 64
# Threads that read batches before they are asked for.
_READERS = 2
# Small batches are read several at a time, up to so many bytes, rows and batches: to hand
# one from thread to thread takes as long as to read it. But who keeps one keeps them all.
_TOGETHER_BYTES = 1 << 24
_TOGETHER_ROWS = 1 << 14
_TOGETHER_BATCHES, _TOGETHER_PADDED = 64, 4
# Those that are padded while they are read have memory of their own, and it is known how
# much before it is taken.
_TOGETHER_READ = 8


@dataclass(frozen=True)
class Shard:
    """One rank of several."""

    rank: int
    world: int
    even: Even
    mask: str


@dataclass(frozen=True)
class Plan:
    """A chain, read: the verbs only fill this in, and checking is theirs.

    ``steps`` are done to rows, ``finish`` to batches. ``bucket`` waits for ``batch``;
    ``functions`` counts those of the user. ``repeat`` is of the whole; None is without
    end.

    What ``take`` and ``skip`` leave: of the rows that so many steps leave (``kept``), of
    the positions of an epoch, before ranks share it (``reach``: start and count, each
    within the one before), of the batches of a rank in an epoch (``given``), and of all
    that ``repeat`` gives (``overall``).
    """

    rows: Rows
    steps: tuple[Step, ...] = ()
    kept: tuple[tuple[int, Cut], ...] = ()
    reach: tuple[tuple[int, int | None], ...] = ()
    bucket: tuple[str | Callable[[dict[str, Any]], int], tuple[int, ...]] | None = None
    grouping: Grouping | None = None
    finish: tuple[Step, ...] = ()
    given: Cut = _WHOLE
    overall: Cut = _WHOLE
    shard: Shard | None = None
    part: tuple[int, int] = (0, 1)
    repeat: int | None = 1
    workers: Workers | None = None
    ahead: int | None = None
    readers: int | None = None
    memory: int = _MEMORY
    functions: int = 0
    #: What states know it by: the data, and the verbs.
    leaves: tuple[Leaf, ...] = ()
    said: tuple[Said, ...] = ()

    @property
    def drops(self) -> bool:
        """Whether steps may leave rows out."""
        return any(step.drops for step in self.steps) or bool(self.kept)

    @property
    def remaining(self) -> Remaining:
        """The positions of an epoch."""
        # Ranks and parts share all rows, which are to be counted.
        alone = self.shard is None and self.part == (0, 1)
        reach = reach_of(self.rows) if alone else self.rows.count
        start, stop = 0, ENDLESS if reach is None else reach
        for begin, count in self.reach:
            start = min(start + begin, stop)
            stop = stop if count is None else min(stop, start + count)
        return Remaining(stop, start)

    @property
    def damaged(self) -> bool:
        """Whether the last row of an epoch is one that raises."""
        return is_damaged(self.rows) and self.remaining.total == reach_of(self.rows)

    @property
    def count_rows(self) -> int | None:
        """The rows of an epoch that are read, on all ranks; None if there is no end."""
        count = len(self.remaining)
        return None if self.remaining.total >= ENDLESS else count

    @property
    def groups(self) -> Grouping:
        """How rows are grouped, also if nobody said so."""
        if self.grouping is not None:
            return self.grouping
        size = _SINGLES_SIZE // self.rows.row_bytes()
        return Singles(max(1, min(_SINGLES_MOST, size)))

    @property
    def plain(self) -> bool:
        """Whether a block that is read is a batch."""
        return self.groups.plain and not self.drops

    @property
    def step(self) -> int | None:
        """The rows that every rank takes in a step; None if they differ in that."""
        if self.drops or not isinstance(self.groups, Batches | Singles):
            return None
        return self.groups.block if isinstance(self.groups, Batches) else 1

    @property
    def share(self) -> Share:
        """The rows of this rank, in an epoch of which all is left."""
        left, block, shard = self.remaining, self.groups.block, self.shard
        if shard is None:
            return Share(left, block=block, part=self.part)
        return Share(left, shard.rank, shard.world, block, shard.even, self.part)

    def share_at(self, place: Cursor) -> Share:
        """The rows of this rank in the epoch of a place, of which not all may be left."""
        share = self.share if place.left is None else replace(self.share, left=place.left)
        return share.behind(place.done)

    @property
    def pool(self) -> Workers:
        """Who does the work, also if nobody said so. Functions of users stay in the
        thread that asks for batches unless they are allowed to leave it.
        """
        if self.workers is not None:
            return self.workers
        if self.ahead == 0:
            return Workers("here", 1)
        ours = self._ours
        if ours and not self.rows.in_order:
            return Workers("threads", self.readers or _READERS)
        # One reader is ahead already; steps of ours may be done beside the loop.
        beside = ours and bool(self.steps or self.finish)
        return Workers("threads" if beside or self.ahead else "here", 1)

    def verbs(self) -> list[str]:
        """What is done, for people."""
        names = [_text(self.rows.describe()), *(step.name for step in self.steps)]
        if self.grouping is not None:
            names.append(" ".join(str(part) for part in self.grouping.describe()[:2]))
        names += [step.name for step in self.finish]
        if self.shard is not None:
            names.append(f"shard {self.shard.rank} of {self.shard.world}")
        return names

    def chain(self) -> str:
        """A name that two chains share if they give the same rows in the same order, as
        states of version 1 know it.
        """
        rows, count = self.rows.describe(), reach_of(self.rows)
        for begin, taken in self.reach:
            start = begin if count is None else min(begin, count)
            rest = None if count is None else count - start
            count = min((n for n in (rest, taken) if n is not None), default=None)
            rows = ["stretch", rows, start, count]
        kept = self.kept[-1][1] if self.kept else Cut()
        cuts = [[kept.skip, kept.take], [self.given.skip, self.given.take]]
        return digest(
            [
                rows,
                [step.describe() for step in (*self.steps, *self.finish)],
                self.groups.describe(),
                [*cuts, self.repeat],
            ]
        )

    @property
    def counted(self) -> bool:
        """Whether it is known before how many batches there are."""
        return not self.drops and isinstance(self.groups, Batches | Singles)

    def count(self, start: Cursor = _START) -> int | None:
        """Batches (or rows, if they are not grouped) of an iteration, from a place on; None
        if nobody knows before.
        """
        if self.damaged:
            return self.rows.count  # raises
        if self.count_rows is None or not self.counted:
            return None
        rest, whole = self.rest(start), self.rest(_START)
        if self.repeat is not None:
            all_of_it = rest + (self.repeat - start.turn - 1) * whole
        elif self.overall.take is not None:
            all_of_it = max(rest, self.overall.stop) if whole else rest
        else:
            return None
        return self.overall.wanted(start.done, max(0, all_of_it))

    def advanced(self, start: Cursor, batches: int) -> Cursor:
        """The place so many batches further on, if blocks are batches."""
        there = self.count(start)
        if there is not None and batches > there:
            raise OptionError(f"state(batches={batches}): there are {there:,} in this iteration")
        while batches and batches >= (rest := self.rest(start)):
            batches -= rest
            start = start.following(self.repeat)
        if not batches:
            return start
        passed = max(0, self.given.skip - start.given) + batches
        return replace(start, at=start.at + passed * self.groups.block, given=start.given + passed)

    def rest(self, start: Cursor) -> int:
        """Batches of this rank that are left of an epoch, if that is known."""
        rows = max(0, len(self.share_at(start)) - start.at)
        if isinstance(self.groups, Batches):
            size = self.groups.block
            rows = rows // size if self.groups.drop_last else -(-rows // size)
        return self.given.wanted(start.given, rows)

    def settled(self) -> Settled:
        """The plan once its functions have seen some rows."""
        if self.bucket is not None:
            raise OptionError("bucket(...) is followed by batch(...), which makes the batches")
        workers = None if self._ours else self.workers
        found = tried(self._found, (*self.steps, *self.finish), workers)
        steps, finish = found.steps[: len(self.steps)], found.steps[len(self.steps) :]
        return Settled(self, steps, finish, found.schema, found.sample, self._mask, found.row_bytes)

    @property
    def _ours(self) -> bool:
        """Whether no function of the user's is called."""
        return self.rows.ours and all(step.ours for step in (*self.steps, *self.finish))

    @property
    def _mask(self) -> str | None:
        return None if self.shard is None or self.shard.even != "pad" else self.shard.mask

    def _found(self) -> Found:
        """What the functions make of some rows. They are called."""
        steps, schema, sample = settle(self.rows, self.steps)
        schema = self.groups.schema(schema)
        sample = self._sampled(steps, sample)
        finish: list[Step] = []
        for step in self.finish:
            ready, schema = step.settled(schema, sample)
            finish.append(ready)
            sample = ready.apply(sample) if len(sample.positions) else sample
        mask = self._mask
        batch = dict(sample.batch)
        if mask is not None:
            if mask in schema:
                raise OptionError(
                    f"shard: there is a column {mask!r} already; give the mask another name: "
                    'mask="real"'
                )
            batch[mask] = np.ones(len(next(iter(batch.values()), ())), bool)
            schema = Schema({**schema, mask: Field("bool")})
        size = sum(column.nbytes for column in batch.values())
        row_bytes = max(self.rows.row_bytes(), size // max(1, len(sample.positions)))
        return Found((*steps, *finish), schema, batch, row_bytes)

    def _sampled(self, steps: Sequence[Step], sample: Rowset) -> Rowset:
        """What the functions of batches are tried on: a batch as they will get them."""
        if all(step.ours for step in self.finish):
            batch = self.groups.sampled(sample.batch)
            count = len(next(iter(batch.values()), ()))
            return replace(sample, batch=batch, positions=np.arange(count))
        grouper, size = self.groups.start(), self.groups.block
        for start in range(0, min(_TRIED * size, len(self.share)), size):
            positions, _ = self.share.positions(start, start + size)
            try:
                batch = self.rows.gather(positions, 0)
            except DataError:
                positions = positions[: sound_rows(self.rows, positions)]
                if not len(positions):
                    break
                batch = self.rows.gather(positions, 0)
            rows = Rowset(batch, positions, 0, self.rows)
            rows, _ = run_steps(rows, steps)
            for group in grouper.add(Block(rows.batch, rows.positions)):
                return replace(sample, batch=group.batch, positions=group.numbers)
        for group in grouper.flush():
            return replace(sample, batch=group.batch, positions=group.numbers)
        return replace(sample, positions=sample.positions[:0])


@dataclass(frozen=True)
class Settled:
    """A plan, with the types of what it makes, and what it made of the first rows."""

    plan: Plan
    steps: tuple[Step, ...]
    finish: tuple[Step, ...]
    schema: Schema
    sample: Batch
    #: The column that tells rows from those that fill up, if there is one.
    mask: str | None
    row_bytes: int

    @cached_property
    def together(self) -> int:
        """Batches to be read at a time."""
        plan, size = self.plan, self.plan.groups.block
        alone = plan.pool.kind != "threads" or plan.workers or plan.ahead is not None
        if alone or plan.steps or not plan.plain or self.mask is not None:
            return 1
        # Functions of batches are called with one at a time, and in their turn.
        if not all(step.ours and not step.drops for step in self.finish):
            return 1
        # The rows of a ragged batch would not have memory of their own.
        if not all(isinstance(column, np.ndarray) for column in self.sample.values()):
            return 1
        fitting = min(_TOGETHER_BYTES, plan.memory // 8) // max(1, self.row_bytes * size)
        most = _TOGETHER_BATCHES
        if self.finish:
            # What padded rows take is a guess.
            most = _TOGETHER_READ if padded_by(self.finish, plan.rows) else _TOGETHER_PADDED
        return max(1, min(fitting, most, _TOGETHER_ROWS // size))


def _text(described: list[Any]) -> str:
    """``["shuffled", ["rows", 10], 1]`` as ``rows, shuffled (seed 1)``."""
    kind, *rest = described
    if rest and isinstance(rest[0], list) and rest[0] and isinstance(rest[0][0], str):
        seed = f" (seed {rest[1]})" if kind in ("shuffled", "windowed") else ""
        return f"{_text(rest[0])}, {kind}{seed}"
    return str(kind)
