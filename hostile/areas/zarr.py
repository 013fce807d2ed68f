"""Stores that zarr writes: both versions, any chunks, codecs and fill values."""

from __future__ import annotations

import shutil
import warnings
from typing import Any

import numpy as np
import zarr

import recmap as rm
from hostile import arrays
from hostile.case import Case, NoReferenceError
from hostile.reading import check_some_ways
from hostile.table import table_of

__all__ = ["case"]


def case(case: Case) -> None:
    path = case.path("x.zarr")
    rows = case.between(1, 40)
    version = case.pick([2, 3])
    columns: dict[str, Any] = {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            store = zarr.open_group(path, mode="w", zarr_format=version)
            for i in range(case.between(1, 3)):
                _array(case, store, f"x{i}", rows, version)
            for name in list(store.array_keys()):
                columns[name] = store[name][...]
    except Exception as e:
        shutil.rmtree(path, ignore_errors=True)
        raise NoReferenceError(repr(e)) from e
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ds = rm.open(path)
        check_some_ways(case, ds, table_of(columns))


def _array(case: Case, store: Any, name: str, rows: int, version: int) -> None:
    array = arrays.array(case, rows, strings=False)
    chunks = tuple(case.between(1, max(1, side + 2)) for side in array.shape)
    options: dict[str, Any] = {"chunks": chunks}
    if case.chance(0.2) and 0 not in array.shape:
        options["chunks"] = tuple(max(1, side // 2) for side in array.shape)
        if version == 3:
            options["shards"] = tuple(2 * side for side in options["chunks"])
    if case.chance(0.3):
        options["compressors"] = None
    if version == 2 and case.chance(0.3):
        options["order"] = "F"
    case.note(f"{name}: version {version} {array.dtype} {array.shape} {options}")
    made = store.create_array(name, shape=array.shape, dtype=array.dtype, **options)
    if case.chance(0.7):
        made[...] = array
    elif len(array):
        # Chunks that were never written have the fill value.
        start = case.between(0, len(array) - 1)
        made[start:] = array[start:]
    if case.chance(0.1) and len(array):
        made[0] = np.zeros(array.shape[1:], array.dtype)
