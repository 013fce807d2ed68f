"""Chunked datasets: where their chunks lie, and how they are read.

Chunks are read and decoded on recmap's own threads, outside the HDF5 lock.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError
from recmap.formats.column_readers import Which
from recmap.formats.hdf5.file import Hdf5File, h5py
from recmap.formats.hdf5.filters import FilterError, FilterPipeline
from recmap.model.batch import RowNumbers
from recmap.model.fetching import Fetching
from recmap.store.mapped_files import fetch_ahead

Numbers = npt.NDArray[Any]


class Grid:
    """The way chunks tile an array.

    A row group is all chunks that hold the same rows. Chunks are numbered one row group
    after another.
    """

    def __init__(self, shape: tuple[int, ...], chunk: tuple[int, ...]) -> None:
        self.shape, self.chunk = shape, chunk
        self.counts = tuple(-(-axis // step) for axis, step in zip(shape, chunk, strict=True))
        self.chunks_per_group = math.prod(self.counts[1:])

    def rows(self, group: int) -> tuple[int, int]:
        """Return the span of rows in a row group."""
        step = self.chunk[0]
        return group * step, min((group + 1) * step, self.shape[0])

    def corner(self, number: int) -> tuple[int, ...]:
        """Return where a chunk begins in the array."""
        corner = []
        for count, step in zip(reversed(self.counts), reversed(self.chunk), strict=True):
            number, at = divmod(number, count)
            corner.append(at * step)
        return tuple(reversed(corner))

    def extent(self, corner: tuple[int, ...]) -> tuple[int, ...]:
        """Return how much of a chunk is inside the array; chunks at the edges extend past it."""
        return tuple(
            min(step, axis - at)
            for at, step, axis in zip(corner, self.chunk, self.shape, strict=True)
        )


class ChunkIndex:
    """The chunks that were written: their numbers in order, and their place in the file."""

    def __init__(self, numbers: Numbers, where: Numbers, chunks_per_group: int) -> None:
        """``where`` holds the byte offset, the size and the filter mask of each chunk."""
        self.numbers, self.offsets, self.sizes, self.masks = numbers, *where.T
        self._chunks_per_group = chunks_per_group

    @staticmethod
    def of(dataset: Any, grid: Grid) -> ChunkIndex | None:
        """Get the table of chunks from the library; None if the table cannot be right."""
        if not _reliable(dataset):
            return None
        corners, where = array("Q"), array("Q")

        def note(chunk: Any) -> None:
            if chunk.byte_offset is not None:
                corners.extend(chunk.chunk_offset)
                where.extend((chunk.byte_offset, chunk.size, chunk.filter_mask))

        dataset.id.chunk_iter(note)
        at = np.array(corners, np.uint64).reshape(-1, len(grid.shape))
        chunk = np.array(grid.chunk, np.uint64)
        if (at % chunk).any() or (at >= np.array(grid.shape, np.uint64)).any():
            return None
        at //= chunk
        numbers = np.zeros(len(at), np.int64)
        for axis, count in enumerate(grid.counts):
            numbers = numbers * count + at[:, axis].astype(np.int64)
        numbers, first = np.unique(numbers, return_index=True)
        found = np.array(where, np.uint64).reshape(-1, 3)
        if len(numbers) < len(found) or not _complete(dataset, grid, found):
            return None
        return ChunkIndex(numbers, found[first], grid.chunks_per_group)

    def entries(self, group: int) -> range:
        """Return the entries of a row group: positions in ``numbers``, ``offsets`` and so on."""
        edges: npt.NDArray[np.int64] = np.array([group, group + 1]) * self._chunks_per_group
        start, stop = np.searchsorted(self.numbers, edges)
        return range(int(start), int(stop))


def _reliable(dataset: Any) -> bool:
    # A dataset with one unlimited axis indexes its chunks in an extensible array, which puts
    # that axis first. HDF5 1.14 ignores this when it lists the chunks: it reports the corners
    # of other chunks, and these may still tile the grid. h5py does not expose which kind of
    # index a dataset has.
    unlimited = [axis for axis, most in enumerate(dataset.maxshape) if most is None]
    return len(unlimited) != 1 or unlimited == [0]


def _complete(dataset: Any, grid: Grid, where: Numbers) -> bool:
    """Tell whether the table has as many chunks and bytes as the dataset."""
    whole = dataset.id.get_space_status() == h5py.h5d.SPACE_STATUS_ALLOCATED
    if whole and len(where) != math.prod(grid.counts):
        return False
    return int(where[:, 1].sum()) == int(dataset.id.get_storage_size())


@dataclass(frozen=True)
class _WantedRows:
    """Rows to read from one row group, and their place in the output.

    ``whole`` is set if they are all rows of the group, in order.
    """

    group: int
    source: Which
    target: Which
    whole: bool


@dataclass(frozen=True)
class _Target:
    """An array that receives rows of a row group."""

    array: npt.NDArray[Any]
    rows: Which
    source: Which


@dataclass(frozen=True)
class _Job:
    """A chunk to decode, given by its entry in the index, and the arrays that receive it."""

    entry: int
    targets: list[_Target]


class ChunkedArray:
    """A dataset with chunks that decode to the layout of a NumPy array.

    A dataset of lists decodes to the references to its lists. Each chunk is decoded once per
    read. Row groups that were read only in part are cached for the next read.
    """

    def __init__(
        self,
        file: Hdf5File,
        name: str,
        dataset: Any,
        dtype: np.dtype[Any],
        pipeline: FilterPipeline,
        label: str | None = None,
    ) -> None:
        """``name`` is the path of the dataset, ``label`` its key in the chunk cache."""
        self._file, self._name, self._label = file, name, label or name
        self._dtype, self._pipeline = dtype, pipeline
        self._grid = Grid(dataset.shape, dataset.chunks)
        # False if the chunks hold references to lists.
        self._values = dtype == dataset.dtype
        self._fill = _fill(dataset) if self._values else np.zeros((), dtype)[()]
        self._nbytes = math.prod(dataset.chunks) * dtype.itemsize
        self._lock = Lock()
        self._index: ChunkIndex | None = None
        self._asked = False
        self._kept: int | None = None

    def keep(self, groups: int | None) -> None:
        """Cache at most ``groups`` row groups for later reads; None means the default limit."""
        self._kept = groups

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Read rows ``start`` to ``stop``."""
        if self._chunk_index() is None:
            return self._from_library(start, stop)
        requests = []
        for group in range(start // self._grid.chunk[0], -(-stop // self._grid.chunk[0])):
            first, end = self._grid.rows(group)
            low, high = max(start, first), min(stop, end)
            requests.append(
                _WantedRows(
                    group,
                    slice(low - first, high - first),
                    slice(low - start, high - start),
                    (low, high) == (first, end),
                )
            )
        return self._decode(stop - start, requests)

    def gather(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Read rows by number, one row group at a time."""
        if not len(rows):
            return self._empty(0)
        step = self._grid.chunk[0]
        order = np.argsort(rows // step, kind="stable")
        groups, starts = np.unique(rows[order] // step, return_index=True)
        by_group = zip(groups.tolist(), np.split(order, starts[1:]), strict=True)
        if self._chunk_index() is not None:
            requests = [
                _WantedRows(group, rows[mine] - group * step, mine, False)
                for group, mine in by_group
            ]
            return self._decode(len(rows), requests)
        out = self._empty(len(rows))
        for _, mine in by_group:
            some = rows[mine]
            first = int(some.min())
            out[mine] = self._from_library(first, int(some.max()) + 1)[some - first]
        return out

    @property
    def remote(self) -> bool:
        """Whether chunks are fetched from a store."""
        return not self._file.mapped.whole

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        """Begin to fetch the chunks of rows that are going to be read."""
        index = self._chunk_index() if self.remote and len(rows) else None
        if index is None:
            return None
        cache = self._file.chunk_cache
        groups = np.unique(np.asarray(rows) // self._grid.chunk[0]).tolist()
        wanted = [group for group in groups if cache.get(self._label, group) is None]
        entries = [entry for group in wanted for entry in index.entries(group)]
        spans = self._file.spans(index.offsets[entries], index.sizes[entries])
        return fetch_ahead(self._file.mapped, *spans)

    def _from_library(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Read rows through h5py, because the table of chunks cannot be trusted."""
        if not self._values:
            raise DataError(f"{self._file.path}: dataset {self._name!r}: its chunks are not found")
        out = self._empty(stop - start)
        if out.size:
            with self._file.locked(self._name):
                self._file.dataset(self._name).read_direct(out, np.s_[start:stop])
        return out

    def _decode(self, count: int, requests: Sequence[_WantedRows]) -> npt.NDArray[Any]:
        out = self._empty(count)
        if not out.size:
            return out
        index = self._chunk_index()
        assert index is not None
        cache = self._file.chunk_cache
        jobs: list[_Job] = []
        kept: dict[int, npt.NDArray[Any]] = {}
        for request in requests:
            cached = cache.get(self._label, request.group)
            if cached is not None:
                out[request.target] = cached[request.source]
                continue
            targets = [_Target(out, request.target, request.source)]
            first, end = self._grid.rows(request.group)
            size = (end - first) * (out.nbytes // count)
            already = sum(rows.nbytes for rows in kept.values())
            if not request.whole and cache.worth_keeping(size, already):
                if self._kept is not None:  # make room before the next one is decoded
                    cache.shrink(self._label, self._kept - 1 - len(kept))
                kept[request.group] = self._empty(end - first)
                whole = slice(0, end - first)
                targets.append(_Target(kept[request.group], whole, whole))
            entries = index.entries(request.group)
            if len(entries) < self._grid.chunks_per_group:  # some were never written
                for target in targets:
                    target.array[target.rows] = self._fill
            jobs.extend(_Job(entry, targets) for entry in entries)
        with self._hold(index, jobs):
            self._file.for_each(jobs, self._load)
        for group, rows in kept.items():
            cache.put(self._label, group, rows)
        return out

    def _hold(self, index: ChunkIndex, jobs: Sequence[_Job]) -> AbstractContextManager[None]:
        """Make the bytes of all chunks available. Those of an object are fetched at once."""
        if self._file.mapped.whole:
            return nullcontext()
        entries = [job.entry for job in jobs]
        return self._file.mapped.hold(
            *self._file.spans(index.offsets[entries], index.sizes[entries])
        )

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

    def _chunk_index(self) -> ChunkIndex | None:
        with self._lock:
            if not self._asked:
                with self._file.locked(self._name):
                    self._index = ChunkIndex.of(self._file.dataset(self._name), self._grid)
                self._asked = True
            return self._index

    def _load(self, job: _Job) -> None:
        index = self._chunk_index()
        assert index is not None
        corner = self._grid.corner(int(index.numbers[job.entry]))
        extent = self._grid.extent(corner)
        chunk = self._chunk(index, job.entry, corner, extent)
        inner = tuple(slice(0, size) for size in extent[1:])
        tile = tuple(slice(at, at + n) for at, n in zip(corner[1:], extent[1:], strict=True))
        for target in job.targets:
            target.array[(target.rows, *tile)] = chunk[(target.source, *inner)]

    def _chunk(
        self, index: ChunkIndex, entry: int, corner: tuple[int, ...], extent: tuple[int, ...]
    ) -> npt.NDArray[Any]:
        offset, size = int(index.offsets[entry]), int(index.sizes[entry])
        edge = extent != self._grid.chunk
        if self._pipeline and edge and size == self._nbytes:
            # Chunks at the edges may be stored unfiltered, and h5py does not say which are.
            if not self._values:
                raise DataError(
                    f"{self._file.path}: dataset {self._name!r}: a chunk at its edge may or may "
                    "not be filtered"
                )
            region = tuple(slice(at, at + n) for at, n in zip(corner, extent, strict=True))
            with self._file.locked(self._name):
                read: npt.NDArray[Any] = self._file.dataset(self._name)[region]
                return read
        stored = self._file.pread(offset, size)
        try:
            if len(stored) < size:
                raise FilterError(f"the file ends after {len(stored):,} of its {size:,} bytes")
            data = self._pipeline.undo(stored, int(index.masks[entry]))
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
    """Return the value of chunks that were never written."""
    defined = dataset.id.get_create_plist().fill_value_defined()
    if defined == h5py.h5d.FILL_VALUE_UNDEFINED:
        return np.zeros((), dataset.dtype)[()]
    return dataset.fillvalue
