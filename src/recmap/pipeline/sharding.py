"""Which positions of an epoch each rank reads, even after the number of ranks has changed.

The remaining positions of an epoch are a few spans and everything from ``tail`` on.
They are dealt in blocks, one batch to each rank in turn, so after any number of steps
the ranks together have taken one span from the start. Rows at the end that do not fill
a whole round are divided evenly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError
from recmap.model.batch import Positions
from recmap.model.order import Order

Even: TypeAlias = Literal["uneven", "pad", "drop"]
Span: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Remaining(Order):
    """Positions that have not been taken: some spans, then all from ``tail`` to ``total``."""

    total: int
    tail: int = 0
    runs: tuple[Span, ...] = ()  # the name used in states

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
    even: Even = "uneven"
    #: (index, count) of this process among the processes of its rank, which take turns.
    part: tuple[int, int] = (0, 1)

    def check(self) -> None:
        """Refuse a rank outside 0 to world - 1."""
        if self.world < 1 or not 0 <= self.rank < self.world:
            raise OptionError(f"shard({self.rank}, {self.world}): the index is 0 to count - 1")
        if self.even not in ("uneven", "pad", "drop"):
            raise OptionError(f'even={self.even!r}: use "uneven", "pad" or "drop"')

    def batches(self, drop_last: bool) -> int:
        """Count the batches of the whole rank, if each is a block."""
        return self._of_rank // self.block if drop_last else -(-self._of_rank // self.block)

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
            last = each + (self.even == "uneven" and self.rank < over)
        return self._rounds * self.block + last

    def positions(self, start: int, stop: int) -> Positions:
        """Return the positions of rows ``start`` to ``stop`` of this rank."""
        return self.numbers(np.arange(start, min(stop, len(self)), dtype=np.int64))

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


def _runs(positions: Positions) -> list[Span]:
    """Return positions as spans, in order."""
    if not len(positions):
        return []
    positions = np.unique(positions)
    breaks = np.flatnonzero(np.diff(positions) != 1)
    starts = np.concatenate([[0], breaks + 1])
    ends = np.concatenate([breaks, [len(positions) - 1]])
    return [(int(positions[a]), int(positions[b]) + 1) for a, b in zip(starts, ends, strict=True)]
