"""Zarr stores, versions 2 and 3: arrays of equal length are columns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from recmap.errors import DataError
from recmap.files.sniff import sniff, unknown_format
from recmap.formats.column_readers import DEFAULT_NAME, ColumnReader, decoded_columns
from recmap.formats.column_source import ColumnsSource, choose_columns
from recmap.formats.ragged_layout import VALUES, join, levels_of
from recmap.formats.zarr.arrays import PICKLED, Store, ZarrArray, is_pickled, restored
from recmap.formats.zarr.attributes import StoredColumn, read_columns
from recmap.model.field import Field

__all__ = ["open_zarr"]


def open_zarr(path: str, names: Sequence[str] | None) -> ColumnsSource:
    """Open the arrays of equal length, or those in ``names``.

    A store that is a single array is one column, named after its attribute ``name``.
    """
    packed = sniff(path) if os.path.isfile(path) else None
    if packed is not None and packed.format is None:
        raise unknown_format(path, packed)
    store = Store(path)
    arrays = dict(store.arrays)
    found: dict[str, ColumnReader] = {}
    refused = dict(store.broken)
    for column in read_columns(path, store.attributes):
        keys = levels_of(column.field)
        paths = [f"{column.path}/{key}" for key in (VALUES, *keys)] if keys else [column.path]
        why = next((refused.pop(inner) for inner in paths if inner in refused), "")
        its_arrays = {inner: arrays.pop(inner, None) for inner in paths}
        if why:
            refused[column.name] = why
        elif keys:
            found[column.name] = _ragged(path, column, its_arrays)
        elif its_arrays[column.path] is not None:
            found |= _columns(path, column.name, its_arrays[column.path], column.field)
    for inner in sorted(arrays):
        name = inner or str(store.attributes.get("name") or DEFAULT_NAME)
        array = arrays[inner]
        if array.ndim == 0:
            refused[name] = "holds a single value, which has no rows"
        elif is_pickled(array):
            refused[name] = PICKLED
        elif name in found:
            refused[name] = "is also the name of another column"
        else:
            found |= _columns(path, name, array, None)
    columns = choose_columns(path, found, refused, names)
    # Reopen by name, so that the warning about arrays left out is not repeated.
    again = partial(open_zarr, path, list(columns))
    return ColumnsSource("zarr", [path], columns, reopen=again)


def _columns(path: str, name: str, array: Any, field: Field | None) -> dict[str, ColumnReader]:
    decoded = ZarrArray(path, name, array)
    columns = decoded_columns("", decoded if field is None else restored(decoded, field))
    return {f"{name}.{inner}" if inner else name: column for inner, column in columns.items()}


def _ragged(path: str, column: StoredColumn, arrays: dict[str, Any]) -> ColumnReader:
    name, field = column.name, column.field
    missing = [inner for inner, array in arrays.items() if array is None]
    if missing:
        raise DataError(
            f"{path}: {name!r} is {field}, but {' and '.join(missing)} is missing",
            file=path,
            field=name,
        )
    values = Field("uint8") if field.is_bytes else Field(field.dtype, field.inner)
    readers = {}
    for inner, array in arrays.items():
        key = inner.rpartition("/")[2]
        stored = ZarrArray(path, f"{name}/{key}", array)
        decoded = restored(stored, values) if key == VALUES else stored
        (reader,) = decoded_columns(key, decoded).values()
        readers[key] = reader
    return join(path, name, readers.pop(VALUES), readers, field.is_bytes, field)
