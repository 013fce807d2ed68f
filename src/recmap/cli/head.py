"""recmap head: show the first rows, or some later ones."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from recmap.cli.arguments import add_source, add_verb, add_where, opened
from recmap.cli.output import show, terminal_width
from recmap.dataset.dataset import Dataset, opened_rows
from recmap.errors import OptionError
from recmap.model.json_text import json_text
from recmap.model.preview import preview
from recmap.model.table import Column, Table

_EXAMPLES = """  recmap head train.tfrecord
  recmap head train.tfrecord -n 3 --column label
  recmap head train.tfrecord --where 'label == 3'
  recmap head train.tfrecord --start 1000000
  recmap head train.tfrecord --json | jq .label
"""

# Bytes to read at a time.
_READ_SIZE = 1 << 20
# The least width of a column. Narrower ones are shown below each other instead.
_LEAST = 14


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "head",
        run,
        help="show the first rows, or some later ones",
        description=(
            "Shows the first rows: shape and first values of arrays, and byte strings as text or "
            "by their first bytes. --json prints everything: byte strings as text if they are "
            'printable, else as {"base64": ...}, and NaN as "NaN".'
        ),
        examples=_EXAMPLES,
    )
    add_source(parser)
    add_where(parser)
    parser.add_argument(
        "-n", "--rows", type=int, default=10, metavar="N", help="number of rows (10)"
    )
    parser.add_argument(
        "--start", type=int, default=0, metavar="N", help="number of the first row (0)"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object for each row")


def run(args: argparse.Namespace) -> int:
    if args.rows < 0:
        raise OptionError(f"-n {args.rows}: give 0 or more")
    if args.start < 0:
        raise OptionError(f"--start {args.start}: give 0 or more")
    dataset = opened(args)
    rows = _rows(dataset, args.start, args.start + args.rows)
    if args.json:
        for row in rows:
            print(json_text(row))
        return 0
    cells = [
        [f"{i:,}", *map(preview, row.values())] for i, row in enumerate(rows, start=args.start)
    ]
    columns = [Column(name, cut="end", least=_LEAST) for name in dataset.schema]
    table = Table([Column("row", right=True, meaning="aside"), *columns], cells)
    width = terminal_width()
    if width is None or table.least <= width:
        show(table)
    else:
        _show_each(list(dataset.schema), cells)
    return 0


def _rows(dataset: Dataset, start: int, stop: int) -> Iterator[dict[str, Any]]:
    """Yield rows, reading a few at a time."""
    step = max(1, _READ_SIZE // opened_rows(dataset).source.row_bytes())
    for first in range(start, stop, step):
        batch = dataset[first : min(first + step, stop)]
        found = len(next(iter(batch.values()), ()))
        for i in range(found):
            yield {name: column[i] for name, column in batch.items()}
        if found < step:
            return


def _show_each(names: list[str], cells: list[list[str]]) -> None:
    """Print one line per value, for rows that are too wide for a table."""
    for row, *values in cells:
        columns = [Column(f"row {row}", cut="middle"), Column("", cut="end")]
        rows = [[f"  {name}", value] for name, value in zip(names, values, strict=True)]
        show(Table(columns, rows))
