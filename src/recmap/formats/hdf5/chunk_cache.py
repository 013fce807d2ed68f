"""Bands of chunks that were inflated and are still of use."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Any

import numpy.typing as npt

__all__ = ["Bands"]

# Bytes kept of bands that were read in part.
_KEPT_SIZE = 64 << 20
# A band larger than this is inflated anew for each part of it that is read.
_LARGEST = 256 << 20


class Bands:
    """The bands used last, by dataset and number. One that is larger than all that
    is kept otherwise is kept alone, so that a pass in small steps inflates it once.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._bands: OrderedDict[tuple[str, int], npt.NDArray[Any]] = OrderedDict()
        self._size = 0

    @staticmethod
    def worth_keeping(size: int, already: int) -> bool:
        """Whether a band of this size would be kept, after others of one read."""
        return size <= (_KEPT_SIZE - already if already else _LARGEST)

    def get(self, dataset: str, band: int) -> npt.NDArray[Any] | None:
        """The rows of a band, if they are here."""
        with self._lock:
            found = self._bands.get((dataset, band))
            if found is not None:
                self._bands.move_to_end((dataset, band))
            return found

    def let_go(self, dataset: str, most: int) -> None:
        """Keeps only those bands of a dataset that were used last."""
        with self._lock:
            mine = [key for key in self._bands if key[0] == dataset]
            for key in mine[: max(len(mine) - most, 0)]:
                self._size -= self._bands.pop(key).nbytes

    def put(self, dataset: str, band: int, rows: npt.NDArray[Any]) -> None:
        """Keeps a band, and lets go of those that were not used for longest."""
        with self._lock:
            if (dataset, band) in self._bands:
                return
            self._bands[dataset, band] = rows
            self._size += rows.nbytes
            while self._size > _KEPT_SIZE and len(self._bands) > 1:
                self._size -= self._bands.popitem(last=False)[1].nbytes
