"""Tables as plain text, as HTML, or fitted to a width."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from recmap.model.preview import printable

_BETWEEN = 2
_DOTS = "…"


class Markup(str):
    """Text that is HTML already, and is not escaped."""

    __slots__ = ()


@dataclass(frozen=True)
class Column:
    """A column of a table.

    ``cut`` says where cells may be shortened, down to ``least`` characters. ``meaning`` chooses
    the colour in a terminal.
    """

    title: str
    right: bool = False
    cut: Literal["middle", "end"] | None = None
    least: int = 12
    meaning: Literal["", "type", "warning", "aside"] = ""


class Table:
    """Cells of text under titles."""

    def __init__(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        self.columns = [replace(column, title=_clean(column.title)) for column in columns]
        self.rows = [[_clean(cell) for cell in row] for row in rows]
        self._widths = [
            max(map(text_width, [column.title, *(row[i] for row in self.rows)]))
            for i, column in enumerate(self.columns)
        ]

    @property
    def width(self) -> int:
        """The width of the table if nothing is shortened."""
        return _total(self._widths)

    @property
    def least(self) -> int:
        """The width of the table if all that may be shortened is as short as it may be."""
        return _total([self._least(i) for i in range(len(self.columns))])

    @property
    def widths(self) -> dict[str, int]:
        """The width of each column if nothing is shortened, by title."""
        titles = [column.title for column in self.columns]
        return dict(zip(titles, self._widths, strict=True))

    def cells(self, title: str) -> list[str]:
        """Return the cells below a title."""
        i = [column.title for column in self.columns].index(title)
        return [row[i] for row in self.rows]

    def pick(self, titles: Collection[str]) -> Table:
        """Return a table of these columns."""
        chosen = [i for i, column in enumerate(self.columns) if column.title in titles]
        return Table(
            [self.columns[i] for i in chosen], [[row[i] for i in chosen] for row in self.rows]
        )

    def lines(self, width: int | None = None) -> list[list[str]]:
        """Return the titles and the rows as cells of equal width, shortened to fit ``width``.

        >>> table = Table([Column("name", cut="middle", least=5), Column("n", right=True)],
        ...               [["a/long/path", "1"]])
        >>> [" ".join(line) for line in table.lines(12)]
        ['name      n', 'a/lo…path 1']
        """
        widths = self._fitted(width)
        titles = [shortened(c.title, wide) for c, wide in zip(self.columns, widths, strict=True)]
        made = []
        for row in [titles, *self.rows]:
            cells = []
            for column, cell, wide in zip(self.columns, row, widths, strict=True):
                text = shortened(cell, wide, column.cut or "end")
                space = " " * (wide - text_width(text))
                cells.append(space + text if column.right else text + space)
            made.append(cells)
        return made

    def text(self) -> str:
        """Return the whole table as plain text."""
        between = " " * _BETWEEN
        return "\n".join(between.join(cells).rstrip() for cells in self.lines())

    def html(self, title: str) -> str:
        """Return the whole table as HTML, with all text escaped."""
        return html_table(title, [column.title for column in self.columns], self.rows)

    def _fitted(self, width: int | None) -> list[int]:
        widths = list(self._widths)
        while width is not None and _total(widths) > width:
            cuttable = [i for i in range(len(widths)) if widths[i] > self._least(i)]
            # If that is not enough, cut any column rather than wrap lines.
            widest = max(cuttable or range(len(widths)), key=lambda i: widths[i])
            if widths[widest] == 1:
                break
            widths[widest] -= 1
        return widths

    def _least(self, i: int) -> int:
        column = self.columns[i]
        return self._widths[i] if column.cut is None else min(self._widths[i], column.least)


def html_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an HTML table for notebooks, without a style sheet. All text is escaped.

    >>> html_table("2 rows", ["field"], [["<x>"]])
    '<b>2 rows</b><table><tr><th>field</th></tr><tr><td>&lt;x&gt;</td></tr></table>'
    """
    from html import escape  # slow to import, and most programs show no table

    def row(tag: str, cells: Sequence[str]) -> str:
        shown = (cell if isinstance(cell, Markup) else escape(cell) for cell in cells)
        return f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in shown)}</tr>"

    lines = [row("th", header), *(row("td", cells) for cells in rows)]
    return f"<b>{escape(title)}</b><table>{''.join(lines)}</table>"


def shortened(text: str, width: int, where: Literal["middle", "end"] = "middle") -> str:
    """Shorten text to a width, in the middle or at the end.

    >>> shortened("image/object/bbox/xmax", 16), shortened("one two three", 9, "end")
    ('image/o…box/xmax', 'one two …')
    """
    if text_width(text) <= width:
        return text
    if width <= 1:
        return _DOTS[:width]
    end = (width - 1) // 2 + (width - 1) % 2 if where == "middle" else 0
    return _start(text, width - 1 - end) + _DOTS + _start(text[::-1], end)[::-1]


def text_width(text: str) -> int:
    """Return how many cells of a terminal text takes.

    >>> text_width("abc"), text_width("日本")
    (3, 4)
    """
    return len(text) if text.isascii() else sum(map(_cells, text))


def _cells(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _start(text: str, width: int) -> str:
    taken = 0
    for i, letter in enumerate(text):
        taken += _cells(letter)
        if taken > width:
            return text[:i]
    return text


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _BETWEEN * max(0, len(widths) - 1)


def _clean(cell: str) -> str:
    return cell if isinstance(cell, Markup) else printable(cell)
