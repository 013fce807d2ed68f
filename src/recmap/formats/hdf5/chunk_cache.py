"""A cache of decoded chunks, for repeated reads of the same rows."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Any

import numpy.typing as npt

__all__ = ["ChunkCache"]

# Bytes of partially read row groups to keep.
_KEPT_SIZE = 64 << 20
# A row group larger than this is decoded again on every read.
_LARGEST = 256 << 20


class ChunkCache:
    """The most recently used row groups, by dataset and number (see ``chunk_index.Grid``).

    A row group larger than the whole cache is kept alone, so that a pass in small batches
    decodes it only once.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._groups: OrderedDict[tuple[str, int], npt.NDArray[Any]] = OrderedDict()
        self._size = 0

    @staticmethod
    def worth_keeping(size: int, already: int) -> bool:
        """Tell whether to keep ``size`` bytes, given ``already`` bytes kept by the same read."""
        return size <= (_KEPT_SIZE - already if already else _LARGEST)

    def get(self, dataset: str, group: int) -> npt.NDArray[Any] | None:
        """Return the rows of a row group, or None if they are not cached."""
        with self._lock:
            found = self._groups.get((dataset, group))
            if found is not None:
                self._groups.move_to_end((dataset, group))
            return found

    def put(self, dataset: str, group: int, rows: npt.NDArray[Any]) -> None:
        """Keep a row group, and drop the least recently used ones."""
        with self._lock:
            if (dataset, group) in self._groups:
                return
            self._groups[dataset, group] = rows
            self._size += rows.nbytes
            while self._size > _KEPT_SIZE and len(self._groups) > 1:
                self._size -= self._groups.popitem(last=False)[1].nbytes

    def shrink(self, dataset: str, most: int) -> None:
        """Keep only the ``most`` recently used row groups of a dataset."""
        with self._lock:
            mine = [key for key in self._groups if key[0] == dataset]
            for key in mine[: max(len(mine) - most, 0)]:
                self._size -= self._groups.pop(key).nbytes
