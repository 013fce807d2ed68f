"""Columns with nulls: what their fields say of them, and how they become columns without."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.model.batch import RowNumbers
from recmap.model.field import Field
from recmap.model.ragged import Column, Ragged, has_mask, masked, null_mask, offsets_of
from recmap.model.text import as_strings_of


def either(one: Field, other: Field) -> Field:
    """Return a field that holds the values of both, which differ at most in their nulls."""
    nulls = one.nullable or other.nullable, one.null_items or other.null_items
    return replace(one, nullable=nulls[0], null_items=nulls[1])


def of_field(column: Column, field: Field) -> Column:
    """Return a column of a nullable field with a mask, even if none of its rows is null."""
    if not field.has_nulls:
        return column
    if isinstance(column, Ragged) and field.ragged:
        values = of_field(column.values, field.item())
        mask = np.zeros(len(column), np.bool_) if field.nullable else None
        return Ragged(values, column.offsets, mask if column.mask is None else column.mask)
    if not field.nullable or has_mask(column):
        return column
    return masked(column, np.zeros(len(column), np.bool_))


def empty_column(field: Field) -> Column:
    """Return an empty column of this field."""
    column = _empty(field)
    return of_field(column, field) if field.has_nulls else column


def _empty(field: Field) -> Column:
    column: Column
    if field.is_bytes:
        column = as_strings_of(field, Ragged.from_bytes([]))
        for _ in field.inner:
            column = Ragged(column, np.zeros(1, np.int64))
    else:
        column = np.empty((0, *field.inner), field.dtype)
    for _ in range(field.ragged):
        column = Ragged(column, np.zeros(1, np.int64))
    return column


def can_widen(field: Field, wanted: Field) -> bool:
    """Return whether all columns of a field can be columns of another one with more nulls."""
    if field.dtype != wanted.dtype or len(field.shape) != len(wanted.shape):
        return False
    axes = zip(field.shape, wanted.shape, strict=True)
    return all(axis == other or other is None for axis, other in axes)


def joint_field(one: Field, other: Field) -> Field:
    """Return the field for the values of both, if they differ only in their nulls.

    Lists of a fixed size are ragged where their items are null.
    """
    if one.null_items or other.null_items:
        if can_widen(one, other):
            return either(other, one)
        if can_widen(other, one):
            return either(one, other)
    return either(one, other) if (one.dtype, one.shape) == (other.dtype, other.shape) else one


def widened(column: Column, rows: RowNumbers, *, field: Field) -> Column:
    """Return a column as one of a field with more nulls; ``rows`` are not looked at."""
    del rows
    return of_field(_as_ragged(column, field.ragged), field)


def _as_ragged(column: Column, axes: int) -> Column:
    if not axes:
        return column
    if isinstance(column, np.ndarray):
        missing, array = null_mask(column), np.asarray(column)
        length = array.shape[1]
        lengths = np.where(missing, 0, length)
        values = array[~missing].reshape(-1, *array.shape[2:])
        mask = missing if has_mask(column) else None
        column = Ragged(values, offsets_of(lengths), mask)
    return Ragged(_as_ragged(column.values, axes - 1), column.offsets, column.mask)


def kept(column: Column, missing: npt.NDArray[np.bool_]) -> Column:
    """Return a column whose missing rows are null; NaT if they are dates."""
    if isinstance(column, Ragged):
        return masked(column, missing)
    dates = column.dtype.kind in "mM"
    filled = np.array(column)
    null = np.array("NaT", column.dtype) if dates else np.zeros((), column.dtype)
    filled[missing] = null[()]
    return filled if dates else masked(filled, missing)


def emptied(column: Ragged, missing: npt.NDArray[np.bool_]) -> Ragged:
    """Make the missing rows empty."""
    lengths = column.lengths
    if not lengths[missing].any():
        return column
    kept = column[~missing]
    offsets = np.zeros(len(column.offsets), np.int64)
    np.cumsum(np.where(missing, 0, lengths), out=offsets[1:])
    return Ragged(kept.values, offsets)


def first_null(column: Column, *, items_only: bool = False) -> int | None:
    """Return the first row that is null or holds a null; None if there is none."""
    found = rows_with_nulls(column, items_only=items_only)
    return int(np.argmax(found)) if found.any() else None


def rows_with_nulls(
    column: Column, *, items_only: bool = False, dates: bool = False
) -> npt.NDArray[np.bool_]:
    """Return which rows are null, or hold a null item. With ``dates``, NaT is null, too.

    >>> rows_with_nulls(Ragged(Ragged.from_bytes([b"a"]), [0, 1, 1], [False, True]))
    array([False,  True])
    """
    found = np.zeros(len(column), np.bool_) if items_only else null_mask(column)
    if dates and isinstance(column, np.ndarray) and column.dtype.kind in "mM":
        return np.asarray(found | any_nat(np.asarray(column)), np.bool_)
    inside = column.values if isinstance(column, Ragged) else column
    if inside is column or not (dates or _may_have_nulls(inside)):
        return found
    assert isinstance(column, Ragged)
    if column.is_bytes:
        return found
    before = np.concatenate([[0], np.cumsum(rows_with_nulls(column.flat, dates=dates))])
    ends = column.offsets - column.offsets[0]
    return np.asarray(found | (np.diff(before[ends]) > 0), np.bool_)


def any_nat(dates: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which rows have a NaT."""
    return np.asarray(np.isnat(dates).any(axis=tuple(range(1, dates.ndim))))


def _may_have_nulls(column: Column) -> bool:
    inside = isinstance(column, Ragged) and _may_have_nulls(column.values)
    return inside or has_mask(column)


def without_masks(column: Column) -> Column:
    """Return a column without its masks: what lies under them is 0 or empty."""
    if isinstance(column, Ragged):
        return Ragged(without_masks(column.values), column.offsets)
    return np.asarray(column) if has_mask(column) else column
