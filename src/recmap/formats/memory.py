"""Columns in memory, and batches as they come, as sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError, OptionError
from recmap.formats.column_source import ColumnsSource, Which
from recmap.formats.combined import SelectedSource
from recmap.model.coerce import Given, as_columns, empty_column, fit, infer_schema
from recmap.model.ragged import Column, Ragged, concatenate, owned
from recmap.model.row_sizes import RowSizes, added, column_sizes, fitting, measure
from recmap.model.schema import Batch, Field, Schema
from recmap.model.source import Info, Skipped, Source

__all__ = ["MemorySource", "StreamSource"]


class _MemoryColumn:
    chunk_rows = 1
    band_bytes = 0
    note = ""

    def __init__(self, column: Column, field: Field) -> None:
        self._column = column
        self.field = field

    def __len__(self) -> int:
        return len(self._column)

    def read(self, start: int, stop: int) -> Column:
        return self._column[start:stop]

    def gather(self, rows: npt.NDArray[np.int64]) -> Column:
        return self._column[rows]

    def keep(self, bands: int | None) -> None:
        """All of it is there anyway."""

    def sizes(self, rows: Which, limit: int) -> RowSizes | None:
        if isinstance(rows, slice):
            return column_sizes(self._column[rows])
        sizes = column_sizes(self._column)
        return sizes if isinstance(sizes, int) else sizes[rows]

    def view(self) -> npt.NDArray[Any] | None:
        return None if isinstance(self._column, Ragged) else self._column

    def row_bytes(self) -> int:
        return self._column.nbytes // max(len(self), 1)


class MemorySource(ColumnsSource):
    """Columns of a schema that are in memory already."""

    def __init__(self, batch: Batch, schema: Schema) -> None:
        columns = {name: _MemoryColumn(column, schema[name]) for name, column in batch.items()}
        super().__init__("memory", [], columns, "given")


class StreamSource:
    """Batches from an iterable: its rows can be read once, in order."""

    files: list[str]
    origin = "from the first batch"
    chunk_rows = 1
    band_bytes = 0

    def __init__(self, batches: Iterable[Mapping[str, Any]], schema: Schema | None) -> None:
        self.files = []
        self._batches: Iterator[Mapping[str, Any]] = iter(batches)
        self._held: list[Batch] = []
        self._position = 0
        self._rows: int | None = None
        self._schema = schema or self._infer()

    def _infer(self) -> Schema:
        first = next(self._batches, None)
        if first is None:
            raise ColumnError("no batch came, so that the schema is not known; give it")
        given = as_columns(first)
        schema = infer_schema(given)
        self._hold(given, schema)
        return schema

    def _hold(self, given: Mapping[str, Given], schema: Schema | None = None) -> None:
        batch, _ = fit(given, self._schema if schema is None else schema)
        # Whoever makes the batches may fill the same arrays again.
        self._held.append({name: owned(column) for name, column in batch.items()})

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def skipped(self) -> Sequence[Skipped]:
        return ()

    def __len__(self) -> int:
        if self._rows is None:
            raise OptionError("batches that come one by one are counted only when all were read")
        return self._rows

    def known_rows(self) -> int | None:
        return self._rows

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        if start != self._position:
            raise OptionError(
                f"batches that come one by one are read once, in order: at row "
                f"{self._position:,}, not {start:,}; save them to a file first"
            )
        while self._count() < stop - start and self._rows is None:
            if limit is not None and self._held_bytes() > limit:
                break
            self._fetch()
        rows = min(stop - start, self._count())
        return self._cut(rows if limit is None else self._fitting(rows, limit))

    def _held_bytes(self) -> int:
        return sum(measure(batch)[1] for batch in self._held)

    def _fitting(self, rows: int, limit: int) -> int:
        sizes = [np.broadcast_to(_sizes(batch), _rows(batch)) for batch in self._held]
        return fitting(np.concatenate(sizes), rows, limit) if sizes else 0

    def _count(self) -> int:
        return sum(map(_rows, self._held))

    def _fetch(self) -> None:
        batch = next(self._batches, None)
        if batch is None:
            self._rows = self._position + self._count()
        else:
            self._hold(as_columns(batch))

    def _cut(self, rows: int) -> Batch:
        parts: list[Batch] = [{n: empty_column(f) for n, f in self._schema.items()}]
        left = rows
        while left:
            count = _rows(self._held[0])
            parts.append({name: column[:left] for name, column in self._held[0].items()})
            if count > left:
                self._held[0] = {name: column[left:] for name, column in self._held[0].items()}
            else:
                del self._held[0]
            left -= min(count, left)
        self._position += rows
        filled = parts[1:] or parts
        return {name: concatenate([part[name] for part in filled]) for name in self._schema}

    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        raise OptionError("batches that come one by one have no rows by number; save them first")

    def row_sizes(self, rows: npt.NDArray[np.int64]) -> RowSizes | None:
        return None

    def largest_row(self, above: int) -> tuple[int, int] | None:
        return None

    def column(self, name: str) -> npt.NDArray[Any] | None:
        return None

    def select(self, names: Sequence[str]) -> Source:
        return SelectedSource(self, {name: name for name in names})

    def row_bytes(self) -> int:
        if not self._held and self._rows is None:
            self._fetch()
        size = sum(column.nbytes for batch in self._held for column in batch.values())
        return max(1, size // max(self._count(), 1))

    def info(self) -> Info:
        return Info("batches", [], 0, len(self), self._schema, self.origin, [])


def _sizes(batch: Batch) -> RowSizes:
    sizes: RowSizes = 0
    for column in batch.values():
        sizes = added(sizes, column_sizes(column))
    return sizes


def _rows(batch: Batch) -> int:
    return len(next(iter(batch.values()), ()))
