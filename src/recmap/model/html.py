"""Small HTML tables for notebooks, without a style sheet."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["table"]


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an HTML table with a title. All text is escaped.

    >>> table("2 rows", ["field"], [["<x>"]])
    '<b>2 rows</b><table><tr><th>field</th></tr><tr><td>&lt;x&gt;</td></tr></table>'
    """
    from html import escape  # slow to import, and most programs show no table

    lines = [_row("th", header), *(_row("td", row) for row in rows)]
    return f"<b>{escape(title)}</b><table>{''.join(lines)}</table>"


def _row(tag: str, cells: Sequence[str]) -> str:
    from html import escape

    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
