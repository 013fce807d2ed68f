"""Where the chunks of a dataset lie in its file."""

from __future__ import annotations

import math
from array import array
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Grid", "Places"]


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

    def __init__(self, dataset: Any, grid: Grid) -> None:
        corners, places = array("Q"), array("Q")

        def note(chunk: Any) -> None:
            if chunk.byte_offset is not None:
                corners.extend(chunk.chunk_offset)
                places.extend((chunk.byte_offset, chunk.size, chunk.filter_mask))

        dataset.id.chunk_iter(note)
        at = np.array(corners, np.uint64).reshape(-1, len(grid.shape))
        inside = (at < np.array(grid.shape, np.uint64)).all(axis=1)
        at = at[inside] // np.array(grid.chunk, np.uint64)
        numbers = np.zeros(len(at), np.int64)
        for axis, count in enumerate(grid.counts):
            numbers = numbers * count + at[:, axis].astype(np.int64)
        self.numbers, first = np.unique(numbers, return_index=True)
        where = np.array(places, np.uint64).reshape(-1, 3)[inside][first]
        self.offsets, self.sizes, self.masks = where.T
        self._tiles = grid.tiles

    def of_band(self, band: int) -> range:
        """The chunks of a band that are there."""
        edges: npt.NDArray[np.int64] = np.array([band, band + 1]) * self._tiles
        start, stop = np.searchsorted(self.numbers, edges)
        return range(int(start), int(stop))
