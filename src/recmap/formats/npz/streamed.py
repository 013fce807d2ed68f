"""Rows of an array that is inflated as it is read."""

from __future__ import annotations

import math
from threading import Lock
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from recmap.formats.npy_header import NpyHeader

__all__ = ["MAX_LOADED", "StreamedRows"]

# Rows of an array in Fortran order lie apart, so that it is inflated whole.
MAX_LOADED = 256 << 20
# Inflated at a time to take single rows from it.
_BLOCK = 4 << 20


class Packed(Protocol):
    """Bytes that are unpacked as they are read."""

    def read(self, offset: int, size: int) -> npt.NDArray[np.uint8]: ...


class StreamedRows:
    """Rows of an array that lies deflated behind its header."""

    note = "deflated, read in order"

    def __init__(self, packed: Packed, header: NpyHeader) -> None:
        self._packed, self._header = packed, header
        self.dtype, self.shape = header.dtype, header.shape
        self.row_size = header.dtype.itemsize * math.prod(header.shape[1:])
        self._scattered = header.fortran and sum(axis > 1 for axis in header.shape) > 1
        self._whole: npt.NDArray[Any] | None = None
        self._lock = Lock()

    @property
    def chunk_rows(self) -> int:
        # A row costs all rows before it.
        return max(1, self.shape[0])

    @property
    def band_bytes(self) -> int:
        return self.shape[0] * self.row_size if self._scattered else 0

    def keep(self, bands: int | None) -> None:
        """Bands are not kept."""

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        if self._scattered:
            return self._loaded()[start:stop]
        return self._rows(start, stop)

    def gather(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        if self._scattered:
            return self._loaded()[rows]
        taken = np.empty((len(rows), *self.shape[1:]), self.dtype)
        order = np.argsort(rows, kind="stable")
        wanted = rows[order]
        step = max(1, _BLOCK // max(self.row_size, 1))
        done = 0
        while done < len(wanted):
            first = int(wanted[done])
            upto = int(np.searchsorted(wanted, first + step))
            here = wanted[done:upto]
            taken[order[done:upto]] = self._rows(first, int(here[-1]) + 1)[here - first]
            done = upto
        return taken

    def _rows(self, start: int, stop: int) -> npt.NDArray[Any]:
        shape = (stop - start, *self.shape[1:])
        if math.prod(shape) == 0:
            return np.empty(shape, self.dtype)
        offset = self._header.size + start * self.row_size
        data = self._packed.read(offset, (stop - start) * self.row_size)
        return data.view(self.dtype).reshape(shape)

    def _loaded(self) -> npt.NDArray[Any]:
        with self._lock:
            if self._whole is None:
                data = self._packed.read(self._header.size, self.shape[0] * self.row_size)
                self._whole = data.view(self.dtype).reshape(self.shape, order="F")
            return self._whole
