"""recmap stats: show statistics of each field."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any

from recmap.cli.arguments import add_source, add_verb, add_where, opened
from recmap.cli.output import say, show, terminal_width, watching
from recmap.dataset.channel_stats import AxisOption
from recmap.dataset.stats import Stats, stats_table
from recmap.errors import OptionError
from recmap.model.preview import quantity
from recmap.model.table import Table

_EXAMPLES = """  recmap stats train.tfrecord
  recmap stats train.tfrecord --column label --column data='float32[10]'
  recmap stats numbers.npy --json
  recmap stats train/ --axis -1 --quantiles 0.01,0.99 --json > stats.json
"""

# Bars of histograms to try, until the table is narrow enough.
_BARS = (32, 16, 8)
# The columns of the two tables for a narrow terminal, and those it can do without.
_NUMBERS = ("column", "of", "count", "nan", "min", "max", "mean", "std")
_SPREAD = ("column", "of", "histogram", "distinct", "most common")
_SPARED = ("count", "std", "mean")
_LABELS = ("column", "of", "count")
# The least space for the most common values.
_COMMON = 24


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "stats",
        run,
        help="show count, min, max, mean, std, NaN, lengths and common values of each column",
        description=(
            "Reads all rows once, in bounded memory, and prints statistics of the values of each "
            "column, of the lengths of ragged rows, and of the sizes of byte strings. The bars of "
            "a histogram are of equal width; the numbers next to them say where the first begins "
            "and the last ends. Distinct and most common values are those of integers and short "
            "strings. Where there are more than 10,000 distinct values, counting stops, and the "
            "table says after how many values. With --axis or --quantiles there are neither "
            "histograms nor common values, and all cores work."
        ),
        examples=_EXAMPLES,
    )
    add_source(parser)
    add_where(parser)
    parser.add_argument(
        "--axis",
        metavar="AXIS",
        action="append",
        help="compute statistics of each channel along this axis of a row, such as -1; or of one "
        "column, image=-1 or image=0,1; can be repeated",
    )
    parser.add_argument(
        "--quantiles",
        metavar="SHARES",
        help="compute quantiles too, such as 0.01,0.5,0.99, and how far they may be off",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object, which rm.Stats.load reads"
    )


def run(args: argparse.Namespace) -> int:
    dataset = opened(args)
    axis, quantiles = _axes(args.axis or []), _shares(args.quantiles)
    with watching("stats") as watcher:
        found = dataset.stats(axis=axis, quantiles=quantiles, progress=watcher)
    if args.json:
        print(found.to_json())
        return 0
    width = terminal_width()
    if width is None:
        show(stats_table(found))
    else:
        say(quantity(next((stats.rows for stats in found.values()), 0), "row"), "aside")
        _fit(found, width)
    return 0


def _axes(given: list[str]) -> AxisOption:
    """Return the axes of all columns, or of each: ``-1`` or ``image=-1``."""
    pairs = [text.rpartition("=") for text in given]
    axes = {name: _whole_numbers(axis) for name, _, axis in pairs}
    if "" not in axes:
        return axes or None
    if len(pairs) > 1:
        raise OptionError("--axis: give one axis for all columns, or one for each, as in image=-1")
    return axes[""]


def _whole_numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise OptionError(f"--axis {text}: give a number such as -1, or several: 0,1") from None


def _shares(text: str | None) -> list[float]:
    try:
        return [float(part) for part in (text or "").split(",") if part]
    except ValueError:
        raise OptionError(f"--quantiles {text}: give numbers such as 0.01,0.99") from None


def _fit(found: Stats, width: int) -> None:
    """Show one table, or two below each other if it would be too wide."""
    for bars in _BARS[:2]:
        table = _calm(stats_table(found, bars=bars))
        common = table.widths.get("most common", 0)
        if table.width - common + min(common, _COMMON) <= width:
            show(table)
            return
    numbers = _numbers(found, width)
    show(numbers)
    quantiles = stats_table(found, digits=4)
    shares = [each.title for each in quantiles.columns if each.title[1:2].isdigit()]
    if shares:
        say("")
        show(_calm(quantiles.pick(["field", "of", *shares])))
    left_out = [title for title in _SPARED if title in _NUMBERS and title not in numbers.widths]
    spreads = [_calm(stats_table(found, bars=bars, digits=4).pick(_SPREAD)) for bars in _BARS]
    spread = next((table for table in spreads if table.least + 8 <= width), spreads[-1])
    if spread.rows:
        say("")
        show(spread)
    if left_out:
        for line in textwrap.wrap(f"not shown (terminal too narrow): {', '.join(left_out)}", width):
            say(line, "aside")


def _numbers(found: Stats, width: int) -> Table:
    """Return the table of numbers, with fewer digits and then fewer columns if it is too wide."""
    table = _calm(stats_table(found).pick(_NUMBERS))
    if table.width <= width:
        return table
    titles = list(_NUMBERS)
    table = _calm(stats_table(found, digits=4).pick(titles))
    for title in _SPARED:
        if table.least > width:
            titles.remove(title)
            table = _calm(stats_table(found, digits=4).pick(titles))
    return table


def _calm(table: Table) -> Table:
    """Leave out what says nothing: empty rows and columns, and the name in the line above."""
    titles = [
        column.title
        for column in table.columns
        if column.title in _LABELS
        or any(cell not in ("", "0") for cell in table.cells(column.title))
    ]
    table = table.pick(titles)
    told = [i for i, title in enumerate(titles) if title not in _LABELS]
    rows = [list(row) for row in table.rows if any(row[i] for i in told)]
    for i in range(len(rows) - 1, 0, -1):
        if rows[i][0] == rows[i - 1][0]:
            rows[i][0] = ""
    return Table(table.columns, rows)
