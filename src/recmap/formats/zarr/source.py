"""Zarr stores, versions 2 and 3: the arrays of a folder as columns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from recmap.errors import DataError
from recmap.files.sniff import sniff, unknown_format
from recmap.formats.column_readers import ColumnReader
from recmap.formats.column_source import ColumnsSource
from recmap.formats.npy import DEFAULT_NAME
from recmap.formats.pick_columns import choose_columns
from recmap.formats.ragged_layout import VALUES, join, levels_of
from recmap.formats.row_columns import rows_columns
from recmap.formats.zarr.arrays import PICKLED, ZarrRows, is_pickled
from recmap.formats.zarr.attributes import Mark, read_marks, restored
from recmap.formats.zarr.store import Store
from recmap.model.schema import Field

__all__ = ["open_zarr"]


def open_zarr(path: str, names: Sequence[str] | None) -> ColumnsSource:
    """The arrays of equal length, or those asked for. A store that is one array is one
    column, named by its attribute ``name``.
    """
    packed = sniff(path) if os.path.isfile(path) else None
    if packed is not None and packed.format is None:
        raise unknown_format(path, packed)
    store = Store(path)
    arrays = dict(store.arrays)
    found: dict[str, ColumnReader] = {}
    refused = dict(store.broken)
    for mark in read_marks(path, store.attributes):
        keys = levels_of(mark.field)
        parts = [f"{mark.path}/{key}" for key in (VALUES, *keys)] if keys else [mark.path]
        why = next((refused.pop(part) for part in parts if part in refused), "")
        taken = {part: arrays.pop(part, None) for part in parts}
        if why:
            refused[mark.name] = why
        elif keys:
            found[mark.name] = _ragged(path, mark, taken)
        elif taken[mark.path] is not None:
            found |= _columns(path, mark.name, taken[mark.path], mark.field)
    for at in sorted(arrays):
        name = at or str(store.attributes.get("name") or DEFAULT_NAME)
        array = arrays[at]
        if array.ndim == 0:
            refused[name] = "holds a single value, which has no rows"
        elif is_pickled(array):
            refused[name] = PICKLED
        elif name in found:
            refused[name] = "is also the name of another column"
        else:
            found |= _columns(path, name, array, None)
    columns = choose_columns(path, found, refused, names)
    # By name, so that what is left out is not warned of again.
    again = partial(open_zarr, path, list(columns))
    return ColumnsSource("zarr", [path], columns, reopen=again)


def _columns(path: str, name: str, array: Any, told: Field | None) -> dict[str, ColumnReader]:
    rows = ZarrRows(path, name, array)
    columns = rows_columns("", rows if told is None else restored(rows, told))
    return {f"{name}.{field}" if field else name: column for field, column in columns.items()}


def _ragged(path: str, mark: Mark, arrays: dict[str, Any]) -> ColumnReader:
    missing = [part for part, array in arrays.items() if array is None]
    if missing:
        raise DataError(
            f"{path}: {mark.name!r} is {mark.field}, but {' and '.join(missing)} is missing",
            file=path,
            field=mark.name,
        )
    inner = Field("uint8") if mark.field.is_bytes else Field(mark.field.dtype, mark.field.inner)
    parts = {}
    for part, array in arrays.items():
        key = part.rpartition("/")[2]
        rows = ZarrRows(path, f"{mark.name}/{key}", array)
        (column,) = rows_columns(key, restored(rows, inner) if key == VALUES else rows).values()
        parts[key] = column
    return join(path, mark.name, parts.pop(VALUES), parts, mark.field.is_bytes, mark.field)
