"""Go over the records of a file without an index: all of them, or a sample."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager

import numpy as np
import numpy.typing as npt

from recmap.machine.cpus import thread_count
from recmap.machine.mapped import MappedFile
from recmap.model.facts import Skipped
from recmap.native import _core
from recmap.store.fetch import bytes_ahead
from recmap.tfrecord.faults import fault_error, fault_text
from recmap.tfrecord.parallel_scan import find_record
from recmap.tfrecord.record_file import Window

# Bytes scanned at a time for windows, which hold the offset of every record.
_WINDOW_SIZE = 16 << 20
# The same for each CPU if records are only counted and checked.
_COUNTED_SIZE = 16 << 20
# Bytes of the length at the start of a record.
_LENGTH_SIZE = 8
# What a sample takes from the beginning and from each other spot, and how far it searches
# for a record there.
_HEAD_ROWS, _HEAD_BYTES = 1000, 4 << 20
_SPOT_ROWS, _SPOT_BYTES = 50, 1 << 18
_SEEK_BYTES = 16 << 20


def hold_headers(file: MappedFile, begin: int, stop: int) -> AbstractContextManager[None]:
    """Make available what a scan reads: the headers of all records that begin in a span."""
    return file.hold(begin, min(stop + _core.HEADER_SIZE, file.size))


class RecordScanner:
    """Scans a file of ``size`` bytes, and checks the CRCs of the data if ``verify``."""

    def __init__(self, file: MappedFile, size: int, verify: bool) -> None:
        self._file, self._size, self._verify = file, size, verify

    def windows(self, skip: bool, *, offsets: bool = True) -> Iterator[Window]:
        """Yield all records in order. Check their CRCs if ``verify``.

        With ``skip``, damage is left out and listed in the windows. Otherwise, it is raised
        after the records that precede it. The index does not change.
        """
        file = self._file
        begin, record = 0, 0
        found: _core.Scan | None = None
        while begin < self._size:
            threads = thread_count()
            # Damage makes the next scan begin in the middle of this one.
            sound = found is None or found.fault is None
            size = _COUNTED_SIZE * threads if sound and not offsets else _WINDOW_SIZE
            if not file.whole:
                size = min(_WINDOW_SIZE, bytes_ahead())
            stop = min(begin + size, self._size)
            request = _core.ScanRequest(
                begin, stop, anchor_every=int(offsets), verify=self._verify, threads=threads
            )
            with file.hold(begin, self._end_of_records(file, begin, stop)):
                found = _core.scan(file.bytes, request)
                first, next_begin, skipped = record, found.end, []
                record += found.records
                if found.fault is not None and skip:
                    reason = fault_text(found.fault)
                    skipped.append(Skipped(self._file.path, record, found.fault.offset, reason))
                    next_begin = self._end_of_damage(found.fault)
                yield Window(
                    file.bytes, found.anchor_offsets, first, 0, found, skipped, passed=next_begin
                )
            if found.fault is not None:
                if not skip:
                    raise fault_error(found.fault, self._file.path, record)
                record += 1
            file.have_read(begin, next_begin)
            begin = next_begin

    def _end_of_records(self, file: MappedFile, begin: int, stop: int) -> int:
        """Return where the last of the records ends that begin in a span."""
        if file.whole:
            return stop
        with hold_headers(file, begin, stop):
            return max(stop, _core.scan(file.bytes, _core.ScanRequest(begin, stop)).end)

    def _end_of_damage(self, fault: _core.Fault) -> int:
        """Find where to resume after a fault."""
        file = self._file
        if fault.code != _core.FaultCode.data_crc:
            return find_record(file, fault.offset + 1, self._size)
        # The length is sound, so it gives the start of the next record, unless this record was
        # cut short and others were appended.
        with hold_headers(file, fault.offset, fault.offset + 1):
            header = file.bytes[fault.offset : fault.offset + _LENGTH_SIZE]
            after = fault.offset + _core.FRAME_SIZE + int.from_bytes(header, "little")
        if after == self._size or self._is_header(file, after):
            return after
        return find_record(file, fault.offset + 1, after)

    def _is_header(self, file: MappedFile, offset: int) -> bool:
        with hold_headers(file, offset, offset + 1):
            fault = _core.scan(file.bytes, _core.ScanRequest(offset, limit=1)).fault
        return fault is None or fault.code == _core.FaultCode.data_cut

    def sample(self, spots: int, skip: bool) -> Iterator[Window]:
        """Yield the first records, and a few from each of ``spots`` places across the file.

        With ``skip``, search after damage too.
        """
        file, size = self._file, self._size
        head = yield from self._sample_at(file, 0, _HEAD_BYTES, _HEAD_ROWS)
        places = [size * i // spots for i in range(1, spots)]
        if head.fault is not None and skip:
            places.append(head.fault.offset + 1)
        end = head.end
        for begin in sorted(places):
            if begin < end:
                continue  # no record counts twice
            at = find_record(file, begin, min(begin + _SEEK_BYTES, size))
            found = yield from self._sample_at(file, at, _SPOT_BYTES, _SPOT_ROWS)
            end = max(at, found.end)

    def _sample_at(
        self, file: MappedFile, begin: int, most: int, rows: int
    ) -> Generator[Window, None, _core.Scan]:
        """Yield the records at a place, and return what a scan found there."""
        stop = min(begin + most, self._size)
        with (
            hold_headers(file, begin, stop),
            file.hold(begin, self._end_of_records(file, begin, stop)),
        ):
            request = _core.ScanRequest(begin, stop, limit=rows, anchor_every=1)
            found = _core.scan(file.bytes, request)
            yield Window(file.bytes, found.anchor_offsets, 0 if begin == 0 else None, 0, found, [])
        return found

    def first_record(self) -> npt.NDArray[np.uint8] | None:
        """Return the first record with its framing; None if it cannot be read."""
        file = self._file
        found = _core.scan(file.bytes, _core.ScanRequest(limit=1))
        return file.bytes[: found.end] if found.records else None
