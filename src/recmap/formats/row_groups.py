"""A source of row groups: rows that are compressed together, column by column.

This is how Parquet and Arrow files store rows. A row group that fits is decoded whole, a larger
one in pieces of some rows, from its beginning. Row groups, and bundles of columns, are decoded in
parallel: in order, those that follow while the first are used (``row_group_scan``), or those that
rows are gathered from, which are kept for the next ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import replace
from functools import cache, cached_property, partial
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.formats.column_source import reopened
from recmap.formats.row_group_file import Cuts, GroupDecoding, Names, RowGroupFile
from recmap.formats.row_group_scan import FEW_BYTES, Scan, Scans
from recmap.local.local_path import any_remote, located
from recmap.machine.cpus import pool_size, thread_count
from recmap.machine.lru import Lru
from recmap.machine.mapped import guarded
from recmap.machine.spans import merge_spans
from recmap.machine.threads import Threads
from recmap.model.batch import RowArray, RowNumbers, divide_rows, interleave, pick, rows_by_owner
from recmap.model.facts import LargestChunk, SourceFacts
from recmap.model.fetching import Fetching
from recmap.model.info import Info
from recmap.model.null_columns import empty_column
from recmap.model.row_sizes import RowSizes, batch_sizes, fitting, measure
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source
from recmap.model.value_test import ValueRange
from recmap.store.mapped_files import fetch_ahead, fetch_whole

# The most bytes to decode at once of a row group, for all columns together.
_PIECE = 32 << 20
# Less, where several row groups are decoded at the same time.
_SCANNED = 8 << 20
# Bytes of pieces kept for later reads. A larger piece is kept alone.
_KEPT = 64 << 20
# Bytes of the pieces of a read in order, and of those that are decoded ahead. With half as much,
# one thread of two was often idle in row groups of 64 MB.
_HELD = 128 << 20
# As much is held besides for two batches of the size of a read, which has no limit.
_BATCHES = 256 << 20
# Twice as much may be held if several reads go on.
_SCANS = 2
# From this limit on, pieces may be larger in relation to it, and more of them kept. One of them may
# turn out to have the bytes of all others in a row group of as many times the limit: a conversion
# has eight times the limit, and to find out takes up to a tenth of the time to decode lists.
_AMPLE, _AMPLE_GROUPS = 16 << 20, 5
# Bytes that gathering a row takes besides its values, to find it and put it in its place.
_ROW_OVERHEAD = 64
# Column chunks this close to each other are fetched together.
_NEAR = 64 << 10
# A small object is fetched whole if it has at most this many times the columns that are read.
_WASTE = 2


class _Pieces:
    """Decodes pieces of a file, and keeps some of them, and the places where decoding stopped."""

    def __init__(self, file: RowGroupFile, cuts: Callable[[int], Cuts]) -> None:
        self._file, self._cuts = file, cuts
        self._kept = Lru[tuple[int, int, Names], Batch](_KEPT, lambda batch: measure(batch)[1])
        self._cursors = Lru[tuple[int, Names], GroupDecoding](pool_size())

    def get(self, group: int, number: int, names: Names) -> Batch:
        """Return some columns of the rows of a piece, and keep them for later reads."""
        piece = group, number, names
        batch = self._kept.get(piece)
        if batch is None:
            cursor = self._cursors.pop((group, names))
            if cursor is None or cursor.number > number:
                cursor = GroupDecoding(self._file, group, self._cuts(group), names)
            batch = cursor.piece(number)
            if not cursor.ended:
                self._cursors.put((group, names), cursor, pool_size())
            self._kept.put(piece, batch)
        return batch

    def has(self, group: int, numbers: Sequence[int], names: Names) -> bool:
        """Return whether pieces of a row group are kept."""
        return all((group, number, names) in self._kept for number in numbers)


class RowGroupSource(Source):
    """The rows of a file of row groups."""

    def __init__(
        self, file: RowGroupFile, names: Sequence[str], reopen: Callable[[], RowGroupSource]
    ) -> None:
        """``reopen`` opens the same columns again in a process that unpickles this source."""
        self._file, self._reopen = file, reopen
        self._schema = file.schema.select(names)
        self._starts: npt.NDArray[np.int64] = np.concatenate([[0], np.cumsum(file.group_rows)])
        self._most_rows = int(file.group_rows.max(initial=1))
        self._pieces, self._scans = _Pieces(file, self._gathered), Scans()
        # How row groups are divided to gather rows.
        self._cuts: dict[int, Cuts] = {}
        # By process: threads do not survive a fork.
        self._threads = cache(lambda _: Threads(pool_size(), "recmap-row-groups"))
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return reopened, (self._reopen, self._schema, len(self))

    @cached_property
    def _row_bytes(self) -> dict[str, int]:
        """The bytes of a row of each column. Corrected when rows turn out larger."""
        return {name: max(1, self._file.row_bytes(name)) for name in self._schema}

    @cached_property
    def _bundles(self) -> list[Names]:
        return _bundles(self._row_bytes, pool_size())

    @property
    def schema(self) -> Schema:
        return self._schema

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def facts(self) -> SourceFacts:
        return SourceFacts(
            format=self._file.format,
            files=[self._file.path],
            chunk_rows=self._chunk_rows,
            largest_chunk=self._largest_chunk,
            stored_in_order=self._file.packed and self._most_rows > 1,
            remote=any_remote([self._file.path]),
            table_types={n: t for n, t in self._file.table_types.items() if n in self.schema},
            alternatives=self._file.alternatives,
            table_index=self._index(),
        )

    def _index(self) -> RowGroupSource | None:
        """Return the columns that are the index of the table, unless some are columns here."""
        names = self._file.index_names
        if not names or any(name in self._schema for name in names):
            return None
        return RowGroupSource(self._file, names, partial(_index_of, self._reopen))

    def _chunk_rows(self) -> int:
        if self._file.in_place:
            return 1
        row = sum(self._file.decoding_bytes(*each) for each in self._row_bytes.items())
        return max(1, min(self._most_rows, _PIECE // max(1, row)))

    def _largest_chunk(self) -> LargestChunk:
        if self._file.in_place:
            return LargestChunk()
        size, group = self._file.largest_unit(list(self._schema))
        return LargestChunk(size, f"{self._file.path}, row group {group:,}")

    def row_bytes(self) -> int:
        return max(1, sum(self._row_bytes.values()))

    def _cuts_of(self, group: int, size: int = _PIECE, whole: int | None = None) -> Cuts:
        return self._file.cuts(group, self._row_bytes, size, whole)

    @guarded
    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        self._file.mapped.check_size()
        stop = min(stop, len(self))
        start = min(start, stop)
        if start == stop:
            return {name: empty_column(field) for name, field in self._schema.items()}
        batch = self._scan(start, stop, limit)
        if limit is None:
            return batch
        rows, _ = measure(batch)
        fits = fitting(batch_sizes(batch), rows, limit)
        return batch if fits == rows else pick(batch, slice(fits))

    def _scan(self, start: int, stop: int, limit: int | None) -> Batch:
        size, room, whole = self._shares(limit)
        if limit is None:  # a large batch leaves room for those that follow
            room += min(2 * (stop - start) * self.row_bytes(), _BATCHES)
        cuts = partial(self._cuts_of, whole=whole)
        begin = partial(Scan, self._file, self._bundles, size, cuts)
        scan = self._scans.find(start, size, begin, _SCANS * room)
        threads = None if thread_count() == 1 else self._threads(os.getpid())
        try:
            batch = scan.read(start, stop, self.row_bytes(), limit, room, threads)
        except BaseException:
            self._scans.end(scan)  # the caller may replace the file
            raise
        self._learn([batch])
        return {name: batch[name] for name in self._schema}

    def _shares(self, limit: int | None) -> tuple[int, int, int | None]:
        """Return how many bytes of rows to decode at once, how many to keep, and how many a row
        group may have so that it does not matter how large each of its rows is.
        """
        if limit is None:
            return _SCANNED, _HELD, None
        if limit >= _AMPLE:
            return min(_PIECE, limit // 2), min(_HELD, 2 * limit), _AMPLE_GROUPS * limit
        # What pyarrow decodes is in memory twice meanwhile, and threads keep what they free.
        return limit // (4 if self._file.packed else 2), limit, limit // 2

    @guarded
    def gather(self, rows: RowArray) -> Batch:
        self._file.mapped.check_size()
        if not len(rows):
            return {name: empty_column(field) for name, field in self._schema.items()}
        groups = list(rows_by_owner(self._starts[:-1], rows))
        jobs = [
            partial(self._gather_from, group, rows[mine] - self._starts[group], names)
            for group, mine in groups
            for names in self._bundles
        ]
        few = len(rows) * self.row_bytes() < FEW_BYTES and len(groups) == 1
        made = iter(self._run(jobs, alone=few))
        parts = [
            {name: column for _ in self._bundles for name, column in next(made).items()}
            for _ in groups
        ]
        self._learn(parts)
        joined = interleave(parts, [mine for _, mine in groups])
        return {name: joined[name] for name in self._schema}

    def _gather_from(self, group: int, rows: RowArray, names: Names) -> Batch:
        """Gather rows of one row group."""
        if self._file.can_take(names) and (taken := self._file.take(group, names, rows)):
            return taken
        starts = self._gathered(group).starts
        owners = np.searchsorted(starts, rows, side="right") - 1
        order = np.argsort(owners, kind="stable")
        numbers, begins = np.unique(owners[order], return_index=True)
        is_large = len(self) * self.row_bytes() > _KEPT  # not all pieces can be kept
        if is_large and not self._pieces.has(group, numbers.tolist(), names):
            few = self._file.take_few(group, names, rows)
            if few is not None:
                return few
        parts, places = [], []
        for number, mine in zip(numbers.tolist(), np.split(order, begins[1:]), strict=True):
            batch = self._pieces.get(group, number, names)
            parts.append(pick(batch, rows[mine] - starts[number]))
            places.append(mine)
        return interleave(parts, places)

    def _gathered(self, group: int) -> Cuts:
        """Return how a row group is divided to gather rows, which must not change."""
        with self._lock:
            if group not in self._cuts:
                self._cuts[group] = self._cuts_of(group)
            return self._cuts[group]

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
        pool = self._threads(os.getpid())
        futures = [pool.submit(job) for job in jobs]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            wait(futures)  # the caller may replace the file
            raise

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        if self._file.mapped.whole or not len(rows):
            return None
        groups = [group for group, _ in divide_rows(self._starts[:-1], rows)]
        spans = [self._file.spans(group, list(self._schema)) for group in groups]
        known = [span for span in spans if span is not None]
        if not known:
            # Where columns are would take a request to find out.
            begin = isinstance(rows, range) and rows.start == 0
            most = _WASTE * len(self._schema) >= len(self._file.schema)
            return fetch_whole(self._file.mapped) if begin and most else None
        begins, ends = (np.concatenate(each) for each in zip(*known, strict=True))
        return fetch_ahead(self._file.mapped, *merge_spans(begins, ends, _NEAR))

    def value_ranges(self, name: str) -> Sequence[ValueRange] | None:
        return self._file.value_ranges(name)

    def row_sizes(self, rows: RowArray) -> RowSizes | None:
        del rows
        # Those of other columns would be decoded together with many others.
        alone = self._file.can_take(list(self._schema))
        return self.row_bytes() + _ROW_OVERHEAD if alone else None

    def select(self, names: Sequence[str]) -> RowGroupSource:
        chosen = list(self._schema.select(names))
        return RowGroupSource(self._file, chosen, partial(_selected, self._reopen, chosen))

    def info(self) -> Info:
        size = located(self._file.path).size_below()
        return replace(super().info(), size=size, compression=[self._file.note])


def _bundles(row_bytes: Mapping[str, int], threads: int) -> list[Names]:
    """Divide columns among threads, so that each has about as many bytes to decode."""
    bundles: list[list[str]] = [[] for _ in range(max(1, min(threads, len(row_bytes))))]
    loads = [0] * len(bundles)
    for name in sorted(row_bytes, key=lambda name: -row_bytes[name]):
        least = loads.index(min(loads))
        bundles[least].append(name)
        loads[least] += row_bytes[name]
    return [tuple(bundle) for bundle in bundles]


def _index_of(reopen: Callable[[], RowGroupSource]) -> RowGroupSource:
    index = reopen()._index()  # noqa: SLF001  # of the same class
    assert index is not None
    return index


def _selected(reopen: Callable[[], RowGroupSource], names: Sequence[str]) -> RowGroupSource:
    return reopen().select(names)
