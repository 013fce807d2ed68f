"""recmap stats: show statistics of each field."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any

from recmap.cli.arguments import add_source, add_verb, add_where, opened
from recmap.cli.output import json_text, say, show, terminal_width, watching
from recmap.dataset.stats import Stats, stats_table
from recmap.model.preview import quantity
from recmap.model.table import Table

_EXAMPLES = """  recmap stats train.tfrecord
  recmap stats train.tfrecord --column label --column data='float32[10]'
  recmap stats numbers.npy --json
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
            "a histogram are of equal width; the numbers beside them say where the first begins "
            "and the last ends. Distinct and most common values are those of integers and short "
            "strings. Where there are more than 10,000 distinct values, counting stops, and the "
            "table says after how many values."
        ),
        examples=_EXAMPLES,
    )
    add_source(parser)
    add_where(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    dataset = opened(args)
    with watching("stats") as watcher:
        found = dataset.stats(progress=watcher)
    if args.json:
        print(json_text(found))
        return 0
    width = terminal_width()
    if width is None:
        show(stats_table(found))
    else:
        say(quantity(next((stats.rows for stats in found.values()), 0), "row"), "aside")
        _fit(found, width)
    return 0


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
