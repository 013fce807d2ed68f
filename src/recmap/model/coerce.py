"""Turn user input (lists, arrays, data frames) into a batch that matches a schema.

``casting`` checks which values a dtype can hold.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError, RecmapError
from recmap.model.arguments import check_column_name
from recmap.model.arrow import ArrowReader
from recmap.model.casting import exact_array, first_lost, joint_dtype
from recmap.model.field import TEXT, Field
from recmap.model.null_columns import emptied, empty_column, first_null, kept, of_field
from recmap.model.ragged import (
    Column,
    Ragged,
    as_values,
    concatenate,
    has_mask,
    masked,
    null_mask,
    offsets_of,
    with_values,
)
from recmap.model.schema import Batch, Schema
from recmap.model.text import checked_strings

_STRINGS = (str, bytes, bytearray, memoryview)


@dataclass(frozen=True)
class Given:
    """A column that the user passed.

    ``exact`` means that the user chose the dtype. The dtype of a list is only a guess:
    ``[1, 2]`` may be meant for an int32 field. ``text`` means that it is made of ``str``, which
    become bytes unless a field says that they are text.
    """

    column: Column
    exact: bool
    text: bool = False


def as_columns(batch: Mapping[str, Any]) -> dict[str, Given]:
    """Turn the values of a dict into columns."""
    if not isinstance(batch, Mapping):
        raise ColumnError(
            f'a batch is a dict of columns by name, such as {{"x": array}}, not '
            f"{type(batch).__name__}"
        )
    for name in batch:
        check_column_name(name)
    return {name: _given(name, value) for name, value in batch.items()}


def _given(name: str, value: Any) -> Given:
    if isinstance(value, Iterator):
        value = list(value)
    exact = isinstance(value, np.ndarray | Ragged)
    return Given(_column(name, value), exact, _is_text(value))


def infer_schema(columns: Mapping[str, Given]) -> Schema:
    """Infer the schema of a batch."""
    return Schema({name: _guessed(name, given) for name, given in columns.items()})


def _guessed(name: str, given: Given) -> Field:
    """Return the field of a column. Empty lists are ragged: hardly anybody means a length of 0."""
    field = _infer_field(name, given.column)
    if given.exact or not len(given.column) or field.ragged or 0 not in field.shape:
        return field
    last = max(axis for axis, length in enumerate(field.shape) if length == 0)
    return Field(field.dtype, (*[None] * (last + 1), *field.shape[last + 1 :]))


def fit(
    columns: Mapping[str, Given], schema: Schema, *, guessed: bool = False
) -> tuple[Batch, int]:
    """Check columns against a schema, and return them as a batch with its number of rows.

    ``guessed`` means that the schema is that of the first batch, which an error then says.
    """
    missing = [name for name in schema if name not in columns]
    extra = [name for name in columns if name not in schema]
    if missing or extra:
        lacks = f"lacks {', '.join(map(repr, missing))}" if missing else ""
        has = f"has unknown {', '.join(map(repr, extra))}" if extra else ""
        raise ColumnError(f"the batch {' and '.join(filter(None, (lacks, has)))}; {schema}")
    try:
        batch = {name: _fit(name, columns[name], schema[name]) for name in schema}
    except ColumnError as e:
        if not guessed:
            raise
        raise ColumnError(
            f"{e}; the types are those of the first batch, unless you give schema={{...}}"
        ) from None
    rows = {name: len(column) for name, column in batch.items()}
    if len(set(rows.values())) > 1:
        raise ColumnError(
            "columns of a batch must have the same number of rows, but: "
            + ", ".join(f"{name!r} has {n:,}" for name, n in rows.items())
        )
    return batch, next(iter(rows.values()), 0)


def _infer_field(name: str, column: Column) -> Field:
    axes: list[int | None] = []
    inside: Column = column
    nullable, null_items = has_mask(column), False
    while isinstance(inside, Ragged):
        if inside.is_bytes:
            dtype = "text" if inside.is_text else "bytes"
            return Field(dtype, tuple(axes), None, nullable, null_items)
        axes.append(None)
        inside = inside.values
        null_items = null_items or has_mask(inside)
    shape = inside.shape[1:]
    if inside.dtype.kind == "V" and inside.dtype.names is not None:
        raise ColumnError(f"column {name!r}: a structured array; write its fields as columns")
    return Field(inside.dtype.newbyteorder("="), (*axes, *shape), None, nullable, null_items)


def _column(name: str, value: Any) -> Column:
    if isinstance(value, Ragged):
        return value
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise ColumnError(
            f"column {name!r}: a column has a value for every row, not one {type(value).__name__}"
        )
    if isinstance(value, set | frozenset):
        raise ColumnError(f"column {name!r}: a set has no order; give a list, or sorted(...)")
    if has_mask(value):
        return _masked(name, value)
    stored = _of_library(value)
    if stored is not None:
        return stored
    if hasattr(value, "__array__"):
        array = _exact(name, value)
    else:
        rows = value if isinstance(value, Sequence) else list(value)
        try:
            return _listed(name, rows)
        except ColumnError:
            column = _with_missing(name, rows)
            if column is None:
                raise
            return column
    return _of_array(name, array)


def _of_library(value: Any) -> Column | None:
    """Return a column of pandas, polars or pyarrow with its nulls; None if it is none of these.

    Those of pandas that are arrays of NumPy have no nulls.
    """
    package = type(value).__module__.partition(".")[0]
    kind = str(getattr(value, "dtype", getattr(value, "type", ""))).lower()
    if "struct" in kind or kind == "object":  # polars exports objects as bare addresses
        return None
    if package == "pandas" and not isinstance(getattr(value, "dtype", np.dtype("O")), np.dtype):
        value = sys.modules["pandas"].Series(value)
    elif not (package == "polars" and hasattr(value, "dtype")) and not (
        package == "pyarrow" and hasattr(value, "null_count")
    ):
        return None
    try:
        reader = ArrowReader(value, "keep", known="data")
        parts = [column for batch in reader.batches() for column in batch.values()]
    except (RecmapError, ModuleNotFoundError):  # without pyarrow, or not a single column
        return None
    if len(reader.schema) != 1:
        return None
    return concatenate(parts) if parts else empty_column(*reader.schema.values())


def _listed(name: str, rows: Sequence[Any]) -> Column:
    if len(rows) and isinstance(rows[0], _STRINGS):
        return _strings(name, rows)
    if _lists_of_strings(rows) or (len(rows) and isinstance(rows[0], Ragged)):
        # NumPy would strip trailing zero bytes from strings, and index a Ragged row by row.
        return _from_objects(name, rows)
    try:
        array = _exact(name, rows)
    except ColumnError:
        raise
    except ValueError:  # rows of different lengths
        return _from_objects(name, rows)
    return _of_array(name, array)


def _with_missing(name: str, rows: Sequence[Any]) -> Column | None:
    """Return the column of rows of which some are None, or hold nulls; None if there are none."""
    missing = np.array(list(map(_is_null, rows)), np.bool_)
    present = [row for row in rows if not _is_null(row)]
    if present and missing.any():
        column = _column(name, present)
        if isinstance(column, np.ndarray) and column.ndim > 1 and not column.size:
            column = _lines(column)  # the mask of an array without values would say nothing
        places = np.where(missing, 0, np.cumsum(~missing) - 1)
        taken = column[places]
        return kept(emptied(taken, missing) if isinstance(taken, Ragged) else taken, missing)
    if any(isinstance(row, np.ndarray) and has_mask(row) for row in present):
        arrays = [_column(name, row) for row in present]
        if all(each.ndim == 1 for each in arrays if isinstance(each, np.ndarray)):
            return Ragged(concatenate(arrays), offsets_of([len(each) for each in arrays]))
    return None


def _is_null(row: Any) -> bool:
    masked = isinstance(row, np.ndarray) and has_mask(row)
    return row is None or (masked and row.ndim == 0)  # np.ma.masked


def _of_array(name: str, array: npt.NDArray[Any]) -> Column:
    if array.ndim == 0:
        raise ColumnError(f"column {name!r}: a column has a value for every row, not one number")
    if array.dtype.kind in "SU":
        return string_column(array)
    return _from_objects(name, list(array)) if array.dtype.kind == "O" else array


def _masked(name: str, value: Any) -> Column:
    """Return a masked array as a column with nulls."""
    try:
        array = as_values(value)
    except ColumnError as e:
        raise ColumnError(f"column {name!r}: {e}") from None
    if array.dtype.kind not in "SUO":
        return array
    if has_mask(array):
        raise ColumnError(
            f"column {name!r}: a masked array of strings or objects; fill it first, with "
            "array.filled(value), or give a Ragged with a mask"
        )
    return _column(name, array)


def _is_text(value: Any) -> bool:
    """Return whether the first string of a column is ``str``."""
    if not isinstance(value, np.ndarray) and hasattr(value, "__array__"):
        value = np.asarray(value)
    while isinstance(value, list | tuple | np.ndarray):
        if isinstance(value, np.ndarray) and (value.dtype.kind != "O" or not value.ndim):
            return bool(value.dtype.kind == "U")
        value = next((item for item in value if not _is_empty(item)), None)
    return isinstance(value, str)


def _is_empty(item: Any) -> bool:
    return item is None or (isinstance(item, list | tuple) and not item)


def _exact(name: str, value: Any) -> npt.NDArray[Any]:
    try:
        return exact_array(value)
    except ColumnError as e:
        raise ColumnError(f"column {name!r}: {e}") from None


def _lists_of_strings(rows: Sequence[Any]) -> bool:
    if not all(isinstance(row, list | tuple) for row in rows):
        return False
    first = next((item for row in rows for item in row), None)
    return isinstance(first, _STRINGS)


def string_column(array: npt.NDArray[Any]) -> Ragged:
    """Turn NumPy's fixed-width strings into byte strings; text is encoded as UTF-8."""
    column = _strings("", array.ravel().tolist())
    for level in range(array.ndim - 1, 0, -1):
        # Count rows by the shape, not by the items: an axis of length 0 has rows, too.
        rows = math.prod(array.shape[:level])
        column = Ragged(column, np.arange(rows + 1) * array.shape[level])
    return column


