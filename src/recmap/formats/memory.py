"""Sources of columns in memory, and of batches from an iterable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError, OptionError
from recmap.formats.column_readers import ColumnReader, Which
from recmap.formats.column_source import ColumnsSource
from recmap.model.batch import join, pick
from recmap.model.coerce import Given, as_columns, fit, infer_schema
from recmap.model.facts import SourceFacts
from recmap.model.field import Field
from recmap.model.null_columns import empty_column
from recmap.model.ragged import Column, owned
from recmap.model.row_sizes import RowSizes, batch_sizes, column_sizes, fitting, measure
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source


class MemoryColumn(ColumnReader):
    """A column in memory."""

    def __init__(self, column: Column, field: Field) -> None:
        self._column = column
        self.field = field

    def __len__(self) -> int:
        return len(self._column)

    def read(self, start: int, stop: int) -> Column:
        return self._column[start:stop]

    def gather(self, rows: npt.NDArray[np.int64]) -> Column:
        return self._column[rows]

    def sizes(self, rows: Which, limit: int) -> RowSizes | None:
        del limit
        if isinstance(rows, slice):
            return column_sizes(self._column[rows])
        sizes = column_sizes(self._column)
        return sizes if isinstance(sizes, int) else sizes[rows]

    def view(self) -> Column | None:
        return self._column

    def row_bytes(self) -> int:
        return self._column.nbytes // max(len(self), 1)


def memory_source(batch: Batch, schema: Schema) -> ColumnsSource:
    """Return columns in memory as a source."""
    columns = {name: MemoryColumn(column, schema[name]) for name, column in batch.items()}
    return ColumnsSource("memory", [], columns, "given")


class StreamSource(Source):
    """The batches of an iterable: rows that can be read only once, in order."""

    def __init__(self, batches: Iterable[Mapping[str, Any]], schema: Schema | None) -> None:
        self._batches: Iterator[Mapping[str, Any]] = iter(batches)
        # Rows that have been fetched but not read.
        self._held: list[Batch] = []
        self._next_row = 0
        # Known once the iterable has ended.
        self._rows: int | None = None
        self._guesses = not schema
        self._schema = schema or self._infer_schema()

    def _infer_schema(self) -> Schema:
        first = next(self._batches, None)
        if first is None:
            raise ColumnError("there is no batch to infer the schema from; give schema={...}")
        given = as_columns(first)
        schema = infer_schema(given)
        self._hold(given, schema)
        return schema

    def _hold(self, given: Mapping[str, Given], schema: Schema) -> None:
        batch, _ = fit(given, schema, guessed=self._guesses)
        # Copy the columns, because a generator may reuse its arrays.
        self._held.append({name: owned(column) for name, column in batch.items()})

    @property
    def facts(self) -> SourceFacts:
        return SourceFacts("batches", origin="from the first batch", once=True)

    @property
    def schema(self) -> Schema:
        return self._schema

    def __len__(self) -> int:
        if self._rows is None:
            raise OptionError("batches of an iterable are counted only when all have been read")
        return self._rows

    def known_rows(self) -> int | None:
        return self._rows

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        if start != self._next_row:
            raise OptionError(
                "batches of an iterable are read once, in order: the next row is "
                f"{self._next_row:,}, not {start:,}; save them to a file first"
            )
        while self._held_rows() < stop - start and self._rows is None:
            if limit is not None and self._held_bytes() > limit:
                break
            self._fetch()
        rows = min(stop - start, self._held_rows())
        return self._pop(rows if limit is None else self._fitting(rows, limit))

    def _fetch(self) -> None:
        batch = next(self._batches, None)
        if batch is None:
            self._rows = self._next_row + self._held_rows()
        else:
            self._hold(as_columns(batch), self._schema)

    def _held_rows(self) -> int:
        return sum(measure(batch)[0] for batch in self._held)

    def _held_bytes(self) -> int:
        return sum(measure(batch)[1] for batch in self._held)

    def _fitting(self, rows: int, limit: int) -> int:
        sizes = [np.broadcast_to(batch_sizes(batch), measure(batch)[0]) for batch in self._held]
        return fitting(np.concatenate(sizes), rows, limit) if sizes else 0

    def _pop(self, rows: int) -> Batch:
        """Remove the first ``rows`` held rows and return them."""
        parts: list[Batch] = []
        left = rows
        while left:
            first = self._held[0]
            count = measure(first)[0]
            parts.append(pick(first, slice(left)))
            if count > left:
                self._held[0] = pick(first, slice(left, None))
            else:
                del self._held[0]
            left -= min(count, left)
        self._next_row += rows
        return join(parts or [{n: empty_column(field) for n, field in self._schema.items()}])

    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        raise OptionError(
            "batches of an iterable have no rows by number; save them to a file first"
        )

    def row_bytes(self) -> int:
        if not self._held and self._rows is None:
            self._fetch()
        return max(1, self._held_bytes() // max(self._held_rows(), 1))
