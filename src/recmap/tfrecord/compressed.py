"""The rows of one compressed file, read as a stream.

Nothing is kept but a window of the stream: rows in order are read in one pass. A row
that was passed is reached from the member it lies in, if there are several.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from threading import RLock
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from recmap import _core
from recmap._core import MAX_MESSAGE_SIZE, NO_LIMIT, Fault, FaultCode
from recmap.errors import CorruptRecordError
from recmap.files.machine import thread_count
from recmap.ragged import concatenate
from recmap.sources import Skipped
from recmap.tfrecord.example import Codec
from recmap.tfrecord.faults import fault_error, fault_text
from recmap.tfrecord.stream import Entry, Stream
from recmap.tfrecord.window import Window
from recmap.types import Batch

__all__ = ["CompressedShard"]

_WINDOW_SIZE = 4 << 20
_CUT = {FaultCode.header_cut, FaultCode.data_cut}


@dataclass(frozen=True)
class _Place:
    """A row, where it begins in the plain bytes, and the entry before it."""

    row: int
    base: int
    entry: Entry


_START = _Place(0, 0, Entry())


class CompressedShard:
    """A file compressed with gzip or zlib."""

    def __init__(
        self, path: str, compression: Literal["gzip", "zlib"], verify: bool, count: int | None
    ) -> None:
        self.path = path
        self.compression = compression
        self.verify = verify
        self._count = count
        # Rows to leave out of each pass, by number in the stream.
        self._bad: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._skip = False
        # There is one stream, and many threads may read.
        self._lock = RLock()
        self._pass: Iterator[tuple[int, Window]] = iter(())
        self._at: tuple[int, Window] | None = None
        self._process = os.getpid()
        # The pass that a sample began, and about how many bytes its records take.
        self._sampled: Iterator[tuple[Entry, Window]] | None = None
        self._row_bytes: int | None = None
        # Rows with which windows began, and how to get there again.
        self._places = [_START]

    def known_count(self) -> int | None:
        """The number of rows, if a pass has reached the end."""
        return self._count

    def count(self) -> int:
        """The number of rows."""
        with self._lock:
            if self._count is None:
                for _ in self._rows_from(0):
                    pass
            assert self._count is not None
            return self._count

    def read(self, codec: Codec, start: int, stop: int) -> Batch:
        """Rows ``start`` to ``stop``, fewer where the file ends before."""
        parts = []
        with self._lock:
            for first, window in self._rows_from(start) if start < stop else ():
                a, b = max(start - first, 0), min(stop - first, len(window.offsets))
                if a < b:
                    parts.append(self._decode(codec, window, first, slice(a, b)))
                if stop <= _end((first, window)):
                    break
        return _join(parts) if parts else self._nothing(codec)

    def take(self, codec: Codec, rows: npt.NDArray[np.int64]) -> Batch:
        """Rows by number, in one pass."""
        wanted, order = np.unique(rows, return_inverse=True)
        parts, done = [], 0
        with self._lock:
            # For each window anew: the next one wanted may be far away.
            while done < len(wanted):
                here = next(self._rows_from(int(wanted[done])), None)
                if here is None:
                    raise CorruptRecordError(
                        f"{self.path}: there is no row {wanted[done]:,} any more; open it again",
                        file=self.path,
                        record=int(wanted[done]),
                    )
                first, window = here
                upto = int(np.searchsorted(wanted, _end(here)))
                parts.append(self._decode(codec, window, first, wanted[done:upto] - first))
                done = upto
        batch = _join(parts) if parts else self._nothing(codec)
        return {name: column[order] for name, column in batch.items()}

    def _nothing(self, codec: Codec) -> Batch:
        return codec.decode(np.empty(0, np.uint8), np.empty(0, np.uint64), False, 1)[0]

    def _decode(self, codec: Codec, window: Window, first: int, rows: Any) -> Batch:
        offsets = np.ascontiguousarray(window.offsets[rows])
        # The CRCs were checked when the window was made.
        batch, fault = codec.decode(window.bytes, offsets, False, thread_count())
        if fault is not None:
            numbers = np.arange(first, first + len(window.offsets))[rows]
            raise self._error(fault, int(numbers[fault.row]), window.base, codec)
        return batch

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
            self._pass, self._at = self._good_windows(place), None
        elif start < _end(self._at):
            yield self._at
        while (here := self._advance()) is not None:
            if start < _end(here):
                yield here

    def _place_before(self, row: int) -> _Place:
        """The last known place from which a row can be reached."""
        return self._places[bisect_right(self._places, row, key=lambda place: place.row) - 1]

    def _advance(self) -> tuple[int, Window] | None:
        """The next window; None at the end, or if it fails: then the next pass is a new one."""
        self._at = None
        self._at = next(self._pass, None)
        return self._at

    def _good_windows(self, place: _Place) -> Iterator[tuple[int, Window]]:
        row = seen = place.row
        windows = self._windows(self._skip, place)
        if self._sampled is not None and row == 0:
            windows, self._sampled = self._sampled, None
        for entry, window in windows:
            self._remember(_Place(row, window.base, entry))
            numbers = np.arange(seen, seen + len(window.offsets))
            seen += len(numbers)
            good = window.offsets[~np.isin(numbers, self._bad)]
            yield (
                row,
                Window(window.bytes, good, window.record, window.base, window.scan, window.skipped),
            )
            row += len(good)
        self._count = row

    def _remember(self, place: _Place) -> None:
        last = self._places[-1]
        # With rows left out, numbers of rows and of records differ. A place in the same
        # member is reached no sooner than the last one.
        if not self._skip and place.row > last.row and place.entry.base > last.entry.base:
            self._places.append(place)

    def rest(self) -> None:
        """Lets go of what is held for the next rows."""
        self._pass, self._at, self._sampled = iter(()), None, None

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
        windows = self._windows(skip, _START)
        for entry, window in windows:
            self._row_bytes = max(1, window.scan.end // max(window.scan.records, 1))
            if not skip:  # the first pass goes on from here
                self._sampled = chain([(entry, window)], windows)
            yield window
            return

    def windows(self, skip: bool) -> Iterator[Window]:
        """All records in order. With ``skip`` damage is passed over; without it, it
        is raised.
        """
        return (window for _, window in self._windows(skip, _START))

    def _windows(self, skip: bool, place: _Place) -> Iterator[tuple[Entry, Window]]:
        """Each with the entry before it."""
        stream = Stream(self.path, self.compression, skip, place.entry)
        stream.fill(place.base - stream.base)
        stream.drop(place.base - stream.base)
        record, searching = place.row, False
        while stream.fill(_WINDOW_SIZE):
            if searching and not stream.seek_record():
                continue
            searching = False
            data, base, entry = stream.bytes, stream.base, stream.entry
            found = _core.scan(data, 0, len(data), NO_LIMIT, 1, self.verify, thread_count())
            first, used, fault, lost = record, found.end, found.fault, list[Skipped]()
            record += found.records
            if fault is not None and _goes_on(fault) and not stream.ended:
                # The rest of the record has not been inflated yet.
                stream.fill(used + fault.expected)
            elif fault is not None:
                if not skip:
                    raise self._error(fault, record, base, None)
                lost.append(Skipped(self.path, record, base + fault.offset, fault_text(fault)))
                record += 1
                if fault.code == FaultCode.data_crc:
                    used += _core.FRAME_SIZE + int.from_bytes(data[used : used + 8], "little")
                else:
                    used, searching = used + 1, True
            stream.drop(used)
            if found.records or lost:
                yield entry, Window(data, found.mark_offsets, first, base, found, lost)
        if stream.failure is not None:
            end = np.empty(0, np.uint8)
            lost = [Skipped(self.path, record, stream.base, stream.failure)]
            nothing = _core.scan(end, 0, 0, NO_LIMIT, 1, False, 1)
            yield place.entry, Window(end, nothing.mark_offsets, record, stream.base, nothing, lost)

    def _error(self, fault: Fault, record: int, base: int, codec: Codec | None) -> Exception:
        schema = codec.schema if codec else None
        error = fault_error(fault, self.path, record, schema)
        place = f"at byte {fault.offset:,}"
        text = str(error).replace(place, f"at byte {base + fault.offset:,} of the inflated data")
        if isinstance(error, CorruptRecordError) and record == 0 and fault.offset == 0:
            text += f"; the {self.compression} data holds no TFRecord framing"
        return type(error)(
            text, file=self.path, record=record, byte=base + fault.offset, field=error.field
        )


def _end(window: tuple[int, Window]) -> int:
    """The row behind the last of a window."""
    return window[0] + len(window[1].offsets)


def _goes_on(fault: Fault) -> bool:
    """Whether a record is cut, and could be whole with more of the stream."""
    return fault.code in _CUT and 0 <= fault.expected <= MAX_MESSAGE_SIZE


def _join(parts: list[Batch]) -> Batch:
    return {name: concatenate([part[name] for part in parts]) for name in parts[0]}
