"""Readers of single columns, which formats combine into sources."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError
from recmap.machine.cpus import thread_count
from recmap.machine.mapped import MappedFile, scattered_reads
from recmap.machine.memory import empty, locks_pages
from recmap.model.batch import RowNumbers
from recmap.model.coerce import string_column
from recmap.model.fetching import Fetching, fetching_all
from recmap.model.field import Field
from recmap.model.ragged import Column
from recmap.model.row_places import RowPlaces
from recmap.model.row_sizes import OFFSET, STRING, RowSizes, added_up
from recmap.native import _core
from recmap.store.mapped_files import fetch_ahead

# The name of a column that has none in its file.
DEFAULT_NAME = "data"
# A row of at most this many bytes is read as soon as the system could load it ahead.
_SMALL_ROW = 4096
# Rows as a span or by number.
Which: TypeAlias = "slice | npt.NDArray[np.int64]"


class ColumnReader(Protocol):
    """One column of a file. Spans and row numbers are always within the column.

    Strings may be read as bytes even if ``field`` is text: the source checks them.
    """

    field: Field
    #: The number of rows decoded together; 1 if any row can be read alone.
    chunk_rows: int = 1
    #: The number of rows stored together, even if a row can be read alone.
    stored_rows: int = 1
    #: The bytes of a row group: all chunks that hold the same rows, which are decoded together.
    #: 0 if a row can be read alone.
    chunk_bytes: int = 0
    #: Whether ``joined`` returns a column.
    joins: bool = False

    def __len__(self) -> int: ...

    def read(self, start: int, stop: int) -> Column: ...

    def gather(self, rows: npt.NDArray[np.int64]) -> Column: ...

    @property
    def note(self) -> str:
        """How the column is stored, for display; "" if there is nothing to say."""
        return ""

    def keep(self, groups: int | None) -> None:
        """Cache at most ``groups`` decoded row groups; None means the default limit."""
        del groups

    def sizes(self, rows: Which, limit: int) -> RowSizes | None:
        """Return an upper bound for the memory each row takes; None if not known before reading.

        For a span, this may stop early, once the rows so far take more than ``limit``.
        """
        del rows, limit
        return None

    def view(self) -> Column | None:
        """Return the column without loading it; None if it is not stored as arrays."""
        return None

    def places(self, rows: npt.NDArray[np.int64]) -> RowPlaces | None:
        """Return where rows lie in a file or in memory; None if they are not stored as arrays."""
        del rows
        return None

    def joined(self, columns: Sequence[Self]) -> ColumnReader | None:
        """Return one column of those of several mapped files, to gather rows of all at once.

        Return None if they are not gathered faster than from one file after another.
        """
        del columns
        return None

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        """Begin to fetch rows that are going to be read; None if there is nothing to fetch."""
        del rows
        return None

    @property
    def remote(self) -> bool:
        """Whether rows are fetched from a store."""
        return False

    def row_bytes(self) -> int:
        """Return roughly how many bytes a row takes in the file."""
        return max(1, self.field.row_bytes or OFFSET)


class _StoredArray(NamedTuple):
    """An array, the bytes of all its rows if they are contiguous, and the file it is in."""

    array: npt.NDArray[Any]
    flat: npt.NDArray[np.uint8]
    file: MappedFile | None

    @classmethod
    def of(cls, array: npt.NDArray[Any], file: MappedFile | None) -> _StoredArray:
        strings = array.dtype.kind in "SU"
        plain = array.flags.c_contiguous and not strings and not array.dtype.hasobject
        return cls(array, (array if plain else array[:0]).reshape(-1).view(np.uint8), file)

    def places(self, rows: npt.NDArray[np.int64]) -> tuple[Any, Any]:
        """Return where the bytes of rows begin and end in the file."""
        assert self.file is not None
        begin, end = self.file.span(self.array[:1])
        begins = begin + rows * self.array.strides[0]
        return begins, begins + (end - begin)


class ArrayColumn(ColumnReader):
    """An array, in memory or mapped from ``file``. Fixed-width strings become bytes."""

    def __init__(self, array: npt.NDArray[Any], file: MappedFile | None = None) -> None:
        # Replaced as a whole, because other threads read at the same time.
        self._stored = _StoredArray.of(array, file)
        self._strings = array.dtype.kind in "SU"
        self._items = math.prod(array.shape[1:])
        self.field = Field("bytes" if self._strings else array.dtype, array.shape[1:])

    def __reduce__(self) -> tuple[Any, ...]:
        array, _, file = self._stored
        return _unpickled, (array, array.dtype, file, self.field)

    def __len__(self) -> int:
        return len(self._stored.array)

    def read(self, start: int, stop: int) -> Column:
        stored = self._settled()
        array, flat, file = stored
        rows = array[start:stop]
        if file is None or not rows.size:
            return string_column(rows) if self._strings else rows
        begin, end = file.span(rows)
        if not file.whole:
            with file.hold(begin, end):
                return string_column(rows) if self._strings else rows.copy()
        file.will_read(begin, end)
        if self._strings:
            return string_column(rows)
        if locks_pages() and flat.size:  # a GPU cannot copy from a mapped file
            return self._gather(stored, np.arange(start, start + len(rows)))
        return rows if file.lends else rows.copy()

    def _settled(self) -> _StoredArray:
        """Return what to read: a mapped file from now on, if the cache has all of the object."""
        stored = self._stored
        if stored.file is None or not stored.array.size:
            return stored
        file = stored.file.current()
        if file is not stored.file:
            begin, _ = stored.file.span(stored.array)
            old = stored.array
            array = np.ndarray(old.shape, old.dtype, file.bytes, begin, old.strides)
            self._stored = stored = _StoredArray.of(array, file)
        return stored

    def gather(self, rows: npt.NDArray[np.int64]) -> Column:
        stored = self._settled()
        file = stored.file
        if file is None or file.whole or not len(rows) or not stored.array.size:
            return self._gather(stored, rows)
        with file.hold(*stored.places(rows)):
            return self._gather(stored, rows)

    def places(self, rows: npt.NDArray[np.int64]) -> RowPlaces | None:
        array, flat, file = self._settled()
        if not flat.size or (file is not None and not file.whole):
            return None
        begins = rows * (flat.size // len(array))
        return RowPlaces(flat, begins, array.dtype, array.shape[1:], file)

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        stored = self._settled()
        file = stored.file
        if file is None or file.whole or not len(rows) or not stored.array.size:
            return None
        if isinstance(rows, range):
            return fetch_ahead(file, *file.span(stored.array[rows.start : rows.stop]))
        return fetch_ahead(file, *stored.places(rows))

    @property
    def remote(self) -> bool:
        file = self._stored.file
        return file is not None and not file.whole

    def _gather(self, stored: _StoredArray, rows: npt.NDArray[np.int64]) -> Column:
        array, flat, file = stored
        if not flat.size or not len(rows):
            gathered = array[rows]
            return string_column(gathered) if self._strings else gathered
        rows = np.ascontiguousarray(rows, np.int64)
        out = empty((len(rows), *array.shape[1:]), array.dtype)
        size = out.nbytes // len(rows)
        files, absent = [], False
        if file is not None and file.whole and (len(rows) > 1 or size > _SMALL_ROW):
            files, absent = [file], _core.prefetch_rows(flat, size, rows)
        threads = thread_count() if len(rows) > 1 else 1
        with scattered_reads(files, size, absent=absent):
            _core.gather_rows(flat, size, rows, out.reshape(-1).view(np.uint8), threads)
        return out

    def sizes(self, rows: Which, limit: int) -> RowSizes | None:
        del rows, limit  # all rows have the same size
        return self._stored.array.itemsize * self._items + (
            STRING * self._items if self._strings else 0
        )

    def view(self) -> npt.NDArray[Any] | None:
        array, _, file = self._stored
        readable = file is None or (file.whole and file.lends)
        return array if readable and not self._strings else None

    def row_bytes(self) -> int:
        return max(1, self._stored.array.nbytes // max(len(self), 1))


def _unpickled(
    array: npt.NDArray[Any], dtype: np.dtype[Any], file: MappedFile | None, field: Field
) -> ArrayColumn:
    # NumPy turns big-endian arrays into native ones when it unpickles them.
    column = ArrayColumn(array.astype(dtype, copy=False), file)
    column.field = field
    return column


def array_refusal(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    """Say why the rows of an array cannot be read; "" if they can."""
    if dtype.hasobject:
        return (
            "holds Python objects, which only pickle could read, and a pickle can run any "
            "code; save it again as numbers, or load it with np.load(allow_pickle=True) if "
            "you trust it"
        )
    if not shape:
        return "holds a single value, which has no rows; reshape it to (1,)"
    if dtype.itemsize == 0 and 0 not in shape:
        return f"holds values of {dtype}, which take no bytes"
    return ""


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
    """Return the path to each field of a structured array, by the name of its column.

    The name of a nested field joins its path with dots, because a slash stands for a group of the
    file. A dtype without fields gives ``{"": ()}``.
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


