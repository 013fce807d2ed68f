"""Search rows by value, or for differences between two datasets, some at a time.

The page asks again until all are read, or stops.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError
from recmap.model.comparison import unlike_rows
from recmap.model.expression_text import parse_expression
from recmap.model.field import Field
from recmap.model.nulls import values_and_validity, with_masks
from recmap.model.ragged import Column, Ragged, has_mask, masked
from recmap.model.row_sizes import measure
from recmap.model.value_test import Bits, Relation, ValueTest, value_test
from recmap.view.table import RowTable, TableRow

_RELATIONS: dict[str, Relation] = {
    "=": "==",
    "≠": "==",  # no value is equal
    "<": "<",
    "≤": "<=",
    ">": ">",
    "≥": ">=",
}
OPERATORS = (*_RELATIONS, "contains", "missing", "where")
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

    In a row of several values, one is enough; for ``≠``, none may be equal. For ``where``, the
    text is a whole condition, such as ``label == 3 and size > 10``, and the column does not
    matter.
    """
    if operator == "where":
        expression = parse_expression(text)
        matches = expression.bind(table.schema).rows
        names = with_masks(sorted(expression.names), table.schema)
    else:
        test = _matcher(name, operator, text, table.schema[name], table.labels.get(name, ()))
        matches, names = (lambda batch: test(batch[name])), [name]
    found = SearchHits(start)
    until = time.monotonic() + seconds
    while not found.done and not found.full and time.monotonic() < until:
        batch, damage = table.read(names, found.next, found.next + _SEARCHED)
        if damage is not None:
            found.damaged += 1
            found.next += 1
            continue
        rows = measure(batch)[0]
        if rows:
            found.add(matches(batch))
        found.done = not rows
    return found


def _matcher(
    name: str, operator: str, text: str, field: Field, labels: Sequence[str]
) -> Callable[[Column], Bits]:
    """Return a function that says which rows of a column match."""
    if operator not in OPERATORS:
        raise OptionError(f"{operator!r} is not one of {', '.join(OPERATORS)}")
    if operator == "missing":
        return _missing
    one = Field(field.dtype)
    if operator == "contains":
        test = value_test(name, one, "contains", text if one.is_text else text.encode())
    else:
        value = _parsed(text, one, labels)
        test = value_test(name, one, _RELATIONS[operator], value)
    return partial(_match, test, wanted=operator != "≠")


def _match(test: ValueTest, column: Column, *, wanted: bool) -> Bits:
    values, valid = values_and_validity(column)
    passing = _any(values, test.passing)
    found = passing if wanted else ~passing
    return found if valid is None else found & valid


def _any(column: Column, test: Callable[[Column], Bits]) -> Bits:
    """Return for each row whether a test holds for any of its values."""
    if isinstance(column, Ragged) and not column.is_bytes:
        inside = _any(column.flat, test)
        sums = np.concatenate([[0], np.cumsum(inside)])
        offsets = column.offsets - column.offsets[0]
        return np.asarray(np.diff(sums[offsets]) > 0)
    values, valid = values_and_validity(column)
    if isinstance(values, np.ndarray) and values.ndim > 1:
        inside = test(values.reshape(-1))
        found = np.asarray(inside.reshape(len(values), values[:1].size).any(axis=1))
    else:
        found = test(values)
    return found if valid is None else found & valid


def _missing(column: Column) -> Bits:
    """Return which rows are null or empty, or hold NaN."""
    values, valid = values_and_validity(column)
    found: Bits = np.zeros(len(column), np.bool_) if valid is None else ~valid
    if isinstance(values, Ragged):
        found |= values.lengths == 0
    return found | _any(values, _is_nan)


def _is_nan(values: Column) -> Bits:
    if isinstance(values, Ragged):  # of strings
        return np.zeros(len(values), np.bool_)
    # This finds dates and types of other packages, too.
    return np.asarray(values != values, np.bool_)  # noqa: PLR0124


def _parsed(text: str, field: Field, labels: Sequence[str]) -> Any:
    """Return the value that a text means in a column of this type."""
    if field.is_text:
        return text
    if field.is_bytes or field.dtype.type is np.void:
        return text.encode()
    text, kind = text.strip(), field.dtype.kind
    if text in labels:
        return labels.index(text)
    if kind == "b" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        if kind == "M":
            return text
        if kind == "m":
            return np.array(int(text), field.dtype)[()]
        if kind == "c":
            return complex(text)
        return int(text) if text.lstrip("+-").isdecimal() else float(text)
    except ValueError:
        raise OptionError(f"{text!r} is not a value of {field}") from None


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
