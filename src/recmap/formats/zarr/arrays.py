"""Rows of a Zarr array."""

from __future__ import annotations

import math
from collections import OrderedDict
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError
from recmap.files.cpus import pool_size

__all__ = ["PICKLED", "ZarrRows", "is_pickled"]

PICKLED = "is pickled, and a pickle can run any code; save it again as numbers or strings"

# Rows of larger chunks are not kept: what was asked for is read, and no more.
_MAX_KEPT = 128 << 20


class ZarrRows:
    """Rows, read through the zarr package, which decodes chunks in parallel.

    A band is the rows of one chunk. Those cut by a read are kept, so that the next
    read does not decode them again.
    """

    def __init__(self, path: str, name: str, array: Any) -> None:
        self._path, self._name, self._array = path, name, array
        if is_pickled(array):
            raise self._error(PICKLED)
        self.shape: tuple[int, ...] = tuple(array.shape)
        # Text of any length.
        self._strings = array.dtype.kind in "OT"
        self.dtype: np.dtype[Any] = np.dtype("O") if self._strings else np.dtype(array.dtype)
        self.chunk_rows = max(1, int(array.chunks[0]))
        self._bands: OrderedDict[int, npt.NDArray[Any]] = OrderedDict()
        self._lock = Lock()
        row = self.dtype.itemsize * math.prod(self.shape[1:])
        # A chunk is stored whole, however few rows there are.
        self.band_bytes = self.chunk_rows * row
        band = min(self.chunk_rows, self.shape[0]) * row
        self._most = self._asked = _MAX_KEPT // max(band, 1)

    def keep(self, bands: int | None) -> None:
        self._asked = self._most if bands is None else min(self._most, bands)

    @property
    def _kept(self) -> int:
        return min(pool_size() + 1, self._asked)

    @property
    def note(self) -> str:
        chunks = " x ".join(f"{axis:,}" for axis in self._array.chunks)
        codecs = [_codec_name(codec) for codec in self._array.compressors]
        return f"chunks of {chunks}, {' and '.join(codecs) or 'not compressed'}"

    def _error(self, why: str) -> DataError:
        return DataError(f"{self._path}: {self._name!r} {why}", file=self._path, field=self._name)

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        if not self._kept:
            return self._load(slice(start, stop))
        parts = []
        while start < stop:
            band = start // self.chunk_rows
            first = band * self.chunk_rows
            end = min(first + self.chunk_rows, self.shape[0])
            if start > first or stop < end:
                upto = min(stop, end)
                parts.append(self._band(band)[start - first : upto - first])
            else:
                # Whole bands are not asked for again.
                upto = stop if stop == self.shape[0] else stop - stop % self.chunk_rows
                parts.append(self._load(slice(start, upto)))
            start = upto
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else self._load(slice(0, 0))

    def gather(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        if not len(rows):
            return self._load(slice(0, 0))
        first, last = int(rows.min()) // self.chunk_rows, int(rows.max()) // self.chunk_rows
        if first == last and self._kept:
            return self._band(first)[rows - first * self.chunk_rows]
        wanted, order = np.unique(rows, return_inverse=True)
        return self._load(wanted)[order]

    def _band(self, band: int) -> npt.NDArray[Any]:
        with self._lock:
            rows = self._bands.get(band)
        if rows is None:
            self._let_go(self._kept - 1)  # before the next is decoded
            first = band * self.chunk_rows
            rows = self._load(slice(first, min(first + self.chunk_rows, self.shape[0])))
        with self._lock:
            self._bands[band] = rows
            self._bands.move_to_end(band)
        self._let_go(self._kept)
        return rows

    def _let_go(self, most: int) -> None:
        with self._lock:
            while len(self._bands) > most:
                self._bands.popitem(last=False)

    def _load(self, rows: Any) -> npt.NDArray[Any]:
        try:
            chosen = self._array if isinstance(rows, slice) else self._array.oindex
            read = np.asarray(chosen[rows])
        except Exception as e:  # codecs raise what they like
            raise self._error(f"cannot be read: {type(e).__name__}: {e}") from e
        read = read.astype(self.dtype, copy=False)
        if self._strings and not all(isinstance(item, str | bytes) for item in read.flat):
            raise self._error("holds objects that are no strings")
        return read


def is_pickled(array: Any) -> bool:
    """Whether to decode it would be to unpickle it."""
    codecs = [*array.filters, *array.compressors]
    return any("pickle" in _codec_name(codec) for codec in codecs)


def _codec_name(codec: Any) -> str:
    """Of numcodecs' codecs and zarr's own."""
    name = getattr(codec, "codec_id", None) or type(codec).__name__.removesuffix("Codec")
    return str(name).lower()
