"""What becomes of nulls: ``fill_null``, ``mask_null`` and ``drop_null``, as sources.

Sources that are combined agree on which of their columns may hold nulls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError, FieldTextError, Message, Option, OptionError
from recmap.model.batch import RowNumbers
from recmap.model.field import Field
from recmap.model.null_columns import (
    any_nat,
    can_widen,
    first_null,
    joint_field,
    rows_with_nulls,
    widened,
    without_masks,
)
from recmap.model.nulls import (
    NULL_SUFFIX,
    Nulls,
    filled_rows,
    has_default,
    mask_taken,
    read_anyway,
    read_as_null,
)
from recmap.model.order import Order
from recmap.model.ordered_rows import OrderedRows
from recmap.model.ragged import Column, Ragged, has_mask, null_mask
from recmap.model.schema import Schema
from recmap.model.source import ColumnMap, MappedColumns, Source

_NUMBERS = (bool, int, float, complex, np.number, np.bool_)


def fill_values(schema: Schema, value: Any) -> dict[str, Any]:
    """Return what to fill each column with; a single value is for all columns that can hold it."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            _check_fill(name, schema[name], each)
        return dict(value)
    values = {
        name: value
        for name, field in schema.items()
        if field.has_nulls and _is_of_kind(field, value)
    }
    for name in values:
        _check_fill(name, schema[name], value)
    nullable = [f"{name!r} is {field}" for name, field in schema.items() if field.has_nulls]
    if nullable and not values:
        raise OptionError(
            f"fill_null({value!r}): no column with nulls holds such values: "
            f'{", ".join(nullable)}; give a value for each column, as in fill_null({{"x": 0}})'
        )
    return values


def _is_of_kind(field: Field, value: Any) -> bool:
    if field.is_bytes:
        return isinstance(value, str if field.is_text else bytes)
    return isinstance(value, _NUMBERS) and field.dtype.kind in "biufcV"


def _check_fill(name: str, field: Field, value: Any) -> None:
    if field.ragged and _is_empty(value):
        if field.null_items:
            raise OptionError(
                f"fill_null: {name!r} is {field}, and its items may be null, too; give a value for "
                "them. Null lists become empty."
            )
        return
    try:
        _filling(field, value)
    except FieldTextError as e:
        raise OptionError(f"fill_null: {name!r} is {field}: {e}") from None


def _is_empty(value: Any) -> bool:
    return isinstance(value, list | tuple) and not value


def _filling(field: Field, value: Any) -> npt.NDArray[Any] | bytes:
    """Return the row that replaces a null row, or the item of a list."""
    return Field(field.dtype, field.inner, value).fill_row()


def filled(source: Source, values: Mapping[str, Any]) -> Source:
    """Return a source whose nulls are filled."""
    maps = {name: ColumnMap(name, field) for name, field in source.schema.items()}
    for name, value in values.items():
        field = source.schema[name]
        if field.has_nulls or field.dtype.kind in "mM":
            convert = partial(_fill, field, value)
            maps[name] = ColumnMap(name, field.without_nulls(), convert, 2)
    return MappedColumns(source, maps)


def _fill(field: Field, value: Any, column: Column, rows: RowNumbers) -> Column:
    del rows
    if isinstance(column, Ragged) and field.ragged:
        values = column.values
        if not _is_empty(value):
            values = _fill(field.item(), value, values, range(0))
        return Ragged(without_masks(values), column.offsets)
    missing = _missing(column)
    plain = without_masks(column)
    return filled_rows(plain, field, _filling(field, value), missing) if missing.any() else plain


