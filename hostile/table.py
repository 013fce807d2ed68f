"""Expected values, compared bit for bit with those of recmap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

import recmap as rm

__all__ = ["Table", "as_bytes", "assert_same", "plain", "rows_of", "table_of", "with_masks"]

#: Rows by column. A row is an array of any shape, bytes, or a list of these.
Table: TypeAlias = dict[str, list[Any]]


def plain(value: Any) -> Any:
    """Return a form of a value that is equal only for the same bits, dtype and shape.

    The byte order is not compared, because a format may or may not keep it.
    """
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, rm.Ragged | list | tuple):
        return [plain(item) for item in value]
    array = np.asarray(value)
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    dtype = native.dtype.str if native.dtype.kind != "V" else f"V{native.dtype.itemsize}"
    if native.dtype.kind in "fc" and native.dtype.itemsize > 8 * (1 + (native.dtype.kind == "c")):
        return (dtype, native.shape, repr(native.tolist()))  # padding bits differ
    return (dtype, native.shape, np.ascontiguousarray(native).tobytes())


def as_bytes(array: npt.NDArray[Any]) -> list[Any]:
    """Return the rows of an array of strings as recmap gives them, in UTF-8."""
    if array.ndim > 1:
        return [as_bytes(row) for row in array]
    return [item if isinstance(item, bytes) else item.encode() for item in array.tolist()]


def rows_of(array: npt.NDArray[Any]) -> list[Any]:
    """Return the rows of an array, strings as bytes."""
    return as_bytes(array) if array.dtype.kind in "SU" else list(array)


def table_of(arrays: Mapping[str, npt.NDArray[Any]]) -> Table:
    """Return the columns of arrays by name; the fields of structured arrays are columns."""
    table: Table = {}
    for name, array in arrays.items():
        if array.dtype.names is None:
            table[name] = rows_of(array)
            continue
        inner = table_of({field: array[field] for field in array.dtype.names})
        table.update({f"{name}.{field}" if name else field: c for field, c in inner.items()})
    return table


def assert_same(found: Iterable[Any], wanted: Sequence[Any], where: str) -> None:
    """Raise if the rows of a column are not those expected."""
    rows = [plain(row) for row in found]
    expected = [plain(row) for row in wanted]
    if len(rows) != len(expected):
        raise AssertionError(f"{where}: {len(rows)} rows, not {len(expected)}")
    for i, (a, b) in enumerate(zip(rows, expected, strict=True)):
        if a != b:
            raise AssertionError(f"{where}: row {i} is {str(a)[:300]}, not {str(b)[:300]}")


def with_masks(table: Table, schema: Mapping[str, rm.Field]) -> Table:
    """Return columns as ``nulls="mask"`` gives them: filled, with a column that tells where."""
    masked: Table = {}
    for name, rows in table.items():
        masked[name] = rows
        if schema[name].nullable:
            dtype = schema[name].dtype
            empty = "" if dtype.kind == "U" else np.zeros((), dtype)[()]
            masked[name] = [empty if row is None else row for row in rows]
            masked[f"{name}/is_null"] = [np.bool_(row is None) for row in rows]
    return masked
