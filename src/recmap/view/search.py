"""Search rows by value, or for differences between two datasets, some at a time.

The page asks again until all are read, or stops.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError
from recmap.model.comparison import unlike_rows
from recmap.model.field import Field
from recmap.model.ragged import Column, Ragged, has_mask, masked, null_mask
from recmap.model.row_sizes import measure
from recmap.view.table import RowTable, TableRow

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "≠": operator.eq,  # no value is equal
    "<": operator.lt,
    "≤": operator.le,
    ">": operator.gt,
    "≥": operator.ge,
}
OPERATORS = (*_COMPARE, "contains", "missing")
# Rows read at a time.
_SEARCHED, _COMPARED = 1 << 20, 1 << 16
# Rows in one answer.
_MOST_FOUND = 20_000


@dataclass
class SearchHits:
    """Row numbers that were found, the row to go on with, and the damaged rows passed."""

    next: int
    rows: list[int] = field(default_factory=list)
    done: bool = False
    damaged: int = 0

    def add(self, mask: npt.NDArray[np.bool_]) -> None:
        """Add the next rows: those for which the mask holds, as far as an answer has room."""
        places = np.flatnonzero(mask)
        room = _MOST_FOUND - len(self.rows)
        passed = len(mask) if len(places) <= room else int(places[room])
        self.rows += (self.next + places[:room]).tolist()
        self.next += passed

    @property
    def full(self) -> bool:
        return len(self.rows) >= _MOST_FOUND


def search(
    table: RowTable, name: str, operator: str, text: str, start: int, seconds: float
) -> SearchHits:
    """Find rows with a value in a column for which ``operator`` holds, from ``start``.

    In a row of several values, one is enough; for ``≠``, none may be equal.
    """
    matches = _matcher(name, operator, text, table.schema[name], table.labels.get(name, ()))
    found = SearchHits(start)
    until = time.monotonic() + seconds
    while not found.done and not found.full and time.monotonic() < until:
        batch, damage = table.read([name], found.next, found.next + _SEARCHED)
        if damage is not None:
            found.damaged += 1
            found.next += 1
            continue
        rows = measure(batch)[0]
        if rows:
            found.add(matches(batch[name]))
        found.done = not rows
    return found


def _matcher(
    name: str, operator: str, text: str, kind: Field, labels: Sequence[str]
) -> Callable[[Column], npt.NDArray[np.bool_]]:
    """Return a function that tells which rows of a column match."""
    if operator not in OPERATORS:
        raise OptionError(f"{operator!r} is not one of {', '.join(OPERATORS)}")
    if operator == "missing":
        return _missing
    compare = _COMPARE.get(operator)
    if kind.is_bytes or kind.dtype.type is np.void:
        some = partial(_match_strings, compare, text.encode())
    elif compare is None:
        raise OptionError(f"{name} holds numbers: compare them with = or <")
    else:
        some = partial(_match_numbers, compare, _parsed(text, kind.dtype, labels))
    # A null is neither equal to a value nor unlike it.
    return (lambda column: ~some(column) & ~null_mask(column)) if operator == "≠" else some


def _match_strings(
    compare: Callable[[Any, Any], Any] | None, wanted: bytes, column: Column
) -> npt.NDArray[np.bool_]:
    def one(value: Any) -> bool:
        if value is None:
            return False
        if isinstance(value, Ragged | np.ndarray):
            return any(map(one, value))
        data = value.encode() if isinstance(value, str) else bytes(value)
        return wanted in data if compare is None else bool(compare(data, wanted))

    return np.fromiter(map(one, column), np.bool_, len(column))


def _match_numbers(
    compare: Callable[[Any, Any], Any], wanted: Any, column: Column
) -> npt.NDArray[np.bool_]:
    return _any(column, lambda values: compare(values, wanted))


def _any(column: Column, test: Callable[[Any], Any]) -> npt.NDArray[np.bool_]:
    """Return for each row whether a test holds for any of its values."""
    if isinstance(column, Ragged):
        inside = _any(column.flat, test)
        sums = np.concatenate([[0], np.cumsum(inside)])
        offsets = column.offsets - column.offsets[0]
        return np.asarray(np.diff(sums[offsets]) > 0)
    mask: npt.NDArray[np.bool_] = np.asarray(test(np.asarray(column)))
    if column.ndim > 1:
        mask = np.asarray(mask.any(axis=tuple(range(1, mask.ndim))))
    return mask & ~null_mask(column) if has_mask(column) else mask


def _missing(column: Column) -> npt.NDArray[np.bool_]:
    """Return which rows are null or empty, or hold NaN."""
    if has_mask(column) and not isinstance(column, Ragged):
        return np.asarray(null_mask(column) | _any(column, _is_nan))
    if isinstance(column, Ragged):
        empty = np.asarray(column.lengths == 0)
        return empty if column.is_bytes else empty | _any(column, _is_nan)
    return _any(column, _is_nan)


def _is_nan(values: npt.NDArray[Any]) -> Any:
    return values != values  # noqa: PLR0124  # also for dates, and for types of other packages


def _parsed(text: str, dtype: np.dtype[Any], labels: Sequence[str]) -> Any:
    """Return the value that a text means in a column of this type."""
    text = text.strip()
    if text in labels:
        return labels.index(text)
    if dtype.kind == "b" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        if dtype.kind in "mM":
            return np.array(text, dtype)[()]
        if dtype.kind == "c":
            return complex(text)
        if dtype.kind == "f":
            return _float(float(text), dtype)
        try:
            return int(text)
        except ValueError:
            return float(text)
    except ValueError:
        raise OptionError(f"{text!r} is not a value of {dtype}") from None


def _float(value: float, dtype: np.dtype[Any]) -> Any:
    """Return a number to compare floats of this type with, as this type has it.

    Where it would become infinity, it stays as it is.
    """
    with np.errstate(over="ignore"):
        same = np.isinf(dtype.type(value)) == np.isinf(value)
    return value if same else np.float64(value)


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
    if value is None:
        return masked(np.zeros(1), np.ones(1, np.bool_))
    if isinstance(value, bytes):
        return Ragged.from_bytes([value])
    if isinstance(value, str):
        return Ragged.from_text([value])
    if isinstance(value, Ragged):
        return Ragged(value, [0, len(value)])
    if has_mask(value):
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
        left, bad = a.read(names, begin, begin + _COMPARED)
        stop = begin + (1 if bad else max(1, measure(left)[0]))
        right, worse = b.read(names, begin, stop)
        if bad or worse:
            found.rows.append(begin)
            found.damaged += 1
            found.next += 1
            continue
        counts = measure(left)[0], measure(right)[0]
        if 0 in counts:
            found.done = True
            # All rows that only one dataset has are alike: the first of them is enough.
            if bool(a.row(begin)) != bool(b.row(begin)):
                found.rows.append(begin)
            return found
        rows = min(counts)
        mask = np.zeros(rows, np.bool_)
        for name in names:
            mask |= unlike_rows(left[name][:rows], right[name][:rows])
        found.add(mask)
    return found
