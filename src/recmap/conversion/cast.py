"""``cast``: columns with another type, converted while they are read."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import (
    FieldMismatchError,
    FieldTextError,
    Message,
    Option,
    OptionError,
)
from recmap.formats.column_source import with_string_types
from recmap.model.batch import RowNumbers
from recmap.model.casting import first_lost
from recmap.model.field import Field
from recmap.model.ragged import Column, with_values
from recmap.model.source import ColumnMap, MappedColumns, Source
from recmap.model.text import is_string_type

Casting: TypeAlias = Literal["same_value", "unsafe"]


def cast_columns(
    source: Source, dtypes: Mapping[str, npt.DTypeLike], casting: Casting = "same_value"
) -> Source:
    """Return the source with some of its columns cast; the source itself if none changes."""
    schema = source.schema
    maps = {name: ColumnMap(name, field) for name, field in schema.items()}
    strings: dict[str, Field] = {}
    for name, dtype in dtypes.items():
        field = _string_field(schema[name], dtype)
        if field is None:
            maps[name] = _cast_map(name, schema[name], dtype, casting)
        elif is_string_type(schema[name], field):
            strings[name] = field
    if strings:
        source = with_string_types(source, strings)
        maps |= {name: ColumnMap(name, field) for name, field in strings.items()}
    converts = any(each.convert is not None for each in maps.values())
    return MappedColumns(source, maps) if converts else source


def _string_field(old: Field, dtype: npt.DTypeLike) -> Field | None:
    """Return the field of strings that are cast to text or bytes; None for any other cast."""
    try:
        new = replace(old, dtype=Field(dtype).dtype, fill=None)
    except FieldTextError:
        return None
    return new if old.is_bytes and new.is_bytes else None


def _cast_map(name: str, old: Field, dtype: npt.DTypeLike, casting: Casting) -> ColumnMap:
    """Return the map that casts a column of numbers, or raise if NumPy cannot."""
    if old.is_bytes:
        raise OptionError(
            f"cast: {name!r} is {old}, which can be cast only to "
            f"{'bytes' if old.is_text else 'text'}"
        )
    new = _cast_dtype(name, old, dtype)
    field = replace(old, dtype=new, fill=None)
    if new == old.dtype:
        return ColumnMap(name, field)
    growth = -(-new.itemsize // max(1, old.dtype.itemsize))
    convert = partial(_cast, name, new, casting)
    return ColumnMap(name, field, convert, growth, partial(_fill_before, old.dtype, new))


def _cast(
    name: str, dtype: np.dtype[Any], casting: Casting, column: Column, rows: RowNumbers
) -> Column:
    del rows
    return with_values(column, partial(_cast_values, name, dtype, casting))


def _cast_values(
    name: str, dtype: np.dtype[Any], casting: Casting, values: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    if casting == "same_value" and (lost := _first_lost(values, dtype)) is not None:
        raise FieldMismatchError(
            Message(
                f"column {name!r}: {values.dtype} to {dtype} would lose values, such as "
                f"{lost[1]!r} (",
                Option("casting", "unsafe"),
                " allows it)",
            ),
            field=name,
        )
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about imaginary parts, which are 0 or may be lost
        return values.astype(dtype)


def _first_lost(values: npt.NDArray[Any], dtype: np.dtype[Any]) -> tuple[int, Any] | None:
    """Return the first value that a cast would change. As a number, a date is that of its units."""
    if values.dtype.kind not in "mM" or dtype.kind not in "iuf":
        return first_lost(values, dtype)
    missing = np.flatnonzero(np.isnat(values))
    if len(missing):
        return int(missing[0]), values.reshape(-1)[missing[0]]
    return first_lost(values.astype(np.int64), dtype)


def _fill_before(old: np.dtype[Any], new: np.dtype[Any], fill: bytes) -> bytes | None:
    """Return the bytes that the cast turns into ``fill``, or None if there are none."""
    wanted = np.frombuffer(fill, new)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = wanted.astype(old)
        exact = found.astype(new).tobytes() == fill
    return found.tobytes() if exact and first_lost(found, new) is None else None


def _cast_dtype(name: str, old: Field, dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return the dtype to cast a column to, or raise if NumPy cannot cast it."""
    try:
        new = Field(dtype).dtype
        # Raw bytes are not numbers, and a date without a unit means nothing.
        void = np.void in (new.type, old.dtype.type) and new != old.dtype
        if new.kind in "SU" or new in (np.dtype("M8"), np.dtype("m8")) or void:
            raise TypeError
        if not np.can_cast(old.dtype, new, "unsafe"):
            raise TypeError
    except (FieldTextError, TypeError, ValueError) as e:
        hint = "".join(str(e).partition("; did you mean")[1:]) or (
            "; give a dtype of numbers, such as 'float32', or of dates with a unit, such as "
            "'datetime64[s]'"
        )
        raise OptionError(
            f"cast: {name!r} is {old}, which cannot be cast to {dtype!r}{hint}"
        ) from None
    return new
