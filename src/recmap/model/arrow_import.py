"""Choose how to read the columns of another library, from the Arrow types they have.

The schema alone decides the fields, before any data is there. A struct becomes a column for each
of its members, ``a/b``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from recmap.errors import (
    DataError,
    FieldMismatchError,
    FieldTextError,
    OptionError,
    RecmapError,
)
from recmap.model.arrow_export import EXTENSION_METADATA, EXTENSION_NAME, TENSOR
from recmap.model.arrow_kind import ArrowKind, KnownKind
from recmap.model.arrow_readers import (
    ArrayReader,
    Booleans,
    Decimals,
    Dictionary,
    FixedLists,
    ListViews,
    Nothing,
    OffsetLists,
    PlainNumbers,
    ScaledDecimals,
    Strings,
    StringViews,
    StructMember,
    TensorRows,
    damaged,
)
from recmap.model.field import BYTES, TEXT, Field, Shape
from recmap.model.nulls import Nulls

# The dtype of strings, and of their offsets; None if they are views.
_STRINGS: dict[bytes, tuple[np.dtype[Any], str | None]] = {
    b"z": (BYTES, "i4"),
    b"Z": (BYTES, "i8"),
    b"vz": (BYTES, None),
    b"u": (TEXT, "i4"),
    b"U": (TEXT, "i8"),
    b"vu": (TEXT, None),
}
_NUMBERS = {
    b"c": "i1",
    b"s": "i2",
    b"i": "i4",
    b"l": "i8",
    b"C": "u1",
    b"S": "u2",
    b"I": "u4",
    b"L": "u8",
    b"e": "f2",
    b"f": "f4",
    b"g": "f8",
}
# How times are stored, and what they mean.
_TIMES = {
    b"tdD": ("i4", "M8[D]"),
    b"tdm": ("i8", "M8[ms]"),
    b"tts": ("i4", "m8[s]"),
    b"ttm": ("i4", "m8[ms]"),
    b"ttu": ("i8", "m8[us]"),
    b"ttn": ("i8", "m8[ns]"),
    b"tDs": ("i8", "m8[s]"),
    b"tDm": ("i8", "m8[ms]"),
    b"tDu": ("i8", "m8[us]"),
    b"tDn": ("i8", "m8[ns]"),
    b"tss": ("i8", "M8[s]"),
    b"tsm": ("i8", "M8[ms]"),
    b"tsu": ("i8", "M8[us]"),
    b"tsn": ("i8", "M8[ns]"),
}
# Decimals of so many digits are the same again after float64. No type has a larger scale.
_FLOAT_DIGITS, _MOST_SCALE = 15, 128
# Types that are refused, in words.
_WORDS = {
    "+r": "run-end encoded",
    "+ud": "dense union",
    "+us": "sparse union",
    "d:": "decimal",
    "ti": "interval",
}


def make_readers(
    kind: ArrowKind,
    name: str,
    fields: Mapping[str, Field],
    nulls: Nulls,
    above: Shape = (),
) -> Iterator[tuple[str, ArrayReader | RecmapError]]:
    """Yield the columns that a type becomes: several if it is a struct, or a list of structs.

    One that cannot be read comes with the reason. ``fields`` has those that the user gave, by
    name. ``above`` are the axes of the lists that the type is in.
    """
    try:
        yield from _readers(kind, name, fields, nulls, above)
    except (DataError, OptionError) as e:
        yield name, e


def _readers(
    kind: ArrowKind, name: str, fields: Mapping[str, Field], nulls: Nulls, above: Shape
) -> Iterator[tuple[str, ArrayReader | RecmapError]]:
    if kind.dictionary is not None:
        stored = _NUMBERS.get(kind.format, "")
        if not stored or stored[0] == "f":
            raise _refused(kind, name, "indices of a dictionary are integers")
        for path, values in make_readers(kind.dictionary, name, fields, nulls, above):
            yield path, _around(values, partial(_dictionary_reader, kind, np.dtype(stored)))
    elif kind.format == b"+s":
        if not kind.children and name:
            raise _refused(kind, name, "a struct without members has no values")
        children: Sequence[ArrowKind] = kind.children
        for number, child in enumerate(children):
            called = f"{name}/{_name(child)}" if name else _name(child)
            # Rows of a table are not null, only those of structs inside.
            nullable = kind.nullable and bool(name)
            for path, member in make_readers(child, called, fields, nulls, above):
                yield path, _around(member, partial(_member_reader, number, nullable))
    elif kind.format in _LISTS or kind.format.startswith(b"+w:"):
        if len(kind.children) != 1:
            raise damaged("a list has one child")
        axis = _number(kind.format[3:]) if kind.format.startswith(b"+w:") else None
        for path, item in make_readers(kind.children[0], name, fields, nulls, (*above, axis)):
            given = _GivenList(path, fields.get(path), len(above), nulls)
            yield path, _around(item, partial(_list_reader, kind, given))
    else:
        yield name, _nullable(_leaf_reader(kind, name, fields.get(name), above), kind)


def _around(
    inner: ArrayReader | RecmapError, make: Callable[[ArrayReader], ArrayReader]
) -> ArrayReader | RecmapError:
    """Return the reader of what contains another, if that can be read."""
    try:
        return make(inner) if isinstance(inner, ArrayReader) else inner
    except (DataError, OptionError) as e:
        return e


def _dictionary_reader(kind: ArrowKind, stored: np.dtype[Any], values: ArrayReader) -> ArrayReader:
    made = Dictionary(values.field, stored, values)
    made.nullable, made.null_items = kind.nullable, values.null_items
    return made


def _member_reader(number: int, nullable: bool, member: ArrayReader) -> ArrayReader:
    made = StructMember(member.field, number, member)
    made.nullable, made.null_items = member.nullable or nullable, member.null_items
    return made


def _nullable(reader: ArrayReader, kind: ArrowKind) -> ArrayReader:
    reader.nullable = kind.nullable
    return reader


class _GivenList(NamedTuple):
    """What is given of a list: the name and field of its column, and how many axes are above."""

    name: str
    field: Field | None
    depth: int
    nulls: Nulls

    def mode(self, item: ArrayReader) -> Nulls:
        """Say what becomes of its null items."""
        if self.nulls != "keep":
            return self.nulls
        if self.field is None:
            return "keep" if item.nullable or item.null_items else "error"
        if self.field.fill is not None:
            return "fill"
        return "keep" if self.field.null_items else "error"

    def axis(self, kind: ArrowKind, item: ArrayReader, size: int) -> int | None:
        """Return the axis of a list of a fixed size. Ragged axes come first, and hold nulls."""
        if item.field.ragged:
            return None
        if self.nulls == "keep" and self.field is not None:
            given = self.field.shape[self.depth : self.depth + 1]
            return None if given == (None,) else size
        exact = self.nulls == "keep" and isinstance(kind, KnownKind)
        empty = size == 0 and kind.nullable  # nothing could be null in it
        return None if exact and (empty or holds_nulls(item)) and not _is_tensor(kind) else size


def holds_nulls(reader: ArrayReader) -> bool:
    """Return whether rows may be null, and not NaT."""
    return reader.nullable and (reader.field.dtype.kind not in "mM" or bool(reader.field.ragged))


def _is_tensor(kind: ArrowKind) -> bool:
    return dict(kind.metadata).get(EXTENSION_NAME) == TENSOR


def _list_reader(kind: ArrowKind, given: _GivenList, item: ArrayReader) -> ArrayReader:
    made = _rows_reader(kind, given, item)
    made.nullable = kind.nullable
    made.null_items = bool(made.field.ragged) and (item.null_items or holds_nulls(item))
    return made


def _rows_reader(kind: ArrowKind, given: _GivenList, item: ArrayReader) -> ArrayReader:
    name, nulls = given.name, given.mode(item)
    dtype, shape, fill = item.field.dtype, item.field.shape, item.field.fill
    if not kind.format.startswith(b"+w:"):
        made, offset = _LISTS[kind.format]
        field = _field(name, dtype, (None, *shape), fill)
        reader: ArrayReader = made(field, item, nulls, np.dtype(offset))
        return reader
    size = _number(kind.format[3:])
    axis = given.axis(kind, item, size)
    rows = FixedLists(_field(name, dtype, (axis, *shape), fill), item, nulls, size)
    extension = dict(kind.metadata)
    if not _is_tensor(kind):
        return rows
    stored, order = _tensor_shape(kind, name, extension.get(EXTENSION_METADATA, b""))
    if math.prod(stored) != size or shape or item.field.is_bytes:
        raise _refused(kind, name, f"a tensor of shape {stored} is not a list of {size:,}")
    meant = Field(dtype, tuple(stored[axis] for axis in order), fill)
    return TensorRows(meant, rows, stored, order)


def _field(name: str, dtype: np.dtype[Any], shape: Shape, fill: Any) -> Field:
    try:
        return Field(dtype, shape, fill)
    except FieldTextError as e:
        raise FieldMismatchError(f"column {name!r}: {e}", field=name) from None


def _tensor_shape(
    kind: ArrowKind, name: str, metadata: bytes
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape of a tensor in memory, and the order in which its axes are meant."""
    try:
        parsed = json.loads(metadata)
        shape = tuple(parsed["shape"])
        order = tuple(parsed.get("permutation") or range(len(shape)))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        shape, order = (-1,), ()
    whole = all(type(axis) is int and axis >= 0 for axis in (*shape, *order))
    if not whole or sorted(order) != list(range(len(shape))):
        raise _refused(kind, name, "its metadata does not give the shape of a tensor")
    return shape, order


