"""Open objects in memory: arrays, tables, rows, tensors, objects of h5py and zarr.

``open_object`` says what an object is. What it cannot open gets an error that says what to do
instead.
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.dataset.rows import OpenedRows
from recmap.dataset.tables import Wanted, is_table, open_hugging_face, open_table
from recmap.errors import ColumnError, DataError, OptionTypeError, RecmapError
from recmap.formats.array_object import as_array, is_array, open_array
from recmap.formats.column_readers import DEFAULT_NAME
from recmap.formats.memory import memory_source
from recmap.model.coerce import as_columns, fit, infer_schema
from recmap.model.ragged import Ragged, has_mask
from recmap.model.source import Source

_PATH = (str, bytes, os.PathLike)
# What to do with objects that cannot be opened, by package and class.
_REMEDIES = {
    "_io": "give the path of the file, not an open file: its .name",
    "PIL": 'a single image; for one row, rm.open({"image": numpy.asarray(image)[None]})',
    "dask": "rm.open(x.compute()) loads it; or save it with dask, and open the files",
    "polars.LazyFrame": "rm.open(x.collect()) opens its result",
    "pyarrow.FileSystemDataset": "rm.open(x.scanner().to_reader()) reads it once, in order",
    "pyarrow.ParquetFile": "give the path of the file",
    "scipy": "rm.open(x.toarray()) opens a dense copy",
    "tensorflow": "rm.from_batches(x.batch(1024).as_numpy_iterator()) reads its batches, which "
    "have to be dicts",
    "torch": "rm.from_batches(x) reads batches that are dicts of tensors; for others, "
    'rm.from_batches({"x": x, "y": y} for x, y in loader)',
    "datasets.DatasetDict": 'choose a split: rm.open(x["train"])',
    "datasets.IterableDatasetDict": 'choose a split, x["train"]',
    "datasets.IterableDataset": 'rm.from_batches(x.with_format("numpy").iter(batch_size=1000)) '
    "reads it once, in order",
}


@contextmanager
def blaming(x: Any) -> Iterator[None]:
    """Turn whatever an object raises while it is opened into an error that names it."""
    try:
        yield
    except (RecmapError, MemoryError):
        raise
    except Exception as e:  # its methods are those of another library, or of the user
        raise DataError(f"{type(x).__qualname__} cannot be opened: {type(e).__name__}: {e}") from e


def settled(x: Any) -> Any:
    """Return paths from an iterator as a list, and anything else unchanged."""
    if not isinstance(x, Iterator) or hasattr(x, "read") or hasattr(x, "__arrow_c_stream__"):
        return x
    first = next(x, None)
    if first is None:
        return []
    if isinstance(first, _PATH):
        return list(chain([first], x))
    raise OptionTypeError(
        f"{type(x).__qualname__} can be read only once: if it gives batches, rm.from_batches(x) "
        "reads them; if it gives rows, rm.open(list(x)) holds them in memory"
    )


def open_object(x: Any, wanted: Wanted, column: str | None = None) -> OpenedRows | None:
    """Open an object; return None if it is a path or several, or a dict of columns.

    ``wanted`` says what becomes of missing values in a table. ``column`` is the name of the
    column that the object is meant for, in a dict of columns.
    """
    if isinstance(x, _PATH):
        return None
    package, kind = type(x).__module__.partition(".")[0], type(x).__qualname__
    remedy = _REMEDIES.get(f"{package}.{kind}")
    if remedy is not None:
        raise OptionTypeError(f"{kind} cannot be opened: {remedy}")
    if package == "h5py":
        return _open_hdf5(x, column)
    if package == "zarr":
        return _open_zarr(x)
    if package == "datasets" and hasattr(x, "_indices"):
        return open_hugging_face(x, wanted)
    if isinstance(x, np.lib.npyio.NpzFile):
        raise OptionTypeError(f"{x!r} is open already: give the path of the file to rm.open")
    if isinstance(x, Mapping):
        return None
    if is_table(x):
        if column is None and _are_paths(x):
            return None
        return open_table(x, wanted, column)
    if isinstance(x, Ragged):
        return held_columns({column or DEFAULT_NAME: x})
    if is_array(x):
        return _open_array(x, column)
    if isinstance(x, list | tuple):
        return _open_list(x, column)
    raise _cannot(x, package)


def held_columns(columns: Mapping[str, Any]) -> OpenedRows:
    """Return columns in memory: arrays, lists, or anything else that NumPy makes an array of."""
    given = as_columns(columns)
    schema = infer_schema(given)
    batch, _ = fit(given, schema)
    return OpenedRows(memory_source(batch, schema), lasting=False)


def _open_array(x: Any, column: str | None) -> OpenedRows | None:
    if has_mask(x):
        return held_columns({column or DEFAULT_NAME: x})
    array = as_array(x)
    if array.dtype.kind in "OSUT":
        if column is not None:
            return held_columns({column: array})
        if _are_paths(array):
            return None
    source, place = open_array(array, column or DEFAULT_NAME)
    if place is None:
        return OpenedRows(source, lasting=False)
    return OpenedRows(source, {"object": repr(place)}, reopen=place)


def _are_paths(x: Any) -> bool:
    """Return whether an array or a column of a table has text, which stands for paths."""
    if getattr(x, "ndim", 1) != 1 or hasattr(x, "columns") or not hasattr(x, "__len__"):
        return False
    return bool(len(x)) and isinstance(next(iter(x)), _PATH)


def _open_hdf5(x: Any, column: str | None) -> OpenedRows:
    from recmap.formats.hdf5.source import hdf5_place

    if not hasattr(type(x), "file"):  # dataset.astype(...), dataset.asstr()
        if is_array(x):
            return held_columns({column or DEFAULT_NAME: as_array(x)})
        raise OptionTypeError(f"{type(x).__qualname__} of h5py is neither a dataset nor a group")
    place = hdf5_place(x)
    if place is None:
        name = column or (x.name or DEFAULT_NAME).rpartition("/")[2]
        return _held(name, x[()])
    return _placed(place)


def _held(name: str, array: npt.NDArray[Any]) -> OpenedRows:
    """Return an array that was read into memory."""
    if array.dtype.hasobject:
        return held_columns({name: array})
    return OpenedRows(open_array(array, name)[0], lasting=False)


def _open_zarr(x: Any) -> OpenedRows:
    from recmap.formats.zarr.source import open_held, zarr_place

    place = zarr_place(x)
    if place is None:
        return OpenedRows(open_held(x), lasting=False, reopen=partial(open_held, x))
    return _placed(place)


def _placed(place: Callable[[], Source]) -> OpenedRows:
    return OpenedRows(place(), {"object": repr(place)}, reopen=place)


def _open_list(x: Sequence[Any], column: str | None) -> OpenedRows | None:
    if all(isinstance(item, _PATH) for item in x):
        return None
    if column is not None:
        return held_columns({column: x})
    if all(isinstance(item, Mapping) for item in x):
        return held_columns(_columns_of(x))
    kinds = ", ".join(sorted({type(item).__name__ for item in x}))
    raise OptionTypeError(
        f"give a path, or a list of paths or of rows that are dicts; this is a list of {kinds}: "
        'for a column, rm.open({"x": values}); for several arrays that are one, '
        "rm.open(numpy.concatenate(arrays))"
    )


def _columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Turn rows into columns; dicts inside of them give columns called ``outer/inner``."""
    columns: dict[str, list[Any]] = {name: [] for name in _flat(rows[0])}
    for number, row in enumerate(rows):
        values = _flat(row)
        if values.keys() != columns.keys():
            names = sorted(values.keys() ^ columns.keys(), key=str)
            raise ColumnError(
                f"row {number:,} does not have the columns of row 0: {', '.join(map(repr, names))} "
                "is in only one of them; give every row a value"
            )
        for name, value in values.items():
            columns[name].append(value)
    for name, given in columns.items():
        if all(value is None for value in given):
            raise ColumnError(
                f"{name!r} is None in every row, so its type is unknown; leave it out, or give an "
                "array"
            )
    return columns


