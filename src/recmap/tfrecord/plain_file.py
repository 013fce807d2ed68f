"""The rows of one uncompressed file, mapped into memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from recmap.errors import CorruptRecordError
from recmap.local.local_path import located
from recmap.machine.cpus import thread_count, thread_share
from recmap.machine.mapped import MappedFile
from recmap.model.batch import RowNumbers
from recmap.model.fetching import Fetching
from recmap.model.row_sizes import RowSizes, fitting, largest
from recmap.native import _core
from recmap.store.fetch import bytes_ahead
from recmap.store.mapped_files import MappedFiles, fetch_ahead, fetch_whole
from recmap.tfrecord.decoder import Decoder, ExampleDecoder, Records, is_array
from recmap.tfrecord.faults import fault_error
from recmap.tfrecord.index import Index, Offsets
from recmap.tfrecord.record_file import (
    RecordFile,
    Window,
    first_beyond,
    record_sizes,
    size_bound,
    uniform_fitting,
)
from recmap.tfrecord.scan import all_windows, hold_headers, sampled_windows
from recmap.tfrecord.sidecar import keep_index, misplaced

_T = TypeVar("_T")

# Bytes scanned for records at a time. The second size applies if the rows are read next: the
# CPU cache still holds a span this small.
_SCAN_SIZE = 64 << 20
_AHEAD_SIZE = 16 << 20
_LONG_RECORD = 16 << 10
# Bytes of the length at the start of a record.
_LENGTH_SIZE = 8


class _FoundSpan(NamedTuple):
    """Consecutive rows, and the offset of each."""

    first: int
    offsets: Offsets

    @property
    def stop(self) -> int:
        """The number of the last row plus one."""
        return self.first + len(self.offsets)


class PlainFile(RecordFile):
    """An uncompressed file.

    Records are found only when needed: reading the first rows of a large file does not touch
    the rest.
    """

    def __init__(
        self,
        path: str,
        verify: bool,
        index: Index | None = None,
        files: MappedFiles | None = None,
    ) -> None:
        self.path = path
        self.verify = verify
        self.size = located(path).stat().size
        self._files = files or MappedFiles()
        self.index = index or Index()
        # The spans found last, for the next reads in order.
        self._ahead: list[_FoundSpan] = []
        if self.size == 0:
            self.index.complete = True

    @property
    def file(self) -> MappedFile:
        """The mapped file, checked and ready to be read."""
        file = self.mapped()
        if self.before_read is not None:
            self.check_before_read()
        return file

    def mapped(self) -> MappedFile:
        """Map the file, without the deferred check.

        Raise if the file is shorter than when it was opened: touching the missing part would
        kill the process.
        """
        file = self._files.open(self.path)
        file.check_size(self.size)
        return file

    def unverified(self) -> PlainFile:
        """Return the same file, read without checking the CRCs of the data."""
        other = copy(self)
        other.verify, other._ahead = False, []  # noqa: SLF001  # a copy of this one
        return other

    def known_count(self) -> int | None:
        return self.index.count if self.index.complete else None

    def found_rows(self) -> int:
        return self.index.count

    def reach(self, rows: int) -> int:
        return self.ensure(rows, _AHEAD_SIZE)

    def ensure(self, rows: int, scan: int = _SCAN_SIZE) -> int:
        """Find up to ``rows`` records, ``scan`` bytes at a time; return how many exist."""
        index = self.index
        with index.lock:
            scanned = self._must_scan(rows)
            while self._must_scan(rows):
                self._ahead.clear()
                self._scan_on(scan)
        if scanned:
            keep_index(self.path, index)
        return self._found(rows)

    def _must_scan(self, rows: int) -> bool:
        """Return whether finding ``rows`` records takes another scan, and a scan is possible."""
        index = self.index
        return not index.complete and index.count < rows and index.fault is None

    def _found(self, rows: int) -> int:
        """Return how many of the first ``rows`` records exist; raise if damage comes first."""
        index = self.index
        if index.count < rows and index.fault is not None:
            raise fault_error(index.fault, self.path, index.count)
        return min(rows, index.count)

    def _scan_on(self, size: int, *, each: bool = False) -> _core.Scan:
        """Scan ``size`` more bytes for records; with ``each``, return every offset."""
        index, file = self.index, self.file
        if not file.whole:
            size = min(size, _AHEAD_SIZE, bytes_ahead())
        begin, stop = index.end, min(index.end + size, self.size)
        if size == _AHEAD_SIZE:
            file.load_ahead(begin, stop)
        with hold_headers(file, begin, stop):
            if index.count == 0:
                index.begin(int.from_bytes(file.bytes[:_LENGTH_SIZE], "little"))
            found = self._scan(file, begin, stop, 1 if each else index.every)
        if size != _AHEAD_SIZE:
            file.have_read(begin, stop)
        index.add(found, index.every // (1 if each else index.every))
        index.fault = found.fault
        index.complete = index.fault is None and index.end >= self.size
        return found

    def _scan(self, file: MappedFile, begin: int, stop: int, every: int) -> _core.Scan:
        index = self.index
        # A thread that enters the file tries every byte until it finds a record. That is too
        # slow for long records.
        large = index.count > 0 and index.end // index.count > _LONG_RECORD
        threads = 1 if large else thread_count()
        request = _core.ScanRequest(begin, stop, anchor_every=every, threads=threads)
        return _core.scan(file.bytes, request)

    def _hold_rows(
        self, file: MappedFile, rows: npt.NDArray[np.int64]
    ) -> AbstractContextManager[None]:
        """Make these rows available, and what is read to find them."""
        return file.hold(0, 0) if file.whole else file.hold(*self.index.spans(rows))

    def _check_held(self, file: MappedFile, rows: npt.NDArray[np.int64], offsets: Offsets) -> None:
        """Raise if a record of an object is longer than what is held of it."""
        if file.whole:
            return
        _, ends = self.index.spans(rows)
        bad = first_beyond(file.bytes, offsets, ends)
        if bad is not None:
            raise misplaced(self.path, int(rows[bad]), int(offsets[bad]))

    def _hold_span(self, file: MappedFile, start: int, stop: int) -> AbstractContextManager[None]:
        """Make the rows from ``start`` to ``stop`` available."""
        if file.whole or start >= stop:
            return file.hold(0, 0)
        begins, ends = self.index.spans(np.array([start, stop - 1]))
        return file.hold(int(begins[0]), int(ends[1]))

    def _scan_ahead(self) -> None:
        first = self.index.count
        self._ahead.append(_FoundSpan(first, self._scan_on(_AHEAD_SIZE, each=True).anchor_offsets))

    def count(self) -> int:
        return self.ensure(_core.NO_LIMIT)

    def read(self, decoder: Decoder[_T], start: int, stop: int, limit: int | None = None) -> _T:
        """Read rows ``start`` to ``stop``.

        Return fewer if the file ends first, or if they would take more than ``limit`` bytes of
        memory.
        """
        file = self.file
        rows = self._read_expected(file, decoder, start, stop, limit)
        if rows is not None:
            return rows
        offsets = self._offsets_ahead(start, stop, limit)
        if offsets is None:
            try:
                stop = self.ensure(stop)
            except CorruptRecordError:
                # The next read reports damage after these rows.
                if limit is None or self.index.count <= start:
                    raise
                stop = self.index.count
            with self.index.lock:  # another thread may find records of another size
                stride, lead = self.index.stride, self.index.lead
                most = self._uniform_fitting(decoder, start, limit)
            if stride is not None and most and start < stop:
                stop = min(stop, start + most)
                records = _strided(file, start, stop, stride, lead)
                with self._hold_span(file, start, stop):
                    return self._decode(
                        decoder, records, start, thread_share(), partial=limit is not None
                    )
            stop = max(start, stop)
        else:
            stop = start + len(offsets)
        if limit is not None and not file.whole and start < stop:
            stop = self.index.fitting(start, stop, limit)
        with self._hold_span(file, start, stop):
            numbers = np.arange(start, stop, dtype=np.int64)
            offsets = self._offsets(file, numbers) if offsets is None else offsets[: len(numbers)]
            self._check_held(file, numbers, offsets)
            return self._read_records(file, decoder, start, offsets, limit)

    def _read_records(
        self,
        file: MappedFile,
        decoder: Decoder[_T],
        start: int,
        offsets: Offsets,
        limit: int | None,
    ) -> _T:
        """Decode the records at these offsets, or as many as ``limit`` allows."""
        if limit is not None:
            sizes = record_sizes(decoder.schema, file.bytes, offsets)
            offsets = offsets[: fitting(sizes, len(offsets), limit)]
        if len(offsets):
            file.will_read(int(offsets[0]), int(offsets[-1]))
        records = Records.of_file(file.bytes, offsets)
        return self._decode(decoder, records, start, thread_share(), partial=limit is not None)

    def _read_expected(
        self, file: MappedFile, decoder: Decoder[_T], start: int, stop: int, limit: int | None
    ) -> _T | None:
        """Read rows not found yet, if records of one size are expected to go on; else None.

        This saves the scan, because the decoder checks the size of each record. Also return
        None if one of them has another size or is bad: the slow way reports it.
        """
        index = self.index
        with index.lock:
            if index.count == 0 and self._must_scan(stop):
                self._scan_on(_AHEAD_SIZE)
            most = self._uniform_fitting(decoder, start, limit)
            rows = index.expect(start, min(stop, start + most), self.size)
        if rows is None:
            return None
        records = _strided(file, *rows)
        with file.hold(*_strided_span(*rows)):
            decoded, fault = decoder.decode(
                records, self.verify, thread_share(), lambda row: (self.path, start + row)
            )
        if fault is not None:
            return None
        with index.lock:
            return decoded if index.confirm(rows, self.size) else None

    def _uniform_fitting(self, decoder: Decoder[_T], start: int, limit: int | None) -> int:
        """Return how many rows from ``start`` fit into ``limit`` if all records have one size.

        Return 0 if they do not, or if each must be looked at.
        """
        length, lead = self.index.length, self.index.lead if start == 0 else 0
        return 0 if length is None else uniform_fitting(decoder.schema, length, lead, limit)

    def _offsets_ahead(self, start: int, stop: int, limit: int | None) -> Offsets | None:
        """Return the offsets of rows that follow those found last, else None.

        With ``limit``, stop after about ``limit`` bytes of the file.
        """
        index, ahead = self.index, self._ahead
        with index.lock:
            while ahead and ahead[0].stop <= start:
                del ahead[0]
            first = ahead[0].first if ahead else index.count
            if not first <= start <= index.count or (index.complete and not ahead):
                return None
            if index.count == 0 or index.stride is not None:
                # The offsets of records of one size are computed instead.
                while self._must_scan(stop):
                    self._scan_on(_AHEAD_SIZE)
                return None
            enough = self.size if limit is None else index.end + limit
            while self._must_scan(stop) and (index.end <= enough or index.count <= start):
                self._scan_ahead()
            # The next read reports damage after these rows.
            some = limit is not None and index.count > start
            stop = min(stop, index.count) if some else self._found(stop)
            found = [
                span.offsets[max(start - span.first, 0) : stop - span.first]
                for span in ahead
                if span.first < stop
            ]
        return np.concatenate(found) if found else np.empty(0, np.uint64)

    def gather(self, decoder: Decoder[_T], rows: npt.NDArray[np.int64]) -> _T:
        self.ensure(int(rows.max(initial=-1)) + 1)
        file = self.file
        with self._hold_rows(file, rows):
            offsets = self._offsets(file, rows)
            self._check_held(file, rows, offsets)
            records = Records.of_file(file.bytes, offsets)
            # Use more threads than this thread's share: they mostly wait for the disk.
            return self._decode(decoder, records, rows, thread_count())

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        return self.fetch_into(self.mapped(), rows)

    def fetch_whole(self) -> Fetching | None:
        return fetch_whole(self.mapped())

    def fetch_into(self, file: MappedFile, rows: RowNumbers) -> Fetching | None:
        """Begin to fetch those of the rows that were found."""
        count = self.index.count
        if isinstance(rows, range):
            start, stop = rows.start, min(rows.stop, count)
            if file.whole or start >= stop:
                return None
            begins, ends = self.index.spans(np.array([start, stop - 1]))
            return fetch_ahead(file, int(begins[0]), int(ends[1]))
        return None if file.whole else fetch_ahead(file, *self.index.spans(rows[rows < count]))

    def row_sizes(self, decoder: ExampleDecoder, rows: npt.NDArray[np.int64]) -> RowSizes:
        self.ensure(int(rows.max(initial=-1)) + 1)
        file = self.file
        with self._hold_rows(file, rows):
            offsets = self._offsets(file, rows)
            self._check_held(file, rows, offsets)
            return record_sizes(decoder.schema, file.bytes, offsets)

    def largest_row(self, decoder: ExampleDecoder, above: int) -> tuple[int, int] | None:
        """Return the largest row and its size in memory, if that is more than ``above``.

        Also return None if not all records have been found.
        """
        index = self.index
        fixed, each = size_bound(decoder.schema)
        if not index.complete or index.longest is None or fixed + each * index.longest <= above:
            return None

        def sizes(start: int, stop: int) -> RowSizes:
            return self.row_sizes(decoder, np.arange(start, stop, dtype=np.int64))

        return largest(sizes, index.count, above)

    def _offsets(self, file: MappedFile, rows: npt.NDArray[np.int64]) -> Offsets:
        offsets, fault = self.index.offsets(file.bytes, rows, thread_count())
        if fault is not None:
            raise fault_error(fault, self.path, int(rows[fault.row]))
        return offsets

    def _decode(
        self,
        decoder: Decoder[_T],
        records: Records,
        rows: int | npt.NDArray[np.int64],
        threads: int,
        *,
        partial: bool = False,
    ) -> _T:
        """Decode records. ``rows`` are their numbers, or the first.

        If ``partial``, stop before a bad row; the next read reports it.
        """

        def where(row: int) -> tuple[str, int]:
            return self.path, rows + row if isinstance(rows, int) else int(rows[row])

        decoded, fault = decoder.decode(records, self.verify, threads, where)
        if fault is not None and fault.row and partial:
            return self._decode(decoder, records.head(fault.row), rows, threads)
        if fault is not None:
            path, record = where(fault.row)
            raise decoder.error(fault, path, record)
        return decoded

    def row_bytes(self) -> int:
        with self.index.lock:
            if self._must_scan(1):
                self._scan_on(_AHEAD_SIZE)
        self._found(1)
        return max(1, self.index.end // max(self.index.count, 1))

    def columns(
        self, decoder: ExampleDecoder, mapped: frozenset[str] | None = None
    ) -> Mapping[str, npt.NDArray[Any]]:
        """Return the columns that are stored as arrays, as views of the file.

        Unless an index lists the ``mapped`` columns, this looks at every record and checks its
        CRC.
        """
        file = self.file
        if not (file.whole and file.lends):
            return {}
        slots, holds = self.slots(decoder, mapped)
        return {
            name: file.view(
                slot.offset, (self.index.count, *field.inner), field.dtype, self.index.stride or 0
            )
            for (name, field), slot, held in zip(decoder.schema.items(), slots, holds, strict=True)
            if held and is_array(slot, field)
        }

    def slots(
        self, decoder: ExampleDecoder, mapped: frozenset[str] | None = None
    ) -> tuple[Sequence[_core.Slot], Sequence[bool]]:
        """Return the place of each column's payload in the first record.

        Also return whether it has the same place in all records.
        """
        file = self.file
        count, stride = self.count(), self.index.stride
        nowhere = [_core.Slot()] * len(decoder.schema), [False] * len(decoder.schema)
        if stride is None or count == 0 or not file.whole:
            return nowhere
        slots = _core.find_slots(file.bytes, 0, decoder.columns)
        if not slots:
            return nowhere
        if mapped is not None and all(
            name in mapped or not is_array(slot, field)
            for (name, field), slot in zip(decoder.schema.items(), slots, strict=True)
        ):
            return slots, [name in mapped for name in decoder.schema]
        records = _core.UniformRecords(count, stride, self.index.lead)
        holds, fault, described = _core.check_slots(
            file.bytes, records, decoder.columns, slots, self.verify, thread_count()
        )
        file.have_read(0, self.size)
        if fault is not None:
            raise decoder.error(fault, self.path, fault.row)
        decoder.met(described, lambda row: (self.path, row))
        return slots, holds

    def windows(self, skip: bool, *, offsets: bool = True) -> Iterator[Window]:
        return all_windows(self.file, self.size, self.verify, skip, offsets=offsets)

    def sample(self, spots: int, skip: bool) -> Iterator[Window]:
        return sampled_windows(self.file, self.size, spots, skip)

    def first_record(self) -> npt.NDArray[np.uint8] | None:
        if located(self.path).remote:
            return _first_record(self.path)
        if not self.size:
            return None
        data = self.mapped().bytes
        found = _core.scan(data, _core.ScanRequest(limit=1))
        return data[: found.end] if found.records else None


def _strided(file: MappedFile, start: int, stop: int, stride: int, lead: int) -> Records:
    """Return records of one size that are read next."""
    file.will_read(start * stride, (stop - 1) * stride + lead)
    return Records.strided(file.bytes, stride, lead, start, stop - start)


def _strided_span(start: int, stop: int, stride: int, lead: int) -> tuple[int, int]:
    """Return where these records begin and end."""
    return start * stride + (lead if start else 0), stop * stride + lead


def _first_record(path: str) -> npt.NDArray[np.uint8] | None:
    """Read the first record of an object, which is often among the bytes that told its format."""
    with located(path).open() as file:
        header = np.frombuffer(file.pread(_core.HEADER_SIZE, 0), np.uint8)
        length = int.from_bytes(header[:_LENGTH_SIZE].tobytes(), "little")
        if length > min(file.size, _core.MAX_MESSAGE_SIZE):
            return None
        frame = np.frombuffer(file.pread(length + _core.FRAME_SIZE, 0), np.uint8)
    return frame if _core.scan(frame, _core.ScanRequest(limit=1)).records else None
