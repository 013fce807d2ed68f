"""Columns as Arrow tables, as Ray has them. Buffers are shared where they can be.

Rows of one shape are tensors of Ray's, and so are those of which only the first axis
differs and that have others. Lists are lists, of lists if they are ragged more than once,
and byte strings are binary.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recmap.errors import FieldMismatchError
from recmap.model.ragged import Column, Ragged
from recmap.model.schema import Batch, Field, Schema
from recmap.ray.base_classes import ArrowTensorArray, ArrowVariableShapedTensorType

__all__ = ["FIELD_KEY", "table_of"]

#: Under which the field stands in the metadata of a column whose type does not tell it.
FIELD_KEY = b"recmap"

_UNITS = ("s", "ms", "us", "ns")
_MAX_OFFSET = (1 << 31) - 1


def table_of(batch: Batch, schema: Schema) -> Any:
    """The columns of a schema as a table."""
    arrays = [_array(name, batch[name], field) for name, field in schema.items()]
    fields = [
        pa.field(name, array.type, metadata=_metadata(field))
        for (name, field), array in zip(schema.items(), arrays, strict=True)
    ]
    return pa.table(arrays, schema=pa.schema(fields))


def _metadata(field: Field) -> dict[bytes, bytes] | None:
    bare = Field(field.dtype.newbyteorder("="), field.shape)
    return {FIELD_KEY: str(bare).encode()} if _is_shaped(field) else None


def _is_shaped(field: Field) -> bool:
    return field.ragged == 1 and bool(field.inner) and field.dtype.kind not in "SV"


def _array(name: str, column: Column, field: Field) -> Any:
    _check(name, field)
    if isinstance(column, Ragged) and _is_shaped(field):
        return _shaped(column, field.inner)
    if isinstance(column, np.ndarray) and column.ndim > 1 and field.dtype.kind != "V":
        return ArrowTensorArray.from_numpy(_native(column), column_name=name)
    _check_axes(name, field)
    return _nested(name, column, field.shape)


def _check(name: str, field: Field) -> None:
    dtype = field.dtype
    unit = np.datetime_data(dtype)[0] if dtype.kind in "mM" else "s"
    extension = dtype.kind == "V" and dtype.type is not np.void  # bfloat16 and its kin
    if extension or dtype.kind == "c" or dtype.char == "g" or unit not in _UNITS:
        raise FieldMismatchError(
            f"column {name!r} is {field}, and Arrow has no such type; leave it out with "
            f'columns=[...], or have rm.convert write it as another: cast={{"{name}": "float32"}}',
            field=name,
        )


def _check_axes(name: str, field: Field) -> None:
    if 0 in field.shape:
        raise FieldMismatchError(
            f"column {name!r} is {field}, and Arrow has no lists of 0 items each; leave it out "
            "with columns=[...]",
            field=name,
        )


def _native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False))


def _shaped(column: Ragged, inner: tuple[int, ...]) -> Any:
    """Tensors whose first axis differs."""
    assert isinstance(column.flat, np.ndarray)
    rows, axes = len(column), 1 + len(inner)
    values = _values(_native(column.flat).reshape(-1))
    ends = (column.offsets - column.offsets[0]) * int(np.prod(inner, dtype=np.int64))
    shapes = np.empty((rows, axes), np.int64)
    shapes[:, 0], shapes[:, 1:] = column.lengths, inner
    places = pa.array(np.arange(rows + 1, dtype=np.int32) * axes)
    storage = pa.StructArray.from_arrays(
        [
            pa.LargeListArray.from_arrays(pa.array(ends), values),
            pa.ListArray.from_arrays(places, pa.array(shapes.reshape(-1))),
        ],
        ["data", "shape"],
    )
    return ArrowVariableShapedTensorType(values.type, axes).wrap_array(storage)


def _nested(name: str, column: Column, axes: tuple[int | None, ...]) -> Any:
    if isinstance(column, np.ndarray):
        values = _values(_native(column).reshape(-1))
        for axis in reversed(column.shape[1:]):
            values = pa.FixedSizeListArray.from_arrays(values, axis)
        return values
    offsets = column.offsets - column.offsets[0]
    if int(offsets[-1]) > _MAX_OFFSET:
        raise FieldMismatchError(
            f"column {name!r}: a row has {int(offsets[-1]):,} items, more than a list of Arrow's",
            field=name,
        )
    if column.is_bytes:
        assert isinstance(column.flat, np.ndarray)
        data = np.ascontiguousarray(column.flat).view(np.uint8)
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.binary(), len(column), buffers)
    inside = _nested(name, column.flat, axes[1:])
    if axes[0] is not None:
        return pa.FixedSizeListArray.from_arrays(inside, axes[0])
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), inside)


def _values(flat: npt.NDArray[Any]) -> Any:
    if flat.dtype.kind == "b":
        return pa.array(flat)
    void = flat.dtype.kind == "V"
    arrow = pa.binary(flat.dtype.itemsize) if void else pa.from_numpy_dtype(flat.dtype)
    # Not pa.array(), to which a NaT is no value.
    return pa.Array.from_buffers(arrow, len(flat), [None, pa.py_buffer(flat.view(np.uint8))])
