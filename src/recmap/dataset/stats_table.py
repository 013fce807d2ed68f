"""The statistics of a dataset as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recmap.dataset.stats import FieldStats, Histogram, Numbers
from recmap.dataset.value_counts import ValueCounts
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
    Column("field", cut="middle"),
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
    if stats.values is not None:
        numbers = _numbers(stats.values, bars, digits, whole)
        rows = [[name, str(stats.field), *numbers, *distinct]]
    else:
        count = 0 if stats.sizes is None else stats.sizes.count
        empty = [f"{count:,}", "", "", "", "", "", ("", "", "")]
        rows = [[name, str(stats.field), *empty, *distinct]]
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
    if counts is None:
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
