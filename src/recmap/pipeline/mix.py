"""Rows of several chains, mixed by weights.

The pattern repeats a fixed share of each in every block of positions, in an order of
its own for every block; so which row comes at a position is computed, and the shares
hold over any few thousand rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from recmap.errors import FieldMismatchError, OptionError
from recmap.permutation import Permutation
from recmap.pipeline.gathering import interleave
from recmap.pipeline.rows import Positions, Rows
from recmap.types import Batch

__all__ = ["Mixed", "Until"]

Until = Literal["first", "all"]

_BLOCK = 4096


@dataclass(frozen=True)
class _Phase:
    """A stretch of positions in which the same chains take part."""

    start: int
    length: int | None
    shares: npt.NDArray[np.int64]  # of a block, by chain; 0 if it takes no part
    before: npt.NDArray[np.int64]  # rows taken in the phases before, by chain


class Mixed:
    """Rows of several chains of one schema."""

    def __init__(
        self, parts: Sequence[Rows], weights: Sequence[float] | None, until: Until, seed: int
    ) -> None:
        if not parts:
            raise OptionError("mix([]): nothing to mix")
        if until not in ("first", "all"):
            raise OptionError(f'until={until!r}: use "first" or "all"')
        for i, part in enumerate(parts[1:], 1):
            if part.schema != parts[0].schema:
                raise FieldMismatchError(
                    f"mix: the rows of number {i} are {part.schema}, those of number 0 "
                    f"{parts[0].schema}; map or select them so that they agree"
                )
        self._parts, self._seed, self._until = list(parts), seed, until
        self._weights = _checked(weights, parts)
        self.schema = parts[0].schema
        self.in_order = any(part.in_order for part in parts)
        self.ours = all(part.ours for part in parts)
        self._pattern: tuple[tuple[int, int], tuple[Positions, Positions]] | None = None
        self._phases = self._plan()
        last = self._phases[-1]
        self.count = None if last.length is None else last.start + last.length

    def _plan(self) -> list[_Phase]:
        left = [math.inf if part.count is None else part.count for part in self._parts]
        before = np.zeros(len(left), np.int64)
        phases: list[_Phase] = []
        start = 0
        while True:
            weights = [w if rows > 0 else 0.0 for w, rows in zip(self._weights, left, strict=True)]
            stop_now = phases and self._until == "first"
            if stop_now or not any(weights):
                return phases or [_Phase(0, 0, before, before)]
            shares = _shares(weights)
            length = self._length(len(phases), shares, left)
            phases.append(_Phase(start, length, shares, before))
            if length is None:
                return phases
            used = self._used(len(phases) - 1, shares, length)
            before = before + used
            left = [rows - int(n) for rows, n in zip(left, used, strict=True)]
            if self._until == "first":
                return phases
            start += length

    def _length(
        self, phase: int, shares: npt.NDArray[np.int64], left: Sequence[float]
    ) -> int | None:
        """Positions until the first chain has run out."""
        ends = []
        for i, rows in enumerate(left):
            if shares[i] == 0 or rows == math.inf:
                continue
            block, rest = divmod(int(rows), int(shares[i]))
            owner, _ = self._block(phase, shares, block)
            ends.append(block * _BLOCK + int(np.flatnonzero(owner == i)[rest]))
        return min(ends, default=None)

    def _used(self, phase: int, shares: npt.NDArray[np.int64], length: int) -> Any:
        blocks, rest = divmod(length, _BLOCK)
        owner, _ = self._block(phase, shares, blocks)
        return blocks * shares + np.bincount(owner[:rest], minlength=len(shares))

    def _block(
        self, phase: int, shares: npt.NDArray[np.int64], block: int
    ) -> tuple[Positions, Positions]:
        """Whose the positions of a block are, and the how manieth of its own each is."""
        held = self._pattern
        if held is not None and held[0] == (phase, block):
            return held[1]
        slots = Permutation(_BLOCK, [self._seed, phase, block])[np.arange(_BLOCK)]
        owner = np.searchsorted(np.cumsum(shares), slots, side="right")
        by_owner = np.argsort(owner, kind="stable")
        rank = np.empty(_BLOCK, np.int64)
        rank[by_owner] = np.arange(_BLOCK) - np.repeat(np.cumsum(shares) - shares, shares)
        self._pattern = ((phase, block), (owner, rank))
        return owner, rank

    def _locate(self, positions: Positions) -> tuple[Positions, Positions]:
        """The chain of each position, and the position in it."""
        owner, inner = np.empty_like(positions), np.empty_like(positions)
        starts = [phase.start for phase in self._phases]
        phases = np.searchsorted(starts, positions, side="right") - 1
        blocks = (positions - np.array(starts)[phases]) // _BLOCK
        for key in np.unique(np.stack([phases, blocks]), axis=1).T:
            number, block = int(key[0]), int(key[1])
            phase = self._phases[number]
            mine = np.flatnonzero((phases == number) & (blocks == block))
            within = positions[mine] - phase.start - block * _BLOCK
            owners, ranks = self._block(number, phase.shares, block)
            owner[mine] = owners[within]
            whose = owner[mine]
            inner[mine] = phase.before[whose] + block * phase.shares[whose] + ranks[within]
        return owner, inner

    def take(self, positions: Positions, epoch: int) -> Batch:
        owner, inner = self._locate(positions)
        parts, places = [], []
        for i in np.unique(owner):
            mine = np.flatnonzero(owner == i)
            parts.append(self._parts[i].take(inner[mine], epoch))
            places.append(mine)
        return interleave(parts, places) if parts else self._parts[0].take(positions, epoch)

    def select(self, columns: Sequence[str]) -> Mixed:
        return self._over([part.select(columns) for part in self._parts])

    def renumbered(self, by: int) -> Mixed:
        return self._over([part.renumbered(by) for part in self._parts])

    def _over(self, parts: Sequence[Rows]) -> Mixed:
        """The same pattern of other rows."""
        return Mixed(parts, self._weights, self._until, self._seed)

    def row_bytes(self) -> int:
        return max(part.row_bytes() for part in self._parts)

    def whence(self, position: int, epoch: int) -> str:
        owner, inner = self._locate(np.array([position]))
        return self._parts[int(owner[0])].whence(int(inner[0]), epoch)

    def describe(self) -> list[Any]:
        parts = [part.describe() for part in self._parts]
        return ["mixed", parts, list(self._weights), self._until, self._seed]


def _checked(weights: Sequence[float] | None, parts: Sequence[Rows]) -> list[float]:
    if weights is None:
        counts = [part.count for part in parts]
        if None in counts:
            raise OptionError("mix: chains without end need weights")
        return [float(count or 0) for count in counts]
    if len(weights) != len(parts):
        raise OptionError(f"mix: {len(weights)} weights for {len(parts)} chains")
    if not all(math.isfinite(w) and w >= 0 for w in weights) or not any(weights):
        raise OptionError(f"weights={list(weights)}: numbers of 0 or more, not all 0")
    return [float(weight) for weight in weights]


def _shares(weights: Sequence[float]) -> npt.NDArray[np.int64]:
    """A block dealt out by weights: whole numbers, by the largest remainders, but at
    least one position for every chain that has a weight.
    """
    asked = np.asarray(weights) / sum(weights) * _BLOCK
    shares = np.floor(asked).astype(np.int64)
    shares[(asked > 0) & (shares == 0)] = 1
    order = np.argsort(shares - asked, kind="stable")
    while (rest := _BLOCK - int(shares.sum())) != 0:
        chosen = order[:rest] if rest > 0 else np.array([int(np.argmax(shares))])
        shares[chosen[shares[chosen] > 0]] += 1 if rest > 0 else -1
    return shares
