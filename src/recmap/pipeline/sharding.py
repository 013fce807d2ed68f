"""Which rank this process is, and which positions of an epoch each rank reads.

The remaining positions of an epoch are a few spans and everything from ``tail`` on.
They are dealt in blocks, one batch to each rank in turn, so after any number of steps
the ranks together have taken one span from the start. Rows at the end that do not fill
a whole round are divided evenly.

By cost, all ranks together cut the epoch into batches and take turns: batch ``i`` is that of rank
``i % world``. So that all ranks take the same number of steps, some of the last batches are
divided. After any number of steps, the ranks together have taken one span from the start, as of
other batches.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heapify, heapreplace
from itertools import accumulate
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError, OptionTypeError
from recmap.model.arguments import as_whole, check_choice
from recmap.model.batch import Positions, RowArray
from recmap.model.order import ENDLESS, Order
from recmap.pipeline.transforms.batch import EpochCuts

Even: TypeAlias = Literal["pad", "drop"] | None

_RankAndWorld: TypeAlias = tuple[int, int] | None

# The variables that launchers set: of torchrun, Accelerate and DeepSpeed, and of MPI.
_TORCHRUN = ("RANK", "WORLD_SIZE")
_MPI = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
)


@dataclass(frozen=True)
class Rank:
    """One of ``world`` training processes."""

    rank: int
    world: int
    even: Even
    mask: str

    @classmethod
    def checked(cls, index: int | None, count: int | None, even: Even, mask: str) -> Rank:
        """Check the arguments of ``shard``. Without numbers, find those of this process."""
        if even == "uneven":  # type: ignore[comparison-overlap]  # of older versions
            raise OptionError("even='uneven' is now even=None, the default")
        check_choice("even", even, ("pad", "drop", None))
        if (index is None) != (count is None):
            raise OptionTypeError("shard: give both numbers, shard(rank, world), or neither")
        if index is None or count is None:
            index, count = own_rank()
        rank, world = as_whole("index", index), as_whole("count", count, 1, most=ENDLESS)
        if rank >= world:
            raise OptionError(f"shard({rank}, {world}): the index is 0 to count - 1")
        if not isinstance(mask, str):
            raise OptionTypeError(f"mask={mask!r}: give the name of the column to add")
        return cls(rank, world, even, mask)


@dataclass(frozen=True)
class Remaining(Order):
    """Positions that have not been taken: some spans, then all from ``tail`` to ``total``."""

    total: int
    tail: int = 0
    runs: tuple[tuple[int, int], ...] = ()  # the name used in states

    def __len__(self) -> int:
        return int(self._starts[-1]) + max(0, self.total - self.tail)

    @property
    def count(self) -> int:
        return len(self)

    @cached_property
    def _starts(self) -> npt.NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum([b - a for a, b in self.runs])]).astype(np.int64)

    def numbers(self, positions: Positions, epoch: int = 0) -> Positions:
        """Return the positions in the epoch of those that remain."""
        del epoch
        if not self.runs:
            return positions + self.tail if self.tail else positions
        held = int(self._starts[-1])
        if not len(positions) or int(positions.min()) >= held:
            return positions - held + self.tail
        run = np.searchsorted(self._starts, positions, side="right") - 1
        inside = run < len(self.runs)
        firsts = np.array([a for a, _ in self.runs] + [0], np.int64)
        found = firsts[run] + positions - self._starts[run]
        return np.where(inside, found, positions - held + self.tail)

    def after(self, number: int, others: Positions) -> Remaining:
        """Return what remains from a number on, plus some other positions."""
        held = int(self._starts[-1])
        rest = self.numbers(np.arange(number, held, dtype=np.int64))
        tail = self.tail + max(0, number - held)
        runs = _runs(np.concatenate([others, rest]))
        if runs and runs[-1][1] == tail:
            tail = runs.pop()[0]
        return Remaining(self.total, tail, tuple(runs))


@dataclass(frozen=True)
class Share(Order):
    """The rows of one rank of ``world``."""

    left: Remaining
    rank: int = 0
    world: int = 1
    block: int = 1
    even: Even = None
    #: (index, count) of this process among the processes of its rank, which take turns.
    part: tuple[int, int] = (0, 1)

    def batches(self, drop_last: bool) -> int:
        """Count the batches of the whole rank, if each is a block."""
        return self._of_rank // self.block if drop_last else -(-self._of_rank // self.block)

    def in_epoch(self, epoch: int) -> Share:
        """Return the share in another epoch."""
        del epoch  # the same rows in each
        return self

    def behind(self, batches: int) -> Share:
        """Return the share in an epoch that begins after ``batches`` batches of the rank.

        The processes of the rank continue to take turns from there.
        """
        part, parts = self.part
        return replace(self, part=((part - batches) % parts, parts)) if parts > 1 else self

    @cached_property
    def _rounds(self) -> int:
        return len(self.left) // (self.block * self.world)

    @cached_property
    def _rest(self) -> int:
        return len(self.left) - self._rounds * self.block * self.world

    @property
    def count(self) -> int:
        return len(self)

    def __len__(self) -> int:
        """Count the rows of this part of the rank, including padding."""
        part, parts = self.part
        blocks, rest = divmod(self._of_rank, self.block)
        mine, over = divmod(blocks, parts)
        return (mine + (part < over)) * self.block + (rest if part == over else 0)

    @cached_property
    def _of_rank(self) -> int:
        each, over = divmod(self._rest, self.world)
        if self.even == "pad":
            last = each + (over > 0)
        else:
            last = each + (self.even is None and self.rank < over)
        return self._rounds * self.block + last

    def positions(self, start: int, stop: int) -> Positions:
        """Return the positions of rows ``start`` to ``stop`` of this rank."""
        return self.numbers(np.arange(start, min(stop, len(self)), dtype=np.int64))

    def ends(self, start: int, stop: int) -> Sequence[int] | None:
        """Return where several batches end among ``positions``; None if all have one size."""
        del start, stop
        return None

    def real(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Return which rows are real. The others repeat the last one, to fill up the rank."""
        mine = self._of_whole_rank(np.arange(start, min(stop, len(self)), dtype=np.int64))
        each, over = divmod(self._rest, self.world)
        return mine < self._rounds * self.block + each + (self.rank < over)

    def numbers(self, positions: Positions, epoch: int = 0) -> Positions:
        """Return the positions in the epoch of rows of this rank."""
        del epoch
        mine = self._of_whole_rank(positions)
        if self.world == 1:
            return self.left.numbers(mine)
        rounds, within = np.divmod(mine, self.block)
        numbers = (rounds * self.world + self.rank) * self.block + within
        last = mine >= self._rounds * self.block
        if last.any():
            each, over = divmod(self._rest, self.world)
            begin = self.rank * each + min(self.rank, over)
            base = self._rounds * self.block * self.world
            at = mine[last] - self._rounds * self.block
            numbers[last] = np.minimum(base + begin + at, len(self.left) - 1)
        return self.left.numbers(numbers)

    def _of_whole_rank(self, mine: Positions) -> Positions:
        """Return the numbers in the whole rank of rows of this part of it."""
        part, parts = self.part
        if parts == 1:
            return mine
        blocks, within = np.divmod(mine, self.block)
        return (blocks * parts + part) * self.block + within

    def in_step(self, taken: int, step: int) -> list[int]:
        """Return how many rows each rank has taken when this one has taken ``taken``.

        All ranks have made the same number of steps of ``step`` rows.
        """
        steps = -(-taken // step)
        return [min(steps * step, len(replace(self, rank=rank))) for rank in range(self.world)]

    def remaining(self, taken: Sequence[int], held: Sequence[int]) -> Remaining:
        """Return what is left when rank ``i`` has taken ``taken[i]`` rows.

        The positions in ``held`` were taken, but are not in any batch yet.
        """
        whole = self._rounds * self.block
        if max(taken) <= whole:
            upto = -(-max(taken) // self.block) * self.block
            end = upto * self.world
        else:
            upto, end = whole + self._rest, len(self.left)
        positions = [np.asarray(held, np.int64)]
        for rank, count in enumerate(taken):
            share = replace(self, rank=rank)
            positions.append(share.positions(count, upto)[share.real(count, upto)])
        return self.left.after(end, np.concatenate(positions))


def _runs(positions: Positions) -> list[tuple[int, int]]:
    """Return positions as spans, in order."""
    if not len(positions):
        return []
    positions = np.unique(positions)
    breaks = np.flatnonzero(np.diff(positions) != 1)
    starts = np.concatenate([[0], breaks + 1])
    ends = np.concatenate([breaks, [len(positions) - 1]])
    return [(int(positions[a]), int(positions[b]) + 1) for a, b in zip(starts, ends, strict=True)]


@dataclass(frozen=True, kw_only=True)
class CutShare(Share):
    """The batches of one rank of ``world``. What ``Share`` counts in rows is counted in batches."""

    cuts: Callable[[int], EpochCuts]
    epoch: int = 0

    def in_epoch(self, epoch: int) -> CutShare:
        return replace(self, epoch=epoch)

    @cached_property
    def _ends(self) -> RowArray:
        """Where the batches of all ranks end, among the rows that are left."""
        ends, world = _ends_within(self.cuts(self.epoch)[0], self.left), self.world
        rows = int(ends[-1]) if len(ends) else 0
        if self.even == "drop" and len(ends) >= world:
            return ends[: len(ends) - len(ends) % world]
        wanted = -(-len(ends) // world) * world
        return _divided(ends, min(wanted, rows), world)

    @cached_property
    def _of_rank(self) -> int:
        rounds, over = divmod(len(self._ends), self.world)
        if self.even == "pad":
            return rounds + (over > 0)
        return rounds + (self.even is None and self.rank < over)

    def _span(self, batch: int) -> tuple[int, int]:
        """Return where a batch of this part of the rank begins and ends."""
        part, parts = self.part
        return self._span_of((batch * parts + part) * self.world + self.rank)

    def _span_of(self, number: int) -> tuple[int, int]:
        """Return where a batch of all ranks begins and ends."""
        if number >= len(self._ends):  # a rank without a row repeats the last one
            return int(self._ends[-1]) - 1, int(self._ends[-1])
        return int(self._ends[number - 1]) if number else 0, int(self._ends[number])

    def positions(self, start: int, stop: int) -> Positions:
        """Return the positions of the rows of batches ``start`` to ``stop`` of this rank."""
        spans = [self._span(batch) for batch in range(start, min(stop, len(self)))]
        rows = [np.arange(begin, end, dtype=np.int64) for begin, end in spans]
        return self._placed(np.concatenate([np.empty(0, np.int64), *rows]))

    def ends(self, start: int, stop: int) -> Sequence[int] | None:
        batches = range(start, min(stop, len(self)))
        if len(batches) < 2:
            return None
        spans = (self._span(batch) for batch in batches)
        return list(accumulate(end - begin for begin, end in spans))

    def _placed(self, rows: Positions) -> Positions:
        """Return the positions in the epoch of rows that are left."""
        numbers = self.left.numbers(rows)
        _, positions = self.cuts(self.epoch)
        return numbers if positions is None else positions[numbers]

    def real(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Return which rows of batches ``start`` to ``stop`` are real."""
        part, parts = self.part
        found = [np.empty(0, bool)]
        for batch in range(start, min(stop, len(self))):
            begin, end = self._span(batch)
            real = (batch * parts + part) * self.world + self.rank < len(self._ends)
            found.append(np.full(end - begin, real))
        return np.concatenate(found)

    def rows_from(self, batch: int) -> int:
        """Count the rows of this part of the rank from a batch on."""
        part, parts = self.part
        sizes = np.diff(self._ends, prepend=0)
        return int(
            sizes[(batch * parts + part) * self.world + self.rank :: parts * self.world].sum()
        )

    def remaining(self, taken: Sequence[int], held: Sequence[int]) -> Remaining:
        """Return the rows that are left when rank ``i`` has taken ``taken[i]`` batches."""
        assert not len(held)
        upto = max(taken)
        end = min(upto * self.world, len(self._ends))
        whole = int(self._ends[end - 1]) if end else 0
        if end == len(self._ends):
            whole = len(self.left)  # what even="drop" leaves out does not come again
        others = [np.empty(0, np.int64)]
        for rank, count in enumerate(taken):
            # A rank without a row repeats one that another rank has.
            last = min(upto, -(-(len(self._ends) - rank) // self.world))
            numbers = [batch * self.world + rank for batch in range(count, last)]
            others += [np.arange(*self._span_of(number), dtype=np.int64) for number in numbers]
        return self.left.after(whole, self.left.numbers(np.concatenate(others)))


def _ends_within(ends: RowArray, left: Remaining) -> RowArray:
    """Return where batches end in what is left of an epoch, counted from its beginning."""
    if not left.runs and left.tail == 0:
        return ends
    found, before = [np.empty(0, np.int64)], 0
    for begin, end in (*left.runs, (left.tail, left.total)):
        if begin < end:
            inside = ends[np.searchsorted(ends, begin, "right") : np.searchsorted(ends, end)]
            found.append(np.append(inside, end) - begin + before)
            before += end - begin
    return np.concatenate(found)


def _divided(ends: RowArray, wanted: int, world: int) -> RowArray:
    """Divide some of the last batches, so that there are ``wanted``."""
    more = wanted - len(ends)
    if more <= 0:
        return ends
    # The last incomplete round, and as many before it as have rows enough.
    tail = min(len(ends), len(ends) % world or world)
    while tail < len(ends) and _rows_of_last(ends, tail) < tail + more:
        tail = min(len(ends), tail + world)
    before = len(ends) - tail
    sizes = np.diff(ends[before:], prepend=ends[before - 1] if before else 0).tolist()
    parts = [1] * tail
    heap = [(-float(size) if size > 1 else 0.0, index) for index, size in enumerate(sizes)]
    heapify(heap)
    for _ in range(more):
        # The batch whose parts are largest is divided into one more.
        index = heap[0][1]
        parts[index] += 1
        size = sizes[index] / parts[index]
        heapreplace(heap, (-size if size > 1 else 0.0, index))
    begins = [*ends[:before].tolist()[-1:], *ends[before:].tolist()]
    begins = begins if before else [0, *begins]
    made = [
        begin + np.arange(1, count + 1) * size // count
        for begin, size, count in zip(begins, sizes, parts, strict=False)
    ]
    return np.concatenate([ends[:before], *made])


def _rows_of_last(ends: RowArray, count: int) -> int:
    before = len(ends) - count
    return int(ends[-1] - (ends[before - 1] if before else 0))


def own_rank() -> tuple[int, int]:
    """Return the rank of this process and the world; 0 and 1 if there is no sign of others."""
    finders: list[Callable[[], _RankAndWorld]] = [
        _from_torch,
        _from_jax,
        _from_torchrun,
        _from_slurm,
    ]
    finders += [lambda names=names: _from_environment(*names) for names in _MPI]  # type: ignore[misc]
    found = (find() for find in finders)
    return next((each for each in found if each is not None), (0, 1))


def reads_for_itself() -> tuple[int, int] | None:
    """Return the rank and the world if this surely is one of several ranks that read.

    Rank 0 may read for all, and the tasks of a cluster or of MPI may have nothing to do with
    each other.
    """
    if divided_by_others():
        return None
    found = _from_torch() or _from_jax() or _from_torchrun()
    return found if found is not None and found[0] > 0 else None


def divided_by_others() -> bool:
    """Return whether Accelerate is loaded: it divides, or hands out, what it prepares."""
    return "accelerate" in sys.modules


def _from_torch() -> _RankAndWorld:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _from_jax() -> _RankAndWorld:
    jax = sys.modules.get("jax")
    # Asking JAX for processes starts its devices, so ask only if it knows of several.
    initialized = getattr(getattr(jax, "distributed", None), "is_initialized", None)
    if jax is None or initialized is None or not initialized():
        return None
    return jax.process_index(), jax.process_count()


def _from_torchrun() -> _RankAndWorld:
    return _from_environment(*_TORCHRUN)


def _from_slurm() -> _RankAndWorld:
    # A batch script also has the number of tasks, but is not one of them.
    steps = ("SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NUM_TASKS")
    if "SLURM_JOB_ID" in os.environ and not any(name in os.environ for name in steps):
        return None
    of_step = "SLURM_STEP_NUM_TASKS" in os.environ
    return _from_environment("SLURM_PROCID", "SLURM_STEP_NUM_TASKS" if of_step else "SLURM_NTASKS")


def _from_environment(rank: str, world: str) -> _RankAndWorld:
    if rank not in os.environ or world not in os.environ:
        return None
    found = os.environ[rank], os.environ[world]
    if not all(value.isdecimal() and value.isascii() for value in found):
        raise OptionError(
            f"shard(): the environment has {rank}={found[0]!r} and {world}={found[1]!r}; give the "
            "numbers: shard(rank, world)"
        )
    return int(found[0]), int(found[1])
