"""The position of a dataset's chunks, in the array and in the file."""

from __future__ import annotations

import math
from array import array
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.formats.hdf5.file import h5py

__all__ = ["ChunkIndex", "Grid", "contiguous_offset"]

Numbers = npt.NDArray[Any]


class Grid:
    """The way chunks tile an array.

    A row group is all chunks that hold the same rows. Chunks are numbered one row group
    after another.
    """

    def __init__(self, shape: tuple[int, ...], chunk: tuple[int, ...]) -> None:
        self.shape, self.chunk = shape, chunk
        self.counts = tuple(-(-axis // step) for axis, step in zip(shape, chunk, strict=True))
        self.chunks_per_group = math.prod(self.counts[1:])

    def rows(self, group: int) -> tuple[int, int]:
        """Return the span of rows in a row group."""
        step = self.chunk[0]
        return group * step, min((group + 1) * step, self.shape[0])

    def corner(self, number: int) -> tuple[int, ...]:
        """Return where a chunk begins in the array."""
        corner = []
        for count, step in zip(reversed(self.counts), reversed(self.chunk), strict=True):
            number, at = divmod(number, count)
            corner.append(at * step)
        return tuple(reversed(corner))

    def extent(self, corner: tuple[int, ...]) -> tuple[int, ...]:
        """Return how much of a chunk is inside the array; chunks at the edges extend past it."""
        return tuple(
            min(step, axis - at)
            for at, step, axis in zip(corner, self.chunk, self.shape, strict=True)
        )


class ChunkIndex:
    """The chunks that were written: their numbers in order, and their place in the file."""

    def __init__(self, numbers: Numbers, where: Numbers, chunks_per_group: int) -> None:
        """``where`` holds the byte offset, the size and the filter mask of each chunk."""
        self.numbers, self.offsets, self.sizes, self.masks = numbers, *where.T
        self._chunks_per_group = chunks_per_group

    @staticmethod
    def of(dataset: Any, grid: Grid) -> ChunkIndex | None:
        """Get the table of chunks from the library; None if the table cannot be right."""
        if not _reliable(dataset):
            return None
        corners, where = array("Q"), array("Q")

        def note(chunk: Any) -> None:
            if chunk.byte_offset is not None:
                corners.extend(chunk.chunk_offset)
                where.extend((chunk.byte_offset, chunk.size, chunk.filter_mask))

        dataset.id.chunk_iter(note)
        at = np.array(corners, np.uint64).reshape(-1, len(grid.shape))
        chunk = np.array(grid.chunk, np.uint64)
        if (at % chunk).any() or (at >= np.array(grid.shape, np.uint64)).any():
            return None
        at //= chunk
        numbers = np.zeros(len(at), np.int64)
        for axis, count in enumerate(grid.counts):
            numbers = numbers * count + at[:, axis].astype(np.int64)
        numbers, first = np.unique(numbers, return_index=True)
        found = np.array(where, np.uint64).reshape(-1, 3)
        if len(numbers) < len(found) or not _complete(dataset, grid, found):
            return None
        return ChunkIndex(numbers, found[first], grid.chunks_per_group)

    def entries(self, group: int) -> range:
        """Return the entries of a row group: positions in ``numbers``, ``offsets`` and so on."""
        edges: npt.NDArray[np.int64] = np.array([group, group + 1]) * self._chunks_per_group
        start, stop = np.searchsorted(self.numbers, edges)
        return range(int(start), int(stop))


def _reliable(dataset: Any) -> bool:
    # A dataset with one unlimited axis indexes its chunks in an extensible array, which puts
    # that axis first. HDF5 1.14 ignores this when it lists the chunks: it reports the corners
    # of other chunks, and these may still tile the grid. h5py does not expose which kind of
    # index a dataset has.
    unlimited = [axis for axis, most in enumerate(dataset.maxshape) if most is None]
    return len(unlimited) != 1 or unlimited == [0]


def _complete(dataset: Any, grid: Grid, where: Numbers) -> bool:
    """Tell whether the table has as many chunks and bytes as the dataset."""
    whole = dataset.id.get_space_status() == h5py.h5d.SPACE_STATUS_ALLOCATED
    if whole and len(where) != math.prod(grid.counts):
        return False
    return int(where[:, 1].sum()) == int(dataset.id.get_storage_size())


def contiguous_offset(dataset: Any) -> int | None:
    """Return the file offset of a contiguous dataset; None for any other dataset."""
    storage = dataset.id.get_create_plist()
    if storage.get_layout() != h5py.h5d.CONTIGUOUS or storage.get_external_count():
        return None
    # In a file with a user block, the library reports an offset even for unwritten data.
    if dataset.id.get_space_status() != h5py.h5d.SPACE_STATUS_ALLOCATED:
        return None
    offset: int | None = dataset.id.get_offset()
    return offset