class ComputedColumn(ColumnReader):
    """A column whose rows are computed from those of other columns, its ``parts``.

    A row takes up to ``row_size`` bytes of memory in addition to those of the parts.
    """

    def __init__(
        self,
        parts: Sequence[ColumnReader],
        field: Field,
        compute: Callable[..., Column],
        row_size: int,
        note: str = "",
    ) -> None:
        self._parts, self._compute, self._row_size = list(parts), compute, row_size
        self._note = "; ".join(filter(None, (note, parts[0].note)))
        self.field = field
        self.chunk_rows, self.stored_rows = parts[0].chunk_rows, parts[0].stored_rows
        self.chunk_bytes = sum(part.chunk_bytes for part in parts)

    @property
    def note(self) -> str:
        return self._note

    def __len__(self) -> int:
        return len(self._parts[0])

    def read(self, start: int, stop: int) -> Column:
        return self._compute(*[part.read(start, stop) for part in self._parts])

    def gather(self, rows: npt.NDArray[np.int64]) -> Column:
        return self._compute(*[part.gather(rows) for part in self._parts])

    def keep(self, groups: int | None) -> None:
        for part in self._parts:
            part.keep(groups)

    def sizes(self, rows: Which, limit: int) -> RowSizes | None:
        return added_up([self._row_size, *[part.sizes(rows, limit) for part in self._parts]])

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        return fetching_all(part.fetch_ahead(rows) for part in self._parts)

    @property
    def remote(self) -> bool:
        return any(part.remote for part in self._parts)

    def row_bytes(self) -> int:
        return sum(part.row_bytes() for part in self._parts)


