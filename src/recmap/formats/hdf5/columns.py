"""The columns of an HDF5 dataset: mapped, by chunks, or through the library."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from recmap.formats.column_readers import ArrayColumn, ColumnReader, Which
from recmap.formats.hdf5.chunk_index import contiguous_offset
from recmap.formats.hdf5.chunks import ChunkedArray
from recmap.formats.hdf5.file import Hdf5File
from recmap.formats.hdf5.filters import Pipeline, filter_names, filters_of
from recmap.formats.hdf5.library import h5py
from recmap.formats.hdf5.types import Leaf
from recmap.formats.hdf5.vlen_lengths import REFERENCE, Lengths
from recmap.model.ragged import Column, concatenate
from recmap.model.row_sizes import STRING, RowSizes
from recmap.model.schema import Field

__all__ = ["columns_of"]

# Before this release, addresses of chunks did not count the bytes before the HDF5 part.
_USERBLOCK_COUNTED = (1, 14, 4)
# What a list takes while the library reads it, beside its values: it is an array of its
# own. And how often its values are held, by the library and by h5py.
_LIST, _LIST_COPIES = 384, 3
# Rows the library is asked for at once when single ones are wanted.
_STRETCH = 1 << 16


def columns_of(
    file: Hdf5File, name: str, dataset: Any, found: list[Leaf], direct: bool = True
) -> list[ColumnReader]:
    """A reader for each leaf of a dataset, without ``direct`` through h5py; h5py may be
    called.
    """
    storage = dataset.id.get_create_plist()
    layout = storage.get_layout()
    if direct and _as_in_memory(dataset):
        offset = contiguous_offset(dataset)
        if offset is not None:
            array = file.mapped.array(offset, dataset.shape, dataset.dtype)
            return [_mapped(file, leaf, array) for leaf in found]
        if layout == h5py.h5d.CHUNKED:
            pipeline = _pipeline(dataset, storage)
            if pipeline.known and _located(file, dataset):
                chunks = ChunkedArray(file, name, dataset, dataset.dtype, pipeline)
                shared = _Shared(chunks) if len(found) > 1 else chunks
                note = _note(dataset, storage)
                return [_ChunkedColumn(shared, leaf, dataset, note) for leaf in found]
    note = f"{_note(dataset, storage)}, read through h5py"
    located = layout == h5py.h5d.CHUNKED and _located(file, dataset)
    return [
        _LibraryColumn(file, name, dataset, leaf, note, Lengths(file, name, dataset, leaf, located))
        for leaf in found
    ]


def _as_in_memory(dataset: Any) -> bool:
    """Whether numpy would hold the values in just the bytes they have in the file."""
    dtype = dataset.dtype
    if dtype.hasobject:
        return False
    in_memory = h5py.h5t.py_create(dtype, logical=True)
    return bool(dataset.id.get_type().equal(in_memory)) and dtype.itemsize > 0


def _located(file: Hdf5File, dataset: Any) -> bool:
    """Whether the library tells where chunks are, in numbers that can be counted with."""
    counts = (-(-axis // step) for axis, step in zip(dataset.shape, dataset.chunks, strict=True))
    return (
        hasattr(dataset.id, "chunk_iter")
        and math.prod(counts) < 1 << 62
        and (file.root.userblock_size == 0 or h5py.version.hdf5_version_tuple >= _USERBLOCK_COUNTED)
    )


def _pipeline(dataset: Any, storage: Any) -> Pipeline:
    nbytes = math.prod(dataset.chunks) * dataset.dtype.itemsize
    return Pipeline([(number, values) for number, _, values, _ in filters_of(storage)], nbytes)


def _note(dataset: Any, storage: Any) -> str:
    layouts = {h5py.h5d.COMPACT: "compact", h5py.h5d.VIRTUAL: "virtual"}
    if dataset.chunks is None:
        return layouts.get(storage.get_layout(), "contiguous")
    names = filter_names(filters_of(storage))
    size = " x ".join(f"{axis:,}" for axis in dataset.chunks)
    return f"chunks of {size}{', ' if names else ''}{names}"


def _mapped(file: Hdf5File, leaf: Leaf, array: npt.NDArray[Any]) -> ArrayColumn:
    part = leaf.pick(array)
    return ArrayColumn(part if leaf.field.is_bytes else leaf.plain(part), file.mapped)


class _Shared:
    """Rows of a dataset of several columns: they are read once, for as long as one of
    the columns made of them is in use.
    """

    def __init__(self, chunks: ChunkedArray) -> None:
        self._chunks = chunks
        self._held: WeakValueDictionary[Any, npt.NDArray[Any]] = WeakValueDictionary()

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        return self._once((start, stop), lambda: self._chunks.read(start, stop))

    def gather(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        return self._once(rows.tobytes(), lambda: self._chunks.gather(rows))

    def keep(self, bands: int | None) -> None:
        self._chunks.keep(bands)

    def _once(self, key: Any, read: Callable[[], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        rows = self._held.get(key)
        if rows is None:
            rows = read()
            rows.flags.writeable = False
            self._held[key] = rows
        return rows


class _ChunkedColumn:
    """One column of a chunked dataset."""

    def __init__(self, rows: _Shared | ChunkedArray, leaf: Leaf, dataset: Any, note: str) -> None:
        self._rows, self._leaf = rows, leaf
        self._length: int = dataset.shape[0]
        self._size = _size(dataset, leaf)
        self.field: Field = leaf.field
        self.chunk_rows: int = dataset.chunks[0]
        # A chunk is stored whole, however few rows there are.
        self.band_bytes = self.chunk_rows * leaf.row_bytes
        self.note = note

    def __len__(self) -> int:
        return self._length

    def keep(self, bands: int | None) -> None:
        self._rows.keep(bands)

    def read(self, start: int, stop: int) -> Column:
        return self._leaf.column(self._leaf.pick(self._rows.read(start, stop)))

    def gather(self, rows: npt.NDArray[np.int64]) -> Column:
        return self._leaf.column(self._leaf.pick(self._rows.gather(rows)))

    def sizes(self, rows: Which, limit: int) -> RowSizes | None:
        return self._size

    def view(self) -> npt.NDArray[Any] | None:
        return None

    def row_bytes(self) -> int:
        return self._leaf.row_bytes


class _LibraryColumn:
    """One column that only the library can read, a call at a time."""

    def __init__(
        self, file: Hdf5File, name: str, dataset: Any, leaf: Leaf, note: str, lengths: Lengths
    ) -> None:
        self._file, self._name, self._leaf, self._lengths = file, name, leaf, lengths
        self._size = _size(dataset, leaf)
        self._length: int = dataset.shape[0]
        self.field: Field = leaf.field
        self.chunk_rows: int = dataset.chunks[0] if dataset.chunks else 1
        # Chunks of lists hold where they are.
        row = leaf.row_bytes if self._size is not None else REFERENCE
        self.band_bytes = self.chunk_rows * row if dataset.chunks else 0
        self.note = note

    def __len__(self) -> int:
        return self._length

    def keep(self, bands: int | None) -> None:
        """The library keeps what it likes, which is little."""

    def read(self, start: int, stop: int) -> Column:
        with self._file.locked(self._name):
            dataset = self._file.dataset(self._name)
            fields = dataset.fields(self._leaf.path[0]) if self._leaf.path else dataset
            rows = fields[start:stop]
            for name in self._leaf.path[1:]:
                rows = rows[name]
            return self._leaf.column(rows)

    def gather(self, rows: npt.NDArray[np.int64]) -> Column:
        if not len(rows):
            return self.read(0, 0)
        wanted, back = np.unique(rows, return_inverse=True)
        step = self.chunk_rows if self.chunk_rows > 1 else _STRETCH // self._leaf.row_bytes + 1
        _, starts = np.unique(wanted // step, return_index=True)
        parts = []
        for some in np.split(wanted, starts[1:]):
            first = int(some[0])
            parts.append(self.read(first, int(some[-1]) + 1)[some - first])
        return concatenate(parts)[back]

    def sizes(self, rows: Which, limit: int) -> RowSizes | None:
        if self._size is not None:
            return self._size
        if isinstance(rows, slice):  # each takes as much as an object, or more
            rows = slice(rows.start, min(rows.stop, rows.start + limit // _LIST + 1))
        lengths = self._lengths.of(rows)
        if lengths is None:
            return None
        item = 1 if self.field.is_bytes else self.field.dtype.itemsize
        each = (_LIST_COPIES * lengths * item + _LIST).reshape(
            len(lengths), math.prod(lengths.shape[1:])
        )
        sizes: npt.NDArray[np.int64] = each.sum(axis=1)
        return sizes

    def view(self) -> npt.NDArray[Any] | None:
        return None

    def row_bytes(self) -> int:
        return self._leaf.row_bytes


def _size(dataset: Any, leaf: Leaf) -> int | None:
    """What every row takes in memory; None if it is a list or a string of its own length."""
    base = leaf.in_dtype(dataset)
    if base.kind == "O":
        return None
    if leaf.field.is_bytes:
        return leaf.field.count * (int(base.itemsize) + STRING)
    return leaf.row_bytes
