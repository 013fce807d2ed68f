"""Read a source in slabs that fit into the budget, and sample its first rows."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from recmap.conversion.budget import Budget
from recmap.errors import MemoryLimitError
from recmap.model.arguments import size_text
from recmap.model.ragged import Column, Ragged
from recmap.model.row_sizes import measure
from recmap.model.schema import Batch
from recmap.model.source import Source
from recmap.tfrecord.unknown_features import refuse_unknown_features

__all__ = ["BoundedReader", "Sample", "take_sample"]

# Rows and bytes of the sample. They must not depend on the memory, because the number of rows
# in a shard follows from the sample.
_SAMPLE_ROWS, _SAMPLE_SIZE = 32, 1 << 20
# Bytes to read to measure the read speed, and the size of the inputs from which it is measured.
_TIMED_SIZE, _TIMED_FROM = 4 << 20, 64 << 20


class BoundedReader:
    """Reads the rows from ``row`` to ``stop``, or to the end of the source, slab by slab."""

    def __init__(self, source: Source, budget: Budget, row: int, stop: int | None) -> None:
        self._source, self._budget, self._stop = source, budget, stop
        self._rows = budget.slab_rows
        #: The first row of the next slab.
        self.row = row

    def next(self) -> Batch | None:
        """Read the next slab; return None after the last."""
        asked = self._rows if self._stop is None else min(self._rows, self._stop - self.row)
        if asked <= 0:
            return None
        self._budget.release_freed()
        try:
            with refuse_unknown_features():
                batch = self._source.read(self.row, self.row + asked, self._budget.limit)
        except MemoryLimitError as e:
            raise self._budget.too_little(self.row, e.size * self._budget.limit // e.limit) from e
        rows, _ = measure(batch)
        self.row += rows
        # If only a few rows fit, ask for only a few next time, too.
        self._rows = min(self._budget.slab_rows, 2 * (rows if rows < asked else self._rows))
        return batch if rows else None


@dataclass(frozen=True)
class Sample:
    """The size of a row in bytes, in the file or in memory, whichever is larger.

    ``speed`` describes how fast rows are read, if that was measured.
    """

    row_bytes: int
    speed: str = ""

    def __str__(self) -> str:
        return f"; {self.speed}" if self.speed else ""


def take_sample(source: Source, rows: int | None, least: Budget) -> Sample:
    """Read the first of the ``rows`` rows of a source to find out how large they are."""
    if rows is None:
        return Sample(source.row_bytes())  # they can be read only once
    first = _first_rows(source, least)
    count, size = measure(first)
    row_bytes = max(source.row_bytes(), size // max(count, 1), 1)
    if row_bytes * rows < _TIMED_FROM:
        return Sample(row_bytes)
    budget = replace(least, slab_rows=max(1, _TIMED_SIZE // row_bytes))
    begun = time.perf_counter()
    timed = BoundedReader(source, budget, 0, rows).next() or {}
    seconds = time.perf_counter() - begun
    # If two reads return the same address, nothing was copied.
    if all(_address(first[name]) == _address(timed[name]) for name in timed):
        return Sample(row_bytes, "rows are read in place, without a copy")
    return Sample(row_bytes, f"rows are read at {size_text(measure(timed)[1] / seconds)}/s")


def _address(column: Column) -> int:
    while isinstance(column, Ragged):
        column = column.flat
    return column.ctypes.data


def _first_rows(source: Source, least: Budget) -> Batch:
    try:
        return source.read(0, _SAMPLE_ROWS, _SAMPLE_SIZE)
    except MemoryLimitError:
        return BoundedReader(source, least, 0, None).next() or {}
