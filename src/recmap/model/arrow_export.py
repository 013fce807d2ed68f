"""Lay out fields and columns as Arrow does, sharing memory where possible.

Numbers with one axis become fixed-size lists, with more axes ``arrow.fixed_shape_tensor``.
Ragged rows become lists, byte strings binary, text strings. Nulls and NaT become null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError, FieldMismatchError
from recmap.model.field import Field
from recmap.model.ragged import Column, Ragged, has_mask, null_mask
from recmap.model.schema import Schema
from recmap.model.text import first_not_text
from recmap.native import _core

Tensors: TypeAlias = Literal["extension", "list"]

# The keys under which Arrow stores an extension type, and the one for rows of several axes.
EXTENSION_NAME, EXTENSION_METADATA = b"ARROW:extension:name", b"ARROW:extension:metadata"
TENSOR = b"arrow.fixed_shape_tensor"

_NUMBERS = {
    "?": "b",
    "b": "c",
    "h": "s",
    "i": "i",
    "l": "l",
    "q": "l",
    "B": "C",
    "H": "S",
    "I": "I",
    "L": "L",
    "Q": "L",
    "e": "e",
    "f": "f",
    "d": "g",
}
_UNITS = {"s": "s", "ms": "m", "us": "u", "ns": "n"}
_DATE = np.dtype("M8[D]")


def arrow_type(schema: Schema, tensors: Tensors) -> _core.ArrowField:
    """Return the Arrow type of batches: a struct of columns."""
    children = [_column_type(name, field, tensors) for name, field in schema.items()]
    return _core.ArrowField("+s", "", [], children)


def _column_type(name: str, field: Field, tensors: Tensors) -> _core.ArrowField:
    value = _value_format(name, field)
    if tensors == "extension" and _is_tensor(field):
        metadata = [
            (EXTENSION_NAME, TENSOR),
            (EXTENSION_METADATA, json.dumps({"shape": field.inner}).encode()),
        ]
        item = _core.ArrowField(value, "item", [], [])
        return _core.ArrowField(f"+w:{field.count}", name, metadata, [item])
    formats = ["+L" if axis is None else f"+w:{axis}" for axis in field.shape] + [value]
    names = [name] + ["item"] * len(field.shape)
    made = _core.ArrowField(formats[-1], names[-1], [], [])
    for each, called in zip(formats[-2::-1], names[-2::-1], strict=True):
        made = _core.ArrowField(each, called, [], [made])
    return made


def _is_tensor(field: Field) -> bool:
    return not field.ragged and len(field.inner) > 1 and not field.is_bytes


def _value_format(name: str, field: Field) -> str:
    dtype = field.dtype
    if field.is_bytes:
        return "U" if field.is_text else "Z"
    if dtype.kind in "mM":
        unit, step = np.datetime_data(dtype)
        if step == 1 and unit in _UNITS:
            return f"ts{_UNITS[unit]}:" if dtype.kind == "M" else f"tD{_UNITS[unit]}"
        if dtype == _DATE:
            return "tdD"
        better = "datetime64[s]" if dtype.kind == "M" else "timedelta64[s]"
        raise _no_such_type(name, field, f"cast it first: ds.cast({{{name!r}: {better!r}}})")
    if dtype.type is np.void and dtype.itemsize:
        return f"w:{dtype.itemsize}"
    if dtype.char not in _NUMBERS:
        hint = "leave it out with ds.select(...), or split it into columns with map"
        if dtype.kind in "Vf":  # bfloat16 and the like, long double
            better = "float64" if dtype.kind == "f" else "float32"
            hint = f"cast it first: ds.cast({{{name!r}: {better!r}}})"
        raise _no_such_type(name, field, hint)
    return _NUMBERS[dtype.char]


def _no_such_type(name: str, field: Field, hint: str) -> FieldMismatchError:
    return FieldMismatchError(
        f"column {name!r} is {field}, and Arrow has no such type; {hint}", field=name
    )


def arrow_batch(batch: Mapping[str, Any], schema: Schema, tensors: Tensors) -> _core.ArrowColumn:
    """Lay out the columns of a batch, which must be those of the schema."""
    rows, children = -1, []
    for name, field in schema.items():
        if name not in batch:
            raise ColumnError(f"the batch lacks {name!r}")
        column = batch[name]
        if rows >= 0 and len(column) != rows:
            raise ColumnError(f"column {name!r} has {len(column):,} rows, not {rows:,}")
        rows = len(column)
        try:
            made = _layout(column, field, tensors)
        except ColumnError as e:
            raise ColumnError(f"column {name!r}: {e}") from None
        children.append(made)
    return _core.ArrowColumn(max(rows, 0), 0, [None], children)


def _layout(column: Column, field: Field, tensors: Tensors) -> _core.ArrowColumn:
    if has_mask(column) and not field.nullable and null_mask(column).any():
        raise ColumnError(f"its type is {field}, but a row is null")
    if isinstance(column, np.ndarray):
        return _dense(column, field, flat=tensors == "extension" and _is_tensor(field))
    if not isinstance(column, Ragged):
        raise ColumnError(f"{type(column).__name__} is not a column")
    nulls, valid = _validity(column)
    offsets, values = _from_zero(column)
    if not field.shape:
        if not column.is_bytes or column.is_text != field.is_text:
            raise _misfit(column, field)
        # Nor do consumers check that text is UTF-8.
        if field.is_text and (row := first_not_text(column)) is not None:
            raise ColumnError(f"row {row:,} of a batch is not UTF-8")
        assert isinstance(values, np.ndarray)
        return _core.ArrowColumn(len(column), nulls, [valid, _raw(offsets), _raw(values)], [])
    # Nobody sees the type of lists of lists, so tensors stay lists there.
    items = _layout(values, field.item(), "list")
    axis = field.shape[0]
    if axis is None:
        return _core.ArrowColumn(len(column), nulls, [valid, _raw(offsets)], [items])
    if not np.array_equal(offsets, np.arange(len(column) + 1) * axis):
        raise ColumnError(f"its rows are not all of {axis:,} items, as {field} says")
    return _core.ArrowColumn(len(column), nulls, [valid], [items])


def _validity(column: Column) -> tuple[int, npt.NDArray[np.uint8] | None]:
    """Return the number of nulls, and the bitmap of the other rows; None if there are no nulls."""
    missing = null_mask(column) if has_mask(column) else None
    nulls = 0 if missing is None else int(np.count_nonzero(missing))
    if missing is None or not nulls:
        return 0, None
    return nulls, np.packbits(~missing, bitorder="little")


def _from_zero(column: Ragged) -> tuple[npt.NDArray[np.int64], Column]:
    """Return offsets that begin with 0, and the values they refer to."""
    offsets = np.ascontiguousarray(column.offsets)
    # Consumers trust them and would read outside of the values.
    if not _core.offsets_are_sound(offsets, len(column.values)):
        raise ColumnError("the offsets of a Ragged must ascend and end inside its values")
    first = int(offsets[0])
    return offsets - first if first else offsets, column.flat


def _dense(array: npt.NDArray[Any], field: Field, *, flat: bool) -> _core.ArrowColumn:
    if field.ragged or field.is_bytes or array.shape[1:] != field.inner:
        raise _misfit(array, field)
    if array.dtype.newbyteorder("=") != field.dtype.newbyteorder("="):
        raise _misfit(array, field)
    axes = (field.count,) if flat else field.inner
    nulls, valid = _validity(array)
    if has_mask(array):
        array = np.asarray(array)
    made = _values(np.ascontiguousarray(array).reshape(-1), None if axes else (nulls, valid))
    counts = [len(array)]
    for axis in axes[:-1]:
        counts.append(counts[-1] * axis)
    for level, count in reversed(list(enumerate(counts if axes else []))):
        made = _core.ArrowColumn(count, 0 if level else nulls, [None if level else valid], [made])
    return made


def _values(
    flat: npt.NDArray[Any], validity: tuple[int, npt.NDArray[np.uint8] | None] | None
) -> _core.ArrowColumn:
    if not flat.dtype.isnative:
        flat = flat.astype(flat.dtype.newbyteorder("="))
    nulls, valid = validity or (0, None)
    if flat.dtype.kind in "mM":
        missing = np.isnat(flat)
        nulls = int(np.count_nonzero(missing))
        valid = np.packbits(~missing, bitorder="little") if nulls else None
        if flat.dtype == _DATE:
            flat = _days(flat, missing)
    elif flat.dtype.kind == "b":
        bits = np.packbits(flat, bitorder="little")
        return _core.ArrowColumn(len(flat), nulls, [valid, bits], [])
    return _core.ArrowColumn(len(flat), nulls, [valid, _raw(flat)], [])


def _days(dates: npt.NDArray[Any], missing: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    days = np.where(missing, 0, dates.view(np.int64))
    narrow = days.astype(np.int32)
    if not np.array_equal(narrow, days):
        raise ColumnError("a date out of range for Arrow, whose dates are 32-bit days")
    return narrow


def _misfit(column: Column, field: Field) -> ColumnError:
    found = column if isinstance(column, Ragged) else f"{column.dtype} of shape {column.shape}"
    return ColumnError(f"its type is {field}, but a batch has {found}")


def _raw(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(array).view(np.uint8)
