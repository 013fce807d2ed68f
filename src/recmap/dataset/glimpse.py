"""The first rows of a dataset, for its reprs.

A repr must not surprise: it reads a few rows at most, never from a store, and shows fewer or
none where reading them would take long, take memory, or fail.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from recmap.dataset.thumbnail import thumbnail
from recmap.files.mapped import Guard
from recmap.model.preview import preview
from recmap.model.row_sizes import measure
from recmap.model.source import Source
from recmap.model.table import Column, Table, html_table

_ROWS = 3
_MOST_BYTES = 16 << 20
# The width of the text, and the least width of a value in it.
_WIDTH = 100
_LEAST = 10


def glimpse_text(source: Source) -> str:
    """Return a line for each field, with its type and its first values."""
    rows, more = _shown(source, [preview])
    columns = [Column("", cut="middle", least=20), Column("")]
    columns += [Column("", cut="end", least=_LEAST) for _ in rows]
    texts = [[name, kind, *(row[i] for row in rows)] for i, (name, kind) in _fields(source)]
    lines = Table(columns, texts).lines(_WIDTH)[1:]
    dots = ["..."] if more else []
    return "\n".join("  " + "  ".join([*cells, *dots]).rstrip() for cells in lines)


def glimpse_html(source: Source, title: str) -> str:
    """Return a table with a line for each field, with its type and its first values."""
    rows, more = _shown(source, [thumbnail, preview])
    header = ["field", "type", *(f"row {i}" for i in range(len(rows))), *([""] if more else [])]
    dots = ["..."] if more else []
    texts = [[name, kind, *(row[i] for row in rows), *dots] for i, (name, kind) in _fields(source)]
    return html_table(title, header, texts)


def first_values(source: Source, name: str) -> list[str]:
    """Return the first values of a column as text, and "..." if there are more."""
    rows, more = _shown(source.select([name]), [preview])
    return [row[0] for row in rows] + (["..."] if more else [])


def _fields(source: Source) -> enumerate[tuple[str, str]]:
    return enumerate(source.schema.lines())


def _shown(source: Source, how: Sequence[Any]) -> tuple[list[list[str]], bool]:
    """Return the values of the first rows as text, and whether there are more rows.

    ``how`` has functions that return text, or None to have the next one try.
    """
    facts = source.facts
    if facts.remote or facts.once or facts.largest_chunk().size > _MOST_BYTES:
        return [], False
    try:
        with warnings.catch_warnings(), Guard():
            warnings.simplefilter("ignore")
            batch = source.read(0, _ROWS + 1, _MOST_BYTES)
            count, _ = measure(batch)
            rows = [
                [
                    next(text for show in how if (text := show(column[i])) is not None)
                    for column in batch.values()
                ]
                for i in range(min(count, _ROWS))
            ]
    except Exception:  # a repr does not fail; reading the rows says what is wrong
        return [], False
    return rows, count > _ROWS
