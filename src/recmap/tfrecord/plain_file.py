"""The rows of one file that is not compressed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from recmap.errors import CorruptRecordError
from recmap.files.cpus import thread_count, thread_share
from recmap.files.mapped import MappedFile, MappedFiles
from recmap.model.row_sizes import RowSizes, fitting, largest
from recmap.model.source import Skipped
from recmap.native import _core
from recmap.tfrecord.decoder import Codec, Decoder, Records, is_array
from recmap.tfrecord.faults import fault_error, fault_text
from recmap.tfrecord.index import Index, Offsets
from recmap.tfrecord.record_sizes import record_sizes, size_bound
from recmap.tfrecord.record_window import Window

__all__ = ["BeforeRead", "PlainShard"]

_T = TypeVar("_T")

# Bytes searched for records at a time, and before they are read in order: so few
# that what the search has touched is still in the processor's cache.
_SCAN_SIZE = 64 << 20
_AHEAD_SIZE = 16 << 20
# The same where every record's offset is kept: small ones have many.
_WINDOW_SIZE = 16 << 20
_LONG_RECORD = 16 << 10
# Of the length, at which a record begins.
_LENGTH_SIZE = 8
# What a sample takes from the beginning, and from each other place, which is
# searched for a record that far.
_HEAD_ROWS, _HEAD_BYTES = 1000, 4 << 20
_SPOT_ROWS, _SPOT_BYTES = 50, 1 << 18
_SEEK_BYTES = 16 << 20


class BeforeRead(Protocol):
    """Checks a file before it is read."""

    def check(self, shard: Any) -> None: ...


class PlainShard:
    """Finds its records as they are needed: reading the first rows of a large file
    does not look at the rest.
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
        self.size = os.path.getsize(path)
        self._files = files or MappedFiles()
        self.index = index or Index()
        # First row and offsets of the stretches found last, for reading on in order.
        self._ahead: list[tuple[int, Offsets]] = []
        # What is to be checked before anything is read.
        self.before_read: BeforeRead | None = None
        if self.size == 0:
            self.index.complete = True

    @property
    def file(self) -> MappedFile:
        """The mapped file, which is not shorter than when it was opened: touching what
        it lost would kill the process.
        """
        file = self.mapped()
        if self.before_read is not None:
            self.check_before_read()
        return file

    def mapped(self) -> MappedFile:
        """The same, whatever is still to be checked."""
        file = self._files.open(self.path)
        file.check_size(self.size)
        return file

    def check_before_read(self) -> None:
        """Checks once what is to be checked before anything is read."""
        if self.before_read is not None:
            self.before_read.check(self)
            self.before_read = None

    def known_count(self) -> int | None:
        """The number of records, if the whole file has been seen."""
        return self.index.count if self.index.complete else None

    def found_rows(self) -> int:
        """The records that have been seen."""
        return self.index.count

    def ensure(self, rows: int) -> int:
        """Looks for that many records; how many there are, up to what was asked."""
        index = self.index
        with index.lock:
            while self._must_look(rows):
                self._ahead.clear()
                self._look_on(_SCAN_SIZE)
        return self._found(rows)

    def _must_look(self, rows: int) -> bool:
        index = self.index
        return not index.complete and index.count < rows and index.fault is None

    def _found(self, rows: int) -> int:
        index = self.index
        if index.count < rows and index.fault is not None:
            raise fault_error(index.fault, self.path, index.count)
        return min(rows, index.count)

    def _look_on(self, size: int, *, each: bool = False) -> _core.Scan:
        """Looks for records in so many bytes more; ``each`` has all their offsets told."""
        index, file = self.index, self.file
        if index.count == 0:
            index.begin(int.from_bytes(file.bytes[:_LENGTH_SIZE], "little"))
        every = 1 if each else index.every
        begin, stop = index.end, min(index.end + size, self.size)
        # A thread enters the file by looking for a record, at every byte of one.
        large = index.count > 0 and index.end // index.count > _LONG_RECORD
        threads = 1 if large else thread_count()
        request = _core.ScanRequest(begin, stop, anchor_every=every, threads=threads)
        found = _core.scan(file.bytes, request)
        if size != _AHEAD_SIZE:
            file.have_read(begin, stop)
        index.add(found, index.every // every)
        index.fault = found.fault
        index.complete = index.fault is None and index.end >= self.size
        return found

    def _look_ahead(self) -> None:
        row = self.index.count
        self._ahead.append((row, self._look_on(_AHEAD_SIZE, each=True).anchor_offsets))

    def count(self) -> int:
        """The number of records."""
        return self.ensure(_core.NO_LIMIT)

    def read(self, codec: Decoder[_T], start: int, stop: int, limit: int | None = None) -> _T:
        """Rows ``start`` to ``stop``, fewer where the file ends before, or they would take
        more than ``limit`` bytes of memory.
        """
        file, offsets = self.file, self._offsets_ahead(start, stop, limit)
        if offsets is None:
            try:
                stop = self.ensure(stop)
            except CorruptRecordError:
                # Damage behind what is returned comes to light with the next read.
                if limit is None or self.index.count <= start:
                    raise
                stop = self.index.count
            offsets = self._offsets(file, np.arange(min(start, stop), stop, dtype=np.int64))
        if limit is not None:
            sizes = record_sizes(codec.schema, file.bytes, offsets)
            offsets = offsets[: fitting(sizes, len(offsets), limit)]
        if len(offsets):
            file.will_read(int(offsets[0]), int(offsets[-1]))
        return self._decode(codec, file, offsets, start, thread_share(), some=limit is not None)

    def _offsets_ahead(self, start: int, stop: int, limit: int | None) -> Offsets | None:
        """The offsets of these rows, if they follow those found last; with ``limit``, of
        those in about so many bytes of the file.
        """
        index, ahead = self.index, self._ahead
        with index.lock:
            while ahead and ahead[0][0] + len(ahead[0][1]) <= start:
                del ahead[0]
            first = ahead[0][0] if ahead else index.count
            if not first <= start <= index.count or (index.complete and not ahead):
                return None
            if index.count == 0 or index.stride is not None:
                # Records of one size need no offsets.
                while self._must_look(stop):
                    self._look_on(_AHEAD_SIZE)
                return None
            enough = self.size if limit is None else index.end + limit
            while self._must_look(stop) and (index.end <= enough or index.count <= start):
                self._look_ahead()
            # Damage behind what is returned comes to light with the next read.
            some = limit is not None and index.count > start
            stop = min(stop, index.count) if some else self._found(stop)
            parts = [
                offsets[max(start - row, 0) : stop - row] for row, offsets in ahead if row < stop
            ]
        return np.concatenate(parts) if parts else np.empty(0, np.uint64)

    def gather(self, codec: Decoder[_T], rows: npt.NDArray[np.int64]) -> _T:
        """Rows by number, all of which must exist."""
        self.ensure(int(rows.max(initial=-1)) + 1)
        file = self.file
        # More than its share: rows that are not in memory are waited for, not worked at.
        return self._decode(codec, file, self._offsets(file, rows), rows, thread_count())

    def row_sizes(self, codec: Codec, rows: npt.NDArray[np.int64]) -> RowSizes:
        """What rows take in memory, at most."""
        self.ensure(int(rows.max(initial=-1)) + 1)
        file = self.file
        return record_sizes(codec.schema, file.bytes, self._offsets(file, rows))

    def largest_row(self, codec: Codec, above: int) -> tuple[int, int] | None:
        """The largest row and what it takes in memory, if that is more than ``above``; None
        also if the records have not all been seen.
        """
        index = self.index
        fixed, each = size_bound(codec.schema)
        if not index.complete or index.longest is None or fixed + each * index.longest <= above:
            return None

        def sizes(start: int, stop: int) -> RowSizes:
            return self.row_sizes(codec, np.arange(start, stop, dtype=np.int64))

        return largest(sizes, index.count, above)

    def _offsets(self, file: MappedFile, rows: npt.NDArray[np.int64]) -> Offsets:
        offsets, fault = self.index.offsets(file.bytes, rows, thread_count())
        if fault is not None:
            raise fault_error(fault, self.path, int(rows[fault.row]))
        return offsets

    def _decode(
        self,
        codec: Decoder[_T],
        file: MappedFile,
        offsets: Offsets,
        rows: int | npt.NDArray[np.int64],
        threads: int,
        *,
        some: bool = False,
    ) -> _T:
        """The records at these offsets, which have these numbers, or follow that one. If
        ``some`` will do, those in front of a bad one, which comes to light with the next read.
        """

        def where(row: int) -> tuple[str, int]:
            return self.path, rows + row if isinstance(rows, int) else int(rows[row])

        records = Records.of_file(file.bytes, offsets)
        decoded, fault = codec.decode(records, self.verify, threads, where)
        if fault is not None and fault.row and some:
            return self._decode(codec, file, offsets[: fault.row], rows, threads)
        if fault is not None:
            path, record = where(fault.row)
            raise codec.error(fault, path, record)
        return decoded

    def row_bytes(self) -> int:
        """About how many bytes a record takes; 1 or more."""
        with self.index.lock:
            if self._must_look(1):
                self._look_on(_AHEAD_SIZE)
        self._found(1)
        return max(1, self.index.end // max(self.index.count, 1))

    def columns(
        self, codec: Codec, mapped: frozenset[str] | None = None
    ) -> Mapping[str, npt.NDArray[Any]]:
        """The columns that lie in the file as arrays, as views of it.

        Every record is looked at once to see that they do, and its CRC checked,
        unless an index has told which are ``mapped``.
        """
        file = self.file
        slots, holds = self.slots(codec, mapped)
        return {
            name: file.view(
                slot.offset, (self.index.count, *field.inner), field.dtype, self.index.stride or 0
            )
            for (name, field), slot, held in zip(codec.schema.items(), slots, holds, strict=True)
            if held and is_array(slot, field)
        }

    def slots(
        self, codec: Codec, mapped: frozenset[str] | None = None
    ) -> tuple[Sequence[_core.Slot], Sequence[bool]]:
        """Where each column's payload lies in the first record, and whether it lies
        there in all.
        """
        file = self.file
        count, stride = self.count(), self.index.stride
        nowhere = [_core.Slot()] * len(codec.schema), [False] * len(codec.schema)
        if stride is None or count == 0:
            return nowhere
        slots = _core.find_slots(file.bytes, 0, codec.columns)
        if not slots:
            return nowhere
        if mapped is not None and all(
            name in mapped or not is_array(slot, field)
            for (name, field), slot in zip(codec.schema.items(), slots, strict=True)
        ):
            return slots, [name in mapped for name in codec.schema]
        records = _core.UniformRecords(count, stride, self.index.lead)
        holds, fault, described = _core.check_slots(
            file.bytes, records, codec.columns, slots, self.verify, thread_count()
        )
        file.have_read(0, self.size)
        if fault is not None:
            raise codec.error(fault, self.path, fault.row)
        codec.met(described, lambda row: (self.path, row))
        return slots, holds

    def windows(self, skip: bool) -> Iterator[Window]:
        """All records, stretch by stretch, their CRCs checked if the shard verifies.

        With ``skip`` damage is passed over and listed in the index; without it,
        it is raised behind the records in front of it. Windows do not add to the index.
        """
        file = self.file
        begin, record = 0, 0
        while begin < self.size:
            stop = min(begin + _WINDOW_SIZE, self.size)
            request = _core.ScanRequest(
                begin, stop, anchor_every=1, verify=self.verify, threads=thread_count()
            )
            found = _core.scan(file.bytes, request)
            first, next_begin, skipped = record, found.end, []
            record += found.records
            if found.fault is not None and skip:
                reason = fault_text(found.fault)
                skipped.append(Skipped(self.path, record, found.fault.offset, reason))
                next_begin = self._behind(found.fault)
            yield Window(
                file.bytes, found.anchor_offsets, first, 0, found, skipped, passed=next_begin
            )
            if found.fault is not None:
                if not skip:
                    raise fault_error(found.fault, self.path, record)
                record += 1
            file.have_read(begin, next_begin)
            begin = next_begin

    def _behind(self, fault: _core.Fault) -> int:
        file = self.file
        if fault.code != _core.FaultCode.data_crc:
            return _core.find_record(file.bytes, fault.offset + 1, self.size)
        # The length is sound, so the next record begins where it says, unless the record
        # was cut and others were written behind it.
        length = int.from_bytes(file.bytes[fault.offset : fault.offset + _LENGTH_SIZE], "little")
        after = fault.offset + _core.FRAME_SIZE + length
        if after == self.size or self._is_header(after):
            return after
        return _core.find_record(file.bytes, fault.offset + 1, after)

    def _is_header(self, offset: int) -> bool:
        fault = _core.scan(self.file.bytes, _core.ScanRequest(offset, limit=1)).fault
        return fault is None or fault.code == _core.FaultCode.data_cut

    def use(self, index: Index) -> None:
        """Takes over an index that was made from the windows."""
        self.index = index

    def sample(self, spots: int, skip: bool) -> Iterator[Window]:
        """Some records: the first ones, and a few at each of ``spots`` places; with
        ``skip`` also behind damage.
        """
        file, size = self.file, self.size
        request = _core.ScanRequest(0, min(size, _HEAD_BYTES), limit=_HEAD_ROWS, anchor_every=1)
        head = _core.scan(file.bytes, request)
        yield Window(file.bytes, head.anchor_offsets, 0, 0, head, [])
        places = [size * i // spots for i in range(1, spots)]
        if head.fault is not None and skip:
            places.append(head.fault.offset + 1)
        for begin in places:
            if begin < head.end:
                continue
            at = _core.find_record(file.bytes, begin, min(begin + _SEEK_BYTES, size))
            request = _core.ScanRequest(
                at, min(at + _SPOT_BYTES, size), limit=_SPOT_ROWS, anchor_every=1
            )
            some = _core.scan(file.bytes, request)
            yield Window(file.bytes, some.anchor_offsets, None, 0, some, [])
