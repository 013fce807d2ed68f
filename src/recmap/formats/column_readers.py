"""Readers of single columns, which formats combine into sources."""

from __future__ import annotations

import math
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError
from recmap.files.cpus import thread_count
from recmap.files.mapped import MappedFile
from recmap.files.memory import Buffers
from recmap.model.coerce import string_column
from recmap.model.field import Field
from recmap.model.ragged import BYTE, Column, Ragged, concatenate
from recmap.model.row_sizes import OFFSET, STRING, RowSizes, added
from recmap.native import _core

__all__ = [
    "ArrayColumn",
    "ColumnReader",
    "Offsets",
    "RaggedColumn",
    "Which",
    "array_columns",
    "field_paths",
]

# Longer rows are gathered one by one; shorter ones value by value, in one call.
_SLICE_FROM = 64
# Rows as a span or by number.
Which: TypeAlias = "slice | npt.NDArray[np.int64]"


class ColumnReader(Protocol):
    """One column of a file. Spans and row numbers are always within the column."""

    field: Field

    def __len__(self) -> int: ...

    def read(self, start: int, stop: int) -> Column: ...

    def gather(self, rows: npt.NDArray[np.int64]) -> Column: ...

    @property
    def chunk_rows(self) -> int:
        """The number of rows decoded together; 1 if any row can be read alone."""
        return 1

    @property
    def band_bytes(self) -> int:
        """The bytes decoded together with any row; 0 if a row can be read alone."""
        return 0

    @property
    def note(self) -> str:
        """How the column is stored, for display; "" if there is nothing to say."""
        return ""

    def keep(self, bands: int | None) -> None:
        """Cache at most ``bands`` decoded bands for later reads; None means the default limit."""
        del bands

    def sizes(self, rows: Which, limit: int) -> RowSizes | None:
        """Return an upper bound for the memory each row takes; None if not known before reading.

        For a span, this may stop early, once the rows so far take more than ``limit``.
        """
        del rows, limit
        return None

    def view(self) -> npt.NDArray[Any] | None:
        """Return the column as an array without loading it; None if it is not stored as one."""
        return None

    def row_bytes(self) -> int:
        """Return roughly how many bytes a row takes in the file."""
        return max(1, self.field.row_bytes or OFFSET)