def _nested(name: str, rows: Sequence[Any]) -> Ragged:
    """Join rows that are themselves ragged, or arrays of different shapes, such as images."""
    items: list[Column] = [row if isinstance(row, Ragged) else _lines(row) for row in rows]
    dtypes = {item.dtype for item in items}
    try:
        if len(dtypes) > 1:
            common = joint_dtype([_innermost(item) for item in items])
            items = [with_values(item, lambda values: values.astype(common)) for item in items]
        joined = concatenate(items)
    except (TypeError, ValueError) as e:
        raise ColumnError(f"column {name!r}: its rows cannot be joined: {e}") from e
    return Ragged(joined, np.cumsum([0, *map(len, items)]))


def _innermost(column: Column) -> npt.NDArray[Any]:
    while isinstance(column, Ragged):
        column = column.flat
    return column


def _lines(array: npt.NDArray[Any]) -> Ragged:
    rows, width = array.shape[:2]
    return Ragged(array.reshape(rows * width, *array.shape[2:]), np.arange(rows + 1) * width)


def _as_ragged(column: Column, axes: int) -> Column:
    """Make the first ``axes`` axes ragged, even if all lengths along them are equal."""
    if isinstance(column, np.ndarray) and axes and column.ndim > 1:
        missing = null_mask(column) if has_mask(column) else None
        column = _lines(np.asarray(column))
        if missing is not None:  # of rows, which become empty
            column = masked(emptied(column, missing), missing)
    if isinstance(column, np.ndarray):
        return column
    return Ragged(_as_ragged(column.values, axes - 1), column.offsets, column.mask)


