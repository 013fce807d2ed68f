"""The rows of one compressed file, read as a stream.

Nothing is kept but a window of the stream: rows in order are read in one pass,
and a row that was passed is reached by beginning anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from threading import RLock
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from recmap import _core
from recmap._core import MAX_MESSAGE_SIZE, NO_LIMIT, Fault, FaultCode
from recmap.errors import CompressionError, CorruptRecordError, MemoryLimitError
from recmap.files.ahead import read_ahead
from recmap.files.machine import thread_count
from recmap.ragged import concatenate
from recmap.sizes import RowSizes, fitting, measure
from recmap.sources import Skipped
from recmap.tfrecord.example import Codec
from recmap.tfrecord.faults import fault_error, fault_text
from recmap.tfrecord.inflate import inflate
from recmap.tfrecord.record_sizes import record_sizes
from recmap.tfrecord.window import Window
from recmap.types import Batch

__all__ = ["CompressedShard"]

_WINDOW_SIZE = 1 << 20
# Held while the next sound record is searched: larger ones are not found.
_SEARCH_SIZE = 16 << 20
_AHEAD = 8
_CUT = {FaultCode.header_cut, FaultCode.data_cut}


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
        # The largest record that may be held.
        self._most = MAX_MESSAGE_SIZE
        # There is one stream, and many threads may read.
        self._lock = RLock()
        self._pass: Iterator[tuple[int, Window]] = iter(())
        self._at: tuple[int, Window] | None = None
        self._process = os.getpid()

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

    def read(self, codec: Codec, start: int, stop: int, limit: int | None = None) -> Batch:
        """Rows ``start`` to ``stop``, fewer where the file ends before, or they would take
        more than ``limit`` bytes of memory.
        """
        parts: list[Batch] = []
        with self._lock:
            self._most = MAX_MESSAGE_SIZE if limit is None else limit
            try:
                self._read(codec, start, stop, limit, parts)
            except MemoryLimitError:
                if not parts:
                    raise
        return _join(parts) if parts else self._nothing(codec)

    def _read(
        self, codec: Codec, start: int, stop: int, limit: int | None, parts: list[Batch]
    ) -> None:
        for first, window in self._rows_from(start) if start < stop else ():
            a, b = max(start - first, 0), min(stop - first, len(window.offsets))
            if a < b and limit is not None:
                sizes = record_sizes(codec, window.bytes, window.offsets[a:b])
                stop = min(stop, first + a + fitting(sizes, b - a, limit))
                b = min(b, stop - first)
            if a < b:
                parts.append(self._decode(codec, window, first, slice(a, b)))
                limit = None if limit is None else limit - measure(parts[-1])[1]
            if stop <= first + len(window.offsets):
                break

    def row_sizes(self, codec: Codec, rows: npt.NDArray[np.int64]) -> RowSizes:
        """What rows take in memory, at most, found in a pass of its own."""
        sizes = np.zeros(len(rows), np.int64)
        with self._lock:
            self._most = MAX_MESSAGE_SIZE
            for first, window in self._rows_from(int(rows.min(initial=0))) if len(rows) else ():
                here = np.flatnonzero((rows >= first) & (rows < first + len(window.offsets)))
                if len(here):
                    sizes[here] = record_sizes(
                        codec, window.bytes, window.offsets[rows[here] - first]
                    )
                if first + len(window.offsets) > int(rows.max()):
                    break
        return sizes

    def largest_row(self, codec: Codec, above: int) -> tuple[int, int] | None:
        """None: only inflating the file would tell."""
        return None

    def take(self, codec: Codec, rows: npt.NDArray[np.int64]) -> Batch:
        """Rows by number, in one pass."""
        wanted, order = np.unique(rows, return_inverse=True)
        parts, done = [], 0
        with self._lock:
            self._most = MAX_MESSAGE_SIZE
            for first, window in self._rows_from(int(wanted[0])) if len(wanted) else ():
                upto = int(np.searchsorted(wanted, first + len(window.offsets)))
                if upto > done:
                    here = wanted[done:upto] - first
                    parts.append(self._decode(codec, window, first, here))
                    done = upto
                if done == len(wanted):
                    break
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
        if self._at is None or start < self._at[0] or self._process != os.getpid():
            self._pass, self._at, self._process = self._good_windows(), None, os.getpid()
        if self._at is not None:
            yield self._at
        while (here := self._advance()) is not None:
            if start < here[0] + len(here[1].offsets):
                yield here

    def _advance(self) -> tuple[int, Window] | None:
        """The next window; None at the end, or if it fails: then the next pass is a new one."""
        if self._at is not None and self._at[1].needed > self._most:
            row, size = self._at[0] + len(self._at[1].offsets), self._at[1].needed
            raise MemoryLimitError(
                f"{self.path}: row {row:,} has {size:,} bytes, and {self._most:,} may be used "
                "for it",
                size=size,
                limit=self._most,
            )
        self._at = None
        self._at = next(self._pass, None)
        return self._at

    def _good_windows(self) -> Iterator[tuple[int, Window]]:
        row, seen = 0, 0
        for window in self.windows(self._skip):
            numbers = np.arange(seen, seen + len(window.offsets))
            seen += len(numbers)
            good = window.offsets[~np.isin(numbers, self._bad)]
            yield row, replace(window, offsets=good)
            del window  # before the next is made
            row += len(good)
        self._count = row

    def row_bytes(self) -> int:
        """About how many bytes a record takes, inflated; 1 or more."""
        for window in self.sample(1, self._skip):
            return max(1, window.scan.end // max(window.scan.records, 1))
        return 1

    def use(self, bad: npt.NDArray[np.int64], count: int) -> None:
        """Leaves these rows, counted among the undamaged, out of every pass."""
        self._bad, self._count, self._skip = bad, count, True
        self._at = None

    def sample(self, spots: int, skip: bool) -> Iterator[Window]:
        """Some records: those of the first window."""
        del spots  # only the beginning can be reached without inflating all
        for window in self.windows(skip):
            yield window
            return

    def windows(self, skip: bool) -> Iterator[Window]:
        """All records in order. With ``skip`` damage is passed over; without it, it
        is raised.
        """
        stream = _Stream(self.path, self.compression, skip)
        record, searching, needed = 0, False, 0
        while stream.fill(max(_WINDOW_SIZE, needed)):
            if searching and not stream.seek_record():
                continue
            searching, needed = False, 0
            data, base = stream.copy(), stream.base
            found = _core.scan(data, 0, len(data), NO_LIMIT, 1, self.verify, thread_count())
            first, used, fault, lost = record, found.end, found.fault, list[Skipped]()
            record += found.records
            if fault is not None and _goes_on(fault) and not stream.ended:
                # The rest of the record has not been inflated yet.
                needed = fault.expected
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
            if found.records or lost or needed > _WINDOW_SIZE:
                yield Window(
                    data, found.mark_offsets, first, base, found, lost, needed, stream.passed
                )
            del data, found  # before the next are made
        if stream.failure is not None:
            end = np.empty(0, np.uint8)
            lost = [Skipped(self.path, record, stream.base, stream.failure)]
            nothing = _core.scan(end, 0, 0, NO_LIMIT, 1, False, 1)
            yield Window(end, nothing.mark_offsets, record, stream.base, nothing, lost)

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


class _Stream:
    """The plain bytes of a file from ``base`` on, as far as they have been inflated.

    With ``skip`` a stream that breaks ends there, and ``failure`` says why.
    """

    def __init__(self, path: str, compression: Literal["gzip", "zlib"], skip: bool) -> None:
        self.base = 0
        self.ended = False
        self.failure: str | None = None
        self._held = bytearray()
        self._skip = skip
        # Bytes of the file that have been inflated.
        self.passed = 0
        # A little ahead, inflated while records are decoded.
        self._pieces = read_ahead(inflate(path, compression, self._pass), _AHEAD)

    def _pass(self, position: int) -> None:
        self.passed = position

    def fill(self, size: int) -> bool:
        """Inflates until so much is held, or all there is; False if nothing is left."""
        try:
            while len(self._held) < size and not self.ended:
                piece = next(self._pieces, None)
                self._held += piece or b""
                self.ended = piece is None
        except CompressionError as e:
            if not self._skip:
                raise
            self.ended, self.failure = True, str(e)
        return len(self._held) > 0

    def drop(self, size: int) -> None:
        """Moves on."""
        del self._held[:size]
        self.base += size

    def copy(self) -> npt.NDArray[np.uint8]:
        """What is held. A copy, because rows that are handed out outlive it."""
        return np.frombuffer(bytes(self._held), np.uint8)

    def seek_record(self) -> bool:
        """Moves to the next sound record; False if none is in sight."""
        size = len(self._held)
        at = _core.find_record(np.frombuffer(bytes(self._held), np.uint8), 0, size)
        if at < size or self.ended:
            self.drop(at)
            return at < size
        # It may have begun near the end of what is held.
        self.drop(max(0, size - _SEARCH_SIZE))
        self.fill(len(self._held) + _SEARCH_SIZE)
        return False


def _goes_on(fault: Fault) -> bool:
    """Whether a record is cut, and could be whole with more of the stream."""
    return fault.code in _CUT and 0 <= fault.expected <= MAX_MESSAGE_SIZE


def _join(parts: list[Batch]) -> Batch:
    return {name: concatenate([part[name] for part in parts]) for name in parts[0]}
