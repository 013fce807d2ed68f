"""The rows of one compressed file, read as a stream.

Nothing is kept but a window of the stream: rows in order are read in one pass. A row
that was passed is reached from the member it lies in, if there are several.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from threading import RLock
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from recmap.errors import CorruptRecordError, MemoryLimitError
from recmap.files.cpus import thread_count
from recmap.model.ragged import concatenate
from recmap.model.row_sizes import RowSizes, fitting
from recmap.model.schema import Batch
from recmap.native import _core
from recmap.tfrecord.byte_stream import Entry
from recmap.tfrecord.decoder import Codec, Records
from recmap.tfrecord.plain_file import BeforeRead
from recmap.tfrecord.record_sizes import record_sizes
from recmap.tfrecord.record_stream import START, Inflated, Place
from recmap.tfrecord.record_window import Window

__all__ = ["CompressedShard"]


class CompressedShard:
    """A file compressed with gzip or zlib."""

    def __init__(
        self, path: str, compression: Literal["gzip", "zlib"], verify: bool, count: int | None
    ) -> None:
        self.path = path
        self.compression = compression
        self._records = Inflated(path, compression, verify)
        self._count = count
        # What is to be checked before anything is read.
        self.before_read: BeforeRead | None = None
        # Rows to leave out of each pass, by number in the stream.
        self._bad: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._skip = False
        # The largest record that may be held.
        self._most = _core.MAX_MESSAGE_SIZE
        # There is one stream, and many threads may read.
        self._lock = RLock()
        # Of the pass: windows to come, records and good rows before them, and the last window.
        self._pass: Iterator[tuple[Entry, Window]] | None = None
        self._seen = self._row = 0
        self._at: tuple[int, Window] | None = None
        self._process = os.getpid()
        # The pass that a sample began, and about how many bytes its records take.
        self._sampled: Iterator[tuple[Entry, Window]] | None = None
        self._row_bytes: int | None = None
        # Rows with which windows began, and how to get there again.
        self._places = [START]

    def __getstate__(self) -> dict[str, Any]:
        nothing = dict.fromkeys(("_lock", "_pass", "_at", "_sampled"))
        return {**self.__dict__, **nothing, "_seen": 0, "_row": 0}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=RLock(), _process=os.getpid())

    def known_count(self) -> int | None:
        """The number of rows, if a pass has reached the end."""
        return self._count

    def found_rows(self) -> int:
        """The rows that the last pass has seen."""
        return self._row

    def count(self) -> int:
        """The number of rows."""
        with self._lock:
            return self._counted(_core.MAX_MESSAGE_SIZE)

    def _counted(self, most: int) -> int:
        if self._count is None:
            self._most = most
            for _ in self._rows_from(0):
                pass
        assert self._count is not None
        return self._count

    def read(self, codec: Codec, start: int, stop: int, limit: int | None = None) -> Batch:
        """Rows ``start`` to ``stop``, fewer where the file ends before. With ``limit`` they
        are those of one window that take no more bytes of memory: they need not be joined.
        """
        parts = []
        with self._lock:
            self._most = _core.MAX_MESSAGE_SIZE if limit is None else limit
            for first, window in self._rows_from(start) if start < stop else ():
                a, b = max(start - first, 0), min(stop - first, len(window.offsets))
                if limit is not None:
                    sizes = record_sizes(codec.schema, window.bytes, window.offsets[a:b])
                    b = a + fitting(sizes, b - a, limit)
                parts.append(self._decode(codec, window, first, slice(a, b), limit is not None))
                if limit is not None or stop <= _end((first, window)):
                    break
                del window  # before the next is made
        return _join(parts) if parts else self._nothing(codec)

    def row_sizes(self, codec: Codec, rows: npt.NDArray[np.int64]) -> RowSizes:
        """What rows take in memory, at most, found in a pass of its own."""
        wanted, order = np.unique(rows, return_inverse=True)
        sizes = np.zeros(len(wanted), np.int64)
        with self._lock:
            for first, window, some in self._windows_of(wanted):
                offsets = window.offsets[wanted[some] - first]
                sizes[some] = record_sizes(codec.schema, window.bytes, offsets)
        return sizes[order]

    def largest_row(self, codec: Codec, above: int) -> tuple[int, int] | None:
        """The first row that is too large, if there is one and the rows have not been counted:
        they are now. Else None: inflating the file once more would tell.
        """
        with self._lock:
            try:
                self._counted(above)
            except MemoryLimitError as e:
                assert self._at is not None
                return _end(self._at), e.size
        return None

    def gather(self, codec: Codec, rows: npt.NDArray[np.int64]) -> Batch:
        """Rows by number, in one pass."""
        wanted, order = np.unique(rows, return_inverse=True)
        with self._lock:
            parts = [
                self._decode(codec, window, first, wanted[some] - first)
                for first, window, some in self._windows_of(wanted)
            ]
        batch = _join(parts) if parts else self._nothing(codec)
        return {name: column[order] for name, column in batch.items()}

    def _windows_of(self, wanted: npt.NDArray[np.int64]) -> Iterator[tuple[int, Window, slice]]:
        """The windows that hold these rows, which are in order: each with the number of its
        first row, and those that it holds of them.
        """
        self._most = _core.MAX_MESSAGE_SIZE
        done = 0
        # For each window anew: the next one wanted may be far away.
        while done < len(wanted):
            here = next(self._rows_from(int(wanted[done])), None)
            if here is None:
                raise CorruptRecordError(
                    f"{self.path}: there is no row {wanted[done]:,} any more; open it again",
                    file=self.path,
                    record=int(wanted[done]),
                )
            upto = int(np.searchsorted(wanted, _end(here)))
            yield *here, slice(done, upto)
            del here  # before the next is made
            done = upto

    def _nothing(self, codec: Codec) -> Batch:
        none = Records.of_file(np.empty(0, np.uint8), np.empty(0, np.uint64))
        return codec.decode(none, False, 1, lambda row: (self.path, row))[0]

    def _decode(
        self, codec: Codec, window: Window, first: int, rows: Any, some: bool = False
    ) -> Batch:
        """Rows of a window, whose first one has this number. If ``some`` will do, those in
        front of a bad one.
        """
        offsets = np.ascontiguousarray(window.offsets[rows])

        def where(row: int) -> tuple[str, int]:
            return self.path, int(np.arange(first, first + len(window.offsets))[rows][row])

        # The CRCs were checked when the window was made.
        records = Records.of_file(window.bytes, offsets)
        batch, fault = codec.decode(records, False, thread_count(), where)
        if fault is not None and fault.row and some:
            return self._decode(codec, window, first, slice(rows.start, rows.start + fault.row))
        if fault is not None:
            raise self.error(fault, where(fault.row)[1], window.base, codec)
        return batch

    def error(self, fault: _core.Fault, record: int, base: int, codec: Codec) -> Exception:
        """The error for a fault in a window that lies at ``base`` in the inflated data."""
        return self._records.error(fault, record, base, codec)

    def _rows_from(self, start: int) -> Iterator[tuple[int, Window]]:
        """Windows of good rows from the one that holds row ``start``, each with the
        number of its first row.
        """
        # A fork inherits the pass, but not the thread that works ahead of it.
        if self._process != os.getpid():
            self.rest()
            self._process = os.getpid()
        place = self._place_before(start)
        if self._at is None or start < self._at[0] or place.row > _end(self._at):
            self._begin(place)
        elif start < _end(self._at):
            yield self._at
        while self._advance() and self._at is not None:
            if max(start, self._at[0]) < _end(self._at):
                yield self._at

    def _check_before_read(self) -> None:
        if self.before_read is not None:
            self.before_read.check(self)
            self.before_read = None

    def _place_before(self, row: int) -> Place:
        """The last known place from which a row can be reached."""
        return self._places[bisect_right(self._places, row, key=lambda place: place.row) - 1]

    def _begin(self, place: Place) -> None:
        self._check_before_read()
        sampled, self._sampled = self._sampled, None
        self._pass = (
            sampled
            if sampled is not None and place.row == 0
            else self._records.windows(self._skip, place)
        )
        self._seen = self._row = place.row

    def _advance(self) -> bool:
        """Goes to the next window; False at the end. If it fails the next pass is a new one,
        except before a record that is too large: it may be asked for again.
        """
        if self._at is not None and self._at[1].needed > self._most:
            row, size = _end(self._at), self._at[1].needed
            raise MemoryLimitError(
                f"{self.path}: row {row:,} has {size:,} bytes, and {self._most:,} may be used "
                "for it",
                size=size,
                limit=self._most,
            )
        self._at = None
        if self._pass is None:
            return False
        entry, window = next(self._pass, (None, None))
        if entry is None or window is None:
            self._pass, self._count = None, self._row
            return False
        self._remember(Place(self._row, window.base, entry))
        numbers = np.arange(self._seen, self._seen + len(window.offsets))
        good = replace(window, offsets=window.offsets[~np.isin(numbers, self._bad)])
        self._at = self._row, good
        self._seen += len(numbers)
        self._row = _end(self._at)
        return True

    def _remember(self, place: Place) -> None:
        last = self._places[-1]
        # With rows left out, numbers of rows and of records differ. A place in the same
        # member is reached no sooner than the last one.
        if not self._skip and place.row > last.row and place.entry.base > last.entry.base:
            self._places.append(place)

    def rest(self) -> None:
        """Lets go of what is held for the next rows."""
        with self._lock:
            self._pass = self._at = self._sampled = None

    def row_bytes(self) -> int:
        """About how many bytes a record takes, inflated; 1 or more."""
        if self._row_bytes is None:
            for _ in self.sample(1, self._skip):
                pass
        return self._row_bytes or 1

    def use(self, bad: npt.NDArray[np.int64], count: int) -> None:
        """Leaves these rows, counted among the undamaged, out of every pass."""
        self._bad, self._count, self._skip = bad, count, True
        self.rest()

    def sample(self, spots: int, skip: bool) -> Iterator[Window]:
        """Some records: those of the first window."""
        del spots  # only the beginning can be reached without inflating all
        self._check_before_read()
        windows, seen = self._records.windows(skip), list[tuple[Entry, Window]]()
        for entry, window in windows:
            seen.append((entry, window))
            if not window.scan.records and (skip or not window.skipped):
                continue  # it says that a large record follows, or what was left out
            self._row_bytes = max(1, window.scan.end // max(window.scan.records, 1))
            if not skip:  # the first pass goes on from here
                self._sampled = chain(seen, windows)
            yield window
            return

    def windows(self, skip: bool) -> Iterator[Window]:
        """All records in order. With ``skip`` damage is passed over; without it, it
        is raised.
        """
        self._check_before_read()
        return (window for _, window in self._records.windows(skip))


def _end(window: tuple[int, Window]) -> int:
    """The row behind the last of a window."""
    return window[0] + len(window[1].offsets)


def _join(parts: list[Batch]) -> Batch:
    return {name: concatenate([part[name] for part in parts]) for name in parts[0]}
