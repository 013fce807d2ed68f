"""How an array is divided into chunks, and where these are stored: what a format tells."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.chunks.codecs import Bytes
from recmap.errors import DataError
from recmap.machine.mapped import MappedFile
from recmap.model.fetching import Fetching

Values: TypeAlias = npt.NDArray[Any]
# Tiles that a grid remembers.
_MOST_TILES = 1 << 12


class Tile(NamedTuple):
    """A part of every row: the part that one chunk of each row group holds."""

    begins: tuple[int, ...]
    extent: tuple[int, ...]

    @property
    def slices(self) -> tuple[slice, ...]:
        """Select the part from whole rows."""
        return tuple(
            slice(at, at + count) for at, count in zip(self.begins, self.extent, strict=True)
        )


class Grid:
    """The way chunks tile an array.

    A row group is all chunks that hold the same rows. Chunks are numbered one row group
    after another.
    """

    def __init__(self, shape: tuple[int, ...], chunk: tuple[int, ...]) -> None:
        self.shape, self.chunk = shape, chunk
        self.counts = tuple(-(-axis // step) for axis, step in zip(shape, chunk, strict=True))
        self.chunks_per_group = math.prod(self.counts[1:])
        self._tiles: dict[int, Tile] = {}

    @property
    def whole_rows(self) -> bool:
        """Whether each chunk holds whole rows, one after another."""
        return self.chunk[1:] == self.shape[1:]

    def rows(self, group: int) -> tuple[int, int]:
        """Return the span of rows in a row group."""
        step = self.chunk[0]
        return group * step, min((group + 1) * step, self.shape[0])

    def groups(self, start: int, stop: int) -> range:
        """Return the row groups that a span of rows touches."""
        return range(start // self.chunk[0], -(-stop // self.chunk[0]) if start < stop else 0)

    def position(self, number: int) -> tuple[int, ...]:
        """Return where a chunk is in the grid."""
        at = []
        for count in reversed(self.counts):
            number, here = divmod(number, count)
            at.append(here)
        return tuple(reversed(at))

    def corner(self, number: int) -> tuple[int, ...]:
        """Return where a chunk begins in the array."""
        position = self.position(number)
        return tuple(at * step for at, step in zip(position, self.chunk, strict=True))

    def extent(self, corner: tuple[int, ...]) -> tuple[int, ...]:
        """Return how much of a chunk is inside the array; chunks at the edges extend past it."""
        return tuple(
            min(step, axis - at)
            for at, step, axis in zip(corner, self.chunk, self.shape, strict=True)
        )

    def at_edge(self, number: int) -> bool:
        """Return whether a chunk extends past the array."""
        return self.extent(self.corner(number)) != self.chunk

    def tile(self, number: int) -> Tile:
        """Return the part of each row that a chunk holds."""
        number %= self.chunks_per_group
        found = self._tiles.get(number)
        if found is None:
            corner = self.corner(number)
            found = Tile(corner[1:], self.extent(corner)[1:])
            if len(self._tiles) < _MOST_TILES:
                self._tiles[number] = found
        return found


class Box(NamedTuple):
    """A tile of a row: its axes and what lies together, for the native core."""

    axes: list[tuple[int, int, int]]
    run: int
    at: int


def box_of(tile: Tile, grid: Grid, itemsize: int) -> Box:
    """Join axes that lie together before and after."""
    chunk, shape = grid.chunk[1:], grid.shape[1:]
    run, joined = itemsize, True
    at, from_step, to_step = 0, itemsize, itemsize
    axes: list[tuple[int, int, int]] = []
    for begin, count, ours, whole in reversed(
        list(zip(tile.begins, tile.extent, chunk, shape, strict=True))
    ):
        at += begin * to_step
        if joined:
            run *= count
            joined = count == ours == whole
        else:
            axes.insert(0, (count, from_step, to_step))
        from_step, to_step = from_step * ours, to_step * whole
    return Box(axes, run, at)


class StoredChunk(NamedTuple):
    """The bytes of a chunk: in memory, in the file of a descriptor, or all of the file at a path.

    If bit ``i`` of the mask is set, codec ``i`` was not applied.
    """

    where: Bytes | int | bytes
    offset: int = 0  # in the file of a descriptor, as is the size
    size: int = 0
    mask: int = 0

    def read(self) -> Bytes | None:
        """Return the bytes, fewer if the file ends first; None if there is no file."""
        if isinstance(self.where, bytes):
            try:
                with open(self.where, "rb", buffering=0) as file:
                    return np.frombuffer(file.readall(), np.uint8)
            except NO_CHUNK:
                return None
        if not isinstance(self.where, int):
            return self.where
        found, offset, size = list[bytes](), self.offset, self.size
        while size and (data := os.pread(self.where, size, offset)):
            found.append(data)
            offset, size = offset + len(data), size - len(data)
        return np.frombuffer(found[0] if len(found) == 1 else b"".join(found), np.uint8)


# Returns where a chunk is stored, what reads its values if only the format's own library can, or
# None if it was never written.
StoredOf: TypeAlias = "Callable[[int], StoredChunk | Callable[[], Values] | None]"
# What opening a file raises that holds no chunk.
NO_CHUNK = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


class ChunkPlaces(NamedTuple):
    """Where the chunks of some row groups lie: in which file, and from which byte on.

    There is a row for each row group, and a column for each of its chunks. If some chunks were
    never written, their offsets are below 0. ``owners`` is None if all lie in one file.
    """

    files: list[MappedFile]
    owners: npt.NDArray[np.uint32] | None
    offsets: npt.NDArray[np.int64]
    some_missing: bool


class StoredChunks(ABC):
    """Where the chunks of an array are stored. Chunks are numbered as in ``Grid``."""

    @property
    def remote(self) -> bool:
        """Whether chunks are fetched from a store."""
        return False

    @property
    def mappable(self) -> bool:
        """Whether chunks lie in files that can be mapped."""
        return False

    @abstractmethod
    def fetched(self, numbers: Sequence[int]) -> AbstractContextManager[StoredOf]:
        """Return what tells where each of these chunks is stored, inside a context."""

    @abstractmethod
    def error(self, number: int | None, why: str) -> DataError:
        """Return an error that says what is wrong with a chunk, or with all of the array."""

    def written(self, numbers: range) -> Sequence[int]:
        """Return those of a row group's chunks that may have been written."""
        return numbers

    def fetch_ahead(self, numbers: Sequence[int]) -> Fetching | None:
        """Begin to fetch chunks that are going to be read; None if there is nothing to fetch."""
        del numbers
        return None

    def places(self, groups: npt.NDArray[np.int64]) -> ChunkPlaces | None:
        """Return where the chunks of row groups are mapped; None if they are not."""
        del groups
        return None

    def check(self) -> None:
        """Raise if bytes that were read belong to other data than what was opened."""
        return


class LibraryChunks(StoredChunks):
    """Row groups as chunks of whole rows, which only the format's own library can decode."""

    def __init__(
        self, grid: Grid, load: Callable[[int, int], Values], error: Callable[[str], DataError]
    ) -> None:
        """``load`` reads a span of rows, and ``error`` adds to a message where they are."""
        self._grid, self._load_rows, self._error = grid, load, error

    def fetched(self, numbers: Sequence[int]) -> AbstractContextManager[StoredOf]:
        del numbers
        return nullcontext(self._load)

    def _load(self, number: int) -> Callable[[], Values]:
        return partial(self._load_rows, *self._grid.rows(number))

    def error(self, number: int | None, why: str) -> DataError:
        del number
        return self._error(why)
