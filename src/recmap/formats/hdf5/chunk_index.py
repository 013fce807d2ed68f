"""Where the chunks of a dataset lie in its file."""

from __future__ import annotations

import math
from array import array
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.formats.hdf5.library import h5py

__all__ = ["Grid", "Places", "contiguous_offset"]

Numbers = npt.NDArray[Any]


class Grid:
    """How chunks tile an array. A band is a row of tiles: all chunks of some rows."""

    def __init__(self, shape: tuple[int, ...], chunk: tuple[int, ...]) -> None:
        self.shape, self.chunk = shape, chunk
        self.counts = tuple(-(-axis // step) for axis, step in zip(shape, chunk, strict=True))
        # Chunks side by side in a band.
        self.tiles = math.prod(self.counts[1:])

    def rows(self, band: int) -> tuple[int, int]:
        """The first row of a band, and the one after its last."""
        step = self.chunk[0]
        return band * step, min((band + 1) * step, self.shape[0])

    def corner(self, number: int) -> tuple[int, ...]:
        """Where a chunk begins in the array. Chunks are counted band by band."""
        corner = []
        for count, step in zip(reversed(self.counts), reversed(self.chunk), strict=True):
            number, at = divmod(number, count)
            corner.append(at * step)
        return tuple(reversed(corner))

    def extent(self, corner: tuple[int, ...]) -> tuple[int, ...]:
        """The part of a chunk that lies in the array; chunks at its edges reach beyond."""
        return tuple(
            min(step, axis - at)
            for at, step, axis in zip(corner, self.chunk, self.shape, strict=True)
        )


class Places:
    """Numbers, offsets, sizes and filter masks of the chunks there are, in order."""

    def __init__(self, numbers: Numbers, where: Numbers, tiles: int) -> None:
        self.numbers, self.offsets, self.sizes, self.masks = numbers, *where.T
        self._tiles = tiles

    @staticmethod
    def of(dataset: Any, grid: Grid) -> Places | None:
        """Ask the library for its table of chunks; None if the table cannot be right."""
        if not _reliable(dataset):
            return None
        corners, places = array("Q"), array("Q")

        def note(chunk: Any) -> None:
            if chunk.byte_offset is not None:
                corners.extend(chunk.chunk_offset)
                places.extend((chunk.byte_offset, chunk.size, chunk.filter_mask))

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
        where = np.array(places, np.uint64).reshape(-1, 3)
        if len(numbers) < len(where) or not _complete(dataset, grid, where):
            return None
        return Places(numbers, where[first], grid.tiles)

    def of_band(self, band: int) -> range:
        """The chunks of a band that are there."""
        edges: npt.NDArray[np.int64] = np.array([band, band + 1]) * self._tiles
        start, stop = np.searchsorted(self.numbers, edges)
        return range(int(start), int(stop))


def _reliable(dataset: Any) -> bool:
    # Chunks of a dataset with one unlimited axis lie in an extensible array, whose order
    # puts that axis first. HDF5 1.14 forgets this when it lists them: the corners it
    # tells are those of other chunks, and may tile the grid all the same. Which index a
    # dataset has cannot be asked for.
    unlimited = [axis for axis, most in enumerate(dataset.maxshape) if most is None]
    return len(unlimited) != 1 or unlimited == [0]


def _complete(dataset: Any, grid: Grid, where: Numbers) -> bool:
    """Whether there are as many chunks, and as many bytes, as the dataset is said to have."""
    whole = dataset.id.get_space_status() == h5py.h5d.SPACE_STATUS_ALLOCATED
    if whole and len(where) != math.prod(grid.counts):
        return False
    return int(where[:, 1].sum()) == int(dataset.id.get_storage_size())


def contiguous_offset(dataset: Any) -> int | None:
    """Where a dataset lies in the file in one piece; None if it does not."""
    storage = dataset.id.get_create_plist()
    if storage.get_layout() != h5py.h5d.CONTIGUOUS or storage.get_external_count():
        return None
    # Behind a user block, the library tells an offset for what was never written, too.
    if dataset.id.get_space_status() != h5py.h5d.SPACE_STATUS_ALLOCATED:
        return None
    offset: int | None = dataset.id.get_offset()
    return offset
