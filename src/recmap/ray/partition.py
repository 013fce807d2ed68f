"""Which task reads which rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recmap.model.source import Partition

__all__ = ["Stretch", "deal", "good_blocks"]

# What Ray takes for a block, some 15 ms, is little beside the reading of so many bytes.
_GOOD_SIZE = 16 << 20
_LEAST_SIZE = 1 << 20
_MOST_SIZE = 64 << 20
# Blocks for each processor, so that all of them end at about the same time.
_TURNS = 4


@dataclass(frozen=True)
class Stretch:
    """Rows ``start`` to ``stop`` of a piece, or all from ``start`` on if nobody knows."""

    piece: Partition
    start: int
    stop: int | None

    @property
    def rows(self) -> int | None:
        return None if self.stop is None else self.stop - self.start


def good_blocks(size: int, cpus: int) -> int:
    """Into how many blocks rows of a size are cut, if nobody has said it: one for each
    processor, several if there is much to read.

    >>> [good_blocks(size << 20, 8) for size in (0, 3, 80, 400, 10_000)]
    [1, 3, 8, 25, 157]
    """
    each = min(cpus, size // _LEAST_SIZE)
    several = min(_TURNS * cpus, size // _GOOD_SIZE)
    return max(1, each, several, -(-size // _MOST_SIZE))


def deal(pieces: Sequence[Partition], tasks: int) -> list[list[Stretch]]:
    """The stretches of about so many tasks, in the order of the rows: about equally many
    for each, but pieces are cut only where their rows can be read apart.
    """
    counts = [piece.rows for piece in pieces]
    known = [count for count in counts if count is not None]
    if len(known) < len(counts):
        groups = np.array_split(np.arange(len(pieces)), min(tasks, len(pieces)))
        return [[Stretch(pieces[i], 0, counts[i]) for i in group] for group in groups]
    total = sum(known)
    edges = np.arange(tasks) * total // tasks
    dealt: list[list[Stretch]] = [[] for _ in range(tasks)]
    base = 0
    for piece, rows in zip(pieces, known, strict=True):
        first = int(np.searchsorted(edges, base, side="right")) - 1
        # Where the rows of each task begin: the last of several that begin at one place.
        begins = {0: first}
        for task in range(first + 1, int(np.searchsorted(edges, base + rows))):
            begins[int(edges[task] - base) // piece.unit * piece.unit] = task
        starts = list(begins)
        for start, stop in zip(starts, [*starts[1:], rows], strict=True):
            if stop > start:
                dealt[begins[start]].append(Stretch(piece.part(start, stop), start, stop))
        base += rows
    return [stretches for stretches in dealt if stretches] or [[Stretch(pieces[0], 0, 0)]]
