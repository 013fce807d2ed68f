"""Sources made of columns that are read one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from recmap.columns import string_column
from recmap.errors import DataError
from recmap.files.disk import size_on_disk
from recmap.files.mapped import MappedFile
from recmap.ragged import BYTE, Column, Ragged
from recmap.sources import Info, Skipped
from recmap.types import Batch, Field, Schema

__all__ = [
    "ArrayColumn",
    "ColumnReader",
    "ColumnsSource",
    "Offsets",
    "RaggedColumn",
    "array_columns",
    "field_paths",
]


class ColumnReader(Protocol):
    """One column, rows first."""

    @property
    def field(self) -> Field: ...

    @property
    def chunk_rows(self) -> int:
        """Rows that are read together; 1 if any row can be read alone."""
        ...

    @property
    def note(self) -> str:
        """How the column lies in its file, for people; "" if there is nothing to say."""
        ...

    def __len__(self) -> int: ...

    def read(self, start: int, stop: int) -> Column:
        """Rows ``start`` to ``stop``, both within the column."""
        ...

    def take(self, rows: npt.NDArray[np.int64]) -> Column:
        """The rows with these numbers, all within the column."""
        ...

    def view(self) -> npt.NDArray[Any] | None:
        """The column as an array that is not loaded, if it can be had."""
        ...

    def row_bytes(self) -> int:
        """About how many bytes a row takes in the file."""
        ...


class ArrayColumn:
    """An array, in memory or mapped from ``file``. Fixed-width strings become byte
    strings.
    """

    chunk_rows = 1
    note = ""

    def __init__(self, array: npt.NDArray[Any], file: MappedFile | None = None) -> None:
        self._array = array
        self._file = file
        self._strings = array.dtype.kind in "SU"
        self.field = (
            Field("bytes", array.shape[1:])
            if self._strings
            else Field(array.dtype, array.shape[1:])
        )

    def __len__(self) -> int:
        return len(self._array)

    def read(self, start: int, stop: int) -> Column:
        rows = self._array[start:stop]
        if self._file is not None and rows.size:
            begin, end = self._file.span(rows)
            self._file.will_read(begin, end)
        return string_column(rows) if self._strings else rows

    def take(self, rows: npt.NDArray[np.int64]) -> Column:
        taken = self._array[rows]
        return string_column(taken) if self._strings else taken

    def view(self) -> npt.NDArray[Any] | None:
        return None if self._strings else self._array

    def row_bytes(self) -> int:
        return max(1, self._array.nbytes // max(len(self), 1))


class Offsets(Protocol):
    """Where rows begin and end: an int64 array, or something that is indexed like one."""

    def __len__(self) -> int: ...

    def __getitem__(self, key: Any) -> Any: ...


class RaggedColumn:
    """Values end to end and the offsets of the rows; of ``strings``, the bytes."""

    def __init__(
        self, path: str, name: str, values: ColumnReader, offsets: Offsets, strings: bool
    ) -> None:
        self._path, self._name, self._values, self._offsets = path, name, values, offsets
        if len(offsets) == 0 or int(offsets[0]) < 0 or int(offsets[-1]) > len(values):
            raise self._error()
        inner = values.field
        self._strings = strings
        self.field = Field("bytes") if strings else Field(inner.dtype, (None, *inner.shape))

    @property
    def chunk_rows(self) -> int:
        return 1

    @property
    def note(self) -> str:
        return self._values.note

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def read(self, start: int, stop: int) -> Column:
        offsets = self._offsets[start : stop + 1]
        first, last = self._checked(offsets[:-1], offsets[1:])
        values = self._values.read(first, last) if last > first else self._values.read(0, 0)
        return self._ragged(values, offsets - first)

    def take(self, rows: npt.NDArray[np.int64]) -> Column:
        starts, ends = self._offsets[rows], self._offsets[rows + 1]
        self._checked(starts, ends)
        lengths = ends - starts
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        within = np.arange(int(offsets[-1])) - np.repeat(offsets[:-1], lengths)
        return self._ragged(self._values.take(within + np.repeat(starts, lengths)), offsets)

    def _ragged(self, values: Column, offsets: npt.NDArray[np.int64]) -> Ragged:
        if self._strings and isinstance(values, np.ndarray):
            values = np.ascontiguousarray(values).view(BYTE)
        return Ragged(values, offsets)

    def _checked(
        self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
    ) -> tuple[int, int]:
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

    def view(self) -> npt.NDArray[Any] | None:
        return None

    def row_bytes(self) -> int:
        values = len(self._values) * self._values.row_bytes()
        return max(1, values // max(len(self), 1))


class ColumnsSource:
    """Columns of equal length, read one by one."""

    def __init__(
        self,
        format: str,
        files: Sequence[str],
        columns: Mapping[str, ColumnReader],
        origin: str = "from the file",
    ) -> None:
        self._format = format
        self._files = list(files)
        self._columns = dict(columns)
        self._origin = origin
        self._schema = Schema({name: column.field for name, column in columns.items()})
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name!r} has {rows:,}" for name, rows in lengths.items())
            raise DataError(f"columns must have equally many rows, but {listed}")
        self._rows = next(iter(lengths.values()), 0)

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def files(self) -> list[str]:
        return self._files

    @property
    def origin(self) -> str:
        return self._origin

    @property
    def skipped(self) -> Sequence[Skipped]:
        return ()

    @property
    def chunk_rows(self) -> int:
        # Of the column that weighs most: a chunk of labels may span a million images.
        heaviest = max(self._columns.values(), key=lambda column: column.row_bytes(), default=None)
        return 1 if heaviest is None else heaviest.chunk_rows

    def __len__(self) -> int:
        return self._rows

    def known_rows(self) -> int | None:
        return self._rows

    def read(self, start: int, stop: int) -> Batch:
        stop = min(stop, self._rows)
        start = min(start, stop)
        return {name: column.read(start, stop) for name, column in self._columns.items()}

    def take(self, rows: npt.NDArray[np.int64]) -> Batch:
        return {name: column.take(rows) for name, column in self._columns.items()}

    def column(self, name: str) -> npt.NDArray[Any] | None:
        return self._columns[name].view()

    def row_bytes(self) -> int:
        return max(1, sum(column.row_bytes() for column in self._columns.values()))

    def info(self) -> Info:
        return Info(
            format=self._format,
            files=self._files,
            size=sum(size_on_disk(file) for file in self._files),
            rows=self._rows,
            schema=self._schema,
            origin=self._origin,
            mapped=[n for n, c in self._columns.items() if c.view() is not None and self._files],
            notes={n: c.note for n, c in self._columns.items() if c.note},
        )


def array_columns(
    name: str, array: npt.NDArray[Any], file: MappedFile | None = None
) -> dict[str, ColumnReader]:
    """The columns of one array: its fields if it is structured, else the array itself."""
    columns: dict[str, ColumnReader] = {}
    for column, path in field_paths(array.dtype).items():
        part = array
        for field in path:
            part = part[field]
        columns[column or name] = ArrayColumn(part, file)
    return columns


def field_paths(dtype: np.dtype[Any]) -> dict[str, tuple[str, ...]]:
    """How the fields of a structured array are reached, nested ones as ``outer.inner``;
    of an array without fields, ``{"": ()}``.
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
