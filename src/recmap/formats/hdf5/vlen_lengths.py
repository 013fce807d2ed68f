"""The lengths of the lists and strings in a dataset, without reading them.

The dataset holds a reference in place of each list: its length in four bytes, then its
location in the file.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError
from recmap.formats.column_readers import Which
from recmap.formats.hdf5.chunks import ChunkedArray, contiguous_offset
from recmap.formats.hdf5.file import Hdf5File, h5py
from recmap.formats.hdf5.filters import FilterPipeline
from recmap.formats.hdf5.types import Leaf

__all__ = ["REFERENCE", "Lengths"]

_ADDRESS = 8
REFERENCE = 4 + _ADDRESS + 4
# The library reports the sizes of types in memory, where strings are pointers.
_POINTER = 8


class Lengths:
    """The lengths of the lists in one column. Constructing it calls h5py."""

    def __init__(self, file: Hdf5File, name: str, dataset: Any, leaf: Leaf, located: bool) -> None:
        """``located`` tells whether the library can locate the chunks."""
        self._rows: ChunkedArray | npt.NDArray[Any] | None = None
        # Columns of numbers or of fixed-size strings have no references.
        dtype = _references(file, dataset, leaf) if leaf.in_dtype(dataset).kind == "O" else None
        if dtype is None or math.prod(dataset.shape) == 0:
            return
        if dataset.chunks is not None and located:
            pipeline = FilterPipeline.of(dataset.id.get_create_plist(), dataset.chunks, dtype)
            if pipeline.known:
                label = ".".join([name, *leaf.path, "lengths"])
                self._rows = ChunkedArray(file, name, dataset, dtype, pipeline, label)
        else:
            offset, nbytes = contiguous_offset(dataset), math.prod(dataset.shape) * dtype.itemsize
            if offset is not None and dataset.id.get_storage_size() == nbytes:
                self._rows = file.mapped.array(offset, dataset.shape, dtype)

    def of(self, rows: Which) -> npt.NDArray[np.int64] | None:
        """Return the lengths of the lists in these rows; None if they are unknown."""
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
            return None  # reading the rows will report the damage
        lengths: npt.NDArray[np.int64] = found["length"].astype(np.int64)
        return lengths


def _references(file: Hdf5File, dataset: Any, leaf: Leaf) -> np.dtype[Any] | None:
    """Return the dtype of a stored row, with the length of the list as its only field."""
    if file.root.id.get_create_plist().get_sizes()[0] != _ADDRESS or len(leaf.path) > 1:
        return None
    whole = dataset.id.get_type()
    if not leaf.path:
        return _dtype(0, REFERENCE)
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
            wider += REFERENCE - _POINTER
    return None if offset is None else _dtype(offset, int(whole.get_size()) + wider)


def _dtype(offset: int, size: int) -> np.dtype[Any]:
    return np.dtype(
        {"names": ["length"], "formats": ["<u4"], "offsets": [offset], "itemsize": size}
    )
