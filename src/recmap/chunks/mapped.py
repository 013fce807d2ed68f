"""Unfiltered chunks of mapped files: rows are bytes at known places."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.chunks.stored import Box, ChunkPlaces, Grid, box_of
from recmap.machine.mapped import MappedFile
from recmap.machine.memory import locks_pages
from recmap.model.row_places import copy_boxes

Numbers = npt.NDArray[np.int64]

# A single row of at most this many bytes is copied at once, without native threads.
_ONE_ROW = 64 << 10


class MappedChunks:
    """An array whose chunks are mapped, and hold values as they are in memory."""

    def __init__(
        self,
        places: Callable[[Numbers], ChunkPlaces | None],
        grid: Grid,
        dtype: np.dtype[Any],
        fill: Any,
        empty: Callable[[int], npt.NDArray[Any]],
    ) -> None:
        """``places`` finds the chunks of row groups, and ``empty`` makes an array for rows."""
        self._places, self._grid, self._dtype, self._fill = places, grid, dtype, fill
        self._empty = empty
        self._row = math.prod(grid.shape[1:]) * dtype.itemsize
        # The bytes of a row in each chunk, and of a chunk.
        self._part = math.prod(grid.chunk[1:]) * dtype.itemsize
        self._nbytes = self._part * grid.chunk[0]

    @cached_property
    def _boxes(self) -> list[Box]:
        tiles = map(self._grid.tile, range(self._grid.chunks_per_group))
        return [box_of(tile, self._grid, self._dtype.itemsize) for tile in tiles]

    def read(self, start: int, stop: int) -> npt.NDArray[Any] | None:
        """Read a span of rows; None if they are not mapped.

        The result is a view of the file if they follow one another there.
        """
        groups = self._grid.groups(start, stop)
        if not self._grid.whole_rows:
            return self.gather(np.arange(start, stop))
        places = self._places(np.arange(groups.start, groups.stop))
        if places is None:
            return None
        offsets = places.offsets[:, 0].tolist()
        skipped = start - groups.start * self._grid.chunk[0]
        following = range(offsets[0], offsets[0] + self._nbytes * len(offsets), self._nbytes)
        one_place = len(places.files) == 1 and offsets[0] >= 0 and offsets == list(following)
        if one_place and not locks_pages():  # a GPU cannot copy from a mapped file
            begin = offsets[0] + skipped * self._part
            return self._view(places.files[0], begin, stop - start)
        out = self._empty(stop - start)
        if places.some_missing:
            out[...] = self._fill
        elif len(places.files) == 1:
            end = max(offsets) + self._nbytes
            places.files[0].will_read(min(offsets), end, self._nbytes * len(offsets))
        edges = [start, *(self._grid.rows(group)[0] for group in groups[1:]), stop]
        count = len(groups)
        # Only the first and the last chunk may be read in part.
        for first, end in ((0, 1), (1, count - 1), (max(1, count - 1), count)):
            if first < end:
                part = out[edges[first] - start : edges[end] - start]
                self._copy(places, slice(first, end), 0 if first else skipped, part)
        return out

    def _copy(
        self, places: ChunkPlaces, groups: slice, skipped: int, out: npt.NDArray[Any]
    ) -> None:
        """Copy as many rows of each of several row groups, without the first ``skipped``."""
        run = out.nbytes // (groups.stop - groups.start)
        offsets = places.offsets[groups, 0] + skipped * self._part
        self._gather(places, groups, offsets, Box([], run, 0), out, run)

    def _view(self, file: MappedFile, begin: int, rows: int) -> npt.NDArray[Any]:
        file.will_read(begin, begin + rows * self._part)
        view = self._array(file, begin, rows)
        return view if file.lends else view.copy()

    def _array(self, file: MappedFile, begin: int, rows: int) -> npt.NDArray[Any]:
        return np.ndarray((rows, *self._grid.shape[1:]), self._dtype, file.bytes, begin)

    def gather(self, rows: Numbers) -> npt.NDArray[Any] | None:
        """Read rows by number; None if they are not mapped."""
        step = self._grid.chunk[0]
        places = self._places(rows // step)
        if places is None:
            return None
        out = self._empty(len(rows))
        if not out.size:
            return out
        within = (rows % step) * self._part
        if places.some_missing:
            out[...] = self._fill
        elif len(rows) == 1 and self._grid.whole_rows and self._row <= _ONE_ROW:
            out[...] = self._array(places.files[0], int(places.offsets[0, 0] + within[0]), 1)
            return out
        for i, box in enumerate(self._boxes):
            offsets = places.offsets[:, i] + within
            self._gather(places, slice(None), offsets, box, out, self._row, i)
        return out

    def _gather(
        self,
        places: ChunkPlaces,
        groups: slice,
        offsets: Numbers,
        box: Box,
        out: npt.NDArray[Any],
        stride: int,
        tile: int = 0,
    ) -> None:
        if places.some_missing:
            offsets[places.offsets[groups, tile] < 0] = -1
        sources = [file.bytes for file in places.files]
        owners = places.owners
        if owners is not None:
            owners = np.ascontiguousarray(owners[groups, tile])
        copy_boxes(sources, places.files, owners, offsets, box.axes, box.run, out, stride, box.at)
