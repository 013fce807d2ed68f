"""Decoded row groups that are kept for the next read."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from recmap.machine.lru import Lru

# Bytes of partially read row groups to keep.
_KEPT_SIZE = 64 << 20
# A row group larger than this is decoded again on every read.
_LARGEST_KEPT = 256 << 20


class ChunkCache:
    """The most recently used row groups of a file, by array and number (see ``Grid``).

    A row group larger than the whole cache is kept alone, so that a pass in small batches
    decodes it only once.
    """

    def __init__(self) -> None:
        self._groups = Lru[tuple[str, int], npt.NDArray[Any]](_KEPT_SIZE, lambda rows: rows.nbytes)

    @staticmethod
    def worth_keeping(size: int, already: int) -> bool:
        """Tell whether to keep ``size`` bytes, given ``already`` bytes kept by the same read."""
        return size <= (_KEPT_SIZE - already if already else _LARGEST_KEPT)

    def get(self, array: str, group: int) -> npt.NDArray[Any] | None:
        """Return the rows of a row group, or None if they are not cached."""
        return self._groups.get((array, group))

    def put(self, array: str, group: int, rows: npt.NDArray[Any]) -> None:
        """Keep a row group, and drop the least recently used ones."""
        self._groups.put((array, group), rows)

    def shrink(self, array: str, most: int) -> None:
        """Keep only the ``most`` recently used row groups of an array."""
        mine = [key for key in self._groups if key[0] == array]
        for key in mine[: max(len(mine) - most, 0)]:
            self._groups.pop(key)
