"""Nulls: values that are missing, and what becomes of them.

A field whose rows may be null is nullable: ``int64?``. Its columns say where: a dense one is a
``np.ma.MaskedArray``, whose masked rows are None, and a ``Ragged`` has a ``mask``. If items of
lists may be null, ``int64[*?]``, the values of the ``Ragged`` are such a column themselves. What
lies under a mask is 0, an empty string or an empty list. Only items of ragged axes can be null by
themselves, so lists of a fixed size whose items are null are read as ragged ones.

Null dates and durations are NaT, which loses nothing; their fields are not nullable, unless they
are lists.

The option ``nulls`` is a short form of what ``Dataset`` has verbs for:

- ``"keep"``: nulls are values, as above;
- ``"error"``: an error that names the column and the row;
- ``"fill"``: the fill value of the field, or else NaN, an empty string or an empty list;
  integers, booleans and bytes of a fixed size need a fill value;
- ``"mask"``: filled the same way, with 0 and False if there is no fill value, and a column
  ``x/is_null`` says where. It goes wherever its column goes. Null items of lists are filled, too,
  but the mask does not tell where, so integers there always need a fill value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError, DataError, InPython, Message, Option, OptionError
from recmap.model.field import Field
from recmap.model.null_columns import emptied, empty_column
from recmap.model.ragged import Column, Ragged, concatenate

Nulls: TypeAlias = Literal["keep", "error", "fill", "mask"]
NULLS: tuple[Nulls, ...] = ("keep", "error", "fill", "mask")

#: Why batches have no nulls.
TRAINING = "decide what a model gets instead"

# The name of a mask column is that of its column and this.
NULL_SUFFIX = "/is_null"

Mask: TypeAlias = npt.NDArray[np.bool_]


def with_masks(names: Iterable[str], columns: Collection[str]) -> list[str]:
    """Return chosen columns, each with its mask if there is one: nulls never pass for values.

    >>> with_masks(["y", "x"], ["x", "x/is_null", "y"])
    ['y', 'x', 'x/is_null']
    """
    chosen = list(names)
    masks = {name: name + NULL_SUFFIX for name in chosen}
    return [
        each
        for name in chosen
        for each in (name, masks[name])
        if each == name or (each in columns and each not in masks)
    ]


def refuse_nulls(schema: Mapping[str, Field], why: str, *, verbs: bool = True) -> None:
    """Refuse columns that may hold nulls, and say what can be done.

    Without ``verbs``, there is no ``Dataset`` that has them, only the options of a reader.
    """
    found = [name for name, field in schema.items() if field.has_nulls]
    if found:
        name = found[0]
        field = schema[name]
        more = f", and {len(found) - 1:,} more" if len(found) > 1 else ""
        drop = InPython(f", leave out their rows, ds.drop_null({name!r})")
        ways = _filling(name, field), drop, *_or_mask(name, field)
        if not verbs:
            options = [way._replace(call="") if isinstance(way, Option) else way for way in ways]
            ways = tuple(way for way in options if way is not drop)
        text = f"column {name!r} is {field}, which may hold nulls{more}; {why}: fill them, "
        raise ColumnError(Message(text, *ways))


def _filling(name: str, field: Field) -> Option:
    """Return how nulls are filled: by a verb or, on the command line, by an option."""
    call = f"ds.fill_null({{{name!r}: {_example(field)}}})"
    if has_default(field):
        return Option("nulls", "fill", call=call)
    filled = f"{field.without_nulls()} = 0"
    return Option("fields", {name: filled, ...: None}, call=call)


def has_default(field: Field) -> bool:
    """Return whether nulls can be filled though no value is given: with NaN, or nothing."""
    if field.is_bytes or field.dtype.kind in "fc":
        return True
    return bool(field.ragged) and not field.null_items


def refuse_null_items(schema: Mapping[str, Field], why: str) -> None:
    """Refuse columns whose lists may hold nulls, and say what can be done."""
    refuse_nulls({name: field for name, field in schema.items() if field.null_items}, why)


def _example(field: Field) -> str:
    if field.ragged and not field.null_items:
        return "[]"
    if field.is_bytes:
        return '""' if field.is_text else 'b""'
    return {"b": "False", "f": "0.0"}.get(field.dtype.kind, "0")


def _or_mask(name: str, field: Field) -> tuple[str | Option, ...]:
    if field.null_items:
        return ()
    mask = Option("nulls", "mask", call=f"ds.mask_null({name!r})")
    return ", or add a column that says where they are, ", mask


def fill_rows(
    name: str,
    column: Column,
    field: Field,
    missing: Mask,
    nulls: Nulls,
    first_row: int,
    *,
    given: bool = False,
) -> Column:
    """Fill the rows of a column that are missing, or raise.

    ``given`` means that a field says that there are no nulls, rather than the option.
    """
    value = _row(field, nulls)
    if value is None:
        row = first_row + int(np.argmax(missing))
        message = _complaint(name, field, row, nulls)
        if given:
            text = f"column {name!r} has no value in row {row:,}, but the field is {field}"
            message = Message(text, hint=read_as_null(name, replace(field, nullable=True)))
        raise DataError(message, field=name, record=row)
    return filled_rows(column, field, value, missing)


def fill_items(items: Column, field: Field, missing: Mask, nulls: Nulls) -> Column | None:
    """Fill missing items of lists; return None if there is nothing to fill them with.

    The mask of a column has one value per row, so it cannot tell of items.
    """
    value = _row(field, "error" if nulls in ("error", "keep") else "fill")
    if value is None:
        return None
    return filled_rows(items, field, value, missing)


def _row(field: Field, nulls: Nulls) -> Any:
    """Return the value of a missing row; None if there is none."""
    if field.dtype.kind in "mM" and not field.ragged:
        unset = field.fill is None or nulls == "error"
        return np.array("NaT", field.dtype)[()] if unset else field.fill_row()
    if nulls == "error":
        return None
    if field.ragged:
        return b""
    if field.fill is not None:
        return field.fill_row()
    if field.is_bytes:
        return b""
    if field.dtype.kind in "fc":
        return np.nan
    zero = nulls == "mask" and field.dtype.kind in "biuV"
    return np.zeros((), field.dtype)[()] if zero else None


def _complaint(name: str, field: Field, row: int, nulls: Nulls) -> Message:
    text = f"column {name!r} has no value in row {row:,}"
    if nulls == "error":
        return Message(text, hint=read_anyway(field))
    return _unfilled(text, name, field)


def read_as_null(name: str, field: Field) -> tuple[Any, ...]:
    """Return the hint to give a column a field that has nulls."""
    return "read it as null, ", Option("fields", {name: str(field), ...: None})


def read_anyway(field: Field) -> tuple[Any, ...]:
    """Return the values of ``nulls`` that read a column with nulls, for a hint."""
    ways = [Option("nulls", "keep")]
    if not field.null_items:
        ways.append(Option("nulls", "mask"))
    if has_default(field):
        ways.append(Option("nulls", "fill"))
    spaced = [part for way in ways for part in (" or ", way)]
    return ("use ", *spaced[1:], " to read it")


def mask_taken(mask: str) -> OptionError:
    """Return the error for a mask whose name is that of a column."""
    return OptionError(
        Message(
            Option("nulls", "mask"),
            f": there is already a column {mask!r}; open it without, or with ",
            Option("nulls", "fill"),
        )
    )


def null_item(name: str, field: Field, row: int, nulls: Nulls) -> DataError:
    """Return the error for a null in a list that is not filled."""
    text = f"column {name!r}, row {row:,}: a list holds a null"
    if nulls == "keep":  # a list of a fixed size
        ragged = Field(field.dtype, (None, *field.shape[1:]), null_items=True)
        hint = ("read lists of any length, ", Option("fields", {name: str(ragged), ...: None}))
        message = Message(text, hint=hint)
    elif nulls == "error":
        message = Message(text, hint=read_anyway(replace(field, nullable=False, null_items=True)))
    else:
        message = _unfilled(text, name, field)
    return DataError(message, field=name, record=row)


def _unfilled(text: str, name: str, field: Field) -> Message:
    filled = f"{Field(field.dtype, field.shape)} = 0"
    return Message(
        f"{text}, and nothing to fill it with",
        hint=("give a value, as in ", Option("fields", {name: filled, ...: None})),
    )


def filled_rows(column: Column, field: Field, value: Any, missing: Mask) -> Column:
    """Return a column whose missing rows have a value."""
    if isinstance(column, np.ndarray):
        filled = column.copy()
        filled[missing] = value
        return filled
    if field.inner and not field.ragged:  # a fixed number of strings, each of them missing
        each, offsets = Field(field.dtype, field.shape[1:]), column.offsets - column.offsets[0]
        return Ragged(
            filled_rows(column.flat, each, value, np.repeat(missing, field.inner[0])), offsets
        )
    column = emptied(column, missing)
    if field.ragged or not value:
        return column
    extra = Ragged(np.frombuffer(value, column.dtype), [0, len(value)])
    return concatenate([column, extra])[np.where(missing, len(column), np.arange(len(column)))]


def blank(field: Field, rows: int) -> Column:
    """Return rows of zeros, empty strings or empty lists."""
    if field.ragged or (field.is_bytes and not field.inner):
        empty = empty_column(field)
        assert isinstance(empty, Ragged)
        return Ragged(empty.values, np.zeros(rows + 1, np.int64))
    if field.is_bytes:
        items = blank(Field(field.dtype, field.shape[1:]), rows * field.inner[0])
        return Ragged(items, np.arange(rows + 1) * field.inner[0])
    return np.zeros((rows, *field.inner), field.dtype)


def values_and_validity(column: Column, is_null: Mask | None = None) -> tuple[Column, Mask | None]:
    """Return the values of a column, and which rows are not null; None if none of them is.

    Nulls are marked by a mask of the column itself, or by ``is_null``, its mask column. NaT is
    a null date.

    >>> values_and_validity(np.ma.masked_array([1, 2], mask=[False, True]))
    (array([1, 2]), array([ True, False]))
    """
    missing = is_null
    mask = getattr(column, "mask", None)
    if mask is not None and np.any(mask):
        each = np.broadcast_to(mask, (len(column), *np.shape(mask)[1:])).reshape(len(column), -1)
        masked = np.asarray(each.all(axis=1))
        missing = masked if missing is None else missing | masked
    if isinstance(column, np.ma.MaskedArray):
        column = np.asarray(column)
    if isinstance(column, np.ndarray) and column.dtype.kind in "mM" and column.ndim == 1:
        unset = np.isnat(column)
        missing = unset if missing is None else missing | unset
    return column, None if missing is None or not missing.any() else ~missing
