"""A column on its way into an HDF5 file."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError, OptionError
from recmap.formats.hdf5.library import h5py
from recmap.formats.hdf5.types import MARK, ORDER
from recmap.model.ragged import Column, Ragged, concatenate, owned
from recmap.model.row_sizes import column_sizes
from recmap.model.schema import Field

__all__ = ["WrittenColumn"]

# Bytes of a chunk, which the last rows of each column take, too, however few they are.
_CHUNK = 1 << 18
# However many columns there are, chunks have so many bytes, if there are as many.
_LEAST_CHUNK = 1 << 10
# A row larger than this is cut into several chunks.
_WHOLE_ROW = 1 << 20
# HDF5 counts the bytes of a chunk in 32 bits.
_MOST = (1 << 32) - 1
# Lists lie elsewhere in the file; a chunk has 16 bytes for each. They are written a few
# at a time, so that long ones are not held: so many, or as soon as they have so many bytes.
_LIST_SIZE, _LIST_CHUNK, _LIST_ROWS, _LIST_BYTES = 16, 1 << 16, 256, 1 << 20


class WrittenColumn:
    """Gathers rows and writes them in pieces that do not depend on how they came, so
    that the bytes of the file do not either.
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
        """``room`` is how many bytes of the column may wait to be written, ``expected`` how
        many rows will come, if that is known.
        """
        self._name, self._field = name, field
        self._item, kept = _stored(name, field)
        self._lists = field.is_bytes or field.ragged > 0
        inner = field.inner if field.is_bytes or not field.ragged else ()
        chunk = _chunk(name, field, self._item, chunk_rows, room, expected)
        dataset = file.create_dataset(
            name,
            (0, *inner),
            maxshape=(None, *(axis or None for axis in inner)),
            chunks=chunk,
            dtype=h5py.vlen_dtype(self._item) if self._lists else self._item,
            track_times=False,
            # Filters would see where lists lie, not the lists.
            **({} if self._lists else filters),
        )
        if not kept:
            dataset.attrs[MARK] = str(Field(field.dtype, field.shape))
        if position is not None:
            dataset.attrs[ORDER] = np.int64(position)
        self._file = file
        self._inner = inner
        # The library takes some 40 kB for a dataset that is open.
        self._open = dataset.id if room >= _CHUNK else None
        self._unit = min(_LIST_ROWS, chunk[0]) if self._lists else chunk[0]
        self._pieces: list[Column] = []
        self._held = self._written = 0
        # Rows before which pieces of lists end, and what there is of the next piece.
        self._ends: list[int] = []
        self._begun_rows = self._begun_bytes = 0

    @property
    def parts(self) -> list[WrittenColumn]:
        """What is to be written: itself."""
        return [self]

    @property
    def next(self) -> int | None:
        """The row of the table up to which a whole piece can be written, if there is one."""
        return self._end

    @property
    def _end(self) -> int | None:
        if self._lists:
            return self._ends[0] if self._ends else None
        return self._written + self._unit if self._held >= self._unit else None

    def add(self, column: Column) -> None:
        """Takes rows, which may be views until keep()."""
        if self._lists:
            self._find_ends(column)
        self._pieces.append(column)
        self._held += len(column)

    def _find_ends(self, column: Column) -> None:
        sizes = np.cumsum(np.broadcast_to(column_sizes(column), len(column)))
        row, done, passed = self._written + self._held, 0, 0
        while done < len(column):
            large = int(np.searchsorted(sizes, passed + _LIST_BYTES - self._begun_bytes)) + 1
            rows = min(large - done, self._unit - self._begun_rows)
            if done + rows > len(column):
                self._begun_rows += len(column) - done
                self._begun_bytes += int(sizes[-1]) - passed
                return
            done += rows
            self._ends.append(row + done)
            self._begun_rows, self._begun_bytes, passed = 0, 0, int(sizes[done - 1])

    def keep(self) -> None:
        """Copies the rows of the last add() that were not written yet."""
        pieces = self._pieces
        if not pieces:
            return
        pieces[-1] = owned(pieces[-1])
        # A few rows at a time are joined, for an array takes more than a few values: each
        # piece is longer than those behind it together.
        while len(pieces) > 1 and len(pieces[-2]) <= len(pieces[-1]):
            last = pieces.pop()
            pieces[-1] = concatenate([pieces[-1], last])

    def write(self) -> None:
        """Writes a piece, or what is left of one."""
        end = self._end
        rows = self._held if end is None else end - self._written
        if self._ends:
            del self._ends[0]
        if rows == 0:
            return
        column = self._next(rows)
        start, stop = self._written, self._written + rows
        # Through the lower layer of h5py, which costs a third of the time for small pieces;
        # the one above it takes lists of one length for a table.
        dataset = self._open or h5py.h5d.open(self._file.id, self._name.encode())
        dataset.set_extent((stop, *self._inner))
        if isinstance(column, Ragged):
            values = self._cells(column)
        else:
            column = np.ascontiguousarray(column.astype(self._field.dtype, copy=False))
            values = column.view(self._item)
        if values.size:
            place = dataset.get_space()
            place.select_hyperslab((start, *(0 for _ in self._inner)), values.shape)
            dataset.write(h5py.h5s.create_simple(values.shape), place, values)
        self._written, self._held = stop, self._held - rows

    def _next(self, rows: int) -> Column:
        taken: list[Column] = []
        while rows:
            piece = self._pieces[0]
            taken.append(piece[:rows])
            rows -= len(taken[-1])
            if len(taken[-1]) == len(piece):
                self._pieces.pop(0)
            else:
                self._pieces[0] = piece[len(taken[-1]) :]
        return concatenate(taken)

    def _cells(self, column: Ragged) -> npt.NDArray[Any]:
        shape = [len(column)]
        for axis in self._field.inner if self._field.is_bytes else ():
            inside = column.flat
            if (column.lengths != axis).any() or not isinstance(inside, Ragged):
                raise ColumnError(f"field {self._name!r}: not all rows are {self._field}")
            shape.append(axis)
            column = inside
        values = column.flat
        assert isinstance(values, np.ndarray)
        if not self._field.is_bytes:
            values = np.ascontiguousarray(values.astype(self._field.dtype, copy=False))
        ends = column.offsets - column.offsets[0]
        values = values.view(self._item)
        cells = np.empty(len(column), object)
        for i in range(len(column)):
            cells[i] = values[ends[i] : ends[i + 1]].ravel()
        return cells.reshape(shape)


