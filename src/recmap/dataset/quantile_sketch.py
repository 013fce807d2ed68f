"""Quantiles in bounded memory: a KLL sketch (Karnin, Lang and Liberty, 2016).

Items of equal weight are kept sorted; where there are too many, every other one is dropped, and
the rest count twice. Once there are many values, only one of several is looked at. Each of these
choices is random and changes a rank by a bounded amount, up or down, so that the error of all of
them together is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

# Items that are kept of each weight.
_KEPT = 1 << 12
# If it is known how many values there are, at least so many are looked at.
_ENOUGH = 850_000
# Otherwise all are, until there are twice as many as this, then every other one, and so on.
_ALL = 320_000
# The probability that a rank is off by more than the error.
_CHANCE = 0.01


def sampling_level(before: int, expected: int) -> int:
    """Return the level of a sample, after so many values: one of ``2 ** level`` is looked at.

    ``expected`` is how many values there are in all, if that is known, and otherwise 0.
    """
    enough = expected // _ENOUGH if before < expected else before // _ALL
    return max(0, enough.bit_length() - 1)


class QuantileSketch:
    """Collects values of some channels; the same values in the same order give the same result.

    Items are sorted arrays (channels, items). A channel has NaN at the end if it has fewer.
    """

    def __init__(self, channels: int) -> None:
        self._levels: dict[int, list[npt.NDArray[Any]]] = {}
        self._variance = np.zeros(channels)
        self._rng = np.random.default_rng((2, 0))

    def add(self, items: npt.NDArray[Any], level: int, variance: npt.NDArray[np.float64]) -> None:
        """Add items that count ``2 ** level`` times each.

        ``variance`` bounds how far the ranks of each channel are off, as a sum of squares. The
        items of a level are sorted again only when they are many.
        """
        self._variance += variance
        while True:
            pending = self._levels.setdefault(level, [])
            pending.append(items)
            count = sum(each.shape[1] for each in pending)
            if count <= 2 * _KEPT:
                return
            joined = np.concatenate(pending, axis=1)
            joined.sort(axis=1)
            pending.clear()
            steps = 1 if count <= 2 * 2 * _KEPT else 2
            items = thinned(joined, steps, int(self._rng.integers(1 << steps)))
            level += steps
            self._variance += thinning_variance(joined, level)

    def quantiles(self, shares: Sequence[float]) -> npt.NDArray[np.float64]:
        """Return quantiles of each channel as ``np.quantile`` does; NaN if there are no values."""
        channels = len(self._variance)
        found = np.full((channels, len(shares)), math.nan)
        arrays = [(each, level) for level, pending in self._levels.items() for each in pending]
        if not arrays:
            return found
        joined = np.concatenate([each for each, _ in arrays], axis=1)
        valid = valid_items(joined)
        weights = np.concatenate([np.full(each.shape[1], 1 << level) for each, level in arrays])
        for channel, values in enumerate(joined):
            order = np.argsort(values, kind="stable")  # of sorted runs; NaN comes last
            order = order[: valid[channel]]
            if len(order):
                found[channel] = weighted_quantiles(values[order], weights[order], shares)
        return found

    def rank_error(self, variance: float) -> float:
        """Return how far the rank of a quantile may be off, as a share, in 99 of 100 cases.

        This is the inequality of Hoeffding. ``variance`` is that of the values that were added.
        """
        counts = np.zeros(len(self._variance))
        for level, pending in self._levels.items():
            for each in pending:
                counts += valid_items(each) * 2.0**level
        bound = 2 * math.log(2 / _CHANCE) * (self._variance + variance)
        errors = np.sqrt(bound) / np.maximum(counts, 1)
        return float(errors.max(initial=0, where=counts > 0))


def valid_items(items: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return how many items of each channel are not NaN."""
    return np.asarray(items.shape[1] - np.count_nonzero(np.isnan(items), axis=1), np.int64)


def thinned(items: npt.NDArray[Any], steps: int, first: int) -> npt.NDArray[Any]:
    """Return every ``2 ** steps``-th item of each channel, from one that was drawn."""
    return np.ascontiguousarray(items[:, first :: 1 << steps])


def thinning_variance(items: npt.NDArray[Any], level: int) -> npt.NDArray[np.float64]:
    """Return how far ranks are off after sorted items were thinned to this level."""
    return np.where(np.isnan(items[:, 0]), 0.0, 4.0**level / 4)


def drawn_places(count: int, level: int, rng: np.random.Generator) -> npt.NDArray[np.uint32]:
    """Draw a place of each ``2 ** level`` of so many values that follow each other."""
    step = 1 << level
    dtype = np.uint8 if step <= 1 << 8 else np.uint32  # few bits take half the time
    places = rng.integers(step, size=-(-count // step), dtype=dtype).astype(np.uint32)
    short = len(places) and (len(places) - 1) * step + int(places[-1]) >= count
    return places[:-1] if short else places  # the last step may be shorter


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
