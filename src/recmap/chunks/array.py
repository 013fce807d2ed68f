"""Arrays in chunks, read by rows.

Each chunk is decoded once per read, on as many threads as there are CPUs, straight into its place
if it has one. The native core does that for all chunks of a read at once; what it has no codecs
for, and what is damaged, is decoded by ``CodecChain.undo``, whose errors say what is wrong. Row
groups that were read only in part are kept for the next read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.chunks.codecs import Bytes, ChunkError, CodecChain
from recmap.chunks.groups import (
    ChunkCache,
    ExpectedRead,
    ReadsAhead,
    begin,
    for_each,
    worth_keeping,
)
from recmap.chunks.mapped import MappedChunks
from recmap.chunks.stored import Grid, StoredChunk, StoredChunks, Values, box_of
from recmap.errors import DataError
from recmap.machine.cpus import own_limit, thread_count
from recmap.machine.memory import empty
from recmap.model.batch import RowNumbers
from recmap.model.fetching import Fetching
from recmap.native import _core

# Rows as a span or by number.
Rows: TypeAlias = "slice | npt.NDArray[np.int64]"
# Rows in more chunks than this are not gathered from mapped files, nor are so many tiles kept.
_MOST_TILES = 1 << 12
# A read of so many chunks for each thread keeps all threads busy. Of smaller ones, so many chunks
# for each thread are decoded ahead.
_BUSY, _AHEAD = 4, 2
# Bytes of row groups that are decoded ahead.
_AHEAD_SIZE = 32 << 20


class _WantedRows(NamedTuple):
    """Rows to read from one row group, and their place in the output."""

    group: int
    source: Rows
    target: Rows
    whole: bool = False  # all rows of the group, in order


class _Job(NamedTuple):
    """A chunk to decode, the rows wanted of it, and where they go."""

    number: int
    source: Rows
    array: Values
    target: Rows

    @property
    def rows(self) -> Any:
        """The same rows as the native core takes them."""
        if isinstance(self.source, slice) and isinstance(self.target, slice):
            first, stop = self.target.start, self.target.stop
            return self.source.start, first, stop - first
        target = np.arange(len(self.array))[self.target]
        return self.source, target


class ChunkedArray:
    """An array in chunks that recmap decodes."""

    def __init__(
        self,
        chunks: StoredChunks,
        grid: Grid,
        dtype: np.dtype[Any],
        chain: CodecChain,
        fill: Any,
        cache: ChunkCache,
        label: str,
        layout: Callable[[Bytes], Values] | None = None,
    ) -> None:
        """``label`` is the key of the array in the cache. ``layout`` makes a chunk of its decoded
        bytes, unless they are its values as NumPy has them.
        """
        self.chunks, self.grid, self.dtype = chunks, grid, dtype
        self._chain, self._fill = chain, fill
        self._cache, self._label = cache, label
        self._layout = layout
        self._kept: int | None = None
        self._ahead = ReadsAhead()
        self._parts: dict[int, _core.ChunkPart] = {}
        # Not a method, which would keep this object alive until garbage is collected.
        self._empty = partial(_new_rows, chunks, grid.shape[1:], dtype)
        # Unfiltered chunks are bytes at known places.
        self._mapped: MappedChunks | None = None
        few = 0 < grid.chunks_per_group <= _MOST_TILES and grid.shape[0] > 0
        if layout is None and few and not chain and chunks.mappable and dtype.itemsize:
            self._mapped = MappedChunks(chunks.places, grid, dtype, fill, self._empty)

    @property
    def mapped(self) -> bool:
        """Whether rows are read from mapped files, without decoding whole chunks."""
        return self._mapped is not None

    @property
    def chunk_rows(self) -> int:
        """The number of rows decoded together."""
        return 1 if self.mapped else self.grid.chunk[0]

    def keep(self, groups: int | None) -> None:
        """Cache at most ``groups`` row groups for later reads; None means the default limit."""
        self._kept = groups

    def read(self, start: int, stop: int) -> Values:
        """Read rows ``start`` to ``stop``."""
        if self._mapped is not None and start < stop:
            mapped = self._mapped.read(start, stop)
            if mapped is not None:
                return mapped
        in_order = self._ahead.in_order(start, stop)
        expected = self._ahead.take_read(start, stop)
        if in_order:
            self._read_ahead(start, stop)
        wanted = self._wanted_in_order(start, stop)
        rows = self._empty(stop - start) if expected is None else expected.rows
        return self._decode(rows, wanted, expected)

    def _wanted_in_order(self, start: int, stop: int) -> Iterator[_WantedRows]:
        for group in self.grid.groups(start, stop):
            first, end = self.grid.rows(group)
            low, high = max(start, first), min(stop, end)
            source, target = slice(low - first, high - first), slice(low - start, high - start)
            yield _WantedRows(group, source, target, (low, high) == (first, end))

    def gather(self, rows: npt.NDArray[np.int64]) -> Values:
        """Read rows by number, one row group at a time."""
        if not len(rows):
            return self._empty(0)
        if self._mapped is not None:
            mapped = self._mapped.gather(rows)
            if mapped is not None:
                return mapped
        step = self.grid.chunk[0]
        if len(rows) == 1:  # sorting would take longer than reading
            group = int(rows[0]) // step
            wanted = [_WantedRows(group, rows - group * step, slice(0, 1))]
            return self._decode(self._empty(1), wanted)
        order = np.argsort(rows // step, kind="stable")
        groups, starts = np.unique(rows[order] // step, return_index=True)
        by_group = zip(groups.tolist(), np.split(order, starts[1:]), strict=True)
        wanted = [self._wanted(rows, *each) for each in by_group]
        return self._decode(self._empty(len(rows)), wanted)

    def _wanted(
        self, rows: npt.NDArray[np.int64], group: int, mine: npt.NDArray[np.int64]
    ) -> _WantedRows:
        """Return which rows of a row group to put in the places ``mine``."""
        first, end = self.grid.rows(group)
        within, at = rows[mine] - first, int(mine[0])
        whole = np.arange(end - first)
        if np.array_equal(within, whole) and np.array_equal(mine - at, whole):
            return _WantedRows(group, slice(0, len(whole)), slice(at, at + len(whole)), whole=True)
        return _WantedRows(group, within, mine)

    @property
    def remote(self) -> bool:
        """Whether chunks are fetched from a store."""
        return self.chunks.remote

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        """Begin to fetch the chunks of rows that are going to be read."""
        if not self.remote or not len(rows):
            return None
        groups = np.unique(np.asarray(rows) // self.grid.chunk[0]).tolist()
        wanted = [group for group in groups if self._cached(group) is None]
        return self.chunks.fetch_ahead([number for group in wanted for number in self._of(group)])

    def _of(self, group: int) -> Sequence[int]:
        """Return the numbers of the chunks of a row group, without some that were never written."""
        count = self.grid.chunks_per_group
        return self.chunks.written(range(group * count, (group + 1) * count))

    def _decode(
        self,
        out: Values,
        wanted: Iterable[_WantedRows],
        expected: ExpectedRead | None = None,
    ) -> Values:
        """Put all rows wanted in their place, but for those that are expected there."""
        if not out.size:
            return out
        jobs: list[_Job] = []
        kept: dict[int, Values] = {}
        partly: list[tuple[_WantedRows, Values]] = []
        for request in wanted:
            if expected is not None and request.group in expected.groups:
                continue
            rows = self._cached(request.group)
            if rows is None:
                rows = self._ahead.take_group(request.group)
                if rows is not None and not request.whole:
                    kept[request.group] = rows
            if rows is None and not request.whole:
                rows = self._room(request.group, kept)
                if rows is not None:
                    every = slice(0, len(rows))
                    jobs += self._jobs(request.group, every, rows, every)
            if rows is not None:
                partly.append((request, rows))
            else:
                jobs += self._jobs(request.group, request.source, out, request.target)
        if jobs:
            self._put(jobs)
        if expected is not None:
            expected.begun.result()
        if jobs or expected is not None:
            self.chunks.check()
        for request, rows in partly:
            out[request.target] = rows[request.source]
        for group, rows in kept.items():
            self._cache.put((self._label, group), rows)
        return out

    def _cached(self, group: int) -> Values | None:
        return self._cache.get((self._label, group))

    def _jobs(self, group: int, source: Rows, array: Values, target: Rows) -> list[_Job]:
        """Return what to do for rows of a row group."""
        numbers = self._of(group)
        if len(numbers) < self.grid.chunks_per_group:
            array[target] = self._fill
        return [_Job(number, source, array, target) for number in numbers]

    def _read_ahead(self, start: int, stop: int) -> None:
        """Begin to decode the next row groups, if rows are read in order and few at a time.

        A large read keeps all threads busy by itself. What the next reads will take as a whole is
        decoded straight into its place, as if they were as large as this one.
        """
        threads, groups = thread_count(), self.grid.groups(start, stop)
        chunks = len(groups) * self.grid.chunks_per_group
        # A memory budget has no room for it.
        if self.remote or own_limit() is not None or chunks >= _BUSY * threads:
            return
        size = self.grid.chunk[0] * self.dtype.itemsize * math.prod(self.grid.shape[1:])
        most = min(_AHEAD * threads, _AHEAD_SIZE // max(size, 1))
        if not most:
            return
        coming = range(groups.stop, min(groups.stop + most, self.grid.counts[0]))
        wanted = [group for group in coming if self._cached(group) is None]
        with suppress(DataError):  # there is no memory for it
            reads = self._expected(start, stop, coming)
            self._ahead.begin(reads, self._prepare, wanted, self._decode_group)

    def _expected(self, start: int, stop: int, groups: range) -> Iterator[range]:
        """Yield the next reads, if they are as large as this one, within some row groups."""
        if stop - start < self.grid.chunk[0] or not groups:
            return
        end, step = self.grid.rows(groups[-1])[1], stop - start
        for at in range(stop, end, step):
            read = range(at, min(at + step, self.grid.shape[0]))
            if read.stop <= end:
                yield read

    def _prepare(self, read: range) -> ExpectedRead:
        rows = self._empty(len(read))
        wanted = [
            request
            for request in self._wanted_in_order(read.start, read.stop)
            if request.whole and self._cached(request.group) is None
        ]
        groups = frozenset(request.group for request in wanted)
        return ExpectedRead(read.stop, rows, groups, begin(self._decode_whole, rows, wanted))

    def _decode_whole(self, rows: Values, wanted: Sequence[_WantedRows]) -> None:
        self._put(
            [
                job
                for each in wanted
                for job in self._jobs(each.group, each.source, rows, each.target)
            ]
        )

    def _decode_group(self, group: int) -> Values:
        first, end = self.grid.rows(group)
        rows, every = self._empty(end - first), slice(0, end - first)
        self._put(self._jobs(group, every, rows, every))
        self.chunks.check()
        return rows

    def _room(self, group: int, kept: dict[int, Values]) -> Values | None:
        """Make an array for a row group that is worth keeping; None if it is not."""
        first, end = self.grid.rows(group)
        size = (end - first) * self.dtype.itemsize * math.prod(self.grid.shape[1:])
        if not worth_keeping(size, sum(rows.nbytes for rows in kept.values())):
            return None
        if self._kept is not None:  # make room before the next one is decoded
            mine = [key for key in self._cache if key[0] == self._label]
            most = self._kept - 1 - len(kept)
            for key in mine[: max(len(mine) - most, 0)]:
                self._cache.pop(key)
        kept[group] = self._empty(end - first)
        return kept[group]

    def _put(self, jobs: Sequence[_Job]) -> None:
        """Decode chunks, and put the rows wanted of them in their place."""
        with self.chunks.fetched([job.number for job in jobs]) as stored_of:
            found = [(job, stored_of(job.number)) for job in jobs]
            codecs = None if self._layout is not None else self._chain.native
            if codecs is not None:
                ours = [(job, stored) for job, stored in found if isinstance(stored, StoredChunk)]
                native = [self._native(job, stored) for job, stored in ours]
                left = _core.decode_chunks(codecs, native, thread_count())
                found = [each for each in found if not isinstance(each[1], StoredChunk)]
                found += [ours[i] for i in left]
            for_each(found, self._load)

    def _native(self, job: _Job, stored: StoredChunk) -> _core.ChunkJob:
        place = self._place(job)
        if place is not None:
            return _core.ChunkJob(*stored, place)
        number = job.number % self.grid.chunks_per_group
        part = self._parts.get(number)
        if part is None:
            part = self._part(number)
            if len(self._parts) < _MOST_TILES:
                self._parts[number] = part
        flat = job.array.reshape(-1).view(np.uint8)
        return _core.ChunkJob(*stored, flat, part, job.rows)

    def _part(self, number: int) -> _core.ChunkPart:
        itemsize = self.dtype.itemsize
        box = box_of(self.grid.tile(number), self.grid, itemsize)
        from_row = math.prod(self.grid.chunk[1:]) * itemsize
        to_row = math.prod(self.grid.shape[1:]) * itemsize
        return _core.ChunkPart(box.axes, box.run, box.at, from_row, to_row, self._chain.nbytes)

    def _load(self, found: tuple[_Job, StoredChunk | Callable[[], Values] | None]) -> None:
        """Put the rows wanted of one chunk in their place."""
        job, stored = found
        tile, values = self.grid.tile(job.number), None
        if isinstance(stored, StoredChunk):
            data = self._read(stored, job.number)
            if data is not None:
                values = self._decoded(data, stored.mask, job)
                if values is None:
                    return
        elif stored is not None:
            values = stored()
        if values is None:
            job.array[(job.target, *tile.slices)] = self._fill
            return
        inner = tuple(slice(0, count) for count in tile.extent)
        job.array[(job.target, *tile.slices)] = values[(job.source, *inner)]

    def _read(self, stored: StoredChunk, number: int) -> Bytes | None:
        try:
            data = stored.read()
        except MemoryError as e:
            raise self.chunks.error(number, "its bytes do not fit into memory") from e
        except OSError as e:
            raise self.chunks.error(number, f"{e.strerror}") from e
        if data is not None and len(data) < stored.size:
            why = f"the file ends after {len(data):,} of its {stored.size:,} bytes"
            raise self.chunks.error(number, why)
        return data

    def _decoded(self, data: Bytes, mask: int, job: _Job) -> Values | None:
        """Return the values of a chunk; None if they were decoded straight into their place."""
        place = self._place(job)
        try:
            data = self._chain.undo(data, mask, place)
        except ChunkError as e:
            raise self.chunks.error(job.number, str(e)) from e
        except MemoryError as e:
            why = f"its {self._chain.nbytes:,} bytes do not fit into memory"
            raise self.chunks.error(job.number, why) from e
        if data is place:
            return None
        if self._layout is None:
            return np.ndarray(self.grid.chunk, self.dtype, data)
        return self._layout(data)

    def _place(self, job: _Job) -> Bytes | None:
        """Return where all bytes of a chunk go, if they go to one place as they are."""
        as_it_is = self._layout is None and self.grid.whole_rows
        if not as_it_is or not isinstance(job.source, slice):
            return None
        part = job.array[job.target]
        return part.reshape(-1).view(np.uint8) if part.nbytes == self._chain.nbytes else None


def _new_rows(
    chunks: StoredChunks, shape: tuple[int, ...], dtype: np.dtype[Any], rows: int
) -> Values:
    """Make an array for rows, or say that they do not fit into memory."""
    try:
        return empty((rows, *shape), dtype)
    except (MemoryError, ValueError) as e:
        size = rows * math.prod(shape) * dtype.itemsize
        why = f"{rows:,} rows take {size:,} bytes, which do not fit into memory; read fewer"
        raise chunks.error(None, why) from e
