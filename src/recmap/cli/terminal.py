"""Tables: drawn on a terminal, plain lines everywhere else."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

from recmap.cli.wording import printable

__all__ = ["on_terminal", "show_table", "table_width"]

_BETWEEN = "  "


def on_terminal() -> bool:
    """Whether a person reads the output."""
    return sys.stdout.isatty()


def table_width(header: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[int, int]:
    """The columns of text a table takes on a terminal, and those there are."""
    widths = _widths([header, *rows])
    return sum(widths) + 3 * len(widths) + 1, shutil.get_terminal_size().columns


def show_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()
) -> None:
    """Prints a table; ``right`` are the columns of numbers."""
    clean = [[printable(cell) for cell in row] for row in [header, *rows]]
    if on_terminal():
        _draw(clean[0], clean[1:], right)
        return
    widths = _widths(clean)
    for row in clean:
        cells = [
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print(_BETWEEN.join(cells).rstrip())


def _draw(header: list[str], rows: list[list[str]], right: Sequence[int]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.ROUNDED, header_style="bold", show_header=any(header))
    for i, name in enumerate(header):
        # As Text, in which brackets are brackets.
        table.add_column(Text(name), justify="right" if i in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]