def _from_objects(name: str, rows: Sequence[Any]) -> Column:
    if len(rows) and isinstance(rows[0], _STRINGS):
        return _strings(name, rows)
    if _lists_of_strings(rows):
        items = [item for row in rows for item in row]
        ends = np.cumsum([0, *(len(row) for row in rows)])
        return Ragged(_strings(name, items), ends)
    nested = all(isinstance(r, Ragged) or (isinstance(r, np.ndarray) and r.ndim > 1) for r in rows)
    if nested and any(isinstance(row, Ragged) for row in rows):
        return _nested(name, rows)
    try:
        return Ragged.from_rows(rows)
    except (TypeError, ValueError) as e:
        if nested:
            return _nested(name, rows)
        raise ColumnError(f"column {name!r}: its rows are not arrays of numbers: {e}") from e


def _strings(name: str, rows: Sequence[Any]) -> Ragged:
    for row in rows:
        if not isinstance(row, _STRINGS):  # bytes(5) would be five zeros
            raise ColumnError(f"column {name!r}: {type(row).__name__} among strings: {row!r}")
    try:
        return Ragged.from_bytes([r.encode() if isinstance(r, str) else bytes(r) for r in rows])
    except UnicodeEncodeError as e:
        raise ColumnError(
            f"column {name!r}: {e.object!r} is not text that UTF-8 can hold; encode it yourself, "
            'for example with .encode("utf-8", "surrogateescape")'
        ) from None