class ArrayColumn(ColumnReader):
    """An array, in memory or mapped from ``file``. Fixed-width strings become bytes."""

    def __init__(self, array: npt.NDArray[Any], file: MappedFile | None = None) -> None:
        self._array = array
        self._file = file
        self._buffers = Buffers()
        self._strings = array.dtype.kind in "SU"
        # The bytes of all rows; empty unless the rows are contiguous.
        plain = array.flags.c_contiguous and not self._strings and not array.dtype.hasobject
        self._flat = (array if plain else array[:0]).reshape(-1).view(np.uint8)
        self._items = math.prod(array.shape[1:])
        self.field = Field("bytes" if self._strings else array.dtype, array.shape[1:])

    def __len__(self) -> int:
        return len(self._array)

    def read(self, start: int, stop: int) -> Column:
        rows = self._array[start:stop]
        if self._file is not None and rows.size:
            begin, end = self._file.span(rows)
            self._file.will_read(begin, end)
        return string_column(rows) if self._strings else rows

    def gather(self, rows: npt.NDArray[np.int64]) -> Column:
        if not self._flat.size or not len(rows):
            gathered = self._array[rows]
            return string_column(gathered) if self._strings else gathered
        rows = np.ascontiguousarray(rows, np.int64)
        out = self._buffers.empty((len(rows), *self._array.shape[1:]), self._array.dtype)
        size = out.nbytes // len(rows)
        if self._file is not None:
            _core.prefetch_rows(self._flat, size, rows)
        threads = thread_count() if len(rows) > 1 else 1
        _core.gather_rows(self._flat, size, rows, out.reshape(-1).view(np.uint8), threads)
        return out

    def sizes(self, rows: Which, limit: int) -> RowSizes | None:
        del rows, limit  # all rows have the same size
        return self._array.itemsize * self._items + (STRING * self._items if self._strings else 0)

    def view(self) -> npt.NDArray[Any] | None:
        return None if self._strings else self._array

    def row_bytes(self) -> int:
        return max(1, self._array.nbytes // max(len(self), 1))


class Offsets(Protocol):
    """Where rows begin and end: an int64 array, or something indexed like one."""

    def __len__(self) -> int: ...

    def __getitem__(self, key: Any) -> Any: ...


class RaggedColumn(ColumnReader):
    """Values end to end, and the offsets of the rows. With ``strings``, values are bytes."""

    def __init__(
        self, path: str, name: str, values: ColumnReader, offsets: Offsets, strings: bool
    ) -> None:
        self._path, self._name, self._values, self.offsets = path, name, values, offsets
        if len(offsets) == 0 or int(offsets[0]) < 0 or int(offsets[-1]) > len(values):
            raise self._error()
        inner = values.field
        self._strings = strings
        self.field = Field("bytes") if strings else Field(inner.dtype, (None, *inner.shape))

    @property
    def chunk_rows(self) -> int:
        # Roughly the number of rows with values in one chunk.
        values = self._values.chunk_rows
        return 1 if values == 1 else max(1, values * len(self) // max(len(self._values), 1))

    @property
    def band_bytes(self) -> int:
        return self._values.band_bytes

    @property
    def note(self) -> str:
        return self._values.note

    def keep(self, bands: int | None) -> None:
        self._values.keep(bands)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def read(self, start: int, stop: int) -> Column:
        offsets = self.offsets[start : stop + 1]
        first, last = self._checked(offsets[:-1], offsets[1:])
        values = self._values.read(first, last) if last > first else self._values.read(0, 0)
        return self._ragged(values, offsets - first)

    def gather(self, rows: npt.NDArray[np.int64]) -> Column:
        starts, ends = self.offsets[rows], self.offsets[rows + 1]
        self._checked(starts, ends)
        lengths = ends - starts
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        if int(offsets[-1]) > _SLICE_FROM * len(rows):
            parts = [self._values.read(int(a), int(b)) for a, b in zip(starts, ends, strict=True)]
            return self._ragged(concatenate(parts), offsets)
        within = np.arange(int(offsets[-1])) - np.repeat(offsets[:-1], lengths)
        return self._ragged(self._values.gather(within + np.repeat(starts, lengths)), offsets)

    def _ragged(self, values: Column, offsets: npt.NDArray[np.int64]) -> Ragged:
        if self._strings and isinstance(values, np.ndarray):
            values = np.ascontiguousarray(values).view(BYTE)
        return Ragged(values, offsets)

    def _checked(
        self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
    ) -> tuple[int, int]:
        """Return the span of values of these rows; raise if the file has wrong offsets."""
        if not len(starts):
            return 0, 0
        first, last = int(starts.min()), int(ends.max())
        if first < 0 or last > len(self._values) or bool((ends < starts).any()):
            raise self._error()
        return first, last

    def _error(self) -> DataError:
        return DataError(
            f"{self._path}: {self._name!r} has offsets that do not fit its {len(self._values):,} "
            "values",
            file=self._path,
            field=self._name,
        )

    def sizes(self, rows: Which, limit: int) -> RowSizes | None:
        if isinstance(rows, slice):
            stop = min(rows.stop, rows.start + limit // OFFSET + 1)
            offsets = self.offsets[rows.start : stop + 1]
            values = self.value_sizes(offsets[:-1], offsets[1:], limit)
        else:
            values = self.value_sizes(self.offsets[rows], self.offsets[rows + 1], limit)
        return None if values is None else values + OFFSET

    def value_sizes(
        self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], limit: int
    ) -> RowSizes | None:
        """Return the memory that the values from each start to each end take."""
        first, _ = self._checked(starts, ends)
        values = self._values
        if not isinstance(values, RaggedColumn):
            item = values.sizes(slice(0, 0), limit)
            if not isinstance(item, int):
                return None
            # Above the limit the exact size does not matter, and could overflow.
            lengths: npt.NDArray[np.int64] = np.minimum(ends - starts, limit // max(item, 1) + 1)
            return item * lengths
        if bool((ends[:-1] == starts[1:]).all()):  # a span of rows
            most = first + limit // OFFSET + 1
            kept = max(1, int(np.searchsorted(ends, most, side="right")))
            starts, ends = starts[:kept], np.minimum(ends[:kept], most)
            offsets = values.offsets[first : int(ends[-1] if len(ends) else first) + 1]
            inner = values.value_sizes(offsets[starts - first], offsets[ends - first], limit)
        else:
            inner = values.value_sizes(values.offsets[starts], values.offsets[ends], limit)
        return None if inner is None else added(inner, OFFSET * (ends - starts))

    def row_bytes(self) -> int:
        values = len(self._values) * self._values.row_bytes()
        return max(1, values // max(len(self), 1))


def array_columns(
    name: str, array: npt.NDArray[Any], file: MappedFile | None = None
) -> dict[str, ColumnReader]:
    """Return one column per field of a structured array, or a single one for a plain array."""
    columns: dict[str, ColumnReader] = {}
    for column, path in field_paths(array.dtype).items():
        part = array
        for field in path:
            part = part[field]
        columns[column or name] = ArrayColumn(part, file)
    return columns


def field_paths(dtype: np.dtype[Any]) -> dict[str, tuple[str, ...]]:
    """Return the path to each field of a structured array; nested names are ``outer.inner``.

    A dtype without fields gives ``{"": ()}``.
    """
    if dtype.names is None:
        return {"": ()}
    paths: dict[str, tuple[str, ...]] = {}
    for field in dtype.names:
        for inner, path in field_paths(dtype[field].base).items():
            name = f"{field}.{inner}" if inner else field
            if name in paths:
                raise DataError(f"two fields of the array would be the column {name!r}")
            paths[name] = (field, *path)
    return paths
