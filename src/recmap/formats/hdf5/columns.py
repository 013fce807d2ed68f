"""The columns of an HDF5 dataset: mapped, decoded by recmap, or read through h5py.

A column of lists of lists is a group of datasets (see ``column_writer``).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from recmap.chunks.array import ChunkedArray
from recmap.chunks.codecs import CodecChain
from recmap.chunks.groups import worth_keeping
from recmap.errors import DataError
from recmap.formats.column_readers import ArrayColumn, ColumnReader, Which
from recmap.formats.hdf5.chunks import (
    chunked_array,
    codecs_of,
    filter_names,
    filters_of,
    how_to_get,
    library_array,
    missing_filters,
)
from recmap.formats.hdf5.file import Hdf5File, h5py
from recmap.formats.hdf5.types import Leaf, is_nested, leaves, written_field
from recmap.formats.ragged_layout import VALUES, join, levels_of
from recmap.model.batch import RowNumbers
from recmap.model.fetching import Fetching
from recmap.model.field import TEXT, Field
from recmap.model.ragged import Column, concatenate
from recmap.model.row_sizes import STRING, RowSizes

# Before this release, chunk addresses did not include the user block before the HDF5 data.
_USERBLOCK_COUNTED = (1, 14, 4)
# Bytes that a list takes while the library reads it, in addition to its values, because it
# becomes an array of its own; and how many copies of its values the library and h5py hold.
_LIST, _LIST_COPIES = 384, 3
# Bytes the library reads at once when it gathers single rows.
_SPAN_SIZE = 1 << 16
# A dataset holds a reference in place of each list: its length in four bytes, then its location
# in the file, an address and an index.
_ADDRESS = 8
_REFERENCE = 4 + _ADDRESS + 4
# The library reports the sizes of types in memory, where strings are pointers.
_POINTER = 8


def refusal(file: Hdf5File, dataset: Any) -> str:
    """Say why a dataset cannot be a column, regardless of type; "" if it can. Calls h5py."""
    if h5py.h5f.get_name(dataset.id) != h5py.h5f.get_name(file.root.id):
        other = h5py.h5f.get_name(dataset.id).decode("utf-8", "replace")
        return f"it is in another file, {other}; open that one"
    if dataset.shape is None:
        return "it holds nothing"
    if dataset.shape == ():
        return "it is a single value"
    if "MATLAB_empty" in dataset.attrs:
        return "it is empty, and its values are only the shape that MATLAB gives it"
    storage = dataset.id.get_create_plist()
    missing = missing_filters(storage)
    if missing and _chain(file, dataset) is None:
        how = dict.fromkeys(how_to_get(number) for number, *_ in missing)
        names = filter_names(missing).removeprefix("filter ")
        return f"its filter {names} is missing; {'. '.join(how)}"
    if not dataset.size:
        return ""
    return _missing_external_file(storage) if file.mapped.whole else _other_file(storage)


def _other_file(storage: Any) -> str:
    """Say which other file holds values of a dataset of an object, if any.

    The library would look for it on the local disk, or take the object itself for it.
    """
    files = [storage.get_external(i)[0] for i in range(storage.get_external_count())]
    if storage.get_layout() == h5py.h5d.VIRTUAL:
        count = storage.get_virtual_count()
        files += [os.fsencode(storage.get_virtual_filename(i)) for i in range(count)]
    others = [os.fsdecode(file) for file in files if file != b"."]
    return f"its values are in another file, {others[0]}; open that one" if others else ""


def _missing_external_file(storage: Any) -> str:
    if "HDF5_EXTFILE_PREFIX" in os.environ:  # the library looks for the files in that folder
        return ""
    for i in range(storage.get_external_count()):
        file = os.fsdecode(storage.get_external(i)[0])
        if not os.path.exists(file):
            return f"its values are in the file {file}, which is not there"
    return ""


def columns_of(
    file: Hdf5File, name: str, dataset: Any, found: list[Leaf], direct: bool = True
) -> list[ColumnReader]:
    """Make a reader for each leaf of a dataset. Calls h5py.

    Without ``direct``, the readers go through h5py.
    """
    # Read text as bytes: the library does not check it, but the source of the columns does.
    as_bytes = [replace(leaf, field=leaf.field.as_bytes()) for leaf in found]
    readers = _readers(file, name, dataset, as_bytes, direct)
    for leaf, reader in zip(found, readers, strict=True):
        if leaf.field.is_text:
            reader.field = Field(TEXT, leaf.field.shape)
    return readers


def _readers(
    file: Hdf5File, name: str, dataset: Any, found: list[Leaf], direct: bool
) -> list[ColumnReader]:
    storage = dataset.id.get_create_plist()
    layout = storage.get_layout()
    if direct and _as_in_memory(dataset):
        offset = _contiguous_offset(dataset)
        if offset is not None:
            array = file.mapped.array(offset, dataset.shape, dataset.dtype)
            return [_mapped(file, leaf, array) for leaf in found]
    chain = _chain(file, dataset) if direct or missing_filters(storage) else None
    note = _note(dataset, storage)
    chunks = None
    if chain is not None:
        chunks = chunked_array(file, name, dataset, dataset.dtype, chain)
    else:
        note += ", read through h5py"
        if _decoded_again(file, dataset):
            chunks = library_array(file, name, dataset)
    if chunks is not None:
        shared = _Held() if len(found) > 1 else None
        return [_ChunkedColumn(chunks, leaf, dataset, note, shared) for leaf in found]
    located = layout == h5py.h5d.CHUNKED and _located(file, dataset)
    return [
        _LibraryColumn(
            file, name, dataset, leaf, note, _lengths(file, name, dataset, leaf, located)
        )
        for leaf in found
    ]


def _chain(file: Hdf5File, dataset: Any) -> CodecChain | None:
    """Return the codecs of a dataset with chunks that recmap can find and decode, else None."""
    storage = dataset.id.get_create_plist()
    chunked = storage.get_layout() == h5py.h5d.CHUNKED
    if not chunked or not _as_in_memory(dataset) or not _located(file, dataset):
        return None
    return codecs_of(storage, dataset.chunks, dataset.dtype.itemsize)


def _decoded_again(file: Hdf5File, dataset: Any) -> bool:
    """Tell whether the library would decode chunks again for every read of some of their rows.

    It reads parts of unfiltered chunks, and caches small ones. Calls h5py.
    """
    if dataset.chunks is None or dataset.dtype.hasobject or not math.prod(dataset.shape):
        return False
    row = math.prod(dataset.shape[1:]) * dataset.dtype.itemsize
    size = min(dataset.chunks[0], dataset.shape[0]) * row
    filtered = bool(filters_of(dataset.id.get_create_plist()))
    return filtered and size > file.h5py_cache and worth_keeping(size, 0)


def _contiguous_offset(dataset: Any) -> int | None:
    """Return the file offset of a contiguous dataset; None for any other dataset."""
    storage = dataset.id.get_create_plist()
    if storage.get_layout() != h5py.h5d.CONTIGUOUS or storage.get_external_count():
        return None
    # In a file with a user block, the library reports an offset even for unwritten data.
    if dataset.id.get_space_status() != h5py.h5d.SPACE_STATUS_ALLOCATED:
        return None
    offset: int | None = dataset.id.get_offset()
    return offset


def _as_in_memory(dataset: Any) -> bool:
    """Tell whether the file stores the bytes of a NumPy array unchanged."""
    dtype = dataset.dtype
    if dtype.hasobject:
        return False
    in_memory = h5py.h5t.py_create(dtype, logical=True)
    return bool(dataset.id.get_type().equal(in_memory)) and dtype.itemsize > 0


def _located(file: Hdf5File, dataset: Any) -> bool:
    """Tell whether the library can locate the chunks, and their numbers fit in int64."""
    counts = (-(-axis // step) for axis, step in zip(dataset.shape, dataset.chunks, strict=True))
    return (
        hasattr(dataset.id, "chunk_iter")
        and math.prod(counts) < 1 << 62
        and (file.root.userblock_size == 0 or h5py.version.hdf5_version_tuple >= _USERBLOCK_COUNTED)
    )


def _note(dataset: Any, storage: Any) -> str:
    layouts = {h5py.h5d.COMPACT: "compact", h5py.h5d.VIRTUAL: "virtual"}
    if dataset.chunks is None:
        return layouts.get(storage.get_layout(), "contiguous")
    names = filter_names(filters_of(storage))
    size = " x ".join(f"{axis:,}" for axis in dataset.chunks)
    return f"chunks of {size}{', ' if names else ''}{names}"


def _mapped(file: Hdf5File, leaf: Leaf, array: npt.NDArray[Any]) -> ArrayColumn:
    values = leaf.pick(array)
    return ArrayColumn(values if leaf.field.is_bytes else leaf.plain(values), file.mapped)


_Held = WeakValueDictionary[Any, npt.NDArray[Any]]


class _ChunkedColumn(ColumnReader):
    """One column of a chunked dataset.

    The rows of a compound dataset are read once for all of its columns, which share ``held``. They
    stay in memory as long as one of the columns made from them is in use.
    """

    def __init__(
        self, rows: ChunkedArray, leaf: Leaf, dataset: Any, note: str, held: _Held | None
    ) -> None:
        self._rows, self._leaf, self._held = rows, leaf, held
        self._length: int = dataset.shape[0]
        self._size = _size(dataset, leaf)
        self.field: Field = leaf.field
        self.chunk_rows = rows.chunk_rows
        self.stored_rows: int = dataset.chunks[0]
        # A chunk is stored whole, even if it has few rows.
        self.chunk_bytes = 0 if rows.mapped else self.chunk_rows * leaf.row_bytes
        self._note = note

    def __len__(self) -> int:
        return self._length

    @property
    def note(self) -> str:
        return self._note

    def keep(self, groups: int | None) -> None:
        self._rows.keep(groups)

    def read(self, start: int, stop: int) -> Column:
        read = partial(self._rows.read, start, stop)
        return self._column(read() if self._held is None else self._once((start, stop), read))

    def gather(self, rows: npt.NDArray[np.int64]) -> Column:
        read = partial(self._rows.gather, rows)
        return self._column(read() if self._held is None else self._once(rows.tobytes(), read))

    def _once(self, key: Any, read: Callable[[], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return the rows that another column has just read, or read them."""
        assert self._held is not None
        rows = self._held.get(key)
        if rows is None:
            rows = read()
            rows.flags.writeable = False
            self._held[key] = rows
        return rows

    def _column(self, rows: npt.NDArray[Any]) -> Column:
        return self._leaf.column(self._leaf.pick(rows))

    @property
    def remote(self) -> bool:
        return self._rows.remote

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        return self._rows.fetch_ahead(rows)

    def sizes(self, rows: Which, limit: int) -> RowSizes | None:
        return self._size

    def row_bytes(self) -> int:
        return self._leaf.row_bytes


