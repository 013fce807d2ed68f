"""Lists of lists in HDF5: a column is a group of arrays, because HDF5 rows hold only one list.

The group ``x`` holds ``x/values``, ``x/offsets`` and, depending on the depth, ``x/steps`` and
so on (see ``ragged_layout``). Its attribute ``recmap`` holds the field; a group without that
attribute is an ordinary group.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError
from recmap.formats.column_readers import ColumnReader
from recmap.formats.hdf5.column_writer import ColumnWriter
from recmap.formats.hdf5.columns import columns_of, refusal
from recmap.formats.hdf5.file import Hdf5File, h5py
from recmap.formats.hdf5.types import FIELD_ATTRIBUTE, ORDER_ATTRIBUTE, leaves, written_field
from recmap.formats.ragged_layout import VALUES, ColumnPart, Splitter, join, levels_of
from recmap.model.description import encode_field
from recmap.model.field import Field
from recmap.model.ragged import BYTE, Column


def is_nested(field: Field) -> bool:
    """Tell whether the rows are lists of lists; a string counts as a list."""
    return field.ragged + field.is_bytes > 1 and field.ragged > 0


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


def nested_field(group: Any) -> Field | None:
    """Return the field of a group that is a column; None for an ordinary group."""
    field = written_field(group)
    if field is None or not is_nested(field):
        return None
    items = (group.get(key) for key in (VALUES, *levels_of(field)))
    return field if all(isinstance(item, h5py.Dataset) for item in items) else None


def nested_column(file: Hdf5File, name: str, group: Any, direct: bool = True) -> ColumnReader:
    """Make a reader for a group that is a column."""
    with file.locked(name):
        field = nested_field(group)
        assert field is not None
        keys = (VALUES, *levels_of(field))
        arrays = {key: _array(file, f"{name}/{key}", group[key], direct) for key in keys}
    # Not locked, because join reads offsets, possibly on other threads.
    column = join(file.path, name, arrays.pop(VALUES), arrays, field.is_bytes, field)
    if column.field != field:
        raise DataError(
            f"{file.path}: {name!r} is {column.field}, not {field} as it says",
            file=file.path,
            field=name,
        )
    return column


def _array(file: Hdf5File, name: str, dataset: Any, direct: bool) -> ColumnReader:
    why = refusal(file, dataset)
    found = [] if why else leaves(dataset)
    if len(found) != 1 or found[0].reason:
        why = why or "it has fields, or values of no use"
        raise DataError(
            f"{file.path}: {name!r} cannot be a part of a column: {why}", file=file.path, field=name
        )
    return columns_of(file, name, dataset, found, direct)[0]
