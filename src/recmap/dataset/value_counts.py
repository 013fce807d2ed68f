"""How often each value of a column occurs, counted in bounded memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.model.ragged import Ragged

# Counting stops when there are more distinct values, or strings take more bytes, than this.
_MOST_DISTINCT = 10_000
_MOST_BYTES = 1 << 20
# Columns with longer strings, such as images, are not counted.
_LONGEST = 256
# Strings that become Python objects at a time.
_STEP = 1 << 12
# Integers within such a range are counted without sorting them.
_RANGE = 1 << 16
_TOP = 10


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


class ValueCounter:
    """Counts values until there are too many different ones."""

    def __init__(self) -> None:
        self._counts: Counter[Any] | None = Counter()
        self._bytes = 0
        self._full = False

    @property
    def done(self) -> bool:
        """Whether more values would not be counted."""
        return self._full or self._counts is None

    def add_strings(self, strings: Ragged) -> None:
        """Count byte strings or text."""
        for start in range(0, len(strings), _STEP):
            if self.done:
                return
            assert self._counts is not None
            some = strings[start : start + _STEP]
            if int(some.lengths.max(initial=0)) > _LONGEST:
                self._counts = None
                return
            before = len(self._counts)
            self._counts.update(some.tolist())
            self._bytes += (len(self._counts) - before) * (int(some.lengths.mean()) + 1)
            self._full = len(self._counts) > _MOST_DISTINCT or self._bytes > _MOST_BYTES

    def add_integers(self, numbers: npt.NDArray[Any], low: int, high: int) -> None:
        """Count integers, of which ``low`` is the least and ``high`` is the greatest."""
        if self.done:
            return
        assert self._counts is not None
        if high - low >= _RANGE:
            self.add_numbers(numbers)
            return
        counts = np.bincount((numbers - numbers.dtype.type(low)).astype(np.uint16))
        places = np.flatnonzero(counts)
        for place, count in zip(places.tolist(), counts[places].tolist(), strict=True):
            self._counts[place + low] += count
        self._full = len(self._counts) > _MOST_DISTINCT

    def add_numbers(self, numbers: npt.NDArray[Any]) -> None:
        """Count numbers or dates. NaN and NaT are not counted."""
        if self.done:
            return
        assert self._counts is not None
        with np.errstate(invalid="ignore"):  # NumPy warns of NaN that is meant to be signalling
            values, counts = np.unique(numbers, return_counts=True)
            known = values == values  # noqa: PLR0124
        values, counts = values[known], counts[known]
        # As Python objects, dates would have other types for other units. Without a unit they have
        # no hash, and are numbers.
        if values.dtype.kind not in "mM":
            keys = values.tolist()
        elif np.datetime_data(values.dtype)[0] == "generic":
            keys = values.view(np.int64).tolist()
        else:
            keys = list(values)
        for value, count in zip(keys, counts.tolist(), strict=True):
            self._counts[value] += count
        self._full = len(self._counts) > _MOST_DISTINCT

    def result(self) -> ValueCounts | None:
        """Return the counts so far; None if there are no values, or they are too long."""
        if not self._counts:
            return None
        return most_common(self._counts, complete=not self._full)


def most_common(counts: Counter[Any], *, complete: bool = True) -> ValueCounts:
    """Return the values that occur most often; of equally frequent ones, the least first."""

    def order(pair: tuple[Any, int]) -> tuple[int, Any]:
        value, count = pair
        return -count, (value.real, value.imag) if isinstance(value, complex) else value

    top = sorted(counts.items(), key=order)[:_TOP]
    return ValueCounts(len(counts), complete, sum(counts.values()), top)
