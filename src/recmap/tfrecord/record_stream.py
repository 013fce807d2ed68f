"""The records of a compressed file, in windows of the inflated data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from recmap.errors import CompressionError, CorruptRecordError, Message, Option
from recmap.files.cpus import thread_count
from recmap.model.source import Skipped
from recmap.native import _core
from recmap.tfrecord.byte_stream import ByteStream, Entry
from recmap.tfrecord.decoder import ExampleDecoder
from recmap.tfrecord.faults import fault_error, fault_text
from recmap.tfrecord.record_file import Window

__all__ = ["START", "Place", "RecordStream"]

_WINDOW_SIZE = 1 << 20
_CUT = {_core.FaultCode.header_cut, _core.FaultCode.data_cut}


@dataclass(frozen=True)
class Place:
    """A row, where it begins in the plain bytes, and the entry before it."""

    row: int
    base: int
    entry: Entry


START = Place(0, 0, Entry())


class RecordStream:
    """Finds the records of one file. Which of them are rows is up to the caller."""

    def __init__(self, path: str, compression: Literal["gzip", "zlib"], verify: bool) -> None:
        self.path = path
        self.compression = compression
        self.verify = verify

    def windows(self, skip: bool, place: Place = START) -> Iterator[tuple[Entry, Window]]:
        """Yield all records from a place to the end, each window with the entry before it.

        With ``skip``, damage is left out and listed in the windows. Otherwise, it is raised
        after the records that precede it.
        """
        stream = ByteStream(self.path, self.compression, skip, place.entry)
        stream.fill(place.base - stream.base)
        stream.drop(place.base - stream.base)
        record, searching, needed = place.row, False, 0
        while stream.fill(max(_WINDOW_SIZE, needed)):
            if searching and not stream.seek_record():
                continue
            searching, needed = False, 0
            data, base, entry = stream.held, stream.base, stream.entry
            request = _core.ScanRequest(anchor_every=1, verify=self.verify, threads=thread_count())
            found = _core.scan(data, request)
            first, used, fault, lost = record, found.end, found.fault, list[Skipped]()
            record += found.records
            damage: Exception | None = None
            if fault is not None and _may_continue(fault) and not stream.ended:
                needed = fault.expected
            elif fault is not None and not skip:
                damage = self.error(fault, record, base, None)
                if stream.failures:
                    damage = self._broken(stream, record)
            elif fault is not None:
                lost.append(Skipped(self.path, record, base + fault.offset, fault_text(fault)))
                record += 1
                crc_only = fault.code == _core.FaultCode.data_crc
                after = stream.end_of_record(used) if crc_only else None
                used, searching = (used + 1, True) if after is None else (after, False)
            stream.drop(used)
            if skip:
                lost += self._take_failures(stream, record, stream.base)
            if found.records or lost or needed > _WINDOW_SIZE:
                offsets, passed = found.anchor_offsets, stream.passed
                yield entry, Window(data, offsets, first, base, found, lost, needed, passed)
            if damage is not None:
                raise damage
            del data, found  # free them before the next ones are inflated
        if stream.failures and not skip:
            raise self._broken(stream, record)
        if stream.failures:
            yield place.entry, self._last_window(stream, record)

    def _last_window(self, stream: ByteStream, record: int) -> Window:
        """Make an empty window that lists the failures at the end of the stream."""
        nothing = np.empty(0, np.uint8)
        scan = _core.scan(nothing, _core.ScanRequest())
        lost = self._take_failures(stream, record, None)
        return Window(
            nothing, scan.anchor_offsets, record, stream.base, scan, lost, passed=stream.passed
        )

    def _broken(self, stream: ByteStream, record: int) -> CompressionError:
        """Make the error for a damaged stream with sound records up to this one."""
        failure = stream.failures[0][1]
        return CompressionError(
            Message(
                f"{failure}; the first record that is lost is {record:,}",
                hint=("use ", Option("errors", "skip"), " to read what is sound, or recmap repair"),
            ),
            file=self.path,
            record=record,
            byte=failure.byte,
        )

    def _take_failures(self, stream: ByteStream, record: int, upto: int | None) -> list[Skipped]:
        """Remove and return the stream's failures up to a place, or all of them."""
        passed = [f for f in stream.failures if upto is None or f[0] <= upto]
        del stream.failures[: len(passed)]
        return [Skipped(self.path, record, at, str(failure)) for at, failure in passed]

    def error(
        self, fault: _core.Fault, record: int, base: int, decoder: ExampleDecoder | None
    ) -> Exception:
        """Make the error for a fault in a window at ``base``."""
        error = (decoder.error if decoder else fault_error)(fault, self.path, record)
        place = f"at byte {fault.offset:,}"
        text = str(error).replace(place, f"at byte {base + fault.offset:,} of the inflated data")
        if isinstance(error, CorruptRecordError) and record == 0 and fault.offset == 0:
            text += f"; the {self.compression} data holds no TFRecord framing"
        return type(error)(
            text, file=self.path, record=record, byte=base + fault.offset, field=error.field
        )


def _may_continue(fault: _core.Fault) -> bool:
    """Return whether a record is cut short, but could be complete with more of the stream."""
    return fault.code in _CUT and 0 <= fault.expected <= _core.MAX_MESSAGE_SIZE
