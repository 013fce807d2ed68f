"""Histograms of values with an unknown range."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Bins", "Histogram"]

_MOST = 32
_LEAST = -1022
# Bin numbers are integers that float64 holds exactly.
_DIGITS = 52


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


class Bins:
    """At most 32 bins. Their width is the smallest power of two that covers all values.

    Bins begin at multiples of their width, so two of them merge exactly into one of twice the
    width, and the result does not depend on the order of the values.
    """

    def __init__(self, *, whole: bool) -> None:
        # A bin of integers is never narrower than 1.
        self._whole = whole
        self._exponent = 0 if whole else _LEAST
        self._first = 0
        self._counts: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._range: tuple[Any, Any] | None = None

    def add(self, values: npt.NDArray[Any], counts: npt.NDArray[np.int64] | None = None) -> None:
        """Count one or more values: integers if the bins are ``whole``, otherwise finite float64.

        ``counts`` says how often each value occurs; by default, once.
        """
        low, high = values.min().item(), values.max().item()
        if self._range is not None:
            low, high = min(self._range[0], low), max(self._range[1], high)
        self._range = low, high
        self._widen(low, high)
        if self._whole:
            numbers = (values >> values.dtype.type(self._exponent)).astype(np.int64)
        else:
            numbers = np.floor(np.ldexp(values, -self._exponent)).astype(np.int64)
            if low < 0:
                # A value just below 0 may have been scaled to 0.
                np.minimum(numbers, -1, out=numbers, where=values < 0)
        first = int(numbers.min())
        self._merge(first, np.bincount(numbers - first, counts).astype(np.int64))

    def result(self) -> Histogram | None:
        """Return the bins from the first to the last nonempty one; None if there are no values."""
        if not len(self._counts):
            return None
        width = math.ldexp(1.0, self._exponent)
        # The bin of the least float64 begins below it.
        start = max(self._first * width, -sys.float_info.max)
        return Histogram(start, width, self._counts.tolist())

    def _widen(self, low: Any, high: Any) -> None:
        # Use half of the range, because the full range of float64 overflows.
        half = high // 2 - low // 2 if self._whole else high / 2 - low / 2
        exponent = max(
            self._exponent,
            _exponent(max(abs(low), abs(high))) - _DIGITS,
            _exponent(half) + 1 - _exponent(_MOST),
        )
        while _bin(high, exponent) - _bin(low, exponent) >= _MOST:
            exponent += 1
        if len(self._counts) and exponent > self._exponent:
            # A shift of 62 leaves only the sign, and NumPy allows no more.
            shift = min(exponent - self._exponent, 62)
            numbers = (self._first + np.arange(len(self._counts))) >> shift
            counts, self._counts = self._counts, np.zeros(0, np.int64)
            first = int(numbers[0])
            merged = np.zeros(int(numbers[-1]) - first + 1, np.int64)
            np.add.at(merged, numbers - first, counts)
            self._merge(first, merged)
        self._exponent = exponent

    def _merge(self, first: int, counts: npt.NDArray[np.int64]) -> None:
        if not len(self._counts):
            self._first, self._counts = first, counts
            return
        begin = min(first, self._first)
        end = max(first + len(counts), self._first + len(self._counts))
        merged = np.zeros(end - begin, np.int64)
        merged[self._first - begin :][: len(self._counts)] += self._counts
        merged[first - begin :][: len(counts)] += counts
        self._first, self._counts = begin, merged


def _exponent(value: float) -> int:
    """Return the exponent of the power of two above a value; the least one for 0."""
    if isinstance(value, int):
        return value.bit_length()
    return math.frexp(value)[1] if value else _LEAST


def _bin(value: float, exponent: int) -> int:
    if isinstance(value, int):
        return value >> exponent
    number = math.floor(math.ldexp(value, -exponent))
    return min(number, -1) if value < 0 else number