def _stored(name: str, field: Field) -> tuple[np.dtype[Any], bool]:
    """The dtype of the items in the file, and whether the file alone tells the field."""
    if field.is_bytes and not field.ragged:
        return np.dtype(np.uint8), False
    assert not field.is_bytes  # lists of lists are written in parts
    assert field.ragged < 2
    dtype = field.dtype
    if dtype.kind in "biufc" and dtype.isbuiltin != 2:
        return dtype, not (field.ragged and field.inner)
    if dtype.kind in "mM":
        return np.dtype(dtype.byteorder.replace("|", "=") + "i8"), False
    if dtype.type is np.void or dtype.itemsize not in (1, 2, 4, 8):
        raise ColumnError(f"field {name!r} is {field}, for which HDF5 has no type; cast it first")
    return np.dtype(f"u{dtype.itemsize}"), False


def _chunk(
    name: str,
    field: Field,
    item: np.dtype[Any],
    rows: int | None,
    room: int,
    expected: int | None,
) -> tuple[int, ...]:
    """The shape of the chunks: the same for the same schema and number of rows. A chunk is
    stored whole, so that none is larger than the rows there are.
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
            f"field {name!r}: chunk_rows={rows:,} makes chunks of more than 4 GiB, which HDF5 "
            "cannot have; give fewer"
        )
    return (rows, *axes)
