"""Convert columns to the Arrow tables that Ray uses, and back, sharing buffers where possible.

Rows of one shape become Ray tensors. So do rows with several axes if only the first axis varies
in length. Other ragged rows become lists, nested if several axes are ragged. Byte strings become
binary, and text becomes strings.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types
from ray.data.block import BlockAccessor
from ray.data.extensions import (
    ArrowTensorArray,
    ArrowVariableShapedTensorType,
    get_arrow_extension_tensor_types,
)

from recmap.errors import (
    ColumnError,
    FieldMismatchError,
    FieldNotFoundError,
    FieldTextError,
    Message,
    Option,
)
from recmap.model.arguments import no_column
from recmap.model.description import decode_field, encode_field
from recmap.model.field import Field
from recmap.model.null_columns import empty_column
from recmap.model.nulls import TRAINING, refuse_nulls
from recmap.model.ragged import BYTE, Column, Ragged, concatenate
from recmap.model.schema import Batch, Schema

# Metadata key that stores a column's field when the Arrow type alone does not determine it.
_FIELD_KEY = b"recmap"
_UNITS = ("s", "ms", "us", "ns")
_MAX_OFFSET = (1 << 31) - 1


def table_of(batch: Batch, schema: Schema) -> Any:
    """Return the columns of the schema as an Arrow table."""
    arrays = [_array(name, batch[name], field) for name, field in schema.items()]
    fields = [
        pa.field(name, array.type, metadata=_metadata(field))
        for (name, field), array in zip(schema.items(), arrays, strict=True)
    ]
    return pa.table(arrays, schema=pa.schema(fields))


def _metadata(field: Field) -> dict[bytes, bytes] | None:
    bare = Field(field.dtype.newbyteorder("="), field.shape)
    return {_FIELD_KEY: encode_field(bare).encode()} if _is_shaped(field) else None


def _is_shaped(field: Field) -> bool:
    return field.ragged == 1 and bool(field.inner) and field.dtype.kind not in "SUV"


def _array(name: str, column: Column, field: Field) -> Any:
    _check(name, field)
    if isinstance(column, Ragged) and _is_shaped(field):
        return _shaped(column, field.inner)
    if isinstance(column, np.ndarray) and column.ndim > 1 and field.dtype.kind != "V":
        return ArrowTensorArray.from_numpy(_native(column), column_name=name)
    _check_axes(name, field)
    return _nested(name, column, field.shape)


def _check(name: str, field: Field) -> None:
    refuse_nulls({name: field}, TRAINING, verbs=False)
    dtype = field.dtype
    unit = np.datetime_data(dtype)[0] if dtype.kind in "mM" else "s"
    extension = dtype.kind == "V" and dtype.type is not np.void  # bfloat16 and the like
    if extension or dtype.kind == "c" or dtype.char == "g" or unit not in _UNITS:
        raise FieldMismatchError(
            Message(
                f"column {name!r} is {field}, and Arrow has no such type; leave it out with ",
                Option("fields", [...]),
                f', or convert it first: rm.open(path).cast({{"{name}": "float32"}}).save(dst)',
            ),
            field=name,
        )


def _check_axes(name: str, field: Field) -> None:
    if 0 in field.shape:
        raise FieldMismatchError(
            Message(
                f"column {name!r} is {field}, and Arrow has no lists of length 0; leave it out "
                "with ",
                Option("fields", [...]),
            ),
            field=name,
        )


def _native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False))


def _shaped(column: Ragged, inner: tuple[int, ...]) -> Any:
    """Return tensors that differ in the length of their first axis."""
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
            f"column {name!r}: a row has {int(offsets[-1]):,} items, more than an Arrow list holds",
            field=name,
        )
    if column.is_bytes:
        assert isinstance(column.flat, np.ndarray)
        data = np.ascontiguousarray(column.flat).view(np.uint8)
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
        strings = pa.string() if column.is_text else pa.binary()
        return pa.Array.from_buffers(strings, len(column), buffers)
    inside = _nested(name, column.flat, axes[1:])
    if axes[0] is not None:
        return pa.FixedSizeListArray.from_arrays(inside, axes[0])
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), inside)


def _values(flat: npt.NDArray[Any]) -> Any:
    if flat.dtype.kind == "b":
        return pa.array(flat)
    void = flat.dtype.kind == "V"
    arrow = pa.binary(flat.dtype.itemsize) if void else pa.from_numpy_dtype(flat.dtype)
    # pa.array() would turn NaT into a missing value.
    return pa.Array.from_buffers(arrow, len(flat), [None, pa.py_buffer(flat.view(np.uint8))])


def table_of_block(block: Any) -> Any:
    """Return a Ray Data block as an Arrow table.

    Ray turns NaN in a pandas block into missing values; this function restores the NaN.
    """
    table = BlockAccessor.for_block(block).to_arrow()
    if isinstance(block, pa.Table):
        return table
    for place, name in enumerate(table.column_names):
        dtype = block[name].dtype
        if isinstance(dtype, np.dtype) and dtype.kind == "f" and table.column(place).null_count:
            table = table.set_column(place, name, pa.array(block[name].to_numpy()))
    return table


def known_schema(dataset: Any, fields: Mapping[str, Field]) -> Schema | None:
    """Return the schema of a Ray dataset, or None if it is not known before the blocks are."""
    found = getattr(dataset.schema(fetch_if_missing=False), "base_schema", None)
    return schema_of(found, fields) if isinstance(found, pa.Schema) else None


def schema_of(arrow: Any, fields: Mapping[str, Field]) -> Schema:
    """Return the schema of a table. ``fields`` overrides the types that Arrow implies."""
    for name in fields:
        if name not in arrow.names:
            raise FieldNotFoundError(f"columns: {no_column(name, arrow.names)}")
    return Schema({column.name: fields.get(column.name) or _field(column) for column in arrow})


def _field(column: Any) -> Field:
    if isinstance(column.type, ArrowVariableShapedTensorType) and column.type.ndim > 1:
        written = (column.metadata or {}).get(_FIELD_KEY, b"")
        with suppress(ValueError):  # as if there were none
            return decode_field(written.decode())
        raise ColumnError(
            Message(
                f"column {column.name!r} has rows of {column.type.ndim} axes whose lengths differ; "
                "say which axes differ, as in ",
                f'columns={{"{column.name}": "uint8[*,*,3]"}}',
            )
        )
    try:
        return _field_of(column.name, column.type)
    except FieldTextError as e:
        raise ColumnError(f"column {column.name!r} is {column.type}: {e}") from e


def _field_of(name: str, arrow: Any) -> Field:
    if isinstance(arrow, ArrowVariableShapedTensorType):
        return Field(_dtype(name, arrow.storage_type.field("data").type.value_type), (None,))
    if _is_tensor(arrow):
        return Field(_dtype(name, arrow.storage_type.value_type), tuple(arrow.shape))
    if types.is_dictionary(arrow):
        return _field_of(name, arrow.value_type)
    if _is_list(arrow) or types.is_fixed_size_list(arrow):
        inside = _field_of(name, arrow.value_type)
        axis = None if _is_list(arrow) else arrow.list_size
        return Field(inside.dtype, (axis, *inside.shape))
    if types.is_string(arrow) or types.is_large_string(arrow):
        return Field("text")
    return Field("bytes") if _is_bytes(arrow) else Field(_dtype(name, arrow))


def _is_tensor(arrow: Any) -> bool:
    return isinstance(arrow, (*get_arrow_extension_tensor_types(), pa.FixedShapeTensorType))


def _is_list(arrow: Any) -> bool:
    return bool(types.is_list(arrow) or types.is_large_list(arrow))


def _is_bytes(arrow: Any) -> bool:
    return bool(types.is_binary(arrow) or types.is_string(arrow) or _is_large_bytes(arrow))


def _is_large_bytes(arrow: Any) -> bool:
    return bool(types.is_large_binary(arrow) or types.is_large_string(arrow))


def _dtype(name: str, arrow: Any) -> np.dtype[Any]:
    if types.is_null(arrow):
        raise ColumnError(
            Message(
                f"column {name!r} has no values to infer its type from; give it, as in ",
                f'columns={{"{name}": "int64[*]"}}',
            )
        )
    if types.is_fixed_size_binary(arrow):
        return np.dtype(f"V{arrow.byte_width}")
    if types.is_date32(arrow):
        return np.dtype("M8[D]")
    if types.is_timestamp(arrow) or types.is_duration(arrow):
        return np.dtype(f"{'M' if types.is_timestamp(arrow) else 'm'}8[{arrow.unit}]")
    if types.is_boolean(arrow) or types.is_integer(arrow) or types.is_floating(arrow):
        found: np.dtype[Any] = np.dtype(arrow.to_pandas_dtype())
        return found
    raise ColumnError(
        f"column {name!r} is {arrow}, which recmap cannot write; convert it to numbers, byte "
        "strings, or lists of them, or leave it out with drop_columns()"
    )


def batch_of(table: Any, schema: Schema) -> Batch:
    """Return all columns of a table. The writer rejects those that are not in the schema."""
    batch: Batch = {}
    for column, chunks in zip(table.schema, table.columns, strict=True):
        field = schema[column.name] if column.name in schema else _field(column)
        batch[column.name] = concatenate(
            [_column(column.name, chunk, field) for chunk in chunks.chunks]
        )
    return batch


def _column(name: str, array: Any, field: Field) -> Column:
    arrow = array.type
    if array.null_count:
        raise ColumnError(
            f"column {name!r} has {array.null_count:,} rows or items without a value; fill them in"
        )
    if isinstance(arrow, ArrowVariableShapedTensorType):
        shapes = array.storage.field("shape").flatten().to_numpy(zero_copy_only=False)
        values = _column(name, array.storage.field("data").flatten(), field)
        assert isinstance(values, np.ndarray)
        return _shaped_rows(name, values, shapes.reshape(-1, arrow.ndim), field)
    if _is_tensor(arrow):
        native = hasattr(array, "to_numpy_ndarray")
        dense: npt.NDArray[Any] = array.to_numpy_ndarray() if native else array.to_numpy()
        if not field.ragged:
            return dense
        shape = np.array(dense.shape[1:], np.int64)
        return _shaped_rows(name, dense.reshape(-1), np.tile(shape, (len(dense), 1)), field)
    if types.is_dictionary(arrow):
        return _column(name, array.dictionary_decode(), field)
    if types.is_null(arrow):  # the items of lists that are all empty
        return empty_column(field)
    # The items of a list have one axis fewer.
    below = Field(field.dtype, field.shape[1:])
    if _is_list(arrow):
        offsets = array.offsets.to_numpy().astype(np.int64)
        first, last = int(offsets[0]), int(offsets[-1])
        inside = _column(name, array.values.slice(first, last - first), below)
        return Ragged(inside, offsets - first)
    if types.is_fixed_size_list(arrow):
        inside, size = _column(name, array.flatten(), below), arrow.list_size
        if isinstance(inside, np.ndarray):
            return inside.reshape(len(array), size, *inside.shape[1:])
        return Ragged(inside, np.arange(len(array) + 1) * size)
    if _is_bytes(arrow):
        return _strings(array)
    return _numbers(name, array)


def _numbers(name: str, array: Any) -> npt.NDArray[Any]:
    dtype = _dtype(name, array.type)
    if dtype.kind == "V":
        items = np.frombuffer(array.buffers()[1] or b"", dtype)
        return items[array.offset : array.offset + len(array)]
    numbers: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return numbers


def _strings(array: Any) -> Ragged:
    _, offsets, data = array.buffers()
    if offsets is None or not len(array):
        return Ragged(np.empty(0, BYTE), np.zeros(1, np.int64))
    ends = np.frombuffer(offsets, np.int64 if _is_large_bytes(array.type) else np.int32)
    mine = ends[array.offset : array.offset + len(array) + 1]
    return Ragged(np.frombuffer(data or b"", BYTE), mine)


def _shaped_rows(
    name: str, values: npt.NDArray[Any], shapes: npt.NDArray[np.int64], field: Field
) -> Column:
    """Split contiguous values into rows, one for each of these shapes."""
    ragged = field.ragged
    same_axes = shapes.shape[1] == len(field.shape)
    wrong = (shapes[:, ragged:] != np.array(field.inner)).any(axis=1) if same_axes else [True]
    if np.any(wrong):
        found = ",".join(map(str, shapes[int(np.argmax(wrong))]))
        raise ColumnError(
            Message(
                f"column {name!r} is {field}, but a row has the shape [{found}]",
                hint=("give ", Option("fields", {name: ...}), " to say which axes differ"),
            )
        )
    if not ragged:
        return values.reshape(len(shapes), *field.inner)
    column: Column = values.reshape(-1, *field.inner)
    for axis in reversed(range(ragged)):
        lengths = np.repeat(shapes[:, axis], shapes[:, :axis].prod(axis=1))
        column = Ragged(column, np.concatenate([[0], np.cumsum(lengths)]))
    return column
