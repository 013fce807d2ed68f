"""Lists of lists in HDF5, which has one list in a row: a group of the column's parts.

The group of ``x`` holds ``x/values``, ``x/offsets`` and, by their depth, ``x/steps`` and
so on, as ``parts`` has them. Its attribute ``recmap`` is the field; without it, a group
is just a group.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError
from recmap.formats.column_readers import ColumnReader
from recmap.formats.hdf5.column_writer import WrittenColumn
from recmap.formats.hdf5.columns import columns_of
from recmap.formats.hdf5.file import Hdf5File
from recmap.formats.hdf5.library import h5py
from recmap.formats.hdf5.refusal import refusal
from recmap.formats.hdf5.types import MARK, ORDER, leaves, marked
from recmap.formats.ragged_layout import VALUES, Part, Splitter, join, levels_of
from recmap.model.ragged import BYTE, Column
from recmap.model.schema import Field

__all__ = ["NestedColumn", "is_nested", "nested_column", "nested_field"]


def is_nested(field: Field) -> bool:
    """Whether the rows are lists of lists; a string is a list, too."""
    return field.ragged + field.is_bytes > 1 and field.ragged > 0


class NestedColumn:
    """A column of lists of lists on its way into a file."""

    def __init__(
        self, file: Any, name: str, field: Field, position: int, filters: dict[str, Any], room: int
    ) -> None:
        self._splitter = Splitter(name, field)
        group = file.create_group(name)
        group.attrs[MARK] = str(Field(field.dtype, field.shape))
        group.attrs[ORDER] = np.int64(position)
        self._parts = {part.key: _Part(group, part, filters, room) for part in self._splitter.parts}
        for key, first in self._splitter.head().items():
            self._parts[key].add(first)
        self._rows = 0
        # The last offset of each level.
        self._last = dict.fromkeys(levels_of(field), 0)

    @property
    def parts(self) -> list[WrittenColumn]:
        """What is to be written."""
        return list(self._parts.values())

    def add(self, column: Column) -> None:
        """Takes rows, which may be views until the parts keep them."""
        pieces = self._splitter.split(column)
        ends, first = np.arange(self._rows, self._rows + len(column)) + 1, self._rows
        for key, last in self._last.items():
            self._parts[key].grow(self._rows, ends + 1)  # there is one offset more
            offsets = np.concatenate([[last], pieces[key]])
            ends, first = offsets[ends - first], last
            self._last[key] = int(offsets[-1])
        self._parts[VALUES].grow(self._rows, ends)
        self._rows += len(column)
        for key, piece in pieces.items():
            if len(piece):
                self._parts[key].add(piece.view(np.uint8) if piece.dtype == BYTE else piece)


class _Part(WrittenColumn):
    """Values that are not one for each row of the table."""

    def __init__(self, group: Any, part: Part, filters: dict[str, Any], room: int) -> None:
        field = Field(np.uint8 if part.dtype == BYTE else part.dtype, part.inner)
        super().__init__(group, part.key, field, None, None, filters, room, None)
        # Rows of the table with which the values became more, and how many they then were.
        self._grown: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []

    def grow(self, rows: int, ends: npt.NDArray[np.int64]) -> None:
        """Says how many values there are after each of the rows that are added now,
        behind so many ``rows`` of the table.
        """
        grew = np.flatnonzero(np.diff(ends, prepend=self._written + self._held))
        if len(grew):
            self._grown.append((rows + grew + 1, ends[grew]))

    @property
    def next(self) -> int | None:
        """The row of the table with which a whole piece is there."""
        end = self._end
        if end is None:
            return None
        while self._grown[0][1][-1] < end:
            self._grown.pop(0)
        rows, ends = self._grown[0]
        return int(rows[np.searchsorted(ends, end)])


def nested_field(group: Any) -> Field | None:
    """The field of a group that is a column."""
    field = marked(group)
    if field is None or not is_nested(field):
        return None
    parts = (group.get(key) for key in (VALUES, *levels_of(field)))
    return field if all(isinstance(part, h5py.Dataset) for part in parts) else None


def nested_column(file: Hdf5File, name: str, group: Any, direct: bool = True) -> ColumnReader:
    """The column that a group is."""
    with file.locked(name):
        field = nested_field(group)
        assert field is not None
        keys = (VALUES, *levels_of(field))
        parts = {key: _part(file, f"{name}/{key}", group[key], direct) for key in keys}
    # Not locked: offsets are read, and that may be on other threads.
    column = join(file.path, name, parts.pop(VALUES), parts, field.is_bytes, field)
    if column.field != field:
        raise DataError(
            f"{file.path}: {name!r} is {column.field}, not {field} as it says",
            file=file.path,
            field=name,
        )
    return column


def _part(file: Hdf5File, name: str, dataset: Any, direct: bool) -> ColumnReader:
    why = refusal(file, dataset)
    found = [] if why else leaves(dataset)
    if len(found) != 1 or found[0].reason:
        why = why or "it has fields, or values of no use"
        raise DataError(
            f"{file.path}: {name!r} cannot be a part of a column: {why}", file=file.path, field=name
        )
    return columns_of(file, name, dataset, found, direct)[0]
