"""What users hand to a writer, as columns of a schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError
from recmap.ragged import Column, Ragged
from recmap.types import BYTES, Batch, Field, Schema

__all__ = ["as_batch", "infer_schema"]


def infer_schema(batch: Mapping[str, Any]) -> Schema:
    """The schema of a batch."""
    return Schema({name: _infer_field(name, _column(name, value)) for name, value in batch.items()})


def as_batch(batch: Mapping[str, Any], schema: Schema) -> tuple[Batch, int]:
    """The columns of a batch, checked against a schema, and how many rows they have."""
    missing = [name for name in schema if name not in batch]
    extra = [name for name in batch if name not in schema]
    if missing or extra:
        parts = [f"{'lacks' if names is missing else 'has unknown'} {', '.join(map(repr, names))}"
                 for names in (missing, extra) if names]  # fmt: skip
        raise ColumnError(f"the batch {' and '.join(parts)}; the schema is {schema}")
    columns = {name: _fit(name, batch[name], schema[name]) for name in schema}
    rows = {name: len(column) for name, column in columns.items()}
    if len(set(rows.values())) > 1:
        raise ColumnError(
            "columns of a batch must have equally many rows, but: "
            + ", ".join(f"{name!r} has {n:,}" for name, n in rows.items())
        )
    return columns, next(iter(rows.values()), 0)


def _infer_field(name: str, column: Column) -> Field:
    axes: list[int | None] = []
    inside: Column = column
    while isinstance(inside, Ragged):
        if inside.is_bytes:
            return Field("bytes", tuple(axes))
        axes.append(None)
        inside = inside.values
    shape = inside.shape[1:]
    if inside.dtype.kind == "V" and inside.dtype.names is not None:
        raise ColumnError(f"field {name!r}: a structured array; write its fields as columns")
    return Field(inside.dtype.newbyteorder("="), (*axes, *shape))


def _column(name: str, value: Any) -> Column:
    """A column of anything that looks like one."""
    if isinstance(value, Ragged):
        return value
    if not isinstance(value, np.ndarray):
        if isinstance(value, str | bytes | Mapping):
            raise ColumnError(
                f"field {name!r}: a column has a value for every row, not one "
                f"{type(value).__name__}"
            )
        value = _from_sequence(name, value)
    if isinstance(value, Ragged):
        return value
    array: npt.NDArray[Any] = value
    if array.ndim == 0:
        raise ColumnError(f"field {name!r}: a column has a value for every row, not one number")
    if array.dtype.kind in "SU":
        if array.ndim > 1:
            raise ColumnError(f"field {name!r}: strings come as one per row")
        return _strings(name, array.tolist())
    if array.dtype.kind == "O":
        return _from_objects(name, list(array))
    return array


def _from_sequence(name: str, value: Any) -> Column:
    rows: Sequence[Any] = value if isinstance(value, Sequence) else list(value)
    if len(rows) and isinstance(rows[0], str | bytes | bytearray | memoryview):
        return _strings(name, rows)
    try:
        array = np.asarray(rows)
    except ValueError:
        return _from_objects(name, rows)
    return _from_objects(name, rows) if array.dtype.kind == "O" else array


def _from_objects(name: str, rows: Sequence[Any]) -> Column:
    if len(rows) and isinstance(rows[0], str | bytes | bytearray | memoryview):
        return _strings(name, rows)
    if any(isinstance(item, str | bytes) for row in rows if isinstance(row, list) for item in row):
        items = [item for row in rows for item in row]
        ends = np.cumsum([0, *(len(row) for row in rows)])
        return Ragged(_strings(name, items), ends)
    try:
        return Ragged.from_rows(rows)
    except (TypeError, ValueError) as e:
        raise ColumnError(f"field {name!r}: rows that are no arrays of numbers: {e}") from e


def _strings(name: str, rows: Sequence[Any]) -> Ragged:
    try:
        return Ragged.from_bytes([r.encode() if isinstance(r, str) else bytes(r) for r in rows])
    except TypeError as e:
        raise ColumnError(f"field {name!r}: not all rows are byte strings: {e}") from e


def _fit(name: str, value: Any, field: Field) -> Column:
    column = _column(name, value)
    if len(column) == 0 and not isinstance(value, np.ndarray | Ragged):
        return _empty(field)
    found = _infer_field(name, column)
    # A list says little about its dtype: [1, 2] may be meant for an int32 field.
    exact = isinstance(value, np.ndarray | Ragged)
    if field.ragged and not found.ragged and isinstance(column, np.ndarray) and column.ndim > 1:
        rows, width = column.shape[:2]
        column = Ragged(column.reshape(rows * width, *column.shape[2:]),
                        np.arange(rows + 1) * width)  # fmt: skip
        found = _infer_field(name, column)
    if found.shape != field.shape and not _regular_strings(found, field):
        raise ColumnError(f"field {name!r} is {field}, but the column is {found}")
    if found.is_bytes != field.is_bytes:
        raise ColumnError(f"field {name!r} is {field}, but the column is {found}")
    return column if field.is_bytes else _cast(name, column, field, exact)


def _regular_strings(found: Field, field: Field) -> bool:
    """Strings along fixed axes come as a Ragged; their lengths are checked later."""
    return field.is_bytes and found.is_bytes and len(found.shape) == len(field.shape)


def _cast(name: str, column: Column, field: Field, exact: bool) -> Column:
    dtype = field.dtype.newbyteorder("=") if field.dtype.kind != "V" else field.dtype
    if isinstance(column, Ragged):
        inside = _cast(name, column.values, field, exact)
        return column if inside is column.values else Ragged(inside, column.offsets)
    if column.dtype.newbyteorder("=") == dtype:
        return column
    if np.can_cast(column.dtype, dtype, "safe"):
        return column.astype(dtype)
    if not exact:
        cast = column.astype(dtype)
        if np.array_equal(cast, column) or column.dtype.kind == dtype.kind == "f":
            return cast
    raise ColumnError(
        f"field {name!r} is {field}, but the column has dtype {column.dtype}, which would lose "
        f"values (cast it with .astype({str(dtype)!r}), or change the schema)"
    )


def _empty(field: Field) -> Column:
    column: Column = (
        Ragged.from_bytes([]) if field.dtype == BYTES else np.empty((0, *field.inner), field.dtype)
    )
    if field.is_bytes:
        for _ in field.inner:
            column = Ragged(column, np.zeros(1, np.int64))
    for _ in range(field.ragged):
        column = Ragged(column, np.zeros(1, np.int64))
    return column
