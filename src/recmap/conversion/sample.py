"""A look at the first rows: what they take in memory, and how fast they are read."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from recmap.conversion.bounded_reader import Steps
from recmap.conversion.budget import Budget
from recmap.errors import MemoryLimitError
from recmap.model.byte_size import size_text
from recmap.model.ragged import Column, Ragged
from recmap.model.row_sizes import measure
from recmap.model.schema import Batch
from recmap.model.source import Source

__all__ = ["Sample", "take_sample"]

# Rows whose sizes are looked at. What is found must not depend on the memory that may be
# used: the rows of a file follow from it.
_ROWS, _SIZE = 32, 1 << 20
# Read to see how long it takes, of inputs that are much larger.
_TIMED, _WORTH_IT = 4 << 20, 64 << 20


@dataclass(frozen=True)
class Sample:
    """What a row takes, in the file or in memory, whichever is more; and how it is read,
    if that was looked at.
    """

    row_bytes: int
    how: str = ""

    def __str__(self) -> str:
        return f"; {self.how}" if self.how else ""


def take_sample(source: Source, rows: int | None, least: Budget) -> Sample:
    """Reads a few rows of a source that has so many."""
    if rows is None:
        return Sample(source.row_bytes())  # they come only once
    first = _first(source, least)
    count, size = measure(first)
    row_bytes = max(source.row_bytes(), size // max(count, 1), 1)
    if row_bytes * rows < _WORTH_IT:
        return Sample(row_bytes)
    budget = replace(least, chunk_rows=max(1, _TIMED // row_bytes))
    begun = time.perf_counter()
    timed = Steps(source, budget, 0, rows).next() or {}
    seconds = time.perf_counter() - begun
    if all(_place(first[name]) == _place(timed[name]) for name in timed):
        return Sample(row_bytes, "rows are used where they lie")
    return Sample(row_bytes, f"rows are read at {size_text(measure(timed)[1] / seconds)}/s")


def _place(column: Column) -> int:
    """Where the values are in memory: at the same place twice only if they were not read."""
    while isinstance(column, Ragged):
        column = column.flat
    return column.ctypes.data


def _first(source: Source, least: Budget) -> Batch:
    try:
        return source.read(0, _ROWS, _SIZE)
    except MemoryLimitError:
        return Steps(source, least, 0, None).next() or {}