def _fit(name: str, given: Given, field: Field) -> Column:
    column = given.column
    if len(column) == 0 and not given.exact:
        return empty_column(field)
    if field.ragged and not given.exact and not _items(column):
        # Empty lists do not show what they would hold.
        item = empty_column(Field(field.dtype, field.shape[1:]))
        mask = null_mask(column) if has_mask(column) else None
        return _with_nulls(name, Ragged(item, np.zeros(len(column) + 1, np.int64), mask), field)
    found = _infer_field(name, column)
    if field.ragged > found.ragged and not found.is_bytes:
        column = _as_ragged(column, field.ragged)
        found = _infer_field(name, column)
    if found.shape != field.shape and not _regular_strings(found, field):
        raise ColumnError(f"column {name!r} is {field}, but the column is {found}")
    if found.is_bytes != field.is_bytes:
        raise ColumnError(f"column {name!r} is {field}, but the column is {found}")
    if found.has_nulls or field.has_nulls:
        column = _with_nulls(name, column, field)
    if not field.is_bytes:
        return _cast(name, column, field, given.exact)
    return _strings_of(name, column, field)


def _with_nulls(name: str, column: Column, field: Field) -> Column:
    """Return a column with the masks that its field has; refuse nulls that it does not have."""
    where = first_null(column, items_only=field.nullable) if not field.null_items else None
    if where is None and not field.nullable and null_mask(column).any():
        where = int(np.argmax(null_mask(column)))
    if where is not None:
        raise ColumnError(
            f"column {name!r} is {field}, but row {where:,} is null or has a null; fill it first, "
            "with ds.fill_null(value) or array.filled(value)"
        )
    return of_field(column, field)


def _items(column: Column) -> int:
    """Count the items of all rows; a number counts as one."""
    if isinstance(column, Ragged):
        return int(column.offsets[-1] - column.offsets[0])
    return math.prod(column.shape[:2])


def text_column(name: str, column: Column) -> Column:
    """Return a column of strings as text, or raise if it is not UTF-8."""
    found = _infer_field(name, column)
    field = Field(TEXT, found.shape)
    if not found.is_bytes:
        raise ColumnError(f"column {name!r} is {field}, but the column is {found}")
    return _strings_of(name, column, field)


def _strings_of(name: str, column: Column, field: Field) -> Column:
    assert isinstance(column, Ragged)
    return checked_strings(
        field,
        column,
        lambda row: ColumnError(
            f"column {name!r} is {field}, but row {row:,} is not UTF-8; decode it first, or make "
            "the column bytes"
        ),
    )


def _regular_strings(found: Field, field: Field) -> bool:
    """Return whether strings on fixed axes came as a Ragged; lengths are checked later."""
    return field.is_bytes and found.is_bytes and len(found.shape) == len(field.shape)


def _cast(name: str, column: Column, field: Field, exact: bool) -> Column:
    if column.dtype == field.dtype:
        return column
    return with_values(column, lambda values: _cast_values(name, values, field, exact))


def _cast_values(
    name: str, values: npt.NDArray[Any], field: Field, exact: bool
) -> npt.NDArray[Any]:
    dtype = field.dtype
    # A different byte order is cast too, so that the file holds what the schema says.
    lost = None
    if not exact or np.can_cast(values.dtype, dtype, "safe"):
        lost = first_lost(values, dtype, rounds=not exact)
        if lost is None:
            with np.errstate(invalid="ignore", under="ignore"):
                return values.astype(dtype)
    where = "" if lost is None else f": row {lost[0]:,} has {lost[1]!r}"
    raise ColumnError(
        f"column {name!r} is {field}, but the column has dtype {values.dtype}, which would lose "
        f"values{where} (cast it with .astype({str(dtype)!r}), or change the schema)"
    )
