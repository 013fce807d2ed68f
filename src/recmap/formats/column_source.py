"""Sources made of columns that are read one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError
from recmap.files.buffer_pool import Buffers
from recmap.files.cpus import thread_count
from recmap.files.mapped import MappedFile, guarded
from recmap.files.temporary import size_on_disk
from recmap.model.coerce import string_column
from recmap.model.ragged import BYTE, Column, Ragged, concatenate
from recmap.model.row_sizes import OFFSET, STRING, RowSizes, added, fitting, largest
from recmap.model.schema import Batch, Field, Schema
from recmap.model.source import Info, Skipped
from recmap.native import _core

__all__ = [
    "ArrayColumn",
    "Checksum",
    "ColumnReader",
    "ColumnsSource",
    "Offsets",
    "RaggedColumn",
    "Which",
    "array_columns",
    "field_paths",
]


# Longer rows are gathered one by one; shorter ones by the number of each value.
_SLICE_FROM = 64
# Times a limit that bands kept for the next reads may take: two threads may be at work.
_KEPT = 2
# More than any row takes, and small enough to be counted with.
_NO_LIMIT = 1 << 48
# A slice of more bytes is a view that nobody may look at, and not checked.
_MOST_CHECKED = 64 << 20
# Stored columns of so few bytes, all together, are checked before the first read.
_MOST_AHEAD = 16 << 20
# Rows, from one to another or by number.
Which: TypeAlias = "slice | npt.NDArray[np.int64]"


class Checksum(Protocol):
    """A checksum of the bytes of a column."""

    @property
    def known(self) -> bool:
        """Whether it has been compared, and was right."""
        ...

    @property
    def ahead(self) -> int:
        """Bytes to check before any are read, if they are few; 0 if reading checks them."""
        ...

    def passed(self, start: int, stop: int, rows: int, *, in_order: bool) -> None:
        """Check the bytes of rows ``start`` to ``stop`` of so many; if they are not known to
        be read in order, only if others shortly before them have been checked.
        """
        ...

    def check(self) -> None:
        """Check what has not been checked."""
        ...


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

    def gather(self, rows: npt.NDArray[np.int64]) -> Column:
        """The rows with these numbers, all within the column."""
        ...

    @property
    def band_bytes(self) -> int:
        """Bytes that are decoded together with a row; 0 if a row can be read alone."""
        ...

    def keep(self, bands: int | None) -> None:
        """Has no more than so many bands kept for the next reads; None: as many as usual."""
        ...

    def sizes(self, rows: Which, limit: int) -> RowSizes | None:
        """What rows take in memory, at most; of a slice perhaps only of its first rows, if
        these are more than ``limit``. None if only reading them would tell.
        """
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
        self._buffers = Buffers()
        self._strings = array.dtype.kind in "SU"
        # As bytes, if its rows lie one behind the other.
        plain = array.flags.c_contiguous and not self._strings and not array.dtype.hasobject
        self._flat = (array if plain else array[:0]).reshape(-1).view(np.uint8)
        self._items = math.prod(array.shape[1:])
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

    def gather(self, rows: npt.NDArray[np.int64]) -> Column:
        if not self._flat.size or not len(rows):
            taken = self._array[rows]
            return string_column(taken) if self._strings else taken
        rows = np.ascontiguousarray(rows, np.int64)
        out = self._buffers.empty((len(rows), *self._array.shape[1:]), self._array.dtype)
        size = out.nbytes // len(rows)
        if self._file is not None:
            _core.prefetch_rows(self._flat, size, rows)
        threads = thread_count() if len(rows) > 1 else 1
        _core.gather_rows(self._flat, size, rows, out.reshape(-1).view(np.uint8), threads)
        return out

    @property
    def band_bytes(self) -> int:
        return 0

    def keep(self, bands: int | None) -> None:
        """Nothing is kept."""

    def sizes(self, rows: Which, limit: int) -> RowSizes | None:
        return self._array.itemsize * self._items + (STRING * self._items if self._strings else 0)

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
        self._path, self._name, self._values, self.offsets = path, name, values, offsets
        if len(offsets) == 0 or int(offsets[0]) < 0 or int(offsets[-1]) > len(values):
            raise self._error()
        inner = values.field
        self._strings = strings
        self.field = Field("bytes") if strings else Field(inner.dtype, (None, *inner.shape))

    @property
    def chunk_rows(self) -> int:
        # About those whose values lie in one chunk.
        values = self._values.chunk_rows
        return 1 if values == 1 else max(1, values * len(self) // max(len(self._values), 1))

    @property
    def note(self) -> str:
        return self._values.note

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

    @property
    def band_bytes(self) -> int:
        return self._values.band_bytes

    def keep(self, bands: int | None) -> None:
        self._values.keep(bands)

    def sizes(self, rows: Which, limit: int) -> RowSizes | None:
        if isinstance(rows, slice):
            stop = min(rows.stop, rows.start + limit // OFFSET + 1)
            offsets = self.offsets[rows.start : stop + 1]
            inside = self.spans(offsets[:-1], offsets[1:], limit)
        else:
            inside = self.spans(self.offsets[rows], self.offsets[rows + 1], limit)
        return None if inside is None else inside + OFFSET

    def spans(
        self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], limit: int
    ) -> RowSizes | None:
        """What the values from each start to each end take."""
        first, _ = self._checked(starts, ends)
        values = self._values
        if not isinstance(values, RaggedColumn):
            item = values.sizes(slice(0, 0), limit)
            if not isinstance(item, int):
                return None
            # Beyond the limit it does not matter, and might be too large for a number.
            lengths: npt.NDArray[np.int64] = np.minimum(ends - starts, limit // max(item, 1) + 1)
            return item * lengths
        if bool((ends[:-1] == starts[1:]).all()):  # rows that follow each other
            most = first + limit // OFFSET + 1
            kept = max(1, int(np.searchsorted(ends, most, side="right")))
            starts, ends = starts[:kept], np.minimum(ends[:kept], most)
            offsets = values.offsets[first : int(ends[-1] if len(ends) else first) + 1]
            inside = values.spans(offsets[starts - first], offsets[ends - first], limit)
        else:
            inside = values.spans(values.offsets[starts], values.offsets[ends], limit)
        return None if inside is None else added(inside, OFFSET * (ends - starts))

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
        reopen: Callable[[], ColumnsSource] | None = None,
        mapped: MappedFile | None = None,
        reference: Callable[[], ColumnsSource] | None = None,
        sums: Mapping[str, Sequence[Checksum]] | None = None,
    ) -> None:
        """``reopen`` opens the same once more, in a process that was sent this;
        ``reference`` so that the library of the format reads it. ``mapped`` is the file that
        columns may be views of, and ``sums`` are the checksums of columns.
        """
        self._format = format
        self._files = list(files)
        self._columns = dict(columns)
        self._origin = origin
        self._reopen, self._reference = reopen, reference
        self._mapped = mapped
        self._sums = {name: tuple(found) for name, found in (sums or {}).items()}
        self._unchecked = [sum for name in columns for sum in self._sums.get(name, ())]
        ahead = sum(checksum.ahead for checksum in self._unchecked)
        self._ahead_known = not 0 < ahead <= _MOST_AHEAD
        self._schema = Schema({name: column.field for name, column in columns.items()})
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name!r} has {rows:,}" for name, rows in lengths.items())
            raise DataError(f"columns must have equally many rows, but {listed}")
        self._rows = next(iter(lengths.values()), 0)
        self._band_bytes = sum(column.band_bytes for column in columns.values())

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self._reopen is None:
            return super().__reduce_ex__(protocol)
        return _opened_again, (self._reopen, self._schema, self._rows)

    def reference(self) -> ColumnsSource:
        """The same columns, read through the library of the format if there is one."""
        return self if self._reference is None else self._reference()

    @property
    def band_bytes(self) -> int:
        return self._band_bytes

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

    def _check(self) -> None:
        """Raise if the file is shorter than it was."""
        if self._mapped is not None:
            self._mapped.check_size()

    def _check_ahead(self) -> None:
        """Check a small file whole before its first rows are read, in whatever order."""
        if not self._ahead_known:
            for checksum in self._unchecked:
                if checksum.ahead:
                    checksum.check()
            self._unchecked = [checksum for checksum in self._unchecked if not checksum.known]
            self._ahead_known = True

    def trust(self) -> None:
        """Do not check a small file ahead: that was done when it was open before."""
        self._ahead_known = True

    def _pass(self, start: int, stop: int, *, in_order: bool) -> None:
        """Check the bytes of rows that are read, if they are part of a pass: of each column
        that share of its bytes that the rows are of all, wherever their values lie.
        """
        if not in_order and (stop - start) * self.row_bytes() > _MOST_CHECKED:
            return  # a view of much that may never be looked at
        for checksum in self._unchecked:
            checksum.passed(start, stop, self._rows, in_order=in_order)
        self._unchecked = [checksum for checksum in self._unchecked if not checksum.known]

    @guarded
    def check_sums(self) -> None:
        """Check the checksums of all columns, as far as that has not been done."""
        self._check()
        for checksum in self._unchecked:
            checksum.check()
        self._unchecked = []

    @guarded
    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        self._check()
        stop = min(stop, self._rows)
        start = min(start, stop)
        for column in self._columns.values() if self._band_bytes else ():
            column.keep(None if limit is None else max(1, _KEPT * limit // self._band_bytes))
        if limit is not None and start < stop:
            sizes = self._sizes(slice(start, stop), limit)
            stop = start + (1 if sizes is None else fitting(sizes, stop - start, limit))
        if self._unchecked:
            self._check_ahead()
            self._pass(start, stop, in_order=limit is not None)
        return {name: column.read(start, stop) for name, column in self._columns.items()}

    @guarded
    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        self._check()
        self._check_ahead()
        return {name: column.gather(rows) for name, column in self._columns.items()}

    @guarded
    def row_sizes(self, rows: npt.NDArray[np.int64]) -> RowSizes | None:
        self._check()
        return self._sizes(rows, _NO_LIMIT)

    @guarded
    def largest_row(self, above: int) -> tuple[int, int] | None:
        def sizes(start: int, stop: int) -> RowSizes | None:
            return self._sizes(slice(start, stop), _NO_LIMIT)

        self._check()
        if self._sizes(np.empty(0, np.int64), _NO_LIMIT) is None:
            return None
        return largest(sizes, self._rows, above)

    def _sizes(self, rows: Which, limit: int) -> RowSizes | None:
        total: RowSizes = 0
        for column in self._columns.values():
            sizes = column.sizes(rows, limit)
            if sizes is None:
                return None
            total = added(total, sizes)
        return total

    def column(self, name: str) -> npt.NDArray[Any] | None:
        self._check()
        self._check_ahead()
        return self._columns[name].view()

    def select(self, names: Sequence[str]) -> ColumnsSource:
        chosen = {name: self._columns[name] for name in self._schema.select(names)}
        reopen = self._reopen and partial(_chosen_again, self._reopen, list(chosen))
        other = self._reference and partial(_chosen_again, self._reference, list(chosen))
        return ColumnsSource(
            self._format, self._files, chosen, self._origin, reopen, self._mapped, other, self._sums
        )

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


def _chosen_again(reopen: Callable[[], ColumnsSource], names: Sequence[str]) -> ColumnsSource:
    return reopen().select(names)


def _opened_again(reopen: Callable[[], ColumnsSource], schema: Schema, rows: int) -> ColumnsSource:
    source = reopen()
    if (source.schema, len(source)) != (schema, rows):
        file = "".join(source.files[:1])
        raise DataError(
            f"{file}: it has {len(source):,} rows of {source.schema}, but had {rows:,} of {schema} "
            "when it was opened; open it again",
            file=file,
        )
    return source


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
