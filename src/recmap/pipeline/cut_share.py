"""CutShare: which batches each rank reads, if batches are cut by what rows cost.

All ranks together cut the epoch, and take turns: batch ``i`` is that of rank ``i % world``. So
that all ranks take the same number of steps, some of the last batches are divided. After any
number of steps, the ranks together have taken one span from the start, as of other batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heapify, heapreplace

import numpy as np
import numpy.typing as npt

from recmap.model.batch import Positions, RowArray
from recmap.pipeline.sharding import Remaining, Share
from recmap.pipeline.transforms.batch import BatchCuts


@dataclass(frozen=True, kw_only=True)
class CutShare(Share):
    """The batches of one rank of ``world``. What ``Share`` counts in rows is counted in batches."""

    cuts: BatchCuts
    epoch: int = 0

    def in_epoch(self, epoch: int) -> CutShare:
        return replace(self, epoch=epoch)

    @cached_property
    def _ends(self) -> RowArray:
        """Where the batches of all ranks end, among the rows that are left."""
        ends, world = _ends_within(self.cuts.at(self.epoch).ends, self.left), self.world
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

    def _placed(self, rows: Positions) -> Positions:
        """Return the positions in the epoch of rows that are left."""
        numbers = self.left.numbers(rows)
        positions = self.cuts.at(self.epoch).positions
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