def _leaf_reader(kind: ArrowKind, name: str, given: Field | None, above: Shape) -> ArrayReader:
    form = kind.format
    if form in _NUMBERS:
        dtype = np.dtype(_NUMBERS[form])
        return PlainNumbers(_filled(dtype, given), dtype)
    if form == b"b":
        return Booleans(_filled(np.dtype(np.bool_), given))
    if form in _STRINGS:
        strings, offset = _STRINGS[form]
        if given is not None and given.is_bytes and not given.is_text:
            strings = BYTES
        field = _filled(strings, given)
        return StringViews(field) if offset is None else Strings(field, np.dtype(offset))
    # What follows the colon of a timestamp is a time zone. Its values are UTC.
    time = _TIMES.get(form.split(b":")[0])
    if time is not None:
        stored = np.dtype(time[0])
        as_numbers = given is not None and given.dtype == stored == np.int64
        return PlainNumbers(_filled(stored if as_numbers else np.dtype(time[1]), given), stored)
    if form.startswith(b"w:"):
        width = _number(form[2:])
        if not 0 < width < 1 << 31:
            raise _refused(kind, name, "NumPy has no values of that size")
        void = np.dtype((np.void, width))
        return PlainNumbers(_filled(void, given), void)
    if form.startswith(b"d:"):
        return _decimal_reader(kind, name, given)
    if form == b"n":
        if given is None:
            return Nothing(Field(np.bool_))
        inner = Field(given.dtype, given.shape[len(above) :], _scalar_fill(given))
        return Nothing(inner if above else given)
    raise _refused(kind, name, "recmap has no such type; convert it, or leave the column out")


