"""Quantiles in bounded memory: a KLL sketch (Karnin, Lang and Liberty, 2016).

Items of equal weight are kept sorted; where there are too many, every other one is dropped, and
the rest count twice. Once there are many values, only one of several is looked at. Each of these
choices is random and changes a rank by a bounded amount, up or down, so that the error of all of
them together is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

# Items that are kept of each weight.
_KEPT = 1 << 12
# All values are looked at until there are more than this, then every other one, and so on.
_ALL = 320_000
# The probability that a rank is off by more than the error.
_CHANCE = 0.01


def sampling_level(before: int) -> int:
    """Return the level of a sample, after so many values: one of ``2 ** level`` is looked at."""
    return max(0, (before // _ALL).bit_length() - 1)


@dataclass
class SortedItems:
    """Sorted values that count ``2 ** level`` times each.

    ``variance`` bounds how far the ranks are off, as a sum of squares.
    """

    values: npt.NDArray[Any]
    level: int
    variance: float = 0.0

    def thinned(self, most: int, rng: np.random.Generator) -> SortedItems:
        """Return at most so many items, by dropping all but one of several neighbours."""
        steps = 0
        while len(self.values) > most << steps:
            steps += 1
        if not steps:
            return self
        level = self.level + steps
        kept = self.values[int(rng.integers(1 << steps)) :: 1 << steps]
        return SortedItems(kept, level, self.variance + 4.0**level / 4)


class QuantileSketch:
    """Collects values of one channel; the same values in the same order give the same result."""

    def __init__(self) -> None:
        self._levels: dict[int, list[npt.NDArray[Any]]] = {}
        self._variance = 0.0
        self._rng = np.random.default_rng(0)

    def add(self, items: SortedItems) -> None:
        """Add items; those of a level are sorted again only when they are many."""
        while True:
            pending = self._levels.setdefault(items.level, [])
            pending.append(items.values)
            self._variance += items.variance
            if sum(map(len, pending)) <= 2 * _KEPT:
                return
            joined = np.sort(np.concatenate(pending), kind="stable")
            pending.clear()
            items = SortedItems(joined, items.level).thinned(_KEPT, self._rng)

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """Return quantiles as ``np.quantile`` does; NaN if there are no values."""
        found = [(values, level) for level, each in self._levels.items() for values in each]
        if not any(len(values) for values, _ in found):
            return [math.nan] * len(shares)
        values = np.concatenate([values for values, _ in found])
        weights = np.concatenate([np.full(len(each), 1 << level) for each, level in found])
        order = np.argsort(values, kind="stable")
        return weighted_quantiles(values[order], weights[order], shares)

    @property
    def rank_error(self) -> float:
        """How far the rank of a quantile may be off, as a share, in 99 of 100 cases.

        This is the inequality of Hoeffding.
        """
        count = sum(sum(map(len, each)) << level for level, each in self._levels.items())
        return math.sqrt(2 * self._variance * math.log(2 / _CHANCE)) / count if count else 0.0


def sorted_sample(
    values: npt.NDArray[Any], level: int, rng: np.random.Generator, *, finite: bool
) -> list[SortedItems]:
    """Return a sample of the finite values of each channel, of an array (groups, channels, inner).

    Of ``2 ** level`` values, one is taken. ``finite`` says that all values are.
    """
    groups, channels, inner = values.shape
    if level:
        step, count = 1 << level, groups * inner
        places = np.arange(0, count, step)
        places += rng.integers(step, size=len(places), dtype=np.uint32)
        places = places[places < count]  # the last step may be shorter
        chosen = _taken(values, places)
    else:
        chosen = values.transpose(1, 0, 2).reshape(channels, -1)
    ordered = np.array(chosen, order="C")
    if finite:
        ordered.sort(axis=1)
    items = []
    for channel in ordered:
        kept = channel if finite else np.sort(channel[np.isfinite(channel)])
        variance = len(kept) * 4.0**level / 4 if level else 0.0
        items.append(SortedItems(kept, level, variance).thinned(_KEPT, rng))
    return items


def _taken(values: npt.NDArray[Any], places: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return the values of each channel at these places, as an array (channels, places)."""
    groups, _, inner = values.shape
    if inner == 1:  # divisions would take longer than everything else
        return np.take(values[:, :, 0], places, axis=0).T
    if groups == 1:
        return np.take(values[0], places, axis=1)
    found: npt.NDArray[Any] = values[places // inner, :, places % inner]
    return found.T


def weighted_quantiles(
    values: npt.NDArray[Any], weights: npt.NDArray[Any], shares: Sequence[float]
) -> list[float]:
    """Return quantiles of sorted values that occur ``weights`` times, as ``np.quantile`` does."""
    ends = np.cumsum(weights)
    places = np.asarray(shares, np.float64) * float(ends[-1] - 1)
    lower = np.floor(places)
    low = values[np.searchsorted(ends, lower, side="right")].astype(np.float64)
    last = len(values) - 1
    high = values[np.minimum(np.searchsorted(ends, lower + 1, side="right"), last)]
    part = places - lower
    # A difference of the greatest floats would overflow.
    found = low * (1 - part) + high.astype(np.float64) * part
    quantiles: list[float] = np.where(low == high, low, found).tolist()
    return quantiles
