"""Writes one column of an HDF5 file.

A column of lists of lists is a group of arrays, because HDF5 rows hold only one list: the group
``x`` holds ``x/values``, ``x/offsets`` and, depending on the depth, ``x/steps`` and so on (see
``ragged_layout``). Its attribute ``recmap`` holds the field; a group without that attribute is an
ordinary group.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError, Message, Option, OptionError
from recmap.formats.hdf5.file import h5py
from recmap.formats.hdf5.types import FIELD_ATTRIBUTE, ORDER_ATTRIBUTE
from recmap.formats.ragged_layout import VALUES, ColumnPart, Splitter, levels_of
from recmap.model.description import encode_field
from recmap.model.field import Field
from recmap.model.ragged import BYTE, Column, Ragged, concatenate, owned
from recmap.model.row_sizes import column_sizes

# Bytes per chunk. The last chunk of a column is stored whole, even if it has few rows.
_CHUNK = 1 << 18
# The smallest chunk size, for files with many columns.
_LEAST_CHUNK = 1 << 10
# A row larger than this is split into several chunks.
_WHOLE_ROW = 1 << 20
# HDF5 stores the size of a chunk in 32 bits.
_MOST = (1 << 32) - 1
# A chunk of lists holds 16 bytes per list; the lists themselves are stored elsewhere in the
# file. A span of lists ends after _LIST_ROWS rows or _LIST_BYTES bytes, so that long lists do
# not pile up in memory.
_LIST_SIZE, _LIST_CHUNK, _LIST_ROWS, _LIST_BYTES = 16, 1 << 16, 256, 1 << 20


class ColumnWriter:
    """Collects rows and writes them in spans of whole chunks.

    The spans do not depend on how the rows were batched, so neither do the bytes of the file.
    """

    def __init__(
        self,
        file: Any,
        name: str,
        field: Field,
        position: int | None,
        chunk_rows: int | None,
        filters: dict[str, Any],
        room: int,
        expected: int | None,
    ) -> None:
        """``room`` is how many bytes of the column may wait to be written. ``expected`` is the
        number of rows, if known.
        """
        self._name, self._field = name, field
        self._item, self_described = _stored(name, field)
        self._lists = field.is_bytes or field.ragged > 0
        inner = field.inner if field.is_bytes or not field.ragged else ()
        chunk = _chunk(name, field, self._item, chunk_rows, room, expected)
        dataset = file.create_dataset(
            name,
            (0, *inner),
            maxshape=(None, *(axis or None for axis in inner)),
            chunks=chunk,
            dtype=_stored_dtype(field, self._item),
            track_times=False,
            # Filters would compress the references to lists, not the lists.
            **({} if self._lists else filters),
        )
        if not self_described:
            dataset.attrs[FIELD_ATTRIBUTE] = encode_field(field)
        if position is not None:
            dataset.attrs[ORDER_ATTRIBUTE] = np.int64(position)
        self._file = file
        self._inner = inner
        # Keep the dataset open if there are few columns: each takes about 40 kB.
        self._open = dataset.id if room >= _CHUNK else None
        self._span_rows = min(_LIST_ROWS, chunk[0]) if self._lists else chunk[0]
        self._pending: list[Column] = []
        self._held = self._written = 0
        # The rows at which spans of lists end, and the rows and bytes of the next span so far.
        self._ends: list[int] = []
        self._begun_rows = self._begun_bytes = 0

    @property
    def writers(self) -> list[ColumnWriter]:
        """This writer; a nested column has several."""
        return [self]

    @property
    def next(self) -> int | None:
        """The table row that completes the next span, or None if it has not been added yet."""
        return self._end

    @property
    def _end(self) -> int | None:
        if self._lists:
            return self._ends[0] if self._ends else None
        return self._written + self._span_rows if self._held >= self._span_rows else None

    def add(self, column: Column) -> None:
        """Add rows. They may be views until ``keep`` is called."""
        if self._lists:
            self._find_ends(column)
        self._pending.append(column)
        self._held += len(column)

    def _find_ends(self, column: Column) -> None:
        sizes = np.cumsum(np.broadcast_to(column_sizes(column), len(column)))
        row, done, passed = self._written + self._held, 0, 0
        while done < len(column):
            large = int(np.searchsorted(sizes, passed + _LIST_BYTES - self._begun_bytes)) + 1
            rows = min(large - done, self._span_rows - self._begun_rows)
            if done + rows > len(column):
                self._begun_rows += len(column) - done
                self._begun_bytes += int(sizes[-1]) - passed
                return
            done += rows
            self._ends.append(row + done)
            self._begun_rows, self._begun_bytes, passed = 0, 0, int(sizes[done - 1])

    def keep(self) -> None:
        """Copy the rows of the last ``add`` that have not been written."""
        pending = self._pending
        if not pending:
            return
        pending[-1] = owned(pending[-1])
        # Join small arrays, because their overhead exceeds their values. Each array ends up
        # longer than the one after it, so that few rows are copied twice.
        while len(pending) > 1 and len(pending[-2]) <= len(pending[-1]):
            last = pending.pop()
            pending[-1] = concatenate([pending[-1], last])

    def write(self) -> None:
        """Write the next span, or all remaining rows if none is complete."""
        end = self._end
        rows = self._held if end is None else end - self._written
        if self._ends:
            del self._ends[0]
        if rows == 0:
            return
        column = self._take(rows)
        start, stop = self._written, self._written + rows
        # h5py's low-level API takes a third of the time for small spans, and does not mistake
        # lists of equal length for a table.
        dataset = self._open or h5py.h5d.open(self._file.id, self._name.encode())
        dataset.set_extent((stop, *self._inner))
        if isinstance(column, Ragged):
            values = self._cells(column)
        else:
            column = np.ascontiguousarray(column.astype(self._field.dtype, copy=False))
            values = column.view(self._item)
        if values.size:
            space = dataset.get_space()
            space.select_hyperslab((start, *(0 for _ in self._inner)), values.shape)
            dataset.write(h5py.h5s.create_simple(values.shape), space, values)
        self._written, self._held = stop, self._held - rows

    def _take(self, rows: int) -> Column:
        """Remove the first ``rows`` pending rows and return them."""
        taken: list[Column] = []
        while rows:
            first = self._pending[0]
            taken.append(first[:rows])
            rows -= len(taken[-1])
            if len(taken[-1]) == len(first):
                self._pending.pop(0)
            else:
                self._pending[0] = first[len(taken[-1]) :]
        return concatenate(taken)

    def _cells(self, column: Ragged) -> npt.NDArray[Any]:
        """Convert ragged rows to the array of objects that h5py expects."""
        shape = [len(column)]
        for axis in self._field.inner if self._field.is_bytes else ():
            inside = column.flat
            if (column.lengths != axis).any() or not isinstance(inside, Ragged):
                raise ColumnError(f"column {self._name!r}: not all rows are {self._field}")
            shape.append(axis)
            column = inside
        values = column.flat
        assert isinstance(values, np.ndarray)
        if not self._field.is_bytes:
            values = np.ascontiguousarray(values.astype(self._field.dtype, copy=False))
        ends = column.offsets - column.offsets[0]
        values = values.view(self._item)
        if self._field.is_text:
            self._refuse_zeros(values, ends)
        cells = np.empty(len(column), object)
        for i in range(len(column)):
            cell = values[ends[i] : ends[i + 1]].ravel()
            cells[i] = cell.tobytes() if self._field.is_text else cell
        return cells.reshape(shape)

    def _refuse_zeros(self, values: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> None:
        """Refuse text with a zero byte, where HDF5 ends a string."""
        zeros = np.flatnonzero(values == 0)
        if len(zeros):
            text = int(np.searchsorted(ends, zeros[0], side="right")) - 1
            row = self._written + text // max(self._field.count, 1)
            raise ColumnError(
                Message(
                    f"column {self._name!r}: row {row:,} has a zero character, where HDF5 ends a "
                    "text",
                    hint=("write it as bytes, ", Option("cast", {self._name: "bytes"}, verb=True)),
                )
            )


def _stored_dtype(field: Field, item: np.dtype[Any]) -> Any:
    """Return the dtype of a dataset whose items are stored as ``item``."""
    if field.is_text:
        return h5py.string_dtype("utf-8")
    return h5py.vlen_dtype(item) if field.is_bytes or field.ragged else item


def _stored(name: str, field: Field) -> tuple[np.dtype[Any], bool]:
    """Return the stored dtype of the items, and whether the file alone determines the field."""
    if field.is_bytes and not field.ragged:
        return np.dtype(np.uint8), False
    assert not field.is_bytes  # a NestedWriter writes lists of lists
    assert field.ragged < 2
    dtype = field.dtype
    if dtype.kind in "biufc" and dtype.isbuiltin != 2:
        return dtype, not (field.ragged and field.inner)
    if dtype.kind in "mM":
        return np.dtype(dtype.byteorder.replace("|", "=") + "i8"), False
    if dtype.type is np.void and dtype.itemsize and not field.ragged:
        return dtype, False  # opaque bytes, which other programs write for much else
    if dtype.type is np.void or dtype.itemsize not in (1, 2, 4, 8):
        raise ColumnError(f"column {name!r} is {field}, for which HDF5 has no type; cast it first")
    return np.dtype(f"u{dtype.itemsize}"), False


def _chunk(
    name: str,
    field: Field,
    item: np.dtype[Any],
    rows: int | None,
    room: int,
    expected: int | None,
) -> tuple[int, ...]:
    """Choose the chunk shape: always the same for the same schema and number of rows.

    A chunk is stored whole, so no chunk is larger than the expected rows.
    """
    lists = field.is_bytes or field.ragged > 0
    itemsize, most = (_LIST_SIZE, _LIST_CHUNK) if lists else (item.itemsize, _CHUNK)
    most = max(_LEAST_CHUNK, min(most, room))
    axes = [max(axis, 1) for axis in field.inner] if field.is_bytes or not lists else []
    if rows is None:
        for i in range(len(axes)):  # outer axes first
            size = math.prod(axes) * itemsize
            if size > _WHOLE_ROW:
                axes[i] = max(1, axes[i] * most // size)
        rows = max(1, most // (math.prod(axes) * itemsize))
        if expected is not None:
            rows = max(1, min(rows, expected))
    elif rows * math.prod(axes) * itemsize > _MOST:
        raise OptionError(
            f"column {name!r}: chunk_rows={rows:,} makes chunks of more than 4 GiB, which HDF5 "
            "cannot have; give fewer"
        )
    return (rows, *axes)


class NestedWriter:
    """Writes a column of lists of lists."""

    def __init__(
        self, file: Any, name: str, field: Field, position: int, filters: dict[str, Any], room: int
    ) -> None:
        self._splitter = Splitter(name, field)
        group = file.create_group(name)
        group.attrs[FIELD_ATTRIBUTE] = encode_field(field)
        group.attrs[ORDER_ATTRIBUTE] = np.int64(position)
        self._arrays = {
            part.key: _ArrayWriter(group, part, filters, room) for part in self._splitter.parts
        }
        for key, first in self._splitter.head().items():
            self._arrays[key].add(first)
        self._rows = 0
        # The last offset of each level.
        self._last = dict.fromkeys(levels_of(field), 0)

    @property
    def writers(self) -> list[ColumnWriter]:
        """The writers of the arrays."""
        return list(self._arrays.values())

    def add(self, column: Column) -> None:
        """Add rows. They may be views until ``keep`` is called on the writers."""
        split = self._splitter.split(column)
        ends, first = np.arange(self._rows, self._rows + len(column)) + 1, self._rows
        for key, last in self._last.items():
            self._arrays[key].grow(self._rows, ends + 1)  # one more offset than lists
            offsets = np.concatenate([[last], split[key]])
            ends, first = offsets[ends - first], last
            self._last[key] = int(offsets[-1])
        self._arrays[VALUES].grow(self._rows, ends)
        self._rows += len(column)
        for key, values in split.items():
            if len(values):
                self._arrays[key].add(values.view(np.uint8) if values.dtype == BYTE else values)


class _ArrayWriter(ColumnWriter):
    """Writes values or offsets, which are not one per row of the table."""

    def __init__(self, group: Any, part: ColumnPart, filters: dict[str, Any], room: int) -> None:
        field = Field(np.uint8 if part.dtype == BYTE else part.dtype, part.inner)
        super().__init__(group, part.key, field, None, None, filters, room, None)
        # Table rows that added values, and the number of values after each.
        self._grown: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []

    def grow(self, rows: int, ends: npt.NDArray[np.int64]) -> None:
        """Record how many values there are after each of the rows being added.

        ``rows`` is the number of table rows before them.
        """
        grew = np.flatnonzero(np.diff(ends, prepend=self._written + self._held))
        if len(grew):
            self._grown.append((rows + grew + 1, ends[grew]))

    @property
    def next(self) -> int | None:
        end = self._end
        if end is None:
            return None
        while self._grown[0][1][-1] < end:
            self._grown.pop(0)
        rows, ends = self._grown[0]
        return int(rows[np.searchsorted(ends, end)])