def _filled(dtype: np.dtype[Any], given: Field | None) -> Field:
    """Return the field of one value, with the fill value that the user gave."""
    if given is None or given.dtype != dtype:
        return Field(dtype)
    return Field(dtype, (), _scalar_fill(given))


def _scalar_fill(given: Field) -> Any:
    return None if given.fill is None or np.ndim(given.fill) else given.fill


def _decimal_reader(kind: ArrowKind, name: str, given: Field | None) -> ArrayReader:
    """Return the reader of decimals: as integers without a scale, float64, or else text."""
    precision, scale, bits = _decimal_type(kind, name)
    wanted = None if given is None else given.dtype
    if scale == 0 and wanted not in (np.float64, TEXT):
        if bits == 32:
            return PlainNumbers(_filled(np.dtype(np.int32), given), np.dtype(np.int32))
        return Decimals(_filled(np.dtype(np.int64), given), bits // 64)
    exact = precision + max(0, -scale) <= _FLOAT_DIGITS and abs(scale) <= _FLOAT_DIGITS
    text = wanted == TEXT or (wanted != np.float64 and not exact)
    return ScaledDecimals(_filled(TEXT if text else np.dtype(np.float64), given), bits, scale)


def _decimal_type(kind: ArrowKind, name: str) -> tuple[int, int, int]:
    """Return the digits of a decimal type, those after the point, and its bits."""
    numbers = kind.format[2:].split(b",")
    bits = _number(numbers[2]) if len(numbers) == 3 else 128
    if len(numbers) not in (2, 3) or bits not in (32, 64, 128, 256):
        raise _refused(kind, name, "not a decimal type")
    scale = _number(numbers[1].removeprefix(b"-"))
    if scale > _MOST_SCALE:
        raise _refused(kind, name, f"a scale of more than {_MOST_SCALE} digits")
    return _number(numbers[0]), -scale if numbers[1].startswith(b"-") else scale, bits


def _refused(kind: ArrowKind, name: str, why: str) -> FieldMismatchError:
    form = kind.format.decode(errors="replace")
    told = next((f" ({words})" for begin, words in _WORDS.items() if form.startswith(begin)), "")
    return FieldMismatchError(
        f"column {name!r} has the Arrow type {form!r}{told}: {why}", field=name
    )


_LISTS: dict[bytes, tuple[Any, str]] = {
    b"+l": (OffsetLists, "i4"),
    b"+L": (OffsetLists, "i8"),
    b"+m": (OffsetLists, "i4"),
    b"+vl": (ListViews, "i4"),
    b"+vL": (ListViews, "i8"),
}


def _name(kind: ArrowKind) -> str:
    try:
        return kind.name.decode()
    except UnicodeDecodeError:
        raise DataError(f"the name of a column is not text: {kind.name!r}") from None


def _number(text: bytes) -> int:
    if not text.isdigit() or len(text) > 18:
        raise damaged(f"a type with the number {text.decode(errors='replace')!r}")
    return int(text)
