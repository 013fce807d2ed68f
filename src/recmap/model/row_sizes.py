"""The sizes of rows in memory, to read no more than fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import MemoryLimitError
from recmap.model.ragged import Column, Ragged
from recmap.model.schema import Batch

# The size of each row in bytes, or one number if all rows have the same size.
RowSizes: TypeAlias = "int | npt.NDArray[np.int64]"

# The bytes that a row of a Ragged takes in addition to its values.
OFFSET = 8
# The overhead of a string in bytes while it is a Python object, which it is when it comes from
# an array of strings.
STRING = 128
# The number of rows to compare at a time.
_BLOCK_ROWS = 1 << 16


def fitting(sizes: RowSizes, rows: int, limit: int) -> int:
    """Return how many of the leading rows fit together into ``limit`` bytes.

    Raise MemoryLimitError if not even the first row fits, because nothing could be read then.
    """
    if isinstance(sizes, int):
        first, count = sizes, limit // max(sizes, 1)
    else:
        rows = min(rows, len(sizes))
        first = int(sizes[0]) if rows else 0
        count = int(np.searchsorted(np.cumsum(sizes[:rows]), limit, side="right"))
    if rows and not count:
        raise MemoryLimitError(
            f"a row takes {first:,} bytes of memory, but only {limit:,} may be used for it",
            size=first,
            limit=limit,
        )
    return min(rows, count)


def added(a: RowSizes, b: RowSizes) -> RowSizes:
    """Add the sizes of two columns, for the rows that have both sizes."""
    if isinstance(a, int) or isinstance(b, int):
        return a + b
    rows = min(len(a), len(b))
    total: npt.NDArray[np.int64] = a[:rows] + b[:rows]
    return total


def added_up(sizes: Iterable[RowSizes | None]) -> RowSizes | None:
    """Add the sizes of several columns; return None if those of one are unknown."""
    total: RowSizes = 0
    for each in sizes:
        if each is None:
            return None
        total = added(total, each)
    return total


def column_sizes(column: Column) -> RowSizes:
    """Return the size of each row of a column in memory, in bytes."""
    if not isinstance(column, Ragged):
        return column.nbytes // max(len(column), 1)
    inside = column_sizes(column.flat)
    if isinstance(inside, int):
        return OFFSET + column.lengths * inside
    ends: npt.NDArray[np.int64] = np.concatenate([[0], np.cumsum(inside)])
    edges: npt.NDArray[np.int64] = ends[column.offsets - column.offsets[0]]
    return OFFSET + np.diff(edges)


def batch_sizes(batch: Batch) -> RowSizes:
    """Return the size of each row of a batch in memory, in bytes."""
    total: RowSizes = 0
    for column in batch.values():
        total = added(total, column_sizes(column))
    return total


def largest(
    sizes: Callable[[int, int], RowSizes | None], rows: int, above: int
) -> tuple[int, int] | None:
    """Return the number and size of the largest of ``rows`` rows, if larger than ``above``.

    ``sizes`` returns the sizes of a span of rows. If it returns None, the search stops.
    """
    found: tuple[int, int] | None = None
    start = 0
    while start < rows:
        some = sizes(start, min(start + _BLOCK_ROWS, rows))
        if some is None:
            return found
        if isinstance(some, int):  # all rows have the same size
            return (0, some) if some > above else None
        at = int(some.argmax())
        if some[at] > above:
            found, above = (start + at, int(some[at])), int(some[at])
        start += len(some)
    return found


def measure(batch: Batch) -> tuple[int, int]:
    """Return the number of rows of a batch, and their size in bytes."""
    columns = list(batch.values())
    return (len(columns[0]) if columns else 0), sum(column.nbytes for column in columns)
