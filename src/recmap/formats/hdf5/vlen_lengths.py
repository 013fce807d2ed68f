"""How long the lists and strings of a dataset are, without reading them.

Where a list should be, the file has a reference to it: its length in four bytes, then
where it lies.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError
from recmap.formats.column_readers import Which
from recmap.formats.hdf5.chunk_index import contiguous_offset
from recmap.formats.hdf5.chunks import ChunkedArray
from recmap.formats.hdf5.file import Hdf5File
from recmap.formats.hdf5.filters import Pipeline
from recmap.formats.hdf5.library import h5py
from recmap.formats.hdf5.types import Leaf

__all__ = ["REFERENCE", "Lengths"]

_ADDRESS = 8
REFERENCE = 4 + _ADDRESS + 4
# The library tells the sizes of types in memory, where a string is a pointer.
_POINTER = 8


class Lengths:
    """The lengths in one column of a dataset; h5py may be called to begin with."""

    def __init__(self, file: Hdf5File, name: str, dataset: Any, leaf: Leaf, known: bool) -> None:
        self._rows: ChunkedArray | npt.NDArray[Any] | None = None
        # A column of numbers, or of strings of one size, has no references.
        dtype = _references(file, dataset, leaf) if leaf.in_dtype(dataset).kind == "O" else None
        if dtype is None or math.prod(dataset.shape) == 0:
            return
        if dataset.chunks is not None and known:
            storage = dataset.id.get_create_plist()
            nbytes = math.prod(dataset.chunks) * dtype.itemsize
            filters = [storage.get_filter(i) for i in range(storage.get_nfilters())]
            pipeline = Pipeline([(number, values) for number, _, values, _ in filters], nbytes)
            if pipeline.known:
                label = ".".join([name, *leaf.path, "lengths"])
                self._rows = ChunkedArray(file, name, dataset, dtype, pipeline, label)
        else:
            offset, nbytes = contiguous_offset(dataset), math.prod(dataset.shape) * dtype.itemsize
            if offset is not None and dataset.id.get_storage_size() == nbytes:
                self._rows = file.mapped.array(offset, dataset.shape, dtype)

    def of(self, rows: Which) -> npt.NDArray[np.int64] | None:
        """The lengths of the lists in these rows, or None if they cannot be told."""
        try:
            if self._rows is None:
                return None
            if isinstance(self._rows, np.ndarray):
                found = self._rows[rows]
            elif isinstance(rows, slice):
                found = self._rows.read(rows.start, rows.stop)
            else:
                found = self._rows.gather(rows)
        except DataError:
            return None  # whoever reads the rows finds out whether they are damaged
        lengths: npt.NDArray[np.int64] = found["length"].astype(np.int64)
        return lengths


def _references(file: Hdf5File, dataset: Any, leaf: Leaf) -> np.dtype[Any] | None:
    """Where the length of a list is in the bytes of an item."""
    if file.root.id.get_create_plist().get_sizes()[0] != _ADDRESS or len(leaf.path) > 1:
        return None
    whole = dataset.id.get_type()
    if not leaf.path:
        return _dtype(0, REFERENCE)
    if whole.get_class() != h5py.h5t.COMPOUND:
        return None
    place: int | None = None
    wider = 0  # than in memory, by what lies before
    members = sorted(range(whole.get_nmembers()), key=whole.get_member_offset)
    for i in members:
        member = whole.get_member_type(i)
        if whole.get_member_name(i) == leaf.path[0].encode():
            place = int(whole.get_member_offset(i)) + wider
        kind = member.get_class()
        if kind in (h5py.h5t.COMPOUND, h5py.h5t.ARRAY, h5py.h5t.REFERENCE):
            return None
        if kind == h5py.h5t.STRING and member.is_variable_str():
            wider += REFERENCE - _POINTER
    return None if place is None else _dtype(place, int(whole.get_size()) + wider)


def _dtype(offset: int, size: int) -> np.dtype[Any]:
    return np.dtype(
        {"names": ["length"], "formats": ["<u4"], "offsets": [offset], "itemsize": size}
    )
