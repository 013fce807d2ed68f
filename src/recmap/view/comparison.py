"""Compare two datasets row by row."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from recmap.errors import OptionError
from recmap.model.comparison import unlike_rows
from recmap.model.ragged import Column, Ragged
from recmap.model.row_sizes import measure
from recmap.view.search import SearchHits
from recmap.view.table import RowTable, TableRow

_ROWS = 1 << 16


def differing(a: TableRow | None, b: TableRow | None, names: list[str]) -> list[str]:
    """Return the columns in which two rows differ. A missing or damaged row differs in all."""
    if a is None or b is None or a.damage is not None or b.damage is not None:
        return names
    return [
        name
        for name in names
        if name not in a.values
        or name not in b.values
        or unlike_rows(_column(a.values[name]), _column(b.values[name])).any()
    ]


def _column(value: Any) -> Column:
    """Return a column of one row."""
    if isinstance(value, bytes):
        return Ragged.from_bytes([value])
    if isinstance(value, str):
        return Ragged.from_text([value])
    if isinstance(value, Ragged):
        return Ragged(value, [0, len(value)])
    return np.asarray(value)[np.newaxis]


def find_differences(a: RowTable, b: RowTable, start: int, seconds: float) -> SearchHits:
    """Find rows that differ in a column both datasets have, from ``start``, for some time."""
    names = [name for name in a.schema if name in b.schema]
    if not names:
        raise OptionError("the datasets have no column in common")
    found = SearchHits(start)
    until = time.monotonic() + seconds
    while not found.done and not found.full and time.monotonic() < until:
        begin = found.next
        left, bad = a.read(names, begin, begin + _ROWS)
        stop = begin + (1 if bad else max(1, measure(left)[0]))
        right, worse = b.read(names, begin, stop)
        if bad or worse:
            found.rows.append(begin)
            found.damaged += 1
            found.next += 1
            continue
        counts = measure(left)[0], measure(right)[0]
        if 0 in counts:
            _add_rest(a, b, found)
            return found
        rows = min(counts)
        mask = np.zeros(rows, np.bool_)
        for name in names:
            mask |= unlike_rows(left[name][:rows], right[name][:rows])
        found.add(mask)
    return found


def _add_rest(a: RowTable, b: RowTable, found: SearchHits) -> None:
    """Note the first row that only one dataset has: all later ones are the same."""
    found.done = True
    if bool(a.row(found.next)) != bool(b.row(found.next)):
        found.rows.append(found.next)
