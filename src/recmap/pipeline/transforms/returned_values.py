"""What a user's function returned: copy it, turn it into columns, and check that it fits.

The first rows show the types of the columns. A later value that such a type would change is
refused; a type that the user gave may round floats.

A function may keep an array and write the next batch into it while the loop still uses the
batch before. What it overwrites is lost, so such an array is copied at once. An array that was
made for this batch has no references but those of the batch, and is handed on as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError, MapError
from recmap.model.casting import exact_array, first_lost
from recmap.model.coerce import Given, as_columns, fit, infer_schema
from recmap.model.field import TEXT, Field
from recmap.model.null_columns import either, empty_column, of_field
from recmap.model.nulls import blank
from recmap.model.ragged import TEXT_BYTE, Column, Ragged, has_mask, masked
from recmap.model.schema import Batch, Schema
from recmap.model.text import as_strings_of

_TEXT = Field(TEXT)
_STRINGS = (str, bytes, bytearray, memoryview)
_NEVER_CHANGE = (np.generic, int, float, str, bytes)


def kept(value: Any) -> Any:
    """Copy what a function made for a row: it may use the same arrays and lists for the next."""
    if isinstance(value, _NEVER_CHANGE):
        return value
    if isinstance(value, dict):
        return {name: kept(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return list(map(kept, value))
    if isinstance(value, Ragged):
        return Ragged(kept(value.values), np.array(value.offsets), value.mask)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if has_mask(value):
        return value.copy()
    return np.array(value) if isinstance(value, np.ndarray) else value


def sample_schema(rows: Sequence[Mapping[str, Any]], before: Schema, given: Schema) -> Schema:
    """Return the types of the first rows, except where the user gave types.

    A column that was ragged before stays ragged, even if the first rows have equal lengths, and
    keeps its type if they are empty lists.
    """
    unknown = sorted(set(given) - set(rows[0]))
    if unknown:
        returned = ", ".join(rows[0])
        raise MapError(f"columns has {unknown[0]!r}, but the function returned {returned}")
    seen = {name: [row[name] for row in rows if name in row] for name in rows[0]}
    for name in before:
        if name in seen and name not in given and all(value is None for value in seen[name]):
            given = Schema({**given, name: before[name]})
    for name, values in seen.items():
        if name not in given and all(value is None for value in values):
            raise MapError(
                f"{name!r} is None in the first rows, which do not show its type; say what it is: "
                f'columns={{"{name}": "int64?"}}'
            )
    found = infer_schema(as_texts({name: seen[name] for name in seen if name not in given}))
    for name, field in before.items():
        if name in found and field.ragged and all(map(_is_empty, seen[name])):
            given = Schema({**given, name: field})
    return Schema({n: given[n] if n in given else widened(found[n], before.get(n)) for n in seen})


def _is_empty(value: Any) -> bool:
    return isinstance(value, list) and not value


def as_texts(result: Mapping[str, Any]) -> dict[str, Given]:
    """Turn what a function returned into columns; ``str`` become text."""
    for name, value in result.items():
        if len(_kinds_of_strings(value)) > 1:
            raise ColumnError(f"column {name!r}: str and bytes are mixed; encode or decode some")
    return {
        name: replace(given, column=as_strings_of(_TEXT, given.column))
        if given.text and isinstance(given.column, Ragged)
        else given
        for name, given in as_columns(result).items()
    }


def _kinds_of_strings(value: Any) -> set[bool]:
    """Return whether the strings in a value are text; both, if it has both kinds."""
    if isinstance(value, Ragged):
        return {is_text(value)} if _innermost(value).is_bytes else set()
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        return {value.dtype.kind in "UT"} if value.dtype.kind in "SUT" else set()
    if isinstance(value, np.ndarray):
        value = value.tolist()  # of objects
    if isinstance(value, list | tuple):
        kinds = set(map(type, value))
        if kinds.isdisjoint((Ragged, list, tuple, np.ndarray)):
            return {issubclass(kind, str) for kind in kinds if issubclass(kind, _STRINGS)}
        return set().union(*map(_kinds_of_strings, value))
    return {isinstance(value, str)} if isinstance(value, _STRINGS) else set()


def _innermost(column: Ragged) -> Ragged:
    while isinstance(column.values, Ragged):
        column = column.values
    return column


def is_text(column: Ragged) -> bool:
    """Return whether a column holds text, at any depth."""
    return _innermost(column).is_text


def widened(field: Field, before: Field | None) -> Field:
    """Return a field with the ragged axes and the nulls that the column had before the function."""
    if before is not None and (field.dtype, field.shape) == (before.dtype, before.shape):
        return either(field, before)
    if before is None or field.dtype != before.dtype or len(field.shape) != len(before.shape):
        return field
    if field.ragged < before.ragged:
        return either(replace(field, shape=before.shape), before)
    # Lists of strings are found to be ragged, even if all had one length.
    return either(field, before) if field.is_bytes and field.shape else field


def new_column(name: str, field: Field, rows: int, *, given: bool) -> ColumnBuilder:
    """Return a builder for a column of ``rows`` rows.

    ``put`` copies the value of the next row, and ``finish`` returns the column. If the user has
    ``given`` the field, floats are rounded to it; otherwise the first rows have shown it, and
    others must fit exactly.
    """
    if field.ragged or field.is_bytes or field.has_nulls:
        return _ListBuilder(name, field, given)
    return _DenseBuilder(name, field, rows, given)


class _DenseBuilder:
    """Values of one shape."""

    def __init__(self, name: str, field: Field, rows: int, given: bool) -> None:
        self._name, self._field, self._inner, self._given = name, field, field.inner, given
        self._out: npt.NDArray[Any] = np.empty((rows, *field.inner), field.dtype)

    def put(self, row: int, value: Any) -> None:
        if value is None:
            raise MapError(_none(self._name, self._field))
        array = _exact(self._name, value)
        if array.shape != self._inner:
            field = self._field
            ragged = Field(field.dtype, (None, *field.inner[1:]))
            raise MapError(
                f"{self._name!r} has shape {list(array.shape)}, not {list(field.inner)}; if its "
                f'length differs from row to row, say so: columns={{"{self._name}": "{ragged}"}}'
            )
        _check(self._name, array, self._field, self._given)
        self._out[row] = array

    def finish(self) -> Column:
        return self._out


class _ListBuilder:
    """Values of different lengths, strings, or values of which some are None or have null items."""

    def __init__(self, name: str, field: Field, given: bool) -> None:
        self._name, self._field, self._given = name, field, given
        self._values: list[Any] = []
        # The common case, which does not need to inspect nested lists.
        self._simple = field.ragged == 1 and len(field.shape) == 1 and not field.is_bytes
        self._simple &= not field.has_nulls
        self._checked = not given and not field.has_nulls

    def put(self, row: int, value: Any) -> None:
        del row  # rows come in order
        if value is None and not self._field.nullable:
            raise MapError(_none(self._name, self._field))
        if self._simple:
            array = _exact(self._name, value)
            if array.size:
                _check(self._name, array, self._field, self._given)
            value = array.astype(self._field.dtype)
        elif self._checked and self._field.is_bytes:
            self._check_strings(value)
        elif self._checked:
            self._check_inside(value)
        self._values.append(value if self._simple else kept(value))

    def _check_strings(self, value: Any) -> None:
        kinds = _kinds_of_strings(value)
        if not kinds and not self._field.shape:
            raise MapError(f"{self._name!r}: {type(value).__name__} among strings: {value!r}")
        wrong = strings_misfit(self._name, kinds, self._field)
        if wrong is not None:
            raise MapError(wrong)

    def _check_inside(self, value: Any) -> None:
        """Refuse numbers that do not fit, in arrays or nested lists of different lengths."""
        try:
            array = exact_array(_innermost(value).values if isinstance(value, Ragged) else value)
        except ValueError:
            array = np.array(None)
        if array.dtype.kind != "O":
            _check(self._name, array, self._field, self._given)
        elif isinstance(value, list | tuple | np.ndarray):
            for each in value:
                self._check_inside(each)

    def finish(self) -> Column:
        name, field, count = self._name, self._field, len(self._values)
        if field.has_nulls and all(value is None for value in self._values):
            empty = blank(field.without_nulls(), count)
            return of_field(masked(empty, np.ones(count, np.bool_)), field)
        if not count:
            return empty_column(field)
        if self._simple:
            given = Given(Ragged.from_rows(self._values), exact=False)
        else:
            given = (as_texts if field.has_nulls else as_columns)({name: self._values})[name]
        column, _ = fit({name: given}, Schema({name: field}))
        return column[name]


ColumnBuilder: TypeAlias = _DenseBuilder | _ListBuilder


def _check(name: str, array: npt.NDArray[Any], field: Field, given: bool) -> None:
    """Refuse values that a column cannot hold; in a type that was given, floats may lose digits."""
    if array.dtype == field.dtype:
        return
    lost = _lost(array, field.dtype, given)
    if lost is not None:
        raise MapError(misfit(name, array.dtype, field, lost[1]))


def _lost(
    array: npt.NDArray[Any], dtype: np.dtype[Any], given: bool = False
) -> tuple[int, Any] | None:
    """Return the row and value of the first value that a column cannot hold, or None."""
    kinds = array.dtype.kind, dtype.kind
    other = kinds[0] == "c" != kinds[1]
    if not given:  # a number is not a date, unless the user says so
        other |= kinds[0] != kinds[1] and not set(kinds).isdisjoint("mM")
    if other and array.size:
        return 0, array.reshape(-1)[0]
    return first_lost(array, dtype, rounds=given)


def lost_in_column(column: Column, dtype: np.dtype[Any]) -> tuple[int, Any] | None:
    """Return the row and value of the first value that a cast would change, or None."""
    if not isinstance(column, Ragged):
        return None if column.dtype == dtype else _lost(column, dtype)
    lost = lost_in_column(column.flat, dtype)
    if lost is None:
        return None
    ends = column.offsets[1:] - column.offsets[0]
    return int(np.searchsorted(ends, lost[0], side="right")), lost[1]


def misfit(name: str, dtype: np.dtype[Any], field: Field, value: Any) -> str:
    """Say that a value does not fit, and what to do."""
    if dtype.kind in "SU" or dtype == TEXT_BYTE:
        strings = Field("bytes" if dtype.kind == "S" else "text", field.shape)
        return (
            f"{name!r} is {strings}, but the first rows show {field}; convert it in the function, "
            f'or say what it is: columns={{"{name}": "{strings}"}}'
        )
    wrong = (
        f"{name!r} is {dtype}, which does not fit {field.dtype}: {value}; cast it in the function"
    )
    try:
        wider = np.promote_types(dtype, field.dtype)
    except TypeError:
        return wrong
    whole = dtype.kind in "iu" and field.dtype.kind in "iu"
    if wider.kind in "SUO" or wider == field.dtype or (whole and wider.kind == "f"):
        return wrong
    return f'{wrong}, or say what it is: columns={{"{name}": "{Field(wider, field.shape)}"}}'


def _none(name: str, field: Field) -> str:
    """Say that a value is None in a column without nulls, and what to do."""
    nullable = replace(field, fill=None, nullable=True)
    return (
        f"{name!r} is None, but the column is {field}; to keep nulls, say that there are some: "
        f'columns={{"{name}": "{nullable}"}}'
    )


def strings_misfit(name: str, kinds: set[bool], field: Field) -> str | None:
    """Return what is wrong with text among byte strings, or the reverse; None if all is well."""
    if not kinds - {field.is_text}:
        return None
    was, now = ("text", "bytes") if field.is_text else ("bytes", "text")
    return (
        f"{name!r} is {now}, but the first rows have {was}; encode or decode it in the function, "
        f'or say what it is: columns={{"{name}": "{field}"}}'
    )


def _exact(name: str, value: Any) -> npt.NDArray[Any]:
    try:
        return exact_array(value)
    except (TypeError, ValueError) as e:
        raise MapError(f"{name!r}: {e}") from None


def own_columns(columns: Batch, inputs: Batch) -> tuple[Batch, bool]:
    """Return the columns, with copies of those that something else refers to.

    Also return whether there is such an array. Columns of ``inputs`` and views of them are not
    copied. The caller must hold no other references to the columns than these.
    """
    known = set(map(id, inputs.values()))
    new = [column for column in columns.values() if id(column) not in known]
    if max(map(_plain_references, new), default=0) <= _PLAIN:
        return columns, False
    del new
    shared = _shared(columns.values(), known, inputs)
    owned = {
        name: _copied(column) if _touches(column, shared.keys()) else column
        for name, column in columns.items()
    }
    return owned, any(map(_is_buffer, shared.values()))


def keeps_arrays(row: Mapping[str, Any], inputs: Batch) -> bool:
    """Return whether something else refers to an array of a row; see ``own_columns``."""
    arrays = (value for value in row.values() if isinstance(value, np.ndarray | Ragged))
    return any(map(_is_buffer, _shared(arrays, set(), inputs).values()))


def keeps_result(result: Mapping[str, Any], held: int = 1) -> bool:
    """Return whether something else refers to the dict that a function returned.

    Or to a list or tensor in it. These are always copied, but another thread may write to them
    before. ``held`` is how many references to the dict the caller has.
    """
    return sys.getrefcount(result) - held > _DICT or _most_references(result) > _VALUE


def _most_references(result: Mapping[str, Any]) -> int:
    most = 0
    for value in result.values():
        if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
            whole = getattr(value, "_base", None)  # of which the tensor is a view
            if whole is not None:
                most = max(most, sys.getrefcount(whole))
        elif not isinstance(value, list | bytearray):
            continue
        most = max(most, sys.getrefcount(value))
    return most


def _shared(columns: Iterable[Any], known: set[int], inputs: Batch) -> dict[int, Any]:
    """Return, by id, what the columns consist of and something else refers to."""
    links = _links(columns, known)
    shared = {key for key, link in links.items() if _others(*link) > _ALONE}
    # A view of an input refers to what that input is a view of.
    ours = set(_links(inputs.values(), set())) if shared else set()
    return {key: links[key][0] for key in shared - ours}


def _plain_references(column: Column) -> int:
    """Return the references to an array that owns its memory, which most new arrays do."""
    if type(column) is np.ndarray and column.base is None and column.flags.owndata:
        return sys.getrefcount(column)
    return sys.maxsize


def _links(columns: Iterable[Any], known: set[int]) -> dict[int, tuple[Any, int]]:
    """Return what the columns consist of, by id, each with the references to it from here."""
    links: dict[int, tuple[Any, int]] = {}
    waiting = [column for column in columns if id(column) not in known]
    while waiting:
        each = waiting.pop()
        count = links[id(each)][1] if id(each) in links else 0
        links[id(each)] = each, count + 1
        if not count:
            waiting += [inside for inside in _inside(each) if id(inside) not in known]
    return links


def _inside(each: Any) -> list[Any]:
    if isinstance(each, Ragged):
        return [each.values, each.offsets]
    if isinstance(each, np.ndarray) and each.base is not None:
        return [each.base]
    return []


def _others(each: Any, count: int) -> int:
    """Return how many references to an object there are besides ``count``."""
    if isinstance(each, bytes):
        return 0  # it never changes
    owner = isinstance(each, Ragged) or (
        isinstance(each, np.ndarray) and (each.base is not None or each.flags.owndata)
    )
    # Of memory that NumPy did not allocate, nothing is known.
    return sys.getrefcount(each) - count if owner else sys.maxsize


def _is_buffer(each: Any) -> bool:
    """Return whether it is memory to write into, and not a tensor made for this batch."""
    return isinstance(each, np.ndarray) or not hasattr(each, "__dlpack__")


def _touches(column: Any, shared: Collection[int]) -> bool:
    return id(column) in shared or any(_touches(each, shared) for each in _inside(column))


def _copied(column: Column) -> Column:
    if isinstance(column, Ragged):
        return Ragged(_copied(column.values), np.array(column.offsets), column.mask)
    return column.copy() if has_mask(column) else np.array(column)


# The references that are found to an array in a dict, and nowhere else. Python versions differ in
# which variables count.
_alone: Batch = {"x": np.empty(1)}
_PLAIN = max(map(_plain_references, list(_alone.values())))
_ALONE = max(_others(*link) for link in _links(_alone.values(), set()).values())


def _references(result: Mapping[str, Any]) -> int:
    return sys.getrefcount(result) - 1


def _calibrated() -> tuple[int, int]:
    result = {"x": [0]}
    return _references(result), _most_references(result)


_DICT, _VALUE = _calibrated()
