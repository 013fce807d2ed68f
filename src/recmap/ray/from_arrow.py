"""Blocks of Ray's, as Arrow tables, as columns. Buffers are shared where they can be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from recmap.errors import ColumnError, FieldNotFoundError, FieldTextError
from recmap.model.coerce import empty_column
from recmap.model.ragged import BYTE, Column, Ragged, concatenate
from recmap.model.schema import Batch, Field, Schema
from recmap.ray.base_classes import (
    ArrowVariableShapedTensorType,
    BlockAccessor,
    get_arrow_extension_tensor_types,
)
from recmap.ray.tensors import shaped_rows
from recmap.ray.to_arrow import FIELD_KEY

__all__ = ["batch_of", "known_schema", "schema_of", "table_of_block"]


def table_of_block(block: Any) -> Any:
    """A block of Ray's as a table. Of NumPy's numbers in a block of pandas' Ray makes those
    that are NaN missing values, which they are not.
    """
    table = BlockAccessor.for_block(block).to_arrow()
    if isinstance(block, pa.Table):
        return table
    for place, name in enumerate(table.column_names):
        dtype = block[name].dtype
        if isinstance(dtype, np.dtype) and dtype.kind == "f" and table.column(place).null_count:
            table = table.set_column(place, name, pa.array(block[name].to_numpy()))
    return table


def known_schema(dataset: Any, told: Mapping[str, Field]) -> Schema | None:
    """The schema of a dataset of Ray's, if it is known before its blocks are."""
    found = getattr(dataset.schema(fetch_if_missing=False), "base_schema", None)
    return schema_of(found, told) if isinstance(found, pa.Schema) else None


def schema_of(arrow: Any, told: Mapping[str, Field]) -> Schema:
    """The schema of a table; ``told`` are the fields of columns whose types do not say
    enough.
    """
    for name in told:
        if name not in arrow.names:
            raise FieldNotFoundError(
                f"fields: no column {name!r}; there are: {', '.join(arrow.names)}"
            )
    return Schema({column.name: told.get(column.name) or _field(column) for column in arrow})


def _field(column: Any) -> Field:
    if isinstance(column.type, ArrowVariableShapedTensorType) and column.type.ndim > 1:
        written = (column.metadata or {}).get(FIELD_KEY)
        if written is not None:
            return Field.parse(written.decode())
        raise ColumnError(
            f"column {column.name!r} has rows of {column.type.ndim} axes of different lengths; say "
            f'which of them differ, as in fields={{"{column.name}": "uint8[*,*,3]"}}'
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
            f"column {name!r} has no values that would tell its type; say it, as in "
            f'fields={{"{name}": "int64[*]"}}'
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
        f"column {name!r} is {arrow}, which recmap cannot write; make it numbers, byte strings, or "
        "lists of them, or leave it out with drop_columns()"
    )


def batch_of(table: Any, schema: Schema) -> Batch:
    """The columns of a table. Those that are not in the schema are there as well, for the
    writer to refuse.
    """
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
        return shaped_rows(name, values, shapes.reshape(-1, arrow.ndim), field)
    if _is_tensor(arrow):
        native = hasattr(array, "to_numpy_ndarray")
        dense: npt.NDArray[Any] = array.to_numpy_ndarray() if native else array.to_numpy()
        if not field.ragged:
            return dense
        shape = np.array(dense.shape[1:], np.int64)
        return shaped_rows(name, dense.reshape(-1), np.tile(shape, (len(dense), 1)), field)
    if types.is_dictionary(arrow):
        return _column(name, array.dictionary_decode(), field)
    if types.is_null(arrow):  # the items of lists that are all empty
        return empty_column(field)
    # What is inside of a list has an axis less.
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
