"""Random tables of pyarrow, and the rows that recmap should read from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import recmap as rm
from hostile.case import Case
from hostile.table import Table

__all__ = ["column_rows", "expected", "item_fills", "random_table"]

_NUMBERS = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64(), pa.bool_()),
]
_TIMES = [pa.timestamp("us"), pa.timestamp("ns", "Europe/Berlin"), pa.date32(), pa.duration("ms")]
_STRINGS = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]
_VIEWS = [pa.string_view(), pa.binary_view()]
_OTHERS = [
    *(pa.binary(3), pa.decimal128(12, 0), pa.date64(), pa.time32("s"), pa.time32("ms")),
    *(pa.time64("us"), pa.time64("ns"), pa.duration("ns"), pa.timestamp("ms"), pa.timestamp("s")),
]
_LETTERS = ["", "a", "b", "é", "漢", "\0", "a longer string that no view holds itself"]


def random_table(case: Case, *, views: bool, nulls: bool, every: bool = False) -> pa.Table:
    """Draw a table, cut into chunks and perhaps a slice of a larger one.

    ``views`` allows the layouts that only tables have, not files. With ``every``, there are more
    types, nulls on every level, and rows that are much larger than those before.
    """
    rows = case.pick([0, 1, 2, case.between(3, 60), 300])
    columns: dict[str, pa.ChunkedArray] = {}
    for name in ("x", "y z", "é", "t.u")[: case.between(1, 4)]:
        kind = _type(case, views, case.pick([0, 0, 1, 2]), every)
        drawn = [_value(case, kind, nulls, every=every) for _ in range(rows + 3)]
        if every and rows and case.chance(0.2):
            drawn[rows + 1] = _enlarged(drawn[rows + 1], kind)
        array = pa.array(drawn, kind)
        if case.chance(0.2) and (pa.types.is_string(kind) or pa.types.is_int32(kind)):
            array = array.dictionary_encode()
        columns[name] = pa.chunked_array([array.slice(2, rows)])
    table = pa.table(columns)
    cut = case.between(0, rows)
    if case.chance(0.5):
        table = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    case.note(f"{rows} rows: {table.schema.to_string()}")
    return table


def _enlarged(value: Any, kind: pa.DataType) -> Any:
    """Return a row that takes up to a megabyte."""
    if value is None or not (_is_string(kind) or _is_list(kind)):
        return value
    return value if pa.types.is_fixed_size_list(kind) else value * 20_000


def _type(case: Case, views: bool, depth: int, every: bool) -> pa.DataType:
    if depth == 0:
        kinds = [_NUMBERS, _NUMBERS, _STRINGS, _TIMES, *([_VIEWS] if views else [])]
        kinds += [_OTHERS, _OTHERS] if every else []
        return case.pick(case.pick(kinds))
    inner = _type(case, views, depth - 1, every)
    made = ["list", "large_list", "fixed", "struct"]
    if views and not _is_time(inner):  # pyarrow does not cast views of times to numbers
        made.append("list_view")
    kind = case.pick(made)
    if kind == "struct":
        return pa.struct([("a", inner), ("b", case.pick(_NUMBERS))])
    if kind == "fixed":
        return pa.list_(inner, case.between(1, 3))
    lists: dict[str, Callable[[Any], Any]] = {
        "list": pa.list_,
        "large_list": pa.large_list,
        "list_view": pa.list_view,
    }
    return lists[kind](inner)


def _value(
    case: Case, kind: pa.DataType, nulls: bool, inside: bool = False, every: bool = False
) -> Any:
    """Draw a value. Inside of lists, only what can be filled is null, unless ``every`` is."""
    fillable = pa.types.is_floating(kind) or _is_string(kind) or every
    if nulls and (fillable or not inside) and case.chance(0.2):
        return None
    if pa.types.is_struct(kind):
        return {field.name: _value(case, field.type, nulls, inside, every) for field in kind}
    if _is_list(kind):
        fixed = pa.types.is_fixed_size_list(kind)
        count = kind.list_size if fixed else case.pick([0, 1, 1, 2, 5])
        return [_value(case, kind.value_type, nulls, True, every) for _ in range(count)]
    if _is_string(kind):
        text = "".join(case.pick(_LETTERS) for _ in range(case.between(0, 2)))
        return text if _is_text(kind) else text.encode() + b"\xff"[: case.between(0, 1)]
    return _number(case, kind)


def _number(case: Case, kind: pa.DataType) -> Any:
    if pa.types.is_fixed_size_binary(kind):
        return case.rng.bytes(kind.byte_width)
    if pa.types.is_decimal(kind):
        return Decimal(case.between(-(10**11), 10**11))
    if pa.types.is_date64(kind):
        return pa.scalar(case.between(-1000, 20000) * 86_400_000, pa.int64()).cast(kind)
    if pa.types.is_time(kind):
        number = case.between(0, 86_399)
        return pa.scalar(number, pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
    if pa.types.is_boolean(kind):
        return case.chance(0.5)
    if pa.types.is_floating(kind):
        return np.dtype(kind.to_pandas_dtype()).type(
            case.pick([0.0, -0.0, np.inf, np.nan, case.rng.standard_normal()])
        )
    if pa.types.is_integer(kind):
        limits = np.iinfo(kind.to_pandas_dtype())
        return case.pick([limits.min, limits.max, case.between(0, 100)])
    return pa.scalar(case.between(-1000, 20000), pa.int32() if kind == pa.date32() else pa.int64())\
        .cast(kind)  # fmt: skip


def column_rows(table: pa.Table) -> dict[str, list[Any]]:
    """Return the rows of each column as values of Python, nulls as None, times as numbers."""
    made = {}
    for name in table.column_names:
        kind = table.schema.field(name).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        values = _plain_values(table.column(name), kind)
        for path, leaf, get in _leaves(name, kind):
            rows = [get(value) for value in values]
            made[path] = (
                [_with_nat(leaf, row) for row in rows] if _is_time(_innermost(leaf)) else rows
            )
    return made


def _with_nat(kind: pa.DataType, row: Any) -> Any:
    """Return lists of a fixed number of times: all of them are NaT if the list is null."""
    if not _is_list(kind):
        return row
    if row is None and _all_fixed(kind):
        row = [None] * kind.list_size
    return None if row is None else [_with_nat(kind.value_type, item) for item in row]


def expected(table: pa.Table) -> Table:
    """Return what ``rm.open(table, nulls="mask")`` should read."""
    made: Table = {}
    for name in table.column_names:
        kind = table.schema.field(name).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        values = _plain_values(table.column(name), kind)
        for path, leaf, get in _leaves(name, kind):
            rows = [get(value) for value in values]
            made[path] = [_row(leaf, row) for row in rows]
            if not _is_time(leaf) and any(row is None for row in rows):
                made[f"{path}/is_null"] = [np.bool_(row is None) for row in rows]
    return made


def item_fills(table: pa.Table, schema: rm.Schema) -> dict[Any, str | None]:
    """Return the fields that fill null items of lists with 0, as ``expected`` does."""
    fills: dict[Any, str | None] = {...: None}
    for name in table.column_names:
        kind = table.schema.field(name).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        for path, leaf, _ in _leaves(name, kind):
            if _is_list(leaf) and _dtype_kind(leaf) in "biuV":
                fills[path] = f"{schema[path]} = 0"
    return fills


def _dtype_kind(kind: pa.DataType) -> str:
    return "S" if _is_string(_innermost(kind)) else _dtype(_innermost(kind)).kind


def _plain_values(column: pa.ChunkedArray, kind: pa.DataType) -> list[Any]:
    """Return values of Python; times as numbers, because Python has no nanoseconds."""
    if not _is_time(_innermost(kind)):
        return list(column.to_pylist())
    stored = pa.int32() if _innermost(kind).bit_width == 32 else pa.int64()
    return list(column.cast(_replaced(kind, stored)).to_pylist())


def _innermost(kind: pa.DataType) -> pa.DataType:
    while True:
        if pa.types.is_struct(kind):
            kind = kind.field("a").type
        elif _is_list(kind):
            kind = kind.value_type
        else:
            return kind


def _replaced(kind: pa.DataType, leaf: pa.DataType) -> pa.DataType:
    """Return a type with another one innermost."""
    if pa.types.is_struct(kind):
        return pa.struct([("a", _replaced(kind.field("a").type, leaf)), kind.field("b")])
    if not _is_list(kind):
        return leaf
    inner = _replaced(kind.value_type, leaf)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(inner, kind.list_size)
    if pa.types.is_large_list(kind):
        return pa.large_list(inner)
    return pa.list_view(inner) if pa.types.is_list_view(kind) else pa.list_(inner)


Get = Callable[[Any], Any]


def _leaves(name: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType, Get]]:
    """Yield the columns of a type, and how to get a row of each from a row of the type."""
    if pa.types.is_struct(kind):
        for field in kind:
            for path, leaf, get in _leaves(f"{name}/{field.name}", field.type):
                yield path, leaf, partial(_member, field.name, get)
    elif _is_list(kind):
        for path, leaf, get in _leaves(name, kind.value_type):
            inner = pa.list_(leaf, kind.list_size if pa.types.is_fixed_size_list(kind) else -1)
            yield path, inner, partial(_each, get)
    else:
        yield name, kind, _same


def _member(name: str, get: Get, row: Any) -> Any:
    return None if row is None else get(row[name])


def _each(get: Get, row: Any) -> Any:
    return None if row is None else [get(item) for item in row]


def _same(row: Any) -> Any:
    return row


def _row(kind: pa.DataType, row: Any) -> Any:
    """Return a row as recmap gives it; one that is missing is filled."""
    shape = _dense_shape(kind)
    if shape is not None:
        dtype = _dtype(_innermost(kind))
        if row is None:
            return np.full(shape, _fill(dtype), dtype)
        return np.array(_filled(row, dtype, shape), _stored(dtype)).view(dtype).reshape(shape)
    if not _is_list(kind):
        return row if row is not None else "" if _is_text(kind) else b""
    if _is_string(_innermost(kind)):
        count = kind.list_size if pa.types.is_fixed_size_list(kind) and _all_fixed(kind) else 0
        return [_row(kind.value_type, item) for item in ([None] * count if row is None else row)]
    inner = _dense_shape(kind.value_type)
    if inner is None:
        return [_row(kind.value_type, item) for item in row or []]
    dtype = _dtype(_innermost(kind))
    items = [_row(kind.value_type, item) for item in row or []]
    return np.array(items, dtype).reshape(len(items), *inner)


def _all_fixed(kind: pa.DataType) -> bool:
    while _is_list(kind):
        if not pa.types.is_fixed_size_list(kind):
            return False
        kind = kind.value_type
    return True


def _dense_shape(kind: pa.DataType) -> tuple[int, ...] | None:
    """Return the shape of a row; None if rows have different shapes."""
    if _is_string(_innermost(kind)) or not _all_fixed(kind):
        return None
    shape = []
    while _is_list(kind):
        shape.append(kind.list_size)
        kind = kind.value_type
    return tuple(shape)


def _filled(row: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    if shape:
        items = [None] * shape[0] if row is None else row
        return [_filled(item, dtype, shape[1:]) for item in items]
    if dtype.kind == "V":
        return bytes(dtype.itemsize) if row is None else row
    if dtype.kind in "mM":
        return np.iinfo(np.int64).min if row is None else row
    return _fill(_stored(dtype)) if row is None else row


def _fill(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "f":
        return np.nan
    if dtype.kind == "V":
        return np.zeros((), dtype)[()]
    return np.array("NaT", dtype) if dtype.kind in "mM" else 0


def _dtype(kind: pa.DataType) -> np.dtype[Any]:
    if kind == pa.date32():
        return np.dtype("M8[D]")
    if pa.types.is_fixed_size_binary(kind):
        return np.dtype((np.void, kind.byte_width))
    if pa.types.is_decimal(kind):
        return np.dtype(np.int64)
    if pa.types.is_date64(kind):
        return np.dtype("M8[ms]")
    if _is_time(kind):
        spans = pa.types.is_duration(kind) or pa.types.is_time(kind)
        return np.dtype(f"{'m8' if spans else 'M8'}[{kind.unit}]")
    dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    return dtype


def _stored(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.int64) if dtype.kind in "mM" else dtype


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(_innermost(kind)))


def _is_list(kind: pa.DataType) -> bool:
    return hasattr(kind, "value_type") and not pa.types.is_dictionary(kind)


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def _is_string(kind: pa.DataType) -> bool:
    return _is_text(kind) or kind in (pa.binary(), pa.large_binary(), pa.binary_view())
