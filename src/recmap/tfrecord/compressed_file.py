"""The rows of one compressed file, read as a stream.

One window of the stream is held, and those that follow as far as somebody asked whether rows go
on. Rows in order are read in one pass. To go back, a new pass starts at the last gzip member
known to begin before the row. The first pass that counts the rows, or that goes back, leaves an
index, with which passes start near any row, and inflate on all cores. Noting it takes about
half as long again as a pass, so rows that are read in order once do without.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from threading import RLock
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from recmap.errors import (
    CompressionError,
    CorruptRecordError,
    DataError,
    MemoryLimitError,
    PathNotFoundError,
    StoreError,
)
from recmap.local.deflate import can_resume
from recmap.local.gzip import gathering_threads
from recmap.local.inflate import inflate
from recmap.local.local_path import located
from recmap.machine.cpus import thread_count
from recmap.model.batch import RowNumbers, join
from recmap.model.fetching import Fetching
from recmap.model.row_sizes import RowSizes, fitting
from recmap.model.schema import Batch
from recmap.native import _core
from recmap.store.mapped_files import fetch_whole
from recmap.tfrecord.decoder import ExampleDecoder, Records
from recmap.tfrecord.record_file import RecordFile, Window, record_sizes
from recmap.tfrecord.record_stream import START, Entry, PassStart, record_windows
from recmap.tfrecord.stream_index import (
    IndexBuilder,
    StreamIndex,
    load_stream_index,
    save_stream_index,
)

# Limit on the bytes inflated to find the first record.
_MAX_FIRST_RECORD = 128 << 20
# Inflated bytes that are kept to see whether rows go on.
_MOST_AHEAD = 64 << 20


class _HeldRows(NamedTuple):
    """A window with only good rows, and the number of the first."""

    first: int
    window: Window

    @property
    def stop(self) -> int:
        """The number of the last row plus one."""
        return self.first + len(self.window.offsets)


class CompressedFile(RecordFile):
    """A file compressed with gzip or zlib.

    Any thread may read. All threads share one pass over the stream, under a lock.
    """

    compression: Literal["gzip", "zlib"]

    def __init__(
        self, path: str, compression: Literal["gzip", "zlib"], verify: bool, count: int | None
    ) -> None:
        self.path = path
        self.compression = compression
        self._verify = verify
        self._count = count
        # Records to skip because they do not decode, numbered among the sound ones.
        self._bad: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._skip = False
        self._lock = RLock()
        # The current pass: the windows to come, the sound records and rows before them, and
        # the last window read.
        self._windows: Iterator[tuple[Entry, Window]] | None = None
        self._records_passed = self._rows_passed = 0
        self._held: _HeldRows | None = None
        # Windows that were made to see whether rows go on, and are read next.
        self._ahead: deque[_HeldRows] = deque()
        self._overrun = False
        # The most rows that a pass has found.
        self._found = 0
        self._process = os.getpid()
        # The pass that a sample began, and its estimate.
        self._sampled: Iterator[tuple[Entry, Window]] | None = None
        self._row_bytes: int | None = None
        # Where passes can start, in order, without an index.
        self._starts = [START]
        self._index: StreamIndex | None = None
        self._looked = False
        # What notes an index during the current pass, and the file's last change before it.
        self._builder: IndexBuilder | None = None
        self._passes, self._noted = 0, False
        self._changed: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        dropped = dict.fromkeys(("_lock", "_windows", "_held", "_sampled", "_index", "_builder"))
        passed = {"_records_passed": 0, "_rows_passed": 0, "_ahead": deque(), "_looked": False}
        return {**self.__dict__, **dropped, **passed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=RLock(), _process=os.getpid())

    def known_count(self) -> int | None:
        if self._count is None and (index := self._usable_index()) is not None:
            self._count = index.count
        return self._count

    def chunk_rows(self) -> int | None:
        """Return how many rows are inflated to read one; None if all before it are."""
        index = self._usable_index()
        return None if index is None else index.chunk_rows

    def _usable_index(self) -> StreamIndex | None:
        """Return the index, if there is one and it can be used."""
        with self._lock:
            if self._skip:
                return None
            if not self._looked and self._index is None:
                self._looked, self._index = True, load_stream_index(self.path)
            if self._index is not None and self._index.distrusted:
                self._index = None
            return self._index

    def found_rows(self) -> int:
        return self._rows_passed

    def reach(self, rows: int) -> int:
        with self._lock:
            if self._count is None and self._found < rows:
                self._look_ahead(rows)
            return min(rows, self._found if self._count is None else self._count)

    def _look_ahead(self, rows: int) -> None:
        """Make windows up to these rows, and keep them for the next reads.

        If they are too large to be kept, the next read starts a new pass. If that happens again,
        count all rows, so that it does not happen for every read.
        """
        self._check_process()
        if self._held is None:
            self._start_pass(self._start_before(self._found))
            self._advance(_core.MAX_MESSAGE_SIZE)
        most, kept = _core.NO_LIMIT if self._overrun else rows, 0
        try:
            while self._found < rows and (made := self._made()) is not None:
                kept += len(made.window.bytes)
                if kept > _MOST_AHEAD:
                    self._ahead.clear()
                    self._held, self._overrun, rows, kept = made, True, most, 0
                else:
                    self._ahead.append(made)
        except BaseException:
            self.release()  # the next read starts a new pass
            raise

    def count(self) -> int:
        with self._lock:
            return self._count_rows(_core.MAX_MESSAGE_SIZE)

    def _count_rows(self, max_record: int) -> int:
        if self._count is None:
            self._check_process()
            if self._held is None or self._held.window.needed <= max_record:
                self._start_pass(self._start_before(0), noting=True)
            while self._advance(max_record):
                pass
        assert self._count is not None
        return self._count

    def read(
        self, decoder: ExampleDecoder, start: int, stop: int, limit: int | None = None
    ) -> Batch:
        """Read rows ``start`` to ``stop``, or fewer if the file ends first.

        With ``limit``, return rows of one window only, so that nothing has to be joined.
        """
        parts = []
        max_record = _core.MAX_MESSAGE_SIZE if limit is None else limit
        with self._lock:
            for rows in self._rows_from(start, max_record) if start < stop else ():
                a, b = max(start, rows.first) - rows.first, min(stop, rows.stop) - rows.first
                if limit is not None:
                    window = rows.window
                    sizes = record_sizes(decoder.schema, window.bytes, window.offsets[a:b])
                    b = a + fitting(sizes, b - a, limit)
                parts.append(self._decode(decoder, rows, slice(a, b), partial=limit is not None))
                if limit is not None or stop <= rows.stop:
                    break
                del rows  # free it before the next window is made
        return join(parts) if parts else self._no_rows(decoder)

    def gather(self, decoder: ExampleDecoder, rows: npt.NDArray[np.int64]) -> Batch:
        """Read rows by number, in one pass."""
        wanted, order = np.unique(rows, return_inverse=True)
        with self._lock:
            first = int(wanted[0]) if len(wanted) else 0
            if first > 0 and self._passes and (self._held is None or first < self._held.first):
                self._note_all()  # this goes back
        index = self._usable_index()
        chunks = np.empty(0) if index is None else index.chunks_of(wanted)
        if index is not None and len(wanted) and chunks[0] < chunks[-1]:
            self.check_before_read()
            begins = np.flatnonzero(np.diff(chunks, prepend=-1)).tolist()
            some = [wanted[a:b] for a, b in zip(begins, [*begins[1:], None], strict=True)]
            gather = partial(self._gather_chunk, decoder, index)
            work = [gathering_threads().submit(gather, each) for each in some]
            parts = [part for each in work for part in each.result()]
        else:
            with self._lock:
                parts = [
                    self._decode(decoder, held, wanted[some] - held.first)
                    for held, some in self._rows_with(wanted)
                ]
        batch = join(parts) if parts else self._no_rows(decoder)
        return {name: column[order] for name, column in batch.items()}

    def _gather_chunk(
        self, decoder: ExampleDecoder, index: StreamIndex, wanted: npt.NDArray[np.int64]
    ) -> list[Batch]:
        """Read rows of one chunk, in a pass of their own."""
        start = _start_of(index, int(wanted[0]))
        parts, first, done = list[Batch](), start.row, 0
        for _, window in self._indexed_stream(index, start, ahead=False):
            held = _HeldRows(first, window)
            upto = int(np.searchsorted(wanted, held.stop))
            if done < upto:
                parts.append(self._decode(decoder, held, wanted[done:upto] - first))
            first, done = held.stop, upto
            if done == len(wanted):
                return parts
        raise self._gone(int(wanted[done]))

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        # Where rows lie in the file is unknown. Once a pass has begun, it fetches what follows.
        begins = isinstance(rows, range) and rows.start == 0 and self._windows is None
        return self.fetch_whole() if begins else None

    def fetch_whole(self) -> Fetching | None:
        return fetch_whole(self.path)

    def row_sizes(self, decoder: ExampleDecoder, rows: npt.NDArray[np.int64]) -> RowSizes:
        """Return an upper bound for the memory of each row. This takes a pass of its own."""
        wanted, order = np.unique(rows, return_inverse=True)
        sizes = np.zeros(len(wanted), np.int64)
        with self._lock:
            for held, some in self._rows_with(wanted):
                offsets = held.window.offsets[wanted[some] - held.first]
                sizes[some] = record_sizes(decoder.schema, held.window.bytes, offsets)
        return sizes[order]

    def largest_row(self, decoder: ExampleDecoder, above: int) -> tuple[int, int] | None:
        """Count the rows, and return the first that is too large and its size.

        If the rows have already been counted, return None: finding out takes another pass.
        """
        with self._lock:
            try:
                self._count_rows(above)
            except MemoryLimitError as e:
                assert self._held is not None
                return self._held.stop, e.size
        return None

    def _rows_with(self, wanted: npt.NDArray[np.int64]) -> Iterator[tuple[_HeldRows, slice]]:
        """Yield each window that holds some of these ascending rows, and which ones it holds."""
        done = 0
        # Look up each window: the next row may be far away.
        while done < len(wanted):
            held = next(self._rows_from(int(wanted[done]), _core.MAX_MESSAGE_SIZE), None)
            if held is None:
                raise self._gone(int(wanted[done]))
            upto = int(np.searchsorted(wanted, held.stop))
            yield held, slice(done, upto)
            del held  # free it before the next window is made
            done = upto

    def _gone(self, row: int) -> CorruptRecordError:
        return CorruptRecordError(
            f"{self.path}: row {row:,} no longer exists; open the file again",
            file=self.path,
            record=row,
        )

    def _no_rows(self, decoder: ExampleDecoder) -> Batch:
        none = Records.of_file(np.empty(0, np.uint8), np.empty(0, np.uint64))
        return decoder.decode(none, False, 1, lambda row: (self.path, row))[0]

    def _decode(
        self, decoder: ExampleDecoder, held: _HeldRows, chosen: Any, *, partial: bool = False
    ) -> Batch:
        """Decode the chosen rows of a window.

        If ``partial``, stop before a bad row; the next read reports it.
        """
        offsets = np.ascontiguousarray(held.window.offsets[chosen])

        def where(row: int) -> tuple[str, int]:
            return self.path, int(np.arange(held.first, held.stop)[chosen][row])

        # The CRCs were checked when the window was made.
        records = Records.of_file(held.window.bytes, offsets)
        batch, fault = decoder.decode(records, False, thread_count(), where)
        if fault is not None and fault.row and partial:
            return self._decode(decoder, held, slice(chosen.start, chosen.start + fault.row))
        if fault is not None:
            raise self.error(fault, where(fault.row)[1], held.window.base, decoder)
        return batch

    def _rows_from(self, row: int, max_record: int) -> Iterator[_HeldRows]:
        """Yield windows of rows, beginning with the one that holds ``row``.

        No local variable refers to a window: it would stay alive while the next one is made.
        """
        self._check_process()
        start = self._start_before(row)
        if self._held is None or row < self._held.first or start.row > self._held.stop:
            self._start_pass(start, noting=self._passes > 0)
        elif row < self._held.stop:
            yield self._held
        while self._advance(max_record):
            if self._held is not None and max(row, self._held.first) < self._held.stop:
                yield self._held

    def _check_process(self) -> None:
        # A forked process inherits the pass, but not the thread that reads ahead.
        if self._process != os.getpid():
            self.release()
            self._process = os.getpid()

    def _start_before(self, row: int) -> PassStart:
        """Return the last known start of a pass that includes a row."""
        index = self._usable_index()
        if index is not None:
            return _start_of(index, row)
        return self._starts[bisect_right(self._starts, row, key=lambda start: start.row) - 1]

    def _note_all(self) -> None:
        """Note an index before going back to a row, if that would help."""
        if self._noted or self._skip or len(self._starts) > 1 or not can_resume():
            return
        self._noted = True
        if self._usable_index() is None:
            self._held = None
            with suppress(DataError):  # the rows before the damage are read without an index
                self._start_pass(START, noting=True)
                while self._advance(_core.MAX_MESSAGE_SIZE):
                    pass

    def _start_pass(self, start: PassStart, *, noting: bool = False) -> None:
        self.check_before_read()
        sampled, self._sampled = self._sampled, None
        self._passes += 1
        if sampled is None or start.row > 0 or noting or self._usable_index() is not None:
            sampled = self._stream(self._skip, start, noting=noting)
        self._windows = sampled
        self._ahead.clear()
        self._records_passed = self._rows_passed = start.row

    def _stream(
        self, skip: bool, start: PassStart = START, *, noting: bool = False
    ) -> Iterator[tuple[Entry, Window]]:
        """Begin a pass, with the index if there is one. With ``noting``, note one if possible."""
        index = None if skip else self._usable_index()
        if index is not None:
            self._builder = None
            return self._indexed_stream(index, start, ahead=True)
        noting = noting and start == START and not skip and can_resume()
        self._builder = IndexBuilder() if noting else None
        self._changed = located(self.path).last_change() if noting else None
        return record_windows(
            self.path, self.compression, self._verify, skip, start, None, self._builder
        )

    def _indexed_stream(
        self, index: StreamIndex, start: PassStart, *, ahead: bool
    ) -> Iterator[tuple[Entry, Window]]:
        blocks = index.inflate(self.path, self.compression, start.entry.base, ahead=ahead)
        return record_windows(self.path, self.compression, self._verify, False, start, blocks)

    def _advance(self, max_record: int) -> bool:
        """Move to the next window; return False at the end.

        After an error, the next read starts a new pass. A record that is too large is the
        exception: the caller may ask for it again with more memory.
        """
        if self._held is not None and self._held.window.needed > max_record:
            size = self._held.window.needed
            raise MemoryLimitError(
                f"{self.path}: row {self._held.stop:,} has {size:,} bytes, but only "
                f"{max_record:,} may be used for it",
                size=size,
                limit=max_record,
            )
        self._held = None
        self._held = self._ahead.popleft() if self._ahead else self._made()
        return self._held is not None

    def _made(self) -> _HeldRows | None:
        """Make the next window; return None at the end."""
        if self._windows is None:
            return None
        entry, window = next(self._windows, (None, None))
        if entry is None or window is None:
            self._windows, self._count = None, self._rows_passed
            if self._builder is not None:
                self._index = self._builder.finished(self._rows_passed)
                self._builder = None
                if self._index is not None:
                    save_stream_index(self.path, self._index, self._changed)
            return None
        self._remember(PassStart(self._rows_passed, window.base, entry))
        if self._builder is not None:
            places = window.offsets.astype(np.int64) + window.base
            self._builder.add_records(self._rows_passed, places)
        numbers = np.arange(self._records_passed, self._records_passed + len(window.offsets))
        good = replace(window, offsets=window.offsets[~np.isin(numbers, self._bad)])
        made = _HeldRows(self._rows_passed, good)
        self._records_passed += len(numbers)
        self._rows_passed = made.stop
        self._found = max(self._found, made.stop)
        return made

    def _remember(self, start: PassStart) -> None:
        last = self._starts[-1]
        # If records are left out, row numbers differ from record numbers. A second start in
        # the same member saves nothing: the member is inflated from its beginning.
        if not self._skip and start.row > last.row and start.entry.base > last.entry.base:
            self._starts.append(start)

    def release(self) -> None:
        with self._lock:
            self._windows = self._held = self._sampled = self._builder = None
            self._ahead.clear()

    def row_bytes(self) -> int:
        """Estimate the inflated size of a record in bytes; at least 1."""
        if self._row_bytes is None:
            for _ in self.sample(1, self._skip):
                pass
        return self._row_bytes or 1

    def leave_out(self, bad: npt.NDArray[np.int64], count: int) -> None:
        """Leave these records out of every pass. ``count`` rows remain.

        The records are numbered among the sound ones.
        """
        self._bad, self._count, self._skip = bad, count, True
        self.release()

    def sample(self, spots: int, skip: bool) -> Iterator[Window]:
        """Yield the records of the first window."""
        del spots  # other places cannot be reached without inflating everything before them
        self.check_before_read()
        windows, seen = self._stream(skip), list[tuple[Entry, Window]]()
        for entry, window in windows:
            seen.append((entry, window))
            if not window.scan.records and (skip or not window.skipped):
                continue  # it announces a large record, or lists damage
            self._row_bytes = max(1, window.scan.end // max(window.scan.records, 1))
            if not skip:  # the first pass continues from here
                self._sampled = chain(seen, windows)
            yield window
            return

    def windows(self, skip: bool, *, offsets: bool = True) -> Iterator[Window]:
        del offsets  # found anyway
        self.check_before_read()
        # This is how files are verified: every checksum counts, so no index is used.
        stream = record_windows(self.path, self.compression, self._verify, skip)
        return (window for _, window in stream)

    def first_record(self) -> npt.NDArray[np.uint8] | None:
        held, wanted = bytearray(), _core.FRAME_SIZE
        try:
            for block in inflate(self.path, self.compression):
                held += block.plain
                if len(held) >= 8:
                    wanted = int.from_bytes(held[:8], "little") + _core.FRAME_SIZE
                if len(held) >= min(wanted, _MAX_FIRST_RECORD):
                    break
        except (PathNotFoundError, StoreError):
            raise
        except (CompressionError, OSError):
            pass  # reading the rows reports the error
        data = np.frombuffer(bytes(held[:wanted]), np.uint8)
        found = _core.scan(data, _core.ScanRequest(limit=1))
        return data[: found.end] if found.records else None


def _start_of(index: StreamIndex, row: int) -> PassStart:
    first, offset, position, base = index.start(int(index.chunks_of(np.array([row]))[0]))
    return PassStart(first, offset, Entry(position, base))