class _LibraryColumn(ColumnReader):
    """A column that only the library can read, one call at a time."""

    def __init__(
        self,
        file: Hdf5File,
        name: str,
        dataset: Any,
        leaf: Leaf,
        note: str,
        lengths: ChunkedArray | ArrayColumn | None,
    ) -> None:
        """``lengths`` reads the lengths of lists or strings; None if that is not possible."""
        self._file, self._name, self._leaf, self._lengths = file, name, leaf, lengths
        self._size = _size(dataset, leaf)
        self._length: int = dataset.shape[0]
        self.field: Field = leaf.field
        self.chunk_rows: int = dataset.chunks[0] if dataset.chunks else 1
        self.stored_rows = self.chunk_rows
        # Chunks of lists hold only references to the lists.
        row = leaf.row_bytes if self._size is not None else _REFERENCE
        self.chunk_bytes = self.chunk_rows * row if dataset.chunks else 0
        self._note = note

    def __len__(self) -> int:
        return self._length

    @property
    def note(self) -> str:
        return self._note

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
        step = self.chunk_rows if self.chunk_rows > 1 else _SPAN_SIZE // self._leaf.row_bytes + 1
        _, starts = np.unique(wanted // step, return_index=True)
        read = []
        for some in np.split(wanted, starts[1:]):
            first = int(some[0])
            read.append(self.read(first, int(some[-1]) + 1)[some - first])
        return concatenate(read)[back]

    @property
    def remote(self) -> bool:
        return not self._file.mapped.whole

    def sizes(self, rows: Which, limit: int) -> RowSizes | None:
        if self._size is not None:
            return self._size
        if isinstance(rows, slice):  # each row takes at least _LIST bytes
            rows = slice(rows.start, min(rows.stop, rows.start + limit // _LIST + 1))
        lengths = self._lengths_of(rows)
        if lengths is None:
            return None
        item = 1 if self.field.is_bytes else self.field.dtype.itemsize
        each = (_LIST_COPIES * lengths * item + _LIST).reshape(
            len(lengths), math.prod(lengths.shape[1:])
        )
        sizes: npt.NDArray[np.int64] = each.sum(axis=1)
        return sizes

    def _lengths_of(self, rows: Which) -> npt.NDArray[np.int64] | None:
        """Return the lengths of the lists in these rows; None if they are unknown."""
        try:
            if self._lengths is None:
                return None
            if isinstance(rows, slice):
                found = self._lengths.read(rows.start, rows.stop)
            else:
                found = self._lengths.gather(rows)
        except DataError:
            return None  # reading the rows will report the damage
        assert isinstance(found, np.ndarray)
        each = found if isinstance(self._lengths, ArrayColumn) else found["length"]
        lengths: npt.NDArray[np.int64] = each.astype(np.int64)
        return lengths

    def row_bytes(self) -> int:
        return self._leaf.row_bytes


def _size(dataset: Any, leaf: Leaf) -> int | None:
    """Return the bytes of a row in memory; None if rows are lists or variable-length strings."""
    base = leaf.in_dtype(dataset)
    if base.kind == "O":
        return None
    if leaf.field.is_bytes:
        return leaf.field.count * (int(base.itemsize) + STRING)
    return leaf.row_bytes


def _lengths(
    file: Hdf5File, name: str, dataset: Any, leaf: Leaf, located: bool
) -> ChunkedArray | ArrayColumn | None:
    """Return what reads the lengths of the lists or strings in a column without reading them.

    ``located`` says whether the library can locate the chunks. Calls h5py.
    """
    # Columns of numbers or of fixed-size strings have no references.
    dtype = _references(file, dataset, leaf) if leaf.in_dtype(dataset).kind == "O" else None
    if dtype is None or math.prod(dataset.shape) == 0:
        return None
    if dataset.chunks is not None and located:
        storage = dataset.id.get_create_plist()
        chain = codecs_of(storage, dataset.chunks, dtype.itemsize)
        label = ".".join([name, *leaf.path, "lengths"])
        return None if chain is None else chunked_array(file, name, dataset, dtype, chain, label)
    offset, nbytes = _contiguous_offset(dataset), math.prod(dataset.shape) * dtype.itemsize
    if offset is None or dataset.id.get_storage_size() != nbytes:
        return None
    return ArrayColumn(file.mapped.array(offset, dataset.shape, dtype)["length"], file.mapped)


def _references(file: Hdf5File, dataset: Any, leaf: Leaf) -> np.dtype[Any] | None:
    """Return the dtype of a stored row, with the length of the list as its only field."""
    if file.root.id.get_create_plist().get_sizes()[0] != _ADDRESS or len(leaf.path) > 1:
        return None
    whole = dataset.id.get_type()
    if not leaf.path:
        return _dtype(0, _REFERENCE)
    if whole.get_class() != h5py.h5t.COMPOUND:
        return None
    offset: int | None = None
    wider = 0  # bytes by which the strings so far are longer in the file than in memory
    members = sorted(range(whole.get_nmembers()), key=whole.get_member_offset)
    for i in members:
        member = whole.get_member_type(i)
        if whole.get_member_name(i) == leaf.path[0].encode():
            offset = int(whole.get_member_offset(i)) + wider
        kind = member.get_class()
        if kind in (h5py.h5t.COMPOUND, h5py.h5t.ARRAY, h5py.h5t.REFERENCE):
            return None
        if kind == h5py.h5t.STRING and member.is_variable_str():
            wider += _REFERENCE - _POINTER
    return None if offset is None else _dtype(offset, int(whole.get_size()) + wider)


def _dtype(offset: int, size: int) -> np.dtype[Any]:
    return np.dtype(
        {"names": ["length"], "formats": ["<u4"], "offsets": [offset], "itemsize": size}
    )


def nested_field(group: Any) -> Field | None:
    """Return the field of a group that is a column; None for an ordinary group."""
    field = written_field(group)
    if field is None or not is_nested(field):
        return None
    items = (group.get(key) for key in (VALUES, *levels_of(field)))
    return field if all(isinstance(item, h5py.Dataset) for item in items) else None


def nested_column(file: Hdf5File, name: str, group: Any, direct: bool = True) -> ColumnReader:
    """Make a reader for a group that is a column."""
    with file.locked(name):
        field = nested_field(group)
        assert field is not None
        keys = (VALUES, *levels_of(field))
        arrays = {key: array_column(file, f"{name}/{key}", group[key], direct) for key in keys}
    # Not locked, because join reads offsets, possibly on other threads.
    column = join(file.path, name, arrays.pop(VALUES), arrays, field.is_bytes, field)
    if column.field != field:
        raise DataError(
            f"{file.path}: {name!r} is {column.field}, although the file says {field}",
            file=file.path,
            field=name,
        )
    return column


def array_column(file: Hdf5File, name: str, dataset: Any, direct: bool) -> ColumnReader:
    why = refusal(file, dataset)
    found = [] if why else leaves(dataset)
    if len(found) != 1 or found[0].reason:
        why = why or "it has fields, or values that recmap does not read"
        raise DataError(
            f"{file.path}: {name!r} cannot be a part of a column: {why}", file=file.path, field=name
        )
    return columns_of(file, name, dataset, found, direct)[0]
