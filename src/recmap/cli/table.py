"""Print tables: with borders on a terminal, as plain text elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np

from recmap.cli.terminal import on_terminal, printable
from recmap.model.ragged import Ragged

__all__ = ["cell", "number", "show_table", "table_width"]

_BETWEEN = "  "
_VALUES = 4
_LETTERS = 32
_DIGITS = 8  # hexadecimal digits of a byte string

_IMAGES = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF8", "GIF"),
    (b"BM", "BMP"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
)


def table_width(header: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[int, int]:
    """Return the width of the table when drawn on the terminal, and of the terminal itself."""
    widths = _widths([header, *rows])
    return sum(widths) + 3 * len(widths) + 1, shutil.get_terminal_size().columns


def show_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()
) -> None:
    """Print a table. ``right`` lists the columns to align on the right."""
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
        # Text, because a plain str would have its brackets interpreted as markup.
        table.add_column(Text(name), justify="right" if i in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def cell(value: Any) -> str:
    """Return a value as short text: shape and first values of an array, or a preview of bytes.

    >>> cell(np.arange(100).reshape(10, 10)), cell(b"hello"), cell(bytes(40))
    ('[10,10] 0 1 2 3 ...', "'hello'", '0x00000000... 40 bytes')
    """
    if isinstance(value, bytes):
        return _string(value)
    if isinstance(value, Ragged):
        shown = [cell(item) for item in value[:_VALUES]]
        return _listed(f"[{len(value):,}]", shown, len(value), " " if value.is_bytes else "; ")
    array = np.asarray(value)
    if array.ndim == 0:
        return number(array[()])
    shape = f"[{','.join(map(str, array.shape))}]"
    return _listed(shape, [number(item) for item in array.flat[:_VALUES]], array.size, " ")


def number(value: Any) -> str:
    """Return a number as text, with at most six significant digits for floats.

    >>> number(1234567), number(0.1 + 0.2), number(None)
    ('1234567', '0.3', '-')
    """
    if value is None:
        return "-"
    if isinstance(value, float | np.floating):
        return f"{float(value):.6g}"
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    return str(value)


def _listed(shape: str, shown: list[str], count: int, between: str) -> str:
    more = ["..."] if count > len(shown) else []
    return f"{shape} {between.join(shown + more)}".rstrip()


def _string(value: bytes) -> str:
    size = f"{len(value):,} bytes"
    for magic, name in _IMAGES:
        if value.startswith(magic) and len(value) > len(magic):
            return f"{name}, {size}"
    if value[:4] == b"RIFF" and value[8:12] == b"WEBP":
        return f"WebP, {size}"
    try:
        text = value[: 4 * _LETTERS].decode()
    except UnicodeDecodeError as e:
        # The slice may have split a character.
        whole = e.start >= 4 * _LETTERS - 4 and len(value) > 4 * _LETTERS
        text = value[: e.start].decode() if whole else "\0"
    if all(c.isprintable() or c in "\n\r\t" for c in text):
        short = printable(text[:_LETTERS])
        return f"'{short}'" if len(text) <= _LETTERS else f"'{short}...' {size}"
    return f"0x{value[: _DIGITS // 2].hex()}... {size}"
