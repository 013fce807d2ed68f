"""Columns of arrays that must be decoded before use."""

from __future__ import annotations

import math
import threading
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from recmap.formats.column_readers import ColumnReader, Which, field_paths
from recmap.model.coerce import string_column
from recmap.model.field import Field
from recmap.model.ragged import Column
from recmap.model.row_sizes import STRING, RowSizes

__all__ = ["Rows", "rows_columns"]


class Rows(Protocol):
    """An array that is decoded into memory by rows. Objects in it are text or byte strings."""

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def chunk_rows(self) -> int: ...

    @property
    def note(self) -> str: ...

    @property
    def band_bytes(self) -> int:
        """The bytes decoded together; 0 if a row can be read alone."""
        ...

    def keep(self, bands: int | None) -> None:
        """Cache at most ``bands`` decoded bands for later reads; None means the default limit."""
        ...

    def read(self, start: int, stop: int) -> npt.NDArray[Any]: ...

    def gather(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]: ...


def rows_columns(name: str, rows: Rows) -> dict[str, ColumnReader]:
    """Return one column per field of a structured array, or a single one for a plain array."""
    last = _LastRead(rows)
    if rows.dtype.names is None:
        return {name: _RowsColumn(last, ())}
    return {column: _RowsColumn(last, path) for column, path in field_paths(rows.dtype).items()}


class _LastRead:
    """The rows that each thread read last, kept so that they are decoded only once.

    The fields of a structured array are read one by one, and strings are measured before they
    are read. Other rows are not kept.
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self._thread = threading.local()

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        if self.rows.dtype.names is None and not self.rows.dtype.hasobject:
            return self.rows.read(start, stop)
        first, end = getattr(self._thread, "span", (0, -1))
        if not first <= start <= stop <= end:
            self._thread.span, self._thread.rows = (0, -1), None  # free them before reading
            self._thread.rows = self.rows.read(start, stop)
            self._thread.span = first, end = start, stop
        read: npt.NDArray[Any] = self._thread.rows[start - first : stop - first]
        return read


class _RowsColumn(ColumnReader):
    def __init__(self, last: _LastRead, path: tuple[str, ...]) -> None:
        self._last, self._rows, self._path = last, last.rows, path
        sample = self._field(np.empty((0, *self._rows.shape[1:]), self._rows.dtype))
        self._strings = sample.dtype.kind in "OSU"
        self.field = Field("bytes" if self._strings else sample.dtype, sample.shape[1:])
        self._objects = sample.dtype.kind == "O"
        self._items = math.prod(sample.shape[1:])
        self._row_bytes = sample.dtype.itemsize * self._items

    @property
    def chunk_rows(self) -> int:
        return self._rows.chunk_rows

    @property
    def note(self) -> str:
        return self._rows.note

    def __len__(self) -> int:
        return self._rows.shape[0]

    def read(self, start: int, stop: int) -> Column:
        return self._column(self._last.read(start, stop))

    def gather(self, rows: npt.NDArray[np.int64]) -> Column:
        return self._column(self._rows.gather(rows))

    @property
    def band_bytes(self) -> int:
        whole = self._rows.dtype.itemsize * math.prod(self._rows.shape[1:])
        return self._rows.band_bytes * self._row_bytes // max(whole, 1)

    def keep(self, bands: int | None) -> None:
        self._rows.keep(bands)

    def sizes(self, rows: Which, limit: int) -> RowSizes | None:
        if self._objects:
            return self._string_sizes(rows) if isinstance(rows, slice) else None
        return self._row_bytes + (STRING * self._items if self._strings else 0)

    def _string_sizes(self, rows: slice) -> RowSizes:
        """Return the sizes of rows in one chunk. It is decoded whole, and kept to be read next."""
        stop = min(rows.stop, rows.start - rows.start % self.chunk_rows + self.chunk_rows)
        cells = self._last.read(rows.start, max(rows.start, stop))
        # Text has at most four bytes per character.
        each = np.array([len(cell) * 4 + STRING for cell in cells.flat], np.int64)
        sizes: npt.NDArray[np.int64] = each.reshape(len(cells), self._items).sum(axis=1)
        return sizes

    def _field(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        for name in self._path:
            rows = rows[name]
        return rows

    def _column(self, rows: npt.NDArray[Any]) -> Column:
        values = self._field(rows)
        return string_column(values) if self._strings else values

    def row_bytes(self) -> int:
        return max(1, self._row_bytes)
