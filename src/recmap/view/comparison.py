"""Compare two datasets row by row."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from recmap.errors import OptionError
from recmap.model.ragged import Ragged
from recmap.model.row_sizes import measure
from recmap.view.search import Found
from recmap.view.table import Row, Table

__all__ = ["differing", "find_differences", "same"]

_ROWS = 1 << 16


def same(a: Any, b: Any) -> bool:
    """Return whether two values are equal. NaN equals NaN; text equals its UTF-8 bytes.

    >>> same(np.array([1.0, np.nan]), np.array([1.0, np.nan])), same(b"a", "a"), same(1, 2)
    (True, True, False)
    """
    if isinstance(a, bytes | str) or isinstance(b, bytes | str):
        texts = [x.encode() if isinstance(x, str) else x for x in (a, b)]
        return isinstance(texts[0], bytes) and isinstance(texts[1], bytes) and texts[0] == texts[1]
    if isinstance(a, Ragged) or isinstance(b, Ragged):
        both = isinstance(a, Ragged) and isinstance(b, Ragged) and len(a) == len(b)
        return both and all(same(x, y) for x, y in zip(a, b, strict=True))
    left, right = np.asarray(a), np.asarray(b)
    if left.shape != right.shape:
        return False
    if left.dtype != right.dtype:
        # NumPy would turn integers into floats, which cannot tell large ones apart.
        left, right = left.astype(object), right.astype(object)
    return bool(np.all(_equal(left, right)))


def _equal(a: Any, b: Any) -> Any:
    with np.errstate(invalid="ignore"):
        return (a == b) | ((a != a) & (b != b))  # noqa: PLR0124


def differing(a: Row | None, b: Row | None, names: list[str]) -> list[str]:
    """Return the columns in which two rows differ. A missing or damaged row differs in all."""
    if a is None or b is None or a.damage is not None or b.damage is not None:
        return names
    return [
        name
        for name in names
        if name not in a.values or name not in b.values or not same(a.values[name], b.values[name])
    ]


def find_differences(a: Table, b: Table, start: int, seconds: float) -> Found:
    """Find rows that differ in a column both datasets have, from ``start``, for some time."""
    names = [name for name in a.schema if name in b.schema]
    if not names:
        raise OptionError("the datasets have no column in common")
    found = Found(start)
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
            mask |= _differ(left[name][:rows], right[name][:rows])
        found.add(mask)
    return found


def _add_rest(a: Table, b: Table, found: Found) -> None:
    """Note the first row that only one dataset has: all later ones are the same."""
    found.done = True
    if bool(a.row(found.next)) != bool(b.row(found.next)):
        found.rows.append(found.next)


def _differ(a: Any, b: Any) -> Any:
    arrays = isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
    if arrays and a.shape == b.shape and a.dtype == b.dtype:
        equal = _equal(a, b)
        return ~(equal.reshape(len(a), -1).all(axis=1) if a.ndim > 1 else equal)
    return np.fromiter((not same(x, y) for x, y in zip(a, b, strict=True)), np.bool_, len(a))
