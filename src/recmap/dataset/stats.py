"""The statistics of a dataset, as data and as a table; stats_collector.py computes them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recmap.model.field import Field
from recmap.model.preview import number, preview, quantity
from recmap.model.table import Column, Table

_BARS = " ▁▂▃▄▅▆▇█"
# Most bars of a histogram.
_MOST_BARS = 32
# Integers above this are shown like floats.
_MOST_EXACT = 1 << 53
_DIGITS = 6
# Floats below this are shown without an exponent, even if they have more digits.
_MOST_PLAIN = 1e7

_COLUMNS = (
    Column("column", cut="middle"),
    Column("of", meaning="type"),
    Column("count", right=True),
    Column("nan", right=True, meaning="warning"),
    Column("min", right=True),
    Column("max", right=True),
    Column("mean", right=True),
    Column("std", right=True),
    Column("histogram"),
    Column("distinct", right=True),
    Column("most common", cut="end", least=16),
)


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
    """

    field: Field
    rows: int
    values: Numbers | None
    lengths: tuple[Numbers, ...]
    sizes: Numbers | None
    counts: ValueCounts | None = None
    nulls: int = 0


class Stats(dict[str, FieldStats]):
    """The statistics of each field, by name; it prints as a table."""

    def __repr__(self) -> str:
        return stats_table(self, bars=16).text()

    def _repr_html_(self) -> str:
        rows = next((stats.rows for stats in self.values()), 0)
        return stats_table(self, bars=16).html(quantity(rows, "row"))


def stats_table(
    stats: Mapping[str, FieldStats], *, bars: int = _MOST_BARS, digits: int = _DIGITS
) -> Table:
    """Return a table with a row for the values, the lengths and the sizes of each field.

    ``bars`` is how many bars a histogram may have. Its first and last bar begin and end at the
    numbers beside it. ``digits`` is how many digits of a number are shown.
    """
    rows = [row for name, found in stats.items() for row in _rows(name, found, bars, digits)]
    # Align the histograms, which have the start of the first bar before them.
    ends = [row[8] for row in rows]
    before = max((len(end[0]) for end in ends), default=0)
    middle = max((len(end[1]) for end in ends), default=0)
    for row, (low, drawn, high) in zip(rows, ends, strict=True):
        row[8] = f"{low:>{before}} {drawn:{middle}} {high}".rstrip() if drawn else ""
    return Table(_COLUMNS, rows)


def _rows(name: str, stats: FieldStats, bars: int, digits: int) -> list[list[Any]]:
    whole = stats.field.dtype.kind in "biu"
    distinct = _distinct(stats.counts)
    kind = f"{stats.field}, {stats.nulls:,} null" if stats.nulls else str(stats.field)
    if stats.values is not None:
        numbers = _numbers(stats.values, bars, digits, whole)
        rows = [[name, kind, *numbers, *distinct]]
    else:
        count = 0 if stats.sizes is None else stats.sizes.count
        empty = [f"{count:,}", "", "", "", "", "", ("", "", "")]
        rows = [[name, kind, *empty, *distinct]]
    axes = ["row lengths", "step lengths"]
    for axis, lengths in zip(axes, stats.lengths, strict=False):
        rows.append([name, axis, *_numbers(lengths, bars, digits, True), "", ""])
    if stats.sizes is not None:
        rows.append([name, "bytes each", *_numbers(stats.sizes, bars, digits, True), "", ""])
    return rows


def _numbers(found: Numbers, bars: int, digits: int, whole: bool) -> list[Any]:
    numbers = [found.min, found.max, found.mean, found.std]
    return [
        f"{found.count:,}",
        f"{found.nan:,}" if found.nan else "0",
        *(_number(value, digits) for value in numbers),
        ("", "", "") if found.histogram is None else _drawn(found.histogram, bars, whole),
    ]


def _number(value: Any, digits: int) -> str:
    if isinstance(value, float) and 10**digits <= abs(value) < _MOST_PLAIN:
        return f"{value:.0f}"
    text = number(value, digits)
    wide = isinstance(value, int) and len(text) > digits + 4
    return number(float(value), digits) if wide and digits < _DIGITS else text


def _drawn(histogram: Histogram, bars: int, whole: bool) -> tuple[str, str, str]:
    """Return where the first bar begins, the bars, and where the last one ends.

    The last bar of integers ends with the greatest integer in it.
    """
    shown = histogram.merged(bars)
    low, high = shown.edges[0], shown.edges[-1]
    most = max(shown.counts)
    steps = len(_BARS) - 1
    # Round up, so that a bin with a single value is visible.
    drawn = "".join(_BARS[-(-count * steps // most)] for count in shown.counts)
    if whole and max(abs(low), abs(high)) < _MOST_EXACT:
        return str(int(low)), drawn, str(int(high) - 1)
    return number(low), drawn, number(high)


def _distinct(counts: ValueCounts | None) -> tuple[str, str]:
    if counts is None or not counts.top:
        return "", ""
    distinct = f"{counts.distinct:,}" if counts.complete else f">{counts.distinct - 1:,}"
    sample = "" if counts.complete else f"in the first {counts.counted:,}: "
    if counts.top[0][1] == 1 and counts.distinct > 1:
        return distinct, f"{sample}all different"
    # Which values occur once says little if others occur more often.
    top = [pair for pair in counts.top if pair[1] > 1] or counts.top
    shown = [f"{preview(value)} ({count:,})" for value, count in top]
    more = ["..."] if counts.distinct > len(top) else []
    return distinct, sample + ", ".join(shown + more)