class DecodedArray(Protocol):
    """An array that is decoded into memory by rows. Objects in it are text or byte strings."""

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def chunk_rows(self) -> int: ...

    @property
    def stored_rows(self) -> int:
        """The number of rows stored together."""
        ...

    @property
    def note(self) -> str: ...

    @property
    def chunk_bytes(self) -> int:
        """The bytes of a row group; 0 if a row can be read alone."""
        ...

    def keep(self, groups: int | None) -> None:
        """Cache at most ``groups`` decoded row groups; None means the default limit."""
        ...

    def read(self, start: int, stop: int) -> npt.NDArray[Any]: ...

    def gather(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]: ...


def decoded_columns(name: str, array: DecodedArray) -> dict[str, ColumnReader]:
    """Return one column per field of a structured array, or a single one for a plain array."""
    read, paths = _keeping_last(array), field_paths(array.dtype)
    return {column or name: _DecodedColumn(array, read, path) for column, path in paths.items()}


def _keeping_last(array: DecodedArray) -> Callable[[int, int], npt.NDArray[Any]]:
    """Return what reads rows of an array, and decodes those that a thread read last only once.

    The fields of a structured array are read one by one, and strings are measured before they
    are read. Other rows are not kept.
    """
    if array.dtype.names is None and not array.dtype.hasobject:
        return array.read
    last = threading.local()

    def read(start: int, stop: int) -> npt.NDArray[Any]:
        first, end = getattr(last, "span", (0, -1))
        if not first <= start <= stop <= end:
            last.span, last.rows = (0, -1), None  # free them before reading
            last.rows = array.read(start, stop)
            last.span = first, end = start, stop
        rows: npt.NDArray[Any] = last.rows[start - first : stop - first]
        return rows

    return read


class _DecodedColumn(ColumnReader):
    def __init__(
        self,
        array: DecodedArray,
        read: Callable[[int, int], npt.NDArray[Any]],
        path: tuple[str, ...],
    ) -> None:
        self._array, self._read, self._path = array, read, path
        sample = self._field(np.empty((0, *self._array.shape[1:]), self._array.dtype))
        self._strings = sample.dtype.kind in "OSU"
        self.field = Field("bytes" if self._strings else sample.dtype, sample.shape[1:])
        self._objects = sample.dtype.kind == "O"
        self._items = math.prod(sample.shape[1:])
        self._row_bytes = sample.dtype.itemsize * self._items
        self.chunk_rows, self.stored_rows = array.chunk_rows, array.stored_rows
        whole = array.dtype.itemsize * math.prod(array.shape[1:])
        self.chunk_bytes = array.chunk_bytes * self._row_bytes // max(whole, 1)

    @property
    def note(self) -> str:
        return self._array.note

    def __len__(self) -> int:
        return self._array.shape[0]

    def read(self, start: int, stop: int) -> Column:
        return self._column(self._read(start, stop))

    def gather(self, rows: npt.NDArray[np.int64]) -> Column:
        return self._column(self._array.gather(rows))

    def keep(self, groups: int | None) -> None:
        self._array.keep(groups)

    def sizes(self, rows: Which, limit: int) -> RowSizes | None:
        if self._objects:
            return self._string_sizes(rows) if isinstance(rows, slice) else None
        return self._row_bytes + (STRING * self._items if self._strings else 0)

    def _string_sizes(self, rows: slice) -> RowSizes:
        """Return the sizes of rows in one chunk. It is decoded whole, and kept to be read next."""
        stop = min(rows.stop, rows.start - rows.start % self.chunk_rows + self.chunk_rows)
        cells = self._read(rows.start, max(rows.start, stop))
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
