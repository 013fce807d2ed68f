"""Columns of an array that is inflated as it is read."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.columns import string_column
from recmap.formats.columns import ColumnReader, field_paths
from recmap.formats.deflated import Deflated
from recmap.formats.npy_header import NpyHeader
from recmap.ragged import Column
from recmap.types import Field

__all__ = ["MAX_LOADED", "streamed_columns"]

# Rows of an array in Fortran order lie apart, so that it is inflated whole.
MAX_LOADED = 256 << 20
# Inflated at a time to take single rows from it.
_BLOCK = 4 << 20


def streamed_columns(name: str, packed: Deflated, header: NpyHeader) -> dict[str, ColumnReader]:
    """The columns of an array that begins with its header."""
    array = _Array(packed, header)
    paths = field_paths(header.dtype)
    return {column or name: _StreamedColumn(array, path) for column, path in paths.items()}


class _Array:
    """Rows of an array. A pass over them inflates once, however many fields they have."""

    def __init__(self, packed: Deflated, header: NpyHeader) -> None:
        self._packed, self._header = packed, header
        self.dtype, self.shape = header.dtype, header.shape
        self.row_size = header.dtype.itemsize * math.prod(header.shape[1:])
        self._scattered = header.fortran and sum(axis > 1 for axis in header.shape) > 1
        self._whole: npt.NDArray[Any] | None = None
        self._lock = threading.Lock()
        self._last = threading.local()

    def __len__(self) -> int:
        return self.shape[0]

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        if self._scattered:
            return self._loaded()[start:stop]
        if self.dtype.names is None:
            return self._rows(start, stop)
        # The fields of rows are asked for one after the other.
        if getattr(self._last, "key", None) != (start, stop):
            self._last.rows = self._rows(start, stop)
            self._last.key = (start, stop)
        rows: npt.NDArray[Any] = self._last.rows
        return rows

    def take(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        if self._scattered:
            return self._loaded()[rows]
        taken = np.empty((len(rows), *self.shape[1:]), self.dtype)
        order = np.argsort(rows, kind="stable")
        wanted = rows[order]
        step = max(1, _BLOCK // max(self.row_size, 1))
        done = 0
        while done < len(wanted):
            first = int(wanted[done])
            upto = int(np.searchsorted(wanted, first + step))
            here = wanted[done:upto]
            taken[order[done:upto]] = self._rows(first, int(here[-1]) + 1)[here - first]
            done = upto
        return taken

    def _rows(self, start: int, stop: int) -> npt.NDArray[Any]:
        shape = (stop - start, *self.shape[1:])
        if math.prod(shape) == 0:
            return np.empty(shape, self.dtype)
        offset = self._header.size + start * self.row_size
        data = self._packed.read(offset, (stop - start) * self.row_size)
        return data.view(self.dtype).reshape(shape)

    def _loaded(self) -> npt.NDArray[Any]:
        with self._lock:
            if self._whole is None:
                data = self._packed.read(self._header.size, len(self) * self.row_size)
                self._whole = data.view(self.dtype).reshape(self.shape, order="F")
            return self._whole


class _StreamedColumn:
    """An array, or a field of its rows."""

    note = "deflated, read in order"

    def __init__(self, array: _Array, path: tuple[str, ...]) -> None:
        self._array, self._path = array, path
        sample = self._field(np.empty((0, *array.shape[1:]), array.dtype))
        self._strings = sample.dtype.kind in "SU"
        self.field = Field("bytes" if self._strings else sample.dtype, sample.shape[1:])
        self._row_bytes = sample.dtype.itemsize * math.prod(sample.shape[1:])

    @property
    def chunk_rows(self) -> int:
        # A row costs all rows before it.
        return max(1, len(self))

    def __len__(self) -> int:
        return len(self._array)

    def read(self, start: int, stop: int) -> Column:
        return self._column(self._array.read(start, stop))

    def take(self, rows: npt.NDArray[np.int64]) -> Column:
        return self._column(self._array.take(rows))

    def _field(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        for name in self._path:
            rows = rows[name]
        return rows

    def _column(self, rows: npt.NDArray[Any]) -> Column:
        values = self._field(rows)
        return string_column(values) if self._strings else values

    def view(self) -> npt.NDArray[Any] | None:
        return None

    def row_bytes(self) -> int:
        return max(1, self._row_bytes)