def _missing(column: Column) -> npt.NDArray[np.bool_]:
    """Return which rows are null, or NaT."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "mM":
        return np.asarray(any_nat(np.asarray(column)) | null_mask(column), np.bool_)
    return null_mask(column)


def masked(source: Source, names: Sequence[str], fills: Mapping[str, Any] | None = None) -> Source:
    """Return a source with a column ``x/is_null`` for each of these.

    Nulls become 0 or empty, or those of ``fills``.
    """
    maps: dict[str, ColumnMap] = {}
    for name, field in source.schema.items():
        maps[name] = ColumnMap(name, field)
        if name not in names:
            continue
        if field.null_items:
            raise OptionError(
                f"mask_null: {name!r} is {field}: a mask has one value for each row, so it cannot "
                f"say which items are null; fill them, ds.fill_null({{{name!r}: ...}}), or leave "
                f"out the rows, ds.drop_null({name!r})"
            )
        mask = name + NULL_SUFFIX
        if mask in source.schema:
            raise OptionError(f"mask_null: there is already a column {mask!r}; rename it")
        dates = field.dtype.kind in "mM" and not field.ragged
        plain: Callable[[Any, RowNumbers], Column] = partial(_fill, field, 0) if dates else _plain
        if fills and name in fills:
            plain = partial(_fill, field, fills[name])
        maps[name] = ColumnMap(name, field.without_nulls(), plain)
        maps[mask] = ColumnMap(name, Field(np.bool_), _mask)
    return MappedColumns(source, maps)


def _plain(column: Column, rows: RowNumbers) -> Column:
    del rows
    return without_masks(column)


def _mask(column: Column, rows: RowNumbers) -> Column:
    del rows
    return _missing(column)


def complete_rows(batch: Mapping[str, Column]) -> npt.NDArray[np.bool_]:
    """Return which rows have no nulls in any of these columns."""
    dropped = [rows_with_nulls(column, dates=True) for column in batch.values()]
    return np.asarray(~np.logical_or.reduce(dropped), np.bool_)


def without_nulls(source: Source, rows: Order, names: Sequence[str]) -> Source:
    """Return these rows, in which these columns have no nulls."""
    return refusing(OrderedRows(source, rows), names)


def with_other_nulls(source: Source, fields: Mapping[str, Field]) -> Source:
    """Return columns as others that differ only in their nulls; where there are none, one raises.

    Those that are the same are left alone.
    """
    other = {name: field for name, field in fields.items() if field != source.schema[name]}
    fewer = [name for name, field in other.items() if source.schema[name].has_nulls]
    source = refusing(source, fewer, "field") if fewer else source
    more = {name: field for name, field in other.items() if field.has_nulls}
    if not more:
        return source
    maps = {name: ColumnMap(name, field) for name, field in source.schema.items()}
    for name, field in more.items():
        maps[name] = ColumnMap(name, field, partial(widened, field=field), 2)
    return MappedColumns(source, maps)


def refusing(
    source: Source, names: Sequence[str], because: Literal["option", "field"] | None = None
) -> Source:
    """Return a source whose columns are not nullable; a null is an error.

    ``because`` says what does not allow nulls, for advice.
    """
    maps = {name: ColumnMap(name, field) for name, field in source.schema.items()}
    for name in names:
        field = source.schema[name]
        if field.has_nulls:
            maps[name] = ColumnMap(
                name, field.without_nulls(), partial(_refuse, name, field, because)
            )
    return MappedColumns(source, maps)


def _refuse(
    name: str, field: Field, because: str | None, column: Column, rows: RowNumbers
) -> Column:
    row = first_null(column) if _may_be_null(column) else None
    if row is not None:
        number = int(rows[row])
        item = ", or one of its items is null" if field.null_items else ""
        text = f"column {name!r} has no value in row {number:,}{item}"
        hints = {"option": read_anyway(field), "field": read_as_null(name, field)}
        raise DataError(Message(text, hint=hints.get(because or "", ())), field=name, record=number)
    return without_masks(column)


def _may_be_null(column: Column) -> bool:
    return has_mask(column) or isinstance(column, Ragged)


def decided(source: Source, nulls: Nulls) -> Source:
    """Apply the option ``nulls`` to columns that may hold nulls."""
    schema = source.schema
    names = [name for name, field in schema.items() if field.has_nulls]
    if nulls == "keep" or not names:
        return source
    if nulls == "error":
        return refusing(source, names, "option")
    if nulls == "mask":
        for name in names:
            if name + NULL_SUFFIX in schema:
                raise mask_taken(name + NULL_SUFFIX)
        items = {name: _default(name, schema[name]) for name in names if schema[name].null_items}
        rows = [name for name in names if name not in items]
        fills = {name: np.nan for name in rows if schema[name].dtype.kind in "fc"}
        return masked(filled(source, items), rows, fills)
    return filled(source, {name: _default(name, schema[name]) for name in names})


def _default(name: str, field: Field) -> Any:
    """Return what fills nulls if no value was given: NaN, or nothing."""
    if has_default(field):
        if field.is_bytes:
            return "" if field.is_text else b""
        return [] if field.ragged and not field.null_items else np.nan
    filled = f"{field.without_nulls()} = 0"
    raise OptionError(
        Message(
            f"column {name!r} is {field}, and there is nothing to fill its nulls with",
            hint=("give a value, as in ", Option("fields", {name: filled, ...: None})),
        )
    )


def with_the_same_nulls(sources: Sequence[Source]) -> Sequence[Source]:
    """Return the sources with columns that are nullable if those of any source are."""
    schemas = [source.schema for source in sources]
    if not any(field.has_nulls for schema in schemas for field in schema.values()):
        return sources
    joint = dict(schemas[0])
    for schema in schemas[1:]:
        for name in joint.keys() & schema.keys():
            joint[name] = joint_field(joint[name], schema[name])
    return [as_nullable(source, joint) for source in sources]


def with_the_same_masks(sources: Sequence[Source]) -> Sequence[Source]:
    """Return the sources with the masks that any of them has: another may have no nulls."""
    masks = {n for source in sources for n in source.schema if n.endswith(NULL_SUFFIX)}
    return [_with_masks(source, masks) for source in sources] if masks else sources


def _with_masks(source: Source, masks: Collection[str]) -> Source:
    maps: dict[str, ColumnMap] = {}
    for name, field in source.schema.items():
        maps[name] = ColumnMap(name, field)
        mask = name + NULL_SUFFIX
        if mask in masks and mask not in source.schema:
            maps[mask] = ColumnMap(name, Field(np.bool_), _no_nulls)
    return source if len(maps) == len(source.schema) else MappedColumns(source, maps)


def _no_nulls(column: Column, rows: RowNumbers) -> Column:
    del rows
    return np.zeros(len(column), np.bool_)


def as_nullable(source: Source, joint: Mapping[str, Field]) -> Source:
    """Return a source with columns that may hold nulls where those of ``joint`` may."""
    if all(field == joint.get(name) for name, field in source.schema.items()):
        return source
    maps = {}
    for name, field in source.schema.items():
        wanted = joint.get(name, field)
        if field == wanted or not can_widen(field, wanted):
            maps[name] = ColumnMap(name, field)
        else:
            maps[name] = ColumnMap(name, wanted, partial(widened, field=wanted), 2)
    return MappedColumns(source, maps)