def _flat(row: Mapping[Any, Any], prefix: str = "") -> dict[Any, Any]:
    values: dict[Any, Any] = {}
    for name, value in row.items():
        own = f"{prefix}{name}" if isinstance(name, str) else name
        found = _flat(value, f"{own}/") if isinstance(value, Mapping) else {own: value}
        for each in found.keys() & values.keys():
            raise ColumnError(f"a row has two values for column {each!r}; rename one of them")
        values |= found
    return values


def _cannot(x: Any, package: str) -> OptionTypeError:
    """Return the error for an object that cannot be opened, with what to do instead."""
    kind = type(x).__qualname__
    if isinstance(x, set | frozenset):
        remedy = "a set has no order; give sorted(x)"
    elif hasattr(x, "fileno") or hasattr(x, "read"):
        remedy = "give the path of the file, not an open file (a file object has one, its .name)"
    elif package in _REMEDIES:
        remedy = _REMEDIES[package]
    elif hasattr(x, "__iter__") and not isinstance(x, type):
        remedy = "rm.from_batches(x) reads batches that are dicts of arrays"
    else:
        remedy = "give a path as text, bytes or pathlib.Path, or an array or a table"
    return OptionTypeError(f"{reprlib.repr(x)} ({kind}) cannot be opened: {remedy}")
