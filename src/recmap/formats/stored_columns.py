"""Columns in files of Arrow types: Parquet and Arrow files.

Arrow has no complex numbers, bfloat16 or big-endian numbers, and a row of no values has nothing
to store. Such columns are stored as something else, and the file notes what they are: its
metadata has ``recmap``, ``{"columns": [["x", "float32[10]"]]}``. Other programs ignore it, and
may keep it though they change the columns. So a note never changes a value: one that does not
fit what is stored is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError
from recmap.model.coerce import string_column
from recmap.model.description import Description, json_object
from recmap.model.field import Field
from recmap.model.ragged import Column, Ragged, with_values
from recmap.model.schema import Batch, Schema

#: The key in the metadata of a file.
KEY = b"recmap"
_UNITS = ("s", "ms", "us", "ns")
# Parquet has no seconds.
_FAR = (1 << 62) // 10**6
_SECONDS, _MILLISECONDS = np.dtype("M8[s]"), np.dtype("M8[ms]")
_FLOATS = ("float16", "float32", "float64")
_PARTS: dict[str, np.dtype[Any]] = {
    "complex64": np.dtype(np.float32),
    "complex128": np.dtype(np.float64),
}
_UINTS: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
}


def description(schema: Schema) -> bytes:
    """Return what to note in a file with these columns."""
    columns = [[name, text] for name, text in Description(schema, fills=False).texts.items()]
    return json.dumps({"columns": columns}, ensure_ascii=False).encode()


def noted_fields(metadata: Mapping[bytes, bytes] | None) -> dict[str, Field] | None:
    """Return the columns that a file has a note of; None if the note cannot be read."""
    try:
        content = json_object((metadata or {}).get(KEY, b'{"columns": []}'))
        return dict(Description.decode(dict(content["columns"])).schema)
    except (KeyError, TypeError, ValueError):
        return None


def is_stored_as(field: Field, stored: Field) -> bool:
    """Return whether a column of ``field`` may be stored as another."""
    return stored in (stored_field(field), _formerly_stored(field))


def loses(field: Field) -> bool:
    """Return whether ``restore`` drops something of values that recmap did not store."""
    return 0 in field.shape or field.dtype.newbyteorder("=") == _SECONDS


def fits(column: Column, field: Field) -> bool:
    """Return whether stored values can be of this field: restoring them loses nothing."""
    values = column
    while isinstance(values, Ragged) and not values.is_bytes:
        values = values.flat
    if not loses(field) or isinstance(values, Ragged):
        return True
    if 0 in field.shape:
        return not values.any()
    if values.dtype != _MILLISECONDS:
        return True
    return bool((np.isnat(values) | (values.view(np.int64) % 1000 == 0)).all())


def stored_field(field: Field) -> Field:
    """Return what a column is stored as."""
    if 0 in field.shape:
        return Field("bool", nullable=field.nullable)
    if field.is_bytes:
        return replace(field, fill=None)
    dtype, more = _stored_dtype(field.dtype)
    return replace(field, dtype=dtype, shape=(*field.shape, *more), fill=None)


def _formerly_stored(field: Field) -> Field | None:
    """Return what bytes of a fixed size are in files of earlier versions: numbers."""
    if field.dtype.type is not np.void or 0 in field.shape:
        return None
    dtype, more = _numbers_of(field.dtype)
    return replace(field, dtype=dtype, shape=(*field.shape, *more), fill=None)


def _stored_dtype(dtype: np.dtype[Any]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return the dtype that stores this one, and the additional axis, if any."""
    if dtype.type is np.void and dtype.itemsize:
        return dtype, ()
    if dtype.kind in "biu" or dtype.name in _FLOATS:
        return dtype.newbyteorder("="), ()
    if dtype.newbyteorder("=") == _SECONDS:
        return _MILLISECONDS, ()
    if dtype.kind in "mM":
        unit, count = np.datetime_data(dtype)
        days = unit == "D" and dtype.kind == "M"
        known = (unit in _UNITS or days) and count == 1
        return (dtype.newbyteorder("=") if known else np.dtype(np.int64)), ()
    if dtype.name in _PARTS:
        return _PARTS[dtype.name], (2,)
    return _numbers_of(dtype)


def _numbers_of(dtype: np.dtype[Any]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    if dtype.itemsize in _UINTS:
        return _UINTS[dtype.itemsize], ()
    return np.dtype(np.uint8), (dtype.itemsize,)


def store(batch: Batch, schema: Schema) -> Batch:
    """Return the columns as they are stored."""
    for name, field in schema.items():
        if field.is_bytes and field.inner:
            _check_axes(name, batch[name], field)
    return {name: _stored(batch[name], field) for name, field in schema.items()}


def _check_axes(name: str, column: Column, field: Field) -> None:
    """Check strings on fixed axes, which come as a Ragged."""
    for axis in field.shape:
        assert isinstance(column, Ragged)
        if axis is not None and bool((column.lengths != axis).any()):
            raise ColumnError(f"column {name!r} is {field}, but a row has another shape")
        column = column.flat


def _stored(column: Column, field: Field) -> Column:
    if 0 in field.shape:
        return np.zeros(len(column), np.bool_)
    if field.is_bytes or field == stored_field(field):
        return column
    dtype, more = _stored_dtype(field.dtype)

    def as_stored(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        values = np.ascontiguousarray(values, native(field.dtype))
        if values.dtype == _SECONDS:
            return _in_milliseconds(values)
        return viewed(values, dtype, (*values.shape, *more))

    return with_values(column, as_stored)


def _in_milliseconds(times: npt.NDArray[Any]) -> npt.NDArray[Any]:
    seconds = times.view(np.int64)
    known = ~np.isnat(times)
    if bool((np.abs(seconds // 1000, where=known, out=np.zeros_like(seconds)) > _FAR).any()):
        raise ColumnError(
            "a time out of range in milliseconds, which Parquet needs; cast it to int64"
        )
    return times.astype(_MILLISECONDS)


def restore(column: Column, field: Field) -> Column:
    """Return a column as it was before it was stored."""
    if 0 in field.shape:
        return _without_values(len(column), field)
    if field.is_bytes or (field == stored_field(field) and field.dtype.type is not np.void):
        return column
    dtype = native(field.dtype)

    def restored(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if dtype == _SECONDS:
            return values.astype(field.dtype)
        values = viewed(np.ascontiguousarray(values), dtype, (len(values), *field.inner))
        return values.astype(field.dtype, copy=False)

    return with_values(column, restored)


def _without_values(rows: int, field: Field) -> Column:
    if field.is_bytes:
        return string_column(np.empty((rows, *field.inner), np.dtype("S1")))
    return np.empty((rows, *field.inner), field.dtype)


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a dtype in the byte order of this machine."""
    # bfloat16 and similar types have no other.
    return dtype if dtype.kind == "V" else dtype.newbyteorder("=")


def viewed(
    values: npt.NDArray[Any], dtype: np.dtype[Any], shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    """View the bytes of contiguous values as another dtype."""
    if values.dtype == dtype:
        return values.reshape(shape)
    if not values.size:
        return np.empty(shape, dtype)
    return values.reshape(-1).view(dtype).reshape(shape)
