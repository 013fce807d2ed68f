"""recmap head: show the first rows."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from recmap.cli.arguments import add_source, add_verb, opened
from recmap.cli.output import cell, json_text, on_terminal, printable, show_table, table_width
from recmap.dataset.dataset import Dataset, opened_rows
from recmap.errors import OptionError

__all__ = ["add"]

_EXAMPLES = """  recmap head train.tfrecord
  recmap head train.tfrecord -n 3 --field label
  recmap head train.tfrecord --json | jq .label
"""

# Bytes to read at a time.
_READ_SIZE = 1 << 20


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "head",
        run,
        help="show the first rows",
        description=(
            "Shows the first rows: shape and first values of arrays, and byte strings as text or "
            "by their first bytes. --json prints everything: byte strings as text if they are "
            'printable, else as {"base64": ...}, and NaN as "NaN".'
        ),
        examples=_EXAMPLES,
    )
    add_source(parser)
    parser.add_argument(
        "-n", "--rows", type=int, default=10, metavar="N", help="number of rows (10)"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object for each row")


def run(args: argparse.Namespace) -> int:
    if args.rows < 0:
        raise OptionError(f"-n {args.rows}: give 0 or more")
    dataset = opened(args)
    rows = _rows(dataset, args.rows)
    if args.json:
        for row in rows:
            print(json_text(row))
        return 0
    header = ["row", *dataset.schema]
    table = [[f"{i:,}", *map(cell, row.values())] for i, row in enumerate(rows)]
    if on_terminal():
        width, there_is = table_width(header, table)
        if width > there_is:
            _show_each(header, table)
            return 0
    show_table(header, table, right=[0])
    return 0


def _rows(dataset: Dataset, count: int) -> Iterator[dict[str, Any]]:
    """Yield the first rows, reading a few at a time."""
    step = max(1, _READ_SIZE // opened_rows(dataset).source.row_bytes())
    for start in range(0, count, step):
        batch = dataset[start : min(start + step, count)]
        found = len(next(iter(batch.values()), ()))
        for i in range(found):
            yield {name: column[i] for name, column in batch.items()}
        if found < step:
            return


def _show_each(header: list[str], table: list[list[str]]) -> None:
    """Print one line per value, for rows that are too wide for a table."""
    width = max(map(len, header))
    for row in table:
        print(f"{header[0]} {row[0]}")
        for name, text in zip(header[1:], row[1:], strict=True):
            print(printable(f"  {name:{width}}  {text}"))
