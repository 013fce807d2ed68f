"""Search rows by value, some at a time: the page asks again until all are read, or stops."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError
from recmap.model.field import Field
from recmap.model.ragged import Column, Ragged
from recmap.model.row_sizes import measure
from recmap.view.table import RowTable

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "≠": operator.eq,  # no value is equal
    "<": operator.lt,
    "≤": operator.le,
    ">": operator.gt,
    "≥": operator.ge,
}
OPERATORS = (*_COMPARE, "contains", "missing")
_ROWS = 1 << 20
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


@dataclass(frozen=True)
class Search:
    """Rows with a value in ``column`` for which ``operator`` holds.

    In a row of several values, one is enough; for ``≠``, none may be equal.
    """

    column: str
    operator: str
    text: str

    def run(self, table: RowTable, start: int, seconds: float) -> SearchHits:
        """Search from row ``start``, for some time."""
        matches = self._matcher(table.schema[self.column], table.labels.get(self.column, ()))
        found = SearchHits(start)
        until = time.monotonic() + seconds
        while not found.done and not found.full and time.monotonic() < until:
            batch, damage = table.read([self.column], found.next, found.next + _ROWS)
            if damage is not None:
                found.damaged += 1
                found.next += 1
                continue
            rows = measure(batch)[0]
            if rows:
                found.add(matches(batch[self.column]))
            found.done = not rows
        return found

    def _matcher(
        self, kind: Field, labels: Sequence[str]
    ) -> Callable[[Column], npt.NDArray[np.bool_]]:
        if self.operator not in OPERATORS:
            raise OptionError(f"{self.operator!r} is not one of {', '.join(OPERATORS)}")
        if self.operator == "missing":
            return _missing
        if kind.is_bytes or kind.dtype.type is np.void:
            return self._strings
        if self.operator == "contains":
            raise OptionError(f"{self.column} holds numbers: compare them with = or <")
        value = _parsed(self.text, kind.dtype, labels)
        compare, none = _COMPARE[self.operator], self.operator == "≠"

        def matches(column: Column) -> npt.NDArray[np.bool_]:
            mask = _any(column, lambda values: compare(values, value))
            return ~mask if none else mask

        return matches

    def _strings(self, column: Column) -> npt.NDArray[np.bool_]:
        wanted = self.text.encode()
        compare, none = _COMPARE.get(self.operator), self.operator == "≠"

        def one(value: Any) -> bool:
            if isinstance(value, Ragged | np.ndarray):
                return any(map(one, value))
            data = value.encode() if isinstance(value, str) else bytes(value)
            return wanted in data if compare is None else bool(compare(data, wanted))

        mask = np.fromiter(map(one, column), np.bool_, len(column))
        return ~mask if none else mask


def _any(column: Column, test: Callable[[Any], Any]) -> npt.NDArray[np.bool_]:
    """Return for each row whether a test holds for any of its values."""
    if isinstance(column, Ragged):
        inside = _any(column.flat, test)
        sums = np.concatenate([[0], np.cumsum(inside)])
        offsets = column.offsets - column.offsets[0]
        return np.asarray(np.diff(sums[offsets]) > 0)
    mask: npt.NDArray[np.bool_] = np.asarray(test(column))
    if column.ndim > 1:
        mask = np.asarray(mask.any(axis=tuple(range(1, mask.ndim))))
    return mask


def _missing(column: Column) -> npt.NDArray[np.bool_]:
    """Return which rows are empty or hold NaN."""
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
