"""``rm.mix``: the rows of several branches, mixed by weight.

The rows of each branch are spread evenly over the whole epoch: among the first ``n``
positions, a branch has its share of ``n``, give or take a few. The row at a position is
computed, so a mix needs no memory and can begin anywhere.

The branches are the leaves of a binary tree. A node hands ``floor(n * share + phase)`` of
its first ``n`` positions to its left side, in integer arithmetic throughout, and the rest to
its right. The phase of each node is drawn for every epoch. Finally, positions are swapped
within small blocks, so that the pattern does not repeat.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from numbers import Real
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from recmap.errors import FieldMismatchError, OptionError, OptionTypeError
from recmap.formats.combined import CombinedSource
from recmap.model.arguments import as_list, check_choice
from recmap.model.batch import Positions, RowArray, RowNumbers, interleave
from recmap.model.draws import hashed
from recmap.model.facts import SourceFacts, with_facts
from recmap.model.fetching import Fetching, fetching_all
from recmap.model.fill_null import with_the_same_nulls
from recmap.model.order import finite
from recmap.model.row_sizes import RowSizes
from recmap.model.schema import Batch
from recmap.model.source import Source, at_epoch, gather_span, row_name
from recmap.pipeline.row_source import count_of
from recmap.pipeline.transforms.mix_schedule import pieces

Until = Literal["first", "all"]
Schedule = Sequence[tuple[int, Sequence[float]]]

# Positions that are shuffled together. More would be more random, and less even.
_BLOCK = 8
_INT64 = 2**63 - 1


class _Phase:
    """A span of positions in which the same branches take part, as leaves of a tree.

    ``shares`` are the rows of each branch in it; in a phase without end, integers in
    proportion to the weights. ``before`` are the rows taken in earlier phases, by branch. The tree
    is stored as arrays of its nodes: leaves are numbered from 0 up, inner nodes from -1 (the root)
    down.
    """

    def __init__(
        self, start: int, length: int | None, shares: Sequence[int], before: Sequence[int]
    ) -> None:
        self.start, self.length = start, length
        self.before = np.array(before, np.int64)
        self.sides: list[tuple[int, int]] = []
        self.odds: list[tuple[int, int]] = []
        chosen = [i for i, share in enumerate(shares) if share > 0]
        self.root = self._grow(shares, chosen) if chosen else 0
        self.depth = max(len(chosen) - 1, 0).bit_length()
        # The largest numbers that a position is multiplied and divided by.
        self.largest = max((num for num, _ in self.odds), default=0)
        self.widest = max((den for _, den in self.odds), default=0)

    def _grow(self, shares: Sequence[int], chosen: list[int]) -> int:
        if len(chosen) == 1:
            return chosen[0]
        left, right = chosen[: len(chosen) // 2], chosen[len(chosen) // 2 :]
        odds = Fraction(sum(shares[i] for i in left), sum(shares[i] for i in chosen))
        node = len(self.odds)
        self.odds.append((odds.numerator, odds.denominator))
        self.sides.append((0, 0))
        self.sides[node] = self._grow(shares, left), self._grow(shares, right)
        return -1 - node


def mixed(
    branches: Sequence[Source],
    weights: Sequence[float] | None,
    until: Until,
    seed: int,
    schedule: Schedule | None = None,
) -> MixedRows:
    """Return the rows of several branches with the same schema, mixed by weight.

    If they differ only in their nulls, the rows have those of all.
    """
    branches = with_the_same_nulls(branches)
    for number, branch in enumerate(branches[1:], 2):
        if branch.schema != branches[0].schema:
            raise FieldMismatchError(
                f"mix: dataset {number} has {branch.schema}, and dataset 1 has "
                f"{branches[0].schema}; map or select their columns so that they agree"
            )
    ends = [None if branch.facts.endless else 0 for branch in branches]
    check_choice("until", until, ("first", "all"))
    if schedule is None:
        check_weights(weights, ends)
    return MixedRows(branches, Mixture(branches, weights, until, seed, schedule))


class Mixture:
    """The branch of each position, and the position in it, in each epoch.

    The phases are found when they are first needed: the branches have to be counted for them.
    """

    def __init__(
        self,
        branches: Sequence[Source],
        weights: Sequence[float] | None,
        until: Until,
        seed: int,
        schedule: Schedule | None,
    ) -> None:
        self._branches, self._weights, self._until, self._seed = branches, weights, until, seed
        self._schedule = schedule
        self._patterns: tuple[int, list[_Pattern]] | None = None

    @cached_property
    def _phases(self) -> list[_Phase]:
        counts = [count_of(branch) for branch in self._branches]
        if self._schedule is None:
            return _plan(counts, check_weights(self._weights, counts), self._until)
        return _scheduled(counts, pieces(self._schedule), self._until)

    @property
    def count(self) -> int | None:
        """The number of rows; None if it never ends."""
        last = self._phases[-1]
        return None if last.length is None else last.start + last.length

    @property
    def counted(self) -> bool:
        """Whether all branches are counted, so that finding the phases takes no time."""
        return "_phases" in self.__dict__ or all(
            branch.facts.endless or branch.known_rows() is not None for branch in self._branches
        )

    @property
    def endless(self) -> bool:
        """Whether it never ends. Until the branches are counted, none of them counts as empty."""
        if self.counted:
            return self.count is None
        endless = [branch.facts.endless for branch in self._branches]
        if self._schedule is None:
            weights = [self._weights or []]
        else:
            # To the last row of all, the last weights count; to the end of the first, any do.
            points = [each for _, each in self._schedule]
            weights = points[-1:] if self._until == "all" else points
        chosen = [
            each for some in weights for each, weight in zip(endless, some, strict=False) if weight
        ]
        return bool(chosen) and (any if self._until == "all" else all)(chosen)

    def __getstate__(self) -> dict[str, Any]:
        # Other processes do not count again.
        self._phases  # noqa: B018
        return {**self.__dict__, "_branches": ()}

    def _pattern(self, epoch: int) -> list[_Pattern]:
        """Return the patterns of an epoch, one for each phase."""
        held = self._patterns
        if held is None or held[0] != epoch:
            patterns = [
                _Pattern(phase, [self._seed, epoch, number])
                for number, phase in enumerate(self._phases)
            ]
            held = self._patterns = (epoch, patterns)
        return held[1]

    def locate(self, positions: Positions, epoch: int) -> tuple[Positions, Positions]:
        """Return the branch of each position, and the position in it."""
        patterns = self._pattern(epoch)
        owner, inner = np.empty_like(positions), np.empty_like(positions)
        starts = [phase.start for phase in self._phases]
        phases = np.searchsorted(starts, positions, side="right") - 1
        for number in np.unique(phases):
            phase = self._phases[number]
            mine = np.flatnonzero(phases == number)
            owners, places = patterns[number].locate(positions[mine] - phase.start)
            owner[mine] = owners
            inner[mine] = phase.before[owners] + places
        return owner, inner


class MixedRows(CombinedSource):
    """Rows of several branches with the same schema."""

    def __init__(self, branches: Sequence[Source], mixture: Mixture, epoch: int = 0) -> None:
        super().__init__(branches, branches[0].schema)
        self._mixture, self._epoch = mixture, epoch

    def _collected(self, told: list[SourceFacts]) -> SourceFacts:
        return with_facts(super()._collected(told), varies=True)

    @property
    def facts(self) -> SourceFacts:
        searched = self._told.searched and self._mixture.counted
        return with_facts(self._told, endless=self._mixture.endless, searched=searched)

    def __len__(self) -> int:
        return finite(self._mixture.count)

    def known_rows(self) -> int | None:
        return len(self) if self._mixture.counted and not self._mixture.endless else None

    def up_to(self, stop: int) -> int:
        count = self._mixture.count
        return stop if count is None else min(stop, count)

    def prepare(self) -> None:
        super().prepare()
        self._mixture.count  # noqa: B018  # counted when it is first asked for

    def at_epoch(self, epoch: int) -> MixedRows:
        if epoch == self._epoch:
            return self
        return MixedRows([at_epoch(each, epoch) for each in self._sources], self._mixture, epoch)

    def select(self, names: Sequence[str]) -> MixedRows:
        chosen = [each.select(names) for each in self._sources]
        return MixedRows(chosen, self._mixture, self._epoch)

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        return gather_span(self, start, stop, limit)

    def gather(self, rows: RowArray) -> Batch:
        owner, inner = self._mixture.locate(rows, self._epoch)
        parts, places = [], []
        for i in np.unique(owner):
            mine = np.flatnonzero(owner == i)
            parts.append(self._sources[i].gather(inner[mine]))
            places.append(mine)
        return interleave(parts, places) if parts else self._sources[0].gather(rows)

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        owner, inner = self._mixture.locate(np.asarray(rows, np.int64), self._epoch)
        return fetching_all(
            self._sources[i].fetch_ahead(inner[owner == i]) for i in np.unique(owner)
        )

    def row_sizes(self, rows: RowArray) -> RowSizes | None:
        owner, inner = self._mixture.locate(rows, self._epoch)
        sizes = np.empty(len(rows), np.int64)
        for i in np.unique(owner):
            found = self._sources[i].row_sizes(inner[owner == i])
            if found is None:
                return None
            sizes[owner == i] = found
        return sizes

    def row_bytes(self) -> int:
        return max(branch.row_bytes() for branch in self._sources)

    def row_name(self, row: int) -> str:
        owner, inner = self._mixture.locate(np.array([row]), self._epoch)
        return row_name(self._sources[int(owner[0])], int(inner[0]))


class _Pattern:
    """Which branch each position of a phase belongs to, in one epoch."""

    def __init__(self, phase: _Phase, seed: Sequence[int]) -> None:
        self._phase = phase
        # The numbers of a Generator may change from one NumPy release to the next.
        drawn = np.random.SeedSequence(list(seed)).generate_state(len(phase.odds) + 1, np.uint64)
        self._key = drawn[-1]
        self._sides = np.array(phase.sides, np.int64).reshape(-1, 2)
        rows = [
            (num, den, int(chance) * den >> 64)
            for (num, den), chance in zip(phase.odds, drawn, strict=False)
        ]
        self._exact = np.array(rows, object).reshape(-1, 3).T
        self._fast = self._exact.astype(np.int64) if phase.widest <= _INT64 else None

    def locate(self, positions: Positions) -> tuple[Positions, Positions]:
        """Return the branch of each position, and which row of the branch comes there."""
        if not self._phase.odds:
            return np.full_like(positions, self._phase.root), positions
        blocks, which = np.unique(positions // _BLOCK, return_inverse=True)
        slots = np.arange(_BLOCK) + blocks[:, None] * _BLOCK
        owner, inner = self._owners(slots.reshape(-1))
        owner, inner = owner.reshape(slots.shape), inner.reshape(slots.shape)
        chance = hashed(slots.astype(np.uint64), self._key)
        if self._phase.length is not None:
            # Slots after the end stay there.
            chance[slots >= self._phase.length] = np.iinfo(np.uint64).max
        order = np.argsort(chance, axis=1, kind="stable")
        shuffled = np.take_along_axis(owner, order, axis=1)
        # The rows of every branch keep their order.
        ranked = np.empty_like(inner)
        by_owner = np.argsort(owner, axis=1, kind="stable")
        places = np.argsort(shuffled, axis=1, kind="stable")
        np.put_along_axis(ranked, places, np.take_along_axis(inner, by_owner, axis=1), axis=1)
        within = positions % _BLOCK
        return shuffled[which, within], ranked[which, within]

    def _owners(self, positions: Positions) -> tuple[Positions, Positions]:
        tree = self._phase
        most = (int(positions.max(initial=0)) + 1) * tree.largest + tree.widest
        exact = self._fast is None or most > _INT64
        nums, dens, phases = self._exact if exact or self._fast is None else self._fast
        node = np.full(len(positions), tree.root, np.int64)
        place: npt.NDArray[Any] = positions.astype(object) if exact else positions.copy()
        for _ in range(tree.depth):
            open_ = np.flatnonzero(node < 0)
            at = -1 - node[open_]
            num, den, here = nums[at], dens[at], place[open_]
            scaled = here * num + phases[at]
            left = scaled // den
            goes_left = ((scaled + num) // den > left).astype(np.bool_)
            place[open_] = np.where(goes_left, left, here - left)
            node[open_] = self._sides[at, np.where(goes_left, 0, 1)]
        return node, place.astype(np.int64)


def check_weights(weights: Sequence[float] | None, counts: Sequence[int | None]) -> list[float]:
    """Return the weights, which without any are the numbers of rows. None has no end."""
    if weights is None:
        if None in counts:
            raise OptionError("mix: endless datasets need weights")
        return [count or 0 for count in counts]
    weights = as_list("weights", weights, "[0.7, 0.3]")
    if not all(isinstance(weight, Real) for weight in weights):
        raise OptionTypeError(
            f"weights={weights!r}: give a number for each branch, as in [0.7, 0.3]"
        )
    if len(weights) != len(counts):
        raise OptionError(f"mix: {len(weights)} weights for {len(counts)} datasets")
    if not all(math.isfinite(w) and w >= 0 for w in weights) or not any(weights):
        raise OptionError(f"weights={list(weights)}: numbers of 0 or more, not all 0")
    return [float(weight) for weight in weights]


def _plan(counts: Sequence[int | None], weights: Sequence[float], until: Until) -> list[_Phase]:
    """Return the phases. Each ends when a branch runs out of rows."""
    # Take weights as they are written: 0.7 is exactly seven tenths.
    exact = [Fraction(repr(weight)) for weight in weights]
    taken = [0] * len(counts)
    phases: list[_Phase] = []
    start = 0
    while not phases or until == "all":
        left = [
            None if count is None else count - n for count, n in zip(counts, taken, strict=True)
        ]
        here = [
            w if rows is None or rows > 0 else Fraction()
            for w, rows in zip(exact, left, strict=True)
        ]
        if not any(here):
            break
        length, shares = _shares(here, left)
        phases.append(_Phase(start, length, shares, taken))
        if length is None:
            break
        taken = [n + share for n, share in zip(taken, shares, strict=True)]
        start += length
    return phases or [_nothing(counts)]


def _scheduled(
    counts: Sequence[int | None],
    schedule: Sequence[tuple[int | None, Sequence[Fraction]]],
    until: Until,
) -> list[_Phase]:
    """Return the phases of a schedule: its pieces, cut where a branch runs out of rows."""
    taken, owed = [0] * len(counts), [Fraction()] * len(counts)
    phases: list[_Phase] = []
    start = 0
    for positions, weights in schedule:
        rest = positions
        wanted = [w if n != 0 else Fraction() for w, n in zip(weights, counts, strict=True)]
        while rest is None or rest > 0:
            left = [None if n is None else n - t for n, t in zip(counts, taken, strict=True)]
            here = [w if rows != 0 else Fraction() for w, rows in zip(wanted, left, strict=True)]
            if until == "first" and here != wanted:
                return phases or [_nothing(counts)]
            if not any(here):
                break  # nothing is left of those that this piece draws from
            length, shares = _shares(here, left)
            if rest is not None and (length is None or length >= rest):
                length, shares, owed = rest, *_fill(here, left, rest, owed)
            phases.append(_Phase(start, length, shares, taken))
            if length is None:
                return phases
            taken = [n + share for n, share in zip(taken, shares, strict=True)]
            start += length
            rest = None if rest is None else rest - length
    return phases or [_nothing(counts)]


def _fill(
    weights: Sequence[Fraction], left: Sequence[int | None], length: int, owed: Sequence[Fraction]
) -> tuple[list[int], list[Fraction]]:
    """Divide positions among branches, and return what each is owed by then."""
    total = sum(weights, Fraction())
    asked = [length * w / total + more for w, more in zip(weights, owed, strict=True)]
    most = [length if rows is None else rows for rows in left]
    shares = [max(0, min(math.floor(rows), m)) for rows, m in zip(asked, most, strict=True)]
    open_ = [i for i, weight in enumerate(weights) if weight]
    while missing := length - sum(shares):
        step = 1 if missing > 0 else -1
        able = [i for i in open_ if (shares[i] < most[i] if step > 0 else shares[i] > 0)]
        shares[max(able, key=lambda i: (step * (asked[i] - shares[i]), -i))] += step
    return shares, [rows - share for rows, share in zip(asked, shares, strict=True)]


def _nothing(counts: Sequence[int | None]) -> _Phase:
    return _Phase(0, 0, [0] * len(counts), [0] * len(counts))


def _shares(
    weights: Sequence[Fraction], left: Sequence[int | None]
) -> tuple[int | None, Sequence[int]]:
    """Count the positions until a branch runs out of rows, and the rows of each branch in them."""
    total = sum(weights, Fraction())
    ends = [
        (rows * total / weight, i)
        for i, (weight, rows) in enumerate(zip(weights, left, strict=True))
        if weight and rows is not None
    ]
    if not ends:
        common = math.lcm(*(weight.denominator for weight in weights))
        return None, [int(weight * common) for weight in weights]
    end, first = min(ends)
    length = math.floor(end)
    asked = [length * weight / total for weight in weights]
    shares = [math.floor(rows) for rows in asked]
    shares[first] = left[first] or 0
    # Assign the rest by largest remainder; no branch gets more rows than it has.
    others = [i for i, weight in enumerate(weights) if weight and i != first]
    others.sort(key=lambda i: (shares[i] - asked[i], i))
    for i in others[: length - sum(shares)]:
        shares[i] += 1
    return length, shares
