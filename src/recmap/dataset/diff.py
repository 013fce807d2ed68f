"""Compare two datasets row by row, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.dataset.dataset import opened_rows
from recmap.dataset.open import open as open_dataset
from recmap.dataset.rows import read_blocks
from recmap.machine.mapped import guarded
from recmap.model.comparison import unlike_rows
from recmap.model.field import Field
from recmap.model.habits import helpful
from recmap.model.preview import preview, quantity
from recmap.model.progress import Counter, ProgressOption, check_progress
from recmap.model.ragged import Column, Ragged, owned
from recmap.model.row_sizes import measure
from recmap.model.schema import Batch
from recmap.model.source import Source


@dataclass(frozen=True)
class ColumnDifference:
    """A column whose values differ: the first such row with both values, and how many rows."""

    name: str
    row: int
    a: Any
    b: Any
    rows: int

    def __str__(self) -> str:
        return (
            f"{self.name}: row {self.row:,} is {preview(self.a)} and {preview(self.b)}; "
            f"{quantity(self.rows, 'row')} differ{'s' if self.rows == 1 else ''}"
        )


@dataclass(frozen=True)
class Difference:
    """Where two datasets differ.

    ``only_a`` and ``only_b`` are columns that the other one lacks. ``types`` has the columns whose
    types differ, with both; their values are compared anyway. ``columns`` has those whose values
    differ, and ``rows`` is how many rows differ in any of them, among the ``compared`` ones that
    both datasets have.
    """

    rows_a: int
    rows_b: int
    only_a: list[str]
    only_b: list[str]
    types: dict[str, tuple[Field, Field]]
    columns: list[ColumnDifference]
    rows: int
    compared: int

    @property
    def same(self) -> bool:
        """True if both have the same columns of the same types, and the same rows."""
        schema = self.only_a or self.only_b or self.types
        return not (schema or self.columns or self.rows_a != self.rows_b)

    @property
    def first(self) -> ColumnDifference | None:
        """The first difference, by row; None if no value differs."""
        return min(self.columns, key=lambda column: column.row, default=None)

    def __str__(self) -> str:
        if self.same:
            return f"no difference in {quantity(self.rows_a, 'row')}"
        lines = [f"{name}: only in the first" for name in self.only_a]
        lines += [f"{name}: only in the second" for name in self.only_b]
        lines += [f"{n}: {a} in the first, {b} in the second" for n, (a, b) in self.types.items()]
        lines += map(str, self.columns)
        if self.rows_a != self.rows_b:
            rows = quantity(self.rows_a, "row")
            lines.append(f"{rows} in the first, {self.rows_b:,} in the second")
        differ = "differs" if self.rows == 1 else "differ"
        lines.append(f"{self.rows:,} of {quantity(self.compared, 'compared row')} {differ}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Difference({str(self)!r})"


@helpful
@guarded
def diff(a: Any, b: Any, *, progress: ProgressOption = None) -> Difference:
    """Compare the columns, types, row counts and rows of two datasets, of any formats.

    Each is a dataset, or anything else that ``rm.open`` opens, such as a path. Rows are compared
    by number. NaN equals NaN, and values of different types are equal if they are the same number
    or string.

    >>> import recmap as rm
    >>> a, b = np.arange(5), np.arange(5)
    >>> b[3:] = 0
    >>> print(rm.diff(rm.from_arrays({"x": a}), rm.from_arrays({"x": b})))
    x: row 3 is 3 and 0; 2 rows differ
    2 of 5 compared rows differ
    """
    check_progress(progress)
    one, other = (opened_rows(open_dataset(each)).source for each in (a, b))
    shared = [name for name in one.schema if name in other.schema]
    kinds = {name: (one.schema[name], other.schema[name]) for name in shared}
    types = {n: k for n, k in kinds.items() if (k[0].dtype, k[0].shape) != (k[1].dtype, k[1].shape)}
    found: dict[str, ColumnDifference] = {}
    rows = compared = 0
    if shared:
        pairs = _pairs(one.select(shared), other.select(shared))
        with Counter(one.known_rows(), progress) as counter:
            for mine, theirs in pairs:
                count, size = measure(mine)
                differs = np.zeros(count, np.bool_)
                for name in shared:
                    unlike = unlike_rows(mine[name], theirs[name])
                    differs |= unlike
                    _note(found, name, compared, unlike, mine[name], theirs[name])
                rows += int(differs.sum())
                compared += count
                counter.add(count, size)
            counter.finish()
    return Difference(
        rows_a=len(one),
        rows_b=len(other),
        only_a=[name for name in one.schema if name not in other.schema],
        only_b=[name for name in other.schema if name not in one.schema],
        types=types,
        columns=[found[name] for name in shared if name in found],
        rows=rows,
        compared=compared,
    )


def _pairs(a: Source, b: Source) -> Iterator[tuple[Batch, Batch]]:
    """Yield the rows that both have, in batches of equal length."""
    readers = read_blocks(a, 1), read_blocks(b, 1)
    held: list[Batch] = [{}, {}]
    left = [0, 0]
    while True:
        for i in (0, 1):
            if not left[i]:
                held[i] = {}  # free it before the next one is read
                held[i] = next(readers[i], {})
                left[i] = measure(held[i])[0]
        count = min(left)
        if not count:
            return
        yield _first(held[0], count), _first(held[1], count)
        for i in (0, 1):
            held[i] = {name: column[count:] for name, column in held[i].items()}
            left[i] -= count


def _first(batch: Batch, count: int) -> Batch:
    return {name: column[:count] for name, column in batch.items()}


def _note(
    found: dict[str, ColumnDifference],
    name: str,
    start: int,
    unlike: npt.NDArray[np.bool_],
    a: Column,
    b: Column,
) -> None:
    """Add the rows of a column that differ."""
    rows = int(unlike.sum())
    if not rows:
        return
    first = found.get(name)
    if first is not None:
        found[name] = replace(first, rows=first.rows + rows)
        return
    i = int(np.argmax(unlike))
    found[name] = ColumnDifference(name, start + i, _kept(a, i), _kept(b, i), rows)


def _kept(column: Column, i: int) -> Any:
    """Return a value that shares no memory with the block it was read in."""
    value = column[i]
    return (
        value.copy()
        if isinstance(value, np.ndarray)
        else owned(value)
        if isinstance(value, Ragged)
        else value
    )
