"""The columns of a text: how they are parsed, and what the parser's arrays become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError, FieldMismatchError
from recmap.model.field import Field
from recmap.model.null_columns import of_field
from recmap.model.ragged import BYTE, TEXT_BYTE, Column, Ragged, masked, null_mask
from recmap.native import _core

_NUMBERS = ("bool", *(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)))
_DTYPES = {name: getattr(_core.Dtype, name) for name in (*_NUMBERS, "float32", "float64")}


@dataclass(frozen=True)
class TextColumn:
    """A column: its type, where it is in a row, and whether the user ``given`` its type."""

    name: str
    path: tuple[str, ...]
    field: Field
    given: bool = False


def is_known(field: Field) -> bool:
    """Return whether values can be text: numbers that have one, strings, and lists of these."""
    return field.is_bytes or (field.dtype.name in _DTYPES and field.dtype.isnative)


def check_type(path: str, name: str, field: Field, *, lists: bool) -> None:
    """Refuse a type that is not read from text."""
    if is_known(field) and (lists or not field.shape):
        return
    what = "numbers, true and false, text and bytes" + (", and lists of these" if lists else "")
    raise FieldMismatchError(
        f"{path}: column {name!r} cannot be {field}: text is read as {what}; read it as text, and "
        "convert it with map",
        file=path,
        field=name,
    )


def native_columns(
    columns: Sequence[TextColumn], wanted: Sequence[str], *, strict: bool
) -> _core.TextColumns:
    """Return the columns for the parser, which keeps the values of those that are wanted."""
    made = _core.TextColumns()
    made.strict = strict
    kept = frozenset(wanted)
    for column in columns:
        field = column.field
        made.add(
            list(column.path),
            _core.Dtype.bytes if field.is_bytes else _DTYPES[field.dtype.name],
            text=field.is_text,
            depth=len(field.shape),
            given=column.given,
            nullable=field.nullable,
            null_items=field.null_items,
            wanted=column.name in kept,
        )
    return made


def parsed_column(
    path: str, name: str, field: Field, values: npt.NDArray[Any], levels: Sequence[Any]
) -> Column:
    """Return a column of what was parsed: its values, and the ends and nulls of each level."""
    ragged = replace(field, shape=(None,) * len(field.shape), fill=None)
    column = of_field(_level(ragged, values, levels), ragged)
    for depth, axis in reversed(list(enumerate(field.shape))):
        if axis is not None:
            column = _with_axis(f"{path}: column {name!r} is {field}", column, depth, axis)
    return column


def _level(field: Field, values: npt.NDArray[Any], levels: Sequence[Any]) -> Column:
    ends, nulls = levels[0]
    if field.shape:
        return Ragged(_level(field.item(), values, levels[1:]), ends, nulls)
    if field.is_bytes:
        return Ragged(values.view(TEXT_BYTE if field.is_text else BYTE), ends, nulls)
    return values if nulls is None else masked(values, nulls)


def _with_axis(told: str, column: Column, depth: int, axis: int) -> Column:
    """Make an axis of a fixed size of the lists at a depth. Null rows have none."""
    assert isinstance(column, Ragged)
    if depth:
        inner = _with_axis(told, column.values, depth - 1, axis)
        return Ragged(inner, column.offsets, column.mask)
    missing = null_mask(column)
    lengths = column.lengths[~missing]
    if bool((lengths != axis).any()):
        found = int(lengths[lengths != axis][0])
        raise ColumnError(
            f"{told}, but a row has another number of values: {found:,}; read it as ragged (*)"
        )
    if isinstance(column.values, Ragged):
        return column  # strings on a fixed axis
    present = column.values.reshape(len(lengths), axis, *column.values.shape[1:])
    if column.mask is None:
        return present
    filled = np.zeros((len(column), *present.shape[1:]), present.dtype)
    filled[~missing] = present
    return masked(filled, missing)
