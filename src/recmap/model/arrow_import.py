"""Choose how to read the columns of another library, from the Arrow types they have.

The schema alone decides the fields, before any data is there. A struct becomes a column for each
of its members, ``a/b``. Nearly all columns are declared nullable, and few hold nulls: what is known
of the data makes the type exact, so that a column without nulls is not nullable.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from recmap.errors import (
    DataError,
    FieldMismatchError,
    FieldTextError,
    OptionError,
    RecmapError,
)
from recmap.model.arrow_export import EXTENSION_METADATA, EXTENSION_NAME, TENSOR
from recmap.model.arrow_readers import (
    ArrayReader,
    ListItems,
    RowsReader,
    damaged,
    null_bits,
    read_booleans,
    read_decimals,
    read_dictionary,
    read_fixed_lists,
    read_list_views,
    read_lists,
    read_member,
    read_nothing,
    read_numbers,
    read_string_views,
    read_strings,
    read_tensors,
    read_whole_decimals,
    too_large,
)
from recmap.model.facts import Alternative
from recmap.model.field import BYTES, TEXT, Field, Shape
from recmap.model.nulls import Nulls
from recmap.native import _core

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
# Decimals of so many digits are the same again after float64, and int64 holds all whole numbers of
# so many. No type has a larger scale.
_FLOAT_DIGITS, INT64_DIGITS, _MOST_SCALE = 15, 18, 128
_WHOLE_DECIMALS = re.compile(rb"d:(\d{1,3}),0(?:,(\d{1,3}))?")
# Types that are refused, in words.
_WORDS = {
    "+r": "run-end encoded",
    "+ud": "dense union",
    "+us": "sparse union",
    "d:": "decimal",
    "ti": "interval",
}


@dataclass(frozen=True)
class KnownKind:
    """The type of a column that is nullable only if some of its values are, or may well be."""

    format: bytes
    name: bytes
    metadata: list[tuple[bytes, bytes]]
    nullable: bool
    children: list[KnownKind]
    dictionary: KnownKind | None


ArrowKind: TypeAlias = "_core.ArrowType | KnownKind"


def exact(kind: _core.ArrowType) -> KnownKind:
    """Return a type that says where nulls are, as one that is known to do so."""
    children = [exact(child) for child in kind.children]
    dictionary = None if kind.dictionary is None else exact(kind.dictionary)
    return KnownKind(kind.format, kind.name, kind.metadata, kind.nullable, children, dictionary)


def seen(kind: _core.ArrowType, arrays: Sequence[_core.ArrowArray]) -> KnownKind:
    """Return the type of these arrays, with nulls only where there are some."""
    children = [
        seen(child, [array.child(number) for array in arrays if number < array.n_children])
        for number, child in enumerate(kind.children)
    ]
    fixed = kind.format.startswith(b"+w:") and [child.format for child in children] != [b"n"]
    if fixed and not any(_has_null_items(array, _size(kind)) for array in arrays):
        children = [replace(child, nullable=False) for child in children]
    dictionary = None
    if kind.dictionary is not None:
        values = [array.dictionary for array in arrays]
        dictionary = seen(kind.dictionary, [each for each in values if each is not None])
    nullable = kind.format == b"n" or any(map(_has_nulls, arrays))
    nullable = nullable or (dictionary is not None and dictionary.nullable)
    form = _of_fewer_digits(kind.format, arrays)
    return KnownKind(form, kind.name, kind.metadata, nullable, children, dictionary)


def _of_fewer_digits(form: bytes, arrays: Sequence[_core.ArrowArray]) -> bytes:
    """Return the type of decimals as one that int64 holds, if these arrays have no others."""
    match = _WHOLE_DECIMALS.fullmatch(form)
    if match is None or int(match[1]) <= INT64_DIGITS:
        return form
    bits = int(match[2] or 128)
    if bits < 64 or any(too_large(bits // 64, a, 0, a.length).any() for a in arrays):
        return form
    return f"d:{INT64_DIGITS},0,{bits}".encode()


def _has_nulls(array: _core.ArrowArray) -> bool:
    # -1: they have not been counted.
    return array.null_count != 0 and (array.null_count > 0 or array.has_buffer(0))


def _size(kind: _core.ArrowType) -> int:
    """Return the items of each list of a fixed size; 0 if the type is damaged, as others say."""
    size = kind.format.removeprefix(b"+w:")
    return int(size) if size.isdigit() else 0


def _has_null_items(array: _core.ArrowArray, size: int) -> bool:
    """Return whether an item of a list of a fixed size is null, though the list is not."""
    items, first = array.child(0), array.offset * size
    # An array that was sliced may end before its items do.
    if not _has_nulls(items) or first + array.length * size > items.length:
        return False
    absent = null_bits(items, first, first + array.length * size)
    missing = null_bits(array, 0, array.length)
    if absent is None or missing is None:
        return absent is not None
    return bool((absent & ~np.repeat(missing, size)).any())


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

        def of_dictionary(values: ArrayReader) -> ArrayReader:
            read = partial(read_dictionary, np.dtype(stored), values)
            return replace(values, rows=read, nullable=kind.nullable)

        for path, values in make_readers(kind.dictionary, name, fields, nulls, above):
            yield path, _around(values, of_dictionary)
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
            around = partial(_list_reader, kind, path, fields.get(path), len(above), nulls)
            yield path, _around(item, around)
    else:
        field, read = _leaf_reader(kind, name, fields.get(name), above)
        yield name, ArrayReader(field, read, kind.nullable, alternative=_alternative(kind, field))


def _around(
    inner: ArrayReader | RecmapError, make: Callable[[ArrayReader], ArrayReader]
) -> ArrayReader | RecmapError:
    """Return the reader of what contains another, if that can be read."""
    try:
        return make(inner) if isinstance(inner, ArrayReader) else inner
    except (DataError, OptionError) as e:
        return e


def _member_reader(number: int, nullable: bool, member: ArrayReader) -> ArrayReader:
    read = partial(read_member, number, member)
    return replace(member, rows=read, nullable=member.nullable or nullable)


def holds_nulls(reader: ArrayReader) -> bool:
    """Return whether rows may be null, and not NaT."""
    return reader.nullable and (reader.field.dtype.kind not in "mM" or bool(reader.field.ragged))


def _is_tensor(kind: ArrowKind) -> bool:
    return dict(kind.metadata).get(EXTENSION_NAME) == TENSOR


def _list_reader(
    kind: ArrowKind,
    name: str,
    given: Field | None,
    depth: int,
    nulls: Nulls,
    item: ArrayReader,
) -> ArrayReader:
    """Return the reader of lists that are ``depth`` lists deep in the column ``name``."""
    dtype, shape, fill = item.field.dtype, item.field.shape, item.field.fill
    mode = _items_mode(given, nulls, item)
    if not kind.format.startswith(b"+w:"):
        read, offset = _LISTS[kind.format]
        field = _field(name, dtype, (None, *shape), fill)
        rows = partial(read, ListItems(field, item, mode), np.dtype(offset))
    else:
        size = _number(kind.format[3:])
        axis = _fixed_axis(kind, given, depth, nulls, item, size)
        field = _field(name, dtype, (axis, *shape), fill)
        items = ListItems(field, item, mode)
        rows = partial(read_fixed_lists, items, size)
        if _is_tensor(kind):
            told = dict(kind.metadata).get(EXTENSION_METADATA, b"")
            stored, order = _tensor_shape(kind, name, told)
            if math.prod(stored) != size or shape or item.field.is_bytes:
                raise _refused(kind, name, f"a tensor of shape {stored} is not a list of {size:,}")
            field = Field(dtype, tuple(stored[axis] for axis in order), fill)
            rows = partial(read_tensors, items, stored, order)
    null_items = bool(field.ragged) and (item.null_items or holds_nulls(item))
    return replace(item, field=field, rows=rows, nullable=kind.nullable, null_items=null_items)


def _items_mode(given: Field | None, nulls: Nulls, item: ArrayReader) -> Nulls:
    """Say what becomes of the null items of a list."""
    if nulls != "keep":
        return nulls
    if given is None:
        return "keep" if item.nullable or item.null_items else "error"
    if given.fill is not None:
        return "fill"
    return "keep" if given.null_items else "error"


def _fixed_axis(
    kind: ArrowKind, given: Field | None, depth: int, nulls: Nulls, item: ArrayReader, size: int
) -> int | None:
    """Return the axis of a list of a fixed size. Ragged axes come first, and hold nulls."""
    if item.field.ragged:
        return None
    if nulls == "keep" and given is not None:
        return None if given.shape[depth : depth + 1] == (None,) else size
    exact = nulls == "keep" and isinstance(kind, KnownKind)
    empty = size == 0 and kind.nullable  # nothing could be null in it
    return None if exact and (empty or holds_nulls(item)) and not _is_tensor(kind) else size


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


def _leaf_reader(
    kind: ArrowKind, name: str, given: Field | None, above: Shape
) -> tuple[Field, RowsReader]:
    """Return the field of values that hold no others, and what reads them."""
    form = kind.format
    if form in _NUMBERS:
        return _numbers(_NUMBERS[form], _NUMBERS[form], given)
    if form == b"b":
        return _filled(np.dtype(np.bool_), given), read_booleans
    if form in _STRINGS:
        strings, offset = _STRINGS[form]
        if given is not None and given.is_bytes and not given.is_text:
            strings = BYTES
        field = _filled(strings, given)
        if offset is None:
            return field, partial(read_string_views, field)
        return field, partial(read_strings, field, np.dtype(offset))
    # What follows the colon of a timestamp is a time zone. Its values are UTC.
    time = _TIMES.get(form.split(b":")[0])
    if time is not None:
        stored, meant = time
        as_numbers = given is not None and given.dtype == stored == "i8"
        return _numbers(stored, stored if as_numbers else meant, given)
    if form.startswith(b"w:"):
        width = _number(form[2:])
        if not 0 < width < 1 << 31:
            raise _refused(kind, name, "NumPy has no values of that size")
        return _numbers(f"V{width}", f"V{width}", given)
    if form.startswith(b"d:"):
        return _decimal_reader(kind, name, given)
    if form == b"n":
        field = given or Field(np.bool_)
        if given is not None and above:
            field = Field(given.dtype, given.shape[len(above) :], _scalar_fill(given))
        return field, partial(read_nothing, field)
    raise _refused(kind, name, "recmap has no such type; convert it, or leave the column out")


def _alternative(kind: ArrowKind, field: Field) -> Alternative | None:
    """Return what else the values of a type may be read as."""
    if kind.format == b"n":
        return "any"
    if not kind.format.startswith(b"d:") or field.dtype.kind == "f":
        return None
    return "number" if field.is_text else "text"


def _numbers(stored: str, meant: str, given: Field | None) -> tuple[Field, RowsReader]:
    dtype = np.dtype(meant)
    return _filled(dtype, given), partial(read_numbers, np.dtype(stored), dtype)


def _filled(dtype: np.dtype[Any], given: Field | None) -> Field:
    """Return the field of one value, with the fill value that the user gave."""
    if given is None or given.dtype != dtype:
        return Field(dtype)
    return Field(dtype, (), _scalar_fill(given))


def _scalar_fill(given: Field) -> Any:
    return None if given.fill is None or np.ndim(given.fill) else given.fill


def _decimal_reader(kind: ArrowKind, name: str, given: Field | None) -> tuple[Field, RowsReader]:
    """Return the reader of decimals: as integers without a scale, float64, or else text.

    Whole numbers whose type has more digits than int64 are text if it is known what is stored.
    Otherwise, they are expected to be small, as most are, and one that is not raises an error.
    """
    precision, scale, bits = _decimal_type(kind, name)
    wanted = None if given is None else given.dtype
    small = precision <= INT64_DIGITS or not isinstance(kind, KnownKind)
    whole = wanted == np.int64 or (small and wanted not in (np.float64, TEXT))
    if scale == 0 and whole:
        if bits == 32:
            return _numbers("i4", "i4", given)
        return _filled(np.dtype(np.int64), given), partial(read_whole_decimals, bits // 64)
    exact = precision + max(0, -scale) <= _FLOAT_DIGITS and abs(scale) <= _FLOAT_DIGITS
    text = wanted == TEXT or (wanted != np.float64 and not exact)
    field = _filled(TEXT if text else np.dtype(np.float64), given)
    return field, partial(read_decimals, field, bits, scale)


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
    b"+l": (read_lists, "i4"),
    b"+L": (read_lists, "i8"),
    b"+m": (read_lists, "i4"),
    b"+vl": (read_list_views, "i4"),
    b"+vL": (read_list_views, "i8"),
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
