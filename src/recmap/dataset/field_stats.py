"""The statistics of a field: of its values, its lengths and its sizes."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from recmap.dataset.channel_stats import (
    By,
    ChannelStats,
    Scaling,
    check_by,
    scale_values,
    scaling_by,
)
from recmap.errors import OptionError
from recmap.model.field import Field


@dataclass(frozen=True)
class Histogram:
    """Counts of values. Bin ``i`` begins at ``start + i * width`` and excludes its end."""

    start: float
    width: float
    counts: list[int]

    @property
    def edges(self) -> list[float]:
        """The start of each bin, and the end of the last one."""
        most = sys.float_info.max
        first = round(self.start / self.width)
        ends = ((first + i) * self.width for i in range(len(self.counts) + 1))
        return [min(max(end, -most), most) for end in ends]

    def merged(self, most: int) -> Histogram:
        """Return the same counts in at most so many bins, at least 2. No count is divided.

        >>> Histogram(3.0, 1.0, [1, 2, 3, 4]).merged(3)
        Histogram(start=2.0, width=2.0, counts=[1, 5, 4])
        """
        start, width, counts = self.start, self.width, self.counts
        while len(counts) > most:
            first = round(start / width)
            # Bins begin at multiples of their width, so the first pair may lack its first half.
            whole = [0] * (first % 2) + counts
            counts = [sum(whole[i : i + 2]) for i in range(0, len(whole), 2)]
            width *= 2
            start = max(first // 2 * width, -sys.float_info.max)
        return Histogram(start, width, counts)


@dataclass(frozen=True)
class Numbers:
    """Statistics of a set of numbers.

    NaN and NaT are counted in ``nan`` and left out of ``min``, ``max``, ``mean`` and ``std``,
    as in ``np.nanmean``; the histogram leaves out infinities, too. For integers, ``min``,
    ``max`` and the sum used for the mean are exact. For dates, ``min`` and ``max`` are strings;
    complex numbers have neither.
    """

    count: int
    nan: int
    min: int | float | str | None
    max: int | float | str | None
    mean: float | None
    std: float | None
    histogram: Histogram | None


@dataclass(frozen=True)
class ValueCounts:
    """The number of distinct values, and those that occur most often.

    Unless ``complete``, there are more distinct values: only the first ``counted`` values were
    looked at. ``top`` has pairs of value and count.
    """

    distinct: int
    complete: bool
    counted: int
    top: list[tuple[Any, int]]


@dataclass(frozen=True)
class FieldStats:
    """Statistics of one field.

    They cover its values, the ``lengths`` of its rows along each ragged axis, and the ``sizes``
    of its byte strings. ``counts`` has the distinct and the most common values of integers and
    short strings. ``nulls`` is the number of nulls, rows and items, which count nowhere else.
    ``channels`` has the statistics of each channel, and quantiles, if ``stats`` was asked for
    them; there is no histogram then, and values are not counted.
    """

    field: Field
    rows: int
    values: Numbers | None
    lengths: tuple[Numbers, ...]
    sizes: Numbers | None
    counts: ValueCounts | None = None
    nulls: int = 0
    channels: ChannelStats | None = None

    def normalize(self, values: Any, *, by: By = "std") -> Any:
        """Normalize an array, or a Ragged, whose last axes are those of the channels.

        Floats keep their type; integers become float32. ``by`` is that of ``Dataset.normalize``.
        """
        return self._scaled(values, by, inverse=False)

    def denormalize(self, values: Any, *, by: By = "std") -> Any:
        """Undo ``normalize``, such as for the actions that a model returns."""
        return self._scaled(values, by, inverse=True)

    def _scaled(self, values: Any, by: By, *, inverse: bool) -> Any:
        return scale_values(self.scaling(check_by(by), inverse=inverse), values)

    def scaling(self, by: By, *, inverse: bool) -> Scaling:
        """Return how to normalize, or the inverse; by all values if there are no channels."""
        channels = self.channels or self._one_channel()
        return scaling_by(channels, by, inverse=inverse)

    def _one_channel(self) -> ChannelStats:
        found = self.values
        if found is None or isinstance(found.min, str) or found.mean is None:
            raise OptionError(f"normalize: there are no numbers in {self.field}")
        count, nan, inf = np.array([found.count, found.nan, 0])
        low, high, mean, std = np.array([found.min, found.max, found.mean, found.std], np.float64)
        return ChannelStats((), count, nan, inf, low, high, mean, std, {}, 0.0)
