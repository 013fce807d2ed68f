"""Conversion of HDF5 types to fields, and of their values to columns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError
from recmap.formats.hdf5.file import h5py
from recmap.model.coerce import string_column
from recmap.model.description import decode_field, misfit, warn_of_notes
from recmap.model.field import TEXT, Field
from recmap.model.null_columns import empty_column
from recmap.model.ragged import BYTE, Column, Ragged

# The attribute that holds the field of a dataset, if HDF5 has no such type.
FIELD_ATTRIBUTE = "recmap"
# The attribute that holds the position of the column. Without it, columns are in file order,
# which is usually alphabetical.
ORDER_ATTRIBUTE = "recmap_column"
# The attribute of the file that holds what its columns were in a DataFrame, as JSON.
TABLE_ATTRIBUTE = "recmap_table"


@dataclass(frozen=True)
class Leaf:
    """A column of a dataset: its path inside a compound type, and its field.

    ``reason`` says why it cannot be a column; "" if it can.
    """

    path: tuple[str, ...]
    field: Field
    reason: str = ""

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in memory; an estimate for lists and strings."""
        return self.field.row_bytes or 16 * max(self.field.count, 1)

    def as_text(self) -> Leaf:
        """Return the leaf with its strings as text."""
        return replace(self, field=Field(TEXT, self.field.shape)) if self.field.is_bytes else self

    def in_dtype(self, dataset: Any) -> np.dtype[Any]:
        """Return the dtype h5py uses for the leaf; objects are lists or strings."""
        dtype: np.dtype[Any] = dataset.dtype
        for name in self.path:
            dtype = dtype.base[name]
        return dtype.base

    def pick(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Select the leaf from rows of the whole type."""
        for name in self.path:
            rows = rows[name]
        return rows

    def plain(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """View numbers as the dtype of the field.

        This drops the metadata that h5py attaches to dtypes, and restores types that were
        stored as integers of the same size.
        """
        # A view would be copied by whoever needs rows in memory of their own.
        same = rows.dtype == self.field.dtype and rows.dtype.metadata is None
        return rows if same else rows.view(self.field.dtype)

    def column(self, rows: npt.NDArray[Any]) -> Column:
        """Convert values, as read by h5py or stored in the file, to a column."""
        if self.field.is_bytes and rows.dtype.kind == "S":
            return string_column(rows)
        if rows.dtype.kind != "O":
            return self.plain(rows)
        if len(rows) == 0:
            return empty_column(self.field)
        cells = rows.ravel().tolist()
        if not self.field.is_bytes:
            return self._lists(cells, self.field.dtype, self.field.inner)
        if not cells:  # an axis has no length
            return string_column(np.empty(rows.shape, "S1"))
        if isinstance(cells[0], bytes | str):
            return string_column(rows)
        column = self._lists(cells, BYTE, ())
        for axis in reversed(self.field.inner):
            column = Ragged(column, np.arange(len(column) // max(axis, 1) + 1) * axis)
        return column

    def _lists(self, cells: list[Any], dtype: np.dtype[Any], inner: tuple[int, ...]) -> Ragged:
        lengths = np.array([cell.size for cell in cells], np.int64)
        # Join the bytes, because h5py 3 labels big-endian list items as native.
        values = np.frombuffer(b"".join(cells), dtype)
        width = math.prod(inner)
        if width != 1 and (lengths % width).any():
            raise DataError(f"a row does not divide into items of shape {inner}, as its type says")
        ends = np.concatenate([[0], np.cumsum(lengths // width)])
        return Ragged(values.reshape(-1, *inner), ends)


def leaves(dataset: Any) -> list[Leaf]:
    """Return the columns of a dataset."""
    dtype, inner = dataset.dtype, dataset.shape[1:]
    found = list(_leaves(dtype, inner, ()))
    field = written_field(dataset) if dtype.names is None else None
    if field is not None and _stored_as(field, dtype, inner):
        return [Leaf((), field)]
    if field is not None and field != found[0].field:
        name = dataset.name.removeprefix("/")
        misfits = [misfit(name, field, f"{dtype} in rows of shape {inner}")]
        warn_of_notes(dataset.file.filename, misfits)
    return found


def _leaves(dtype: np.dtype[Any], shape: tuple[int, ...], path: tuple[str, ...]) -> Iterator[Leaf]:
    base, axes = dtype.subdtype or (dtype, ())
    shape = (*shape, *axes)
    if base.names is None:
        yield _leaf(base, shape, path)
        return
    for name in base.names:
        yield from _leaves(base[name], shape, (*path, name))


def _leaf(dtype: np.dtype[Any], shape: tuple[int, ...], path: tuple[str, ...]) -> Leaf:
    def refused(why: str) -> Leaf:
        return Leaf(path, Field("bytes"), why)

    if h5py.check_string_dtype(dtype) is not None:
        return Leaf(path, Field("bytes", shape))
    if h5py.check_ref_dtype(dtype) is not None:
        return refused("it holds references to other objects")
    item = h5py.check_vlen_dtype(dtype)
    if item is not None:
        if shape:
            return refused("it holds a table of lists in each row")
        if not isinstance(item, np.dtype) or item.kind not in "biufc":
            return refused(f"it holds lists of {item}, and only lists of numbers are columns")
        return Leaf(path, Field(_bare(item), (None,)))
    if dtype.kind not in "biufcmM":
        return refused("it holds opaque bytes" if dtype.kind == "V" else f"its type is {dtype}")
    return Leaf(path, Field(_bare(dtype), shape))


def _bare(dtype: np.dtype[Any]) -> np.dtype[Any]:
    # Drop the metadata in which h5py stores the names of an enum.
    return np.dtype(dtype.str)


def is_nested(field: Field) -> bool:
    """Tell whether the rows are lists of lists; a string counts as a list."""
    return field.ragged + field.is_bytes > 1 and field.ragged > 0


def written_field(item: Any) -> Field | None:
    """Return the field stored in the attribute of a dataset or group; None without one."""
    try:
        return decode_field(item.attrs.get(FIELD_ATTRIBUTE))
    except ValueError:
        return None


def _stored_as(field: Field, dtype: np.dtype[Any], inner: tuple[int, ...]) -> bool:
    """Tell whether a field can have been stored as this type and shape."""
    item = h5py.check_vlen_dtype(dtype)
    if field.is_text:
        return h5py.check_string_dtype(dtype) is not None and field.shape == inner
    if field.is_bytes:
        return item == np.uint8 and field.shape == inner
    if field.dtype.hasobject or field.dtype.itemsize == 0:
        return False
    if field.ragged:
        return (
            field.ragged == 1
            and 0 not in field.inner
            and inner == ()
            and isinstance(item, np.dtype)
            and _holds(item, field.dtype)
        )
    opaque = field.dtype.type is np.void and dtype == field.dtype
    return field.shape == inner and (opaque or (dtype.kind in "iu" and _holds(dtype, field.dtype)))


def _holds(stored: np.dtype[Any], noted: np.dtype[Any]) -> bool:
    """Tell whether values are stored as this type. Only those HDF5 lacks are stored as integers."""
    if noted.kind in "biufc" and noted.isbuiltin != 2:
        return noted.newbyteorder("=") == np.dtype(stored.str).newbyteorder("=")
    return stored.kind in "iu" and stored.itemsize == noted.itemsize


def text_of(value: Any) -> str:
    """Return an attribute that is text; "" if it is not, or is not there."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.ravel()[0]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else ""
