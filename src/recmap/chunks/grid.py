"""The way chunks tile an array."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

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

    def tiles(self) -> Iterator[Tile]:
        """Yield the parts of a row, in the order of the chunks of a row group."""
        return map(self.tile, range(self.chunks_per_group))
