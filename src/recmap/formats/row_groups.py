"""A source of row groups: rows that are compressed together, column by column.

This is how Parquet and Arrow files store rows. A row group that fits is decoded whole, a larger
one in pieces of some rows, from its beginning. Row groups, and bundles of columns, are decoded in
parallel: in order, those that follow while the first are used (``row_group_scan``), or those that
rows are gathered from, which are kept for the next ones.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from functools import cached_property, partial
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from recmap.files.cpus import pool_size, thread_count
from recmap.files.mapped import guarded
from recmap.files.mapped_files import fetch_ahead
from recmap.files.object_path import in_store
from recmap.files.paths import size_on_disk
from recmap.files.spans import merge_spans
from recmap.files.threads import Threads
from recmap.formats.column_source import refuse_changed
from recmap.formats.row_group_file import Cursor, Names, RowGroupFile
from recmap.formats.row_group_scan import Scan, Scans
from recmap.model.batch import RowArray, RowNumbers, divide_rows, interleave, pick, rows_by_owner
from recmap.model.coerce import empty_column
from recmap.model.fetching import Fetching
from recmap.model.info import Info
from recmap.model.row_sizes import batch_sizes, fitting, measure
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source

__all__ = ["RowGroupSource"]

# The most bytes to decode at once of a row group, for all columns together.
_PIECE = 32 << 20
# Bytes of pieces kept for later reads. A larger piece is kept alone.
_KEPT = 64 << 20
# With a limit, as many times the limit are kept. Twice as much if several reads go on.
_KEPT_LIMITS, _SCANS = 2, 2
# A read that has so many bytes ends with its piece, because more would have to be copied.
_ENOUGH = 1 << 20
# Less than this is decoded by the thread that reads.
_FEW_BYTES = 1 << 18
# Bytes that must be in memory to decode any rows of a bundle of columns.
_PAGES = 3 << 20
# Column chunks this close to each other are fetched together.
_NEAR = 64 << 10


class _Piece(NamedTuple):
    """Some rows of a row group, numbered within it by multiples of ``rows``, and some columns."""

    group: int
    number: int
    rows: int
    names: Names


class _Pieces:
    """Decodes pieces of a file, and keeps some of them, and the places where decoding stopped."""

    def __init__(self, file: RowGroupFile) -> None:
        self._file = file
        self._lock = Lock()
        self._kept: OrderedDict[_Piece, tuple[int, Batch]] = OrderedDict()
        self._size = 0
        self._cursors: OrderedDict[tuple[int, int, Names], Cursor] = OrderedDict()

    def get(self, piece: _Piece) -> Batch:
        """Return the rows of a piece."""
        with self._lock:
            found = self._kept.get(piece)
            if found is not None:
                self._kept.move_to_end(piece)
                return found[1]
        cursor = self._cursor(piece)
        batch = cursor.piece(piece.number)
        self._park(piece, cursor)
        return batch

    def _cursor(self, piece: _Piece) -> Cursor:
        key = piece.group, piece.rows, piece.names
        with self._lock:
            parked = self._cursors.get(key)
            if parked is not None and parked.number <= piece.number:
                return self._cursors.pop(key)
            # One that decodes other pieces of these columns is of no use any more.
            for other in [k for k in self._cursors if k[1:] != key[1:] and k[2] == piece.names]:
                del self._cursors[other]
        return Cursor(self._file, piece.group, piece.rows, piece.names)

    def _park(self, piece: _Piece, cursor: Cursor) -> None:
        if cursor.ended:
            return
        with self._lock:
            self._cursors[piece.group, piece.rows, piece.names] = cursor
            while len(self._cursors) > pool_size():
                self._cursors.popitem(last=False)

    def keep(self, piece: _Piece, batch: Batch) -> None:
        """Keep a piece for later reads, and drop the least recently used ones."""
        size = measure(batch)[1]
        with self._lock:
            if piece not in self._kept:
                self._kept[piece] = size, batch
                self._size += size
            while self._size > _KEPT and len(self._kept) > 1:
                self._size -= self._kept.popitem(last=False)[1][0]


class RowGroupSource(Source):
    """The rows of a file of row groups."""

    def __init__(
        self, file: RowGroupFile, names: Sequence[str], reopen: Callable[[], RowGroupSource]
    ) -> None:
        """``reopen`` opens the same columns again in a process that unpickles this source."""
        self._file, self._reopen = file, reopen
        self._schema = file.schema.select(names)
        self._starts: npt.NDArray[np.int64] = np.concatenate([[0], np.cumsum(file.group_rows)])
        self._pieces, self._scans = _Pieces(file), Scans()
        self._pool: tuple[int, Threads] | None = None
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self._reopen, self._schema, len(self))

    @cached_property
    def _row_bytes(self) -> dict[str, int]:
        """The bytes of a row of each column. Corrected when rows turn out larger."""
        return {name: max(1, self._file.row_bytes(name)) for name in self._schema}

    @cached_property
    def _bundles(self) -> list[Names]:
        return _bundles(self._row_bytes, pool_size())

    @property
    def format(self) -> str:
        return self._file.format

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def files(self) -> list[str]:
        return [self._file.path]

    @property
    def remote(self) -> bool:
        return in_store(self.files)

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def chunk_rows(self) -> int:
        if self._file.in_place:
            return 1
        most = int(self._file.group_rows.max(initial=1))
        return max(1, most if self._file.decodes_whole else min(most, self._piece_rows(None)))

    @property
    def stored_in_order(self) -> bool:
        return self._file.packed and int(self._file.group_rows.max(initial=1)) > 1

    @property
    def chunk_bytes(self) -> int:
        if self._file.in_place:
            return 0
        whole = int(self._file.group_rows.max(initial=0)) * self.row_bytes()
        # If it is decoded in pieces, only pages and their dictionaries have to be in memory.
        pages = _PAGES * len(self._bundles)
        return whole if self._file.decodes_whole else min(whole, pages)

    def row_bytes(self) -> int:
        return max(1, sum(self._row_bytes.values()))

    def _piece_rows(self, limit: int | None) -> int:
        """Return how many rows of a row group to decode at once."""
        if self._file.decodes_whole:
            return max(1, int(self._file.group_rows.max(initial=1)))
        size = _PIECE if limit is None else min(_PIECE, limit // 2)
        # A power of two, so that it stays the same when a few rows turn out larger.
        return 1 << (max(1, size // self._decoding_bytes()).bit_length() - 1)

    def _decoding_bytes(self) -> int:
        """Return how many bytes decoding a row takes."""
        return max(1, sum(self._file.decoding_bytes(*each) for each in self._row_bytes.items()))

    @guarded
    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        self._file.mapped.check_size()
        stop = min(stop, len(self))
        start = min(start, stop)
        if limit is not None:
            stop = min(stop, start + max(1, limit // self.row_bytes()))
        if start == stop:
            return {name: empty_column(field) for name, field in self._schema.items()}
        batch = self._scan(start, stop, limit)
        if limit is None:
            return batch
        rows, _ = measure(batch)
        fits = fitting(batch_sizes(batch), rows, limit)
        return batch if fits == rows else pick(batch, slice(fits))

    def _scan(self, start: int, stop: int, limit: int | None) -> Batch:
        size = self._piece_rows(limit)
        room = _KEPT if limit is None else min(_KEPT, _KEPT_LIMITS * limit)
        scan = self._scans.find(start, size, partial(self._new_scan, size), _SCANS * room)
        enough = None if limit is None else max(1, _ENOUGH // self.row_bytes())
        few = (stop - start) * self.row_bytes() < _FEW_BYTES
        threads = None if few or thread_count() == 1 else self._threads()
        try:
            batch = scan.read(start, stop, enough, room, threads)
        except BaseException:
            self._scans.end(scan)  # the caller may replace the file
            raise
        self._learn([batch])
        return {name: batch[name] for name in self._schema}

    def _new_scan(self, size: int) -> Scan:
        return Scan(self._file, self._bundles, size, (self.row_bytes(), self._decoding_bytes()))

    @guarded
    def gather(self, rows: RowArray) -> Batch:
        self._file.mapped.check_size()
        if not len(rows):
            return {name: empty_column(field) for name, field in self._schema.items()}
        size = self._piece_rows(None)
        groups = list(rows_by_owner(self._starts[:-1], rows))
        jobs = [
            partial(self._gather_from, group, rows[mine] - self._starts[group], size, names)
            for group, mine in groups
            for names in self._bundles
        ]
        few = len(rows) * self.row_bytes() < _FEW_BYTES and len(groups) == 1
        made = iter(self._run(jobs, alone=few))
        parts = [
            {name: column for _ in self._bundles for name, column in next(made).items()}
            for _ in groups
        ]
        self._learn(parts)
        joined = interleave(parts, [mine for _, mine in groups])
        return {name: joined[name] for name in self._schema}

    def _gather_from(self, group: int, rows: RowArray, size: int, names: Names) -> Batch:
        """Gather rows of one row group."""
        order = np.argsort(rows // size, kind="stable")
        numbers, begins = np.unique(rows[order] // size, return_index=True)
        parts, places = [], []
        for number, mine in zip(numbers.tolist(), np.split(order, begins[1:]), strict=True):
            piece = _Piece(group, number, size, names)
            batch = self._pieces.get(piece)
            self._pieces.keep(piece, batch)
            parts.append(pick(batch, rows[mine] - number * size))
            places.append(mine)
        return interleave(parts, places)

    def _learn(self, parts: Sequence[Batch]) -> None:
        """Note how large rows are, for the next read."""
        for batch in parts:
            for name, column in batch.items():
                if self._schema[name].row_bytes is None and len(column):
                    each = column.nbytes // len(column)
                    self._row_bytes[name] = max(self._row_bytes[name], each)

    def _run(self, jobs: Sequence[Callable[[], Batch]], *, alone: bool) -> list[Batch]:
        if alone or len(jobs) < 2 or thread_count() == 1:
            return [job() for job in jobs]
        pool = self._threads()
        futures = [pool.submit(job) for job in jobs]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            wait(futures)  # the caller may replace the file
            raise

    def _threads(self) -> Threads:
        with self._lock:
            # Threads do not survive a fork.
            if self._pool is None or self._pool[0] != os.getpid():
                self._pool = os.getpid(), Threads(pool_size(), "recmap-row-groups")
            return self._pool[1]

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        if self._file.mapped.whole or not len(rows):
            return None
        groups = [group for group, _ in divide_rows(self._starts[:-1], rows)]
        spans = [self._file.spans(group, list(self._schema)) for group in groups]
        known = [span for span in spans if span is not None]
        if not known:
            return None
        begins, ends = (np.concatenate(each) for each in zip(*known, strict=True))
        return fetch_ahead(self._file.mapped, *merge_spans(begins, ends, _NEAR))

    def select(self, names: Sequence[str]) -> RowGroupSource:
        chosen = list(self._schema.select(names))
        return RowGroupSource(self._file, chosen, partial(_selected, self._reopen, chosen))

    def info(self) -> Info:
        return Info(
            format=self.format,
            files=self.files,
            size=size_on_disk(self._file.path),
            rows=len(self),
            schema=self._schema,
            origin=self.origin,
            mapped=[],
            compression=[self._file.note],
        )


def _bundles(row_bytes: Mapping[str, int], threads: int) -> list[Names]:
    """Divide columns among threads, so that each has about as many bytes to decode."""
    bundles: list[list[str]] = [[] for _ in range(max(1, min(threads, len(row_bytes))))]
    loads = [0] * len(bundles)
    for name in sorted(row_bytes, key=lambda name: -row_bytes[name]):
        least = loads.index(min(loads))
        bundles[least].append(name)
        loads[least] += row_bytes[name]
    return [tuple(bundle) for bundle in bundles]


def _selected(reopen: Callable[[], RowGroupSource], names: Sequence[str]) -> RowGroupSource:
    return reopen().select(names)


def _reopened(reopen: Callable[[], RowGroupSource], schema: Schema, rows: int) -> RowGroupSource:
    source = reopen()
    refuse_changed(source, schema, rows)
    return source
