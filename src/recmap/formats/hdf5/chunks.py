"""Chunked datasets, read and inflated on threads of ours, outside the library's lock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError
from recmap.formats.hdf5.chunk_index import Grid, Places
from recmap.formats.hdf5.file import Hdf5File
from recmap.formats.hdf5.filters import FilterError, Pipeline
from recmap.formats.hdf5.library import h5py

__all__ = ["ChunkedArray"]

Index = slice | npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Piece:
    """Rows of one band, and where they go; ``whole`` if they are all of it, in order."""

    band: int
    source: Index
    target: Index
    whole: bool


@dataclass(frozen=True)
class _Target:
    """An array that gets rows of a band."""

    array: npt.NDArray[Any]
    rows: Index
    source: Index


@dataclass(frozen=True)
class _Job:
    """A chunk, by its place, and who gets it."""

    place: int
    targets: list[_Target]


class ChunkedArray:
    """A dataset whose chunks have the bytes that numpy would hold, once their filters
    are undone; or the references in one of lists.

    Each chunk is inflated once for a read. Bands that were read in part are kept for
    the next one.
    """

    def __init__(
        self,
        file: Hdf5File,
        name: str,
        dataset: Any,
        dtype: np.dtype[Any],
        pipeline: Pipeline,
        label: str | None = None,
    ) -> None:
        """``name`` is the path of the dataset, ``label`` what its bands are kept under."""
        self._file, self._name, self._label = file, name, label or name
        self._dtype, self._pipeline = dtype, pipeline
        self._grid = Grid(dataset.shape, dataset.chunks)
        # Else the references to values.
        self._values = dtype == dataset.dtype
        self._fill = _fill(dataset) if self._values else np.zeros((), dtype)[()]
        self._nbytes = math.prod(dataset.chunks) * dtype.itemsize
        self._lock = Lock()
        self._places: Places | None = None
        self._asked = False
        self._kept: int | None = None

    def keep(self, bands: int | None) -> None:
        """Has no more than so many bands kept for the next reads; None: as many as usual."""
        self._kept = bands

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Rows ``start`` to ``stop``."""
        if self._located() is None:
            return self._from_library(start, stop)
        pieces = []
        for band in range(start // self._grid.chunk[0], -(-stop // self._grid.chunk[0])):
            first, end = self._grid.rows(band)
            low, high = max(start, first), min(stop, end)
            pieces.append(
                _Piece(
                    band,
                    slice(low - first, high - first),
                    slice(low - start, high - start),
                    (low, high) == (first, end),
                )
            )
        return self._gather(stop - start, pieces)

    def gather(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Rows by their numbers, those of a band at a time."""
        if not len(rows):
            return self._empty(0)
        step = self._grid.chunk[0]
        order = np.argsort(rows // step, kind="stable")
        bands, starts = np.unique(rows[order] // step, return_index=True)
        dealt = zip(bands.tolist(), np.split(order, starts[1:]), strict=True)
        if self._located() is not None:
            pieces = [_Piece(band, rows[mine] - band * step, mine, False) for band, mine in dealt]
            return self._gather(len(rows), pieces)
        out = self._empty(len(rows))
        for _, mine in dealt:
            some = rows[mine]
            first = int(some.min())
            out[mine] = self._from_library(first, int(some.max()) + 1)[some - first]
        return out

    def _from_library(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Rows of a dataset whose table of chunks cannot be trusted."""
        if not self._values:
            raise DataError(f"{self._file.path}: dataset {self._name!r}: its chunks are not found")
        out = self._empty(stop - start)
        if out.size:
            with self._file.locked(self._name):
                self._file.dataset(self._name).read_direct(out, np.s_[start:stop])
        return out

    def _gather(self, count: int, pieces: Sequence[_Piece]) -> npt.NDArray[Any]:
        out = self._empty(count)
        if not out.size:
            return out
        places = self._located()
        assert places is not None
        jobs: list[_Job] = []
        kept: dict[int, npt.NDArray[Any]] = {}
        for piece in pieces:
            band = self._file.bands.get(self._label, piece.band)
            if band is not None:
                out[piece.target] = band[piece.source]
                continue
            targets = [_Target(out, piece.target, piece.source)]
            first, end = self._grid.rows(piece.band)
            size = (end - first) * (out.nbytes // count)
            if not piece.whole and self._file.bands.worth_keeping(
                size, sum(band.nbytes for band in kept.values())
            ):
                if self._kept is not None:  # before the next is inflated
                    self._file.bands.let_go(self._label, self._kept - 1 - len(kept))
                kept[piece.band] = self._empty(end - first)
                whole = slice(0, end - first)
                targets.append(_Target(kept[piece.band], whole, whole))
            found = places.of_band(piece.band)
            if len(found) < self._grid.tiles:  # chunks that were never written
                for target in targets:
                    target.array[target.rows] = self._fill
            jobs.extend(_Job(place, targets) for place in found)
        self._file.for_each(jobs, self._load)
        for number, rows in kept.items():
            self._file.bands.put(self._label, number, rows)
        return out

    def _empty(self, rows: int) -> npt.NDArray[Any]:
        shape = (rows, *self._grid.shape[1:])
        try:
            return np.empty(shape, self._dtype)
        except (MemoryError, ValueError) as e:
            size = math.prod(shape) * self._dtype.itemsize
            raise DataError(
                f"{self._file.path}: dataset {self._name!r}: {rows:,} rows take {size:,} bytes, "
                "which do not fit into memory; read fewer",
                file=self._file.path,
                field=self._name,
            ) from e

    def _located(self) -> Places | None:
        with self._lock:
            if not self._asked:
                with self._file.locked(self._name):
                    self._places = Places.of(self._file.dataset(self._name), self._grid)
                self._asked = True
            return self._places

    def _load(self, job: _Job) -> None:
        places = self._located()
        assert places is not None
        corner = self._grid.corner(int(places.numbers[job.place]))
        extent = self._grid.extent(corner)
        chunk = self._chunk(places, job.place, corner, extent)
        inner = tuple(slice(0, size) for size in extent[1:])
        tile = tuple(slice(at, at + n) for at, n in zip(corner[1:], extent[1:], strict=True))
        for target in job.targets:
            target.array[(target.rows, *tile)] = chunk[(target.source, *inner)]

    def _chunk(
        self, places: Places, place: int, corner: tuple[int, ...], extent: tuple[int, ...]
    ) -> npt.NDArray[Any]:
        offset, size = int(places.offsets[place]), int(places.sizes[place])
        edge = extent != self._grid.chunk
        if self._pipeline and edge and size == self._nbytes:
            # A dataset may have its edges unfiltered, which h5py cannot tell.
            if not self._values:
                raise DataError(f"{self._file.path}: dataset {self._name!r}: filtered or not?")
            region = tuple(slice(at, at + n) for at, n in zip(corner, extent, strict=True))
            with self._file.locked(self._name):
                part: npt.NDArray[Any] = self._file.dataset(self._name)[region]
                return part
        stored = self._file.pread(offset, size)
        try:
            if len(stored) < size:
                raise FilterError(f"the file ends after {len(stored):,} of its {size:,} bytes")
            data = self._pipeline.undo(stored, int(places.masks[place]))
        except FilterError as e:
            raise DataError(
                f"{self._file.path}: dataset {self._name!r}: the chunk at {corner}, {size:,} bytes "
                f"at byte {offset:,}: {e}",
                file=self._file.path,
                byte=offset,
                field=self._name,
            ) from e
        return np.ndarray(self._grid.chunk, self._dtype, data)


def _fill(dataset: Any) -> Any:
    """What stands for chunks that were never written."""
    defined = dataset.id.get_create_plist().fill_value_defined()
    if defined == h5py.h5d.FILL_VALUE_UNDEFINED:
        return np.zeros((), dataset.dtype)[()]
    return dataset.fillvalue
