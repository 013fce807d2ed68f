"""Rows of a dataset that are held in memory, for ``cache(memory=...)``."""

from __future__ import annotations

import numpy as np

from recmap.dataset.rows import read_blocks
from recmap.formats.column_readers import ArrayColumn, ColumnReader
from recmap.formats.column_source import ColumnsSource
from recmap.formats.memory import MemoryColumn
from recmap.model.field import Field
from recmap.model.null_columns import empty_column
from recmap.model.progress import Counter, ProgressOption
from recmap.model.ragged import Column, concatenate, owned
from recmap.model.row_sizes import measure
from recmap.model.source import Source


def held_rows(source: Source, memory: int, progress: ProgressOption) -> Source | None:
    """Read all rows into memory, or return None if they take more than ``memory`` bytes.

    A column whose rows have one size is allocated once. The others are put together at the end,
    and are in memory twice meanwhile, so they count twice.
    """
    rows = len(source)
    columns = {name: _Held(field, rows) for name, field in source.schema.items()}
    start = 0
    with Counter(rows, progress) as counter:
        for batch in read_blocks(source, 1):
            count, size = measure(batch)
            if start == 0 and size // max(count, 1) * rows > memory:
                return None
            for name, column in columns.items():
                column.add(batch[name], start)
            if sum(column.size for column in columns.values()) > memory:
                return None
            start += count
            counter.add(count, size)
        counter.finish()
    return ColumnsSource("memory", [], {name: each.reader() for name, each in columns.items()})


class _Held:
    """A column that grows."""

    def __init__(self, field: Field, rows: int) -> None:
        self._field = field
        plain = not (field.ragged or field.is_bytes or field.has_nulls)
        self._whole = np.empty((rows, *field.inner), field.dtype) if plain else None
        self._parts = list[Column]()
        self.size = 0

    def add(self, column: Column, start: int) -> None:
        if self._whole is None:
            self._parts.append(owned(column))
            self.size += 2 * column.nbytes
        else:
            self._whole[start : start + len(column)] = column
            self.size += column.nbytes

    def reader(self) -> ColumnReader:
        if self._whole is not None:
            return ArrayColumn(self._whole)
        whole = concatenate(self._parts or [empty_column(self._field)])
        self._parts.clear()
        return MemoryColumn(whole, self._field)
