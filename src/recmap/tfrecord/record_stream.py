"""The records of a compressed file in windows, as they are inflated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from recmap.errors import CompressionError, CorruptRecordError
from recmap.files.cpus import thread_count
from recmap.model.source import Skipped
from recmap.native import _core
from recmap.tfrecord.byte_stream import Entry, Stream
from recmap.tfrecord.decoder import Codec
from recmap.tfrecord.faults import fault_error, fault_text
from recmap.tfrecord.record_window import Window

__all__ = ["START", "Inflated", "Place"]

_WINDOW_SIZE = 1 << 20
_CUT = {_core.FaultCode.header_cut, _core.FaultCode.data_cut}


@dataclass(frozen=True)
class Place:
    """A row, where it begins in the plain bytes, and the entry before it."""

    row: int
    base: int
    entry: Entry


START = Place(0, 0, Entry())


class Inflated:
    """The records of one file; of which rows they are is not its business."""

    def __init__(self, path: str, compression: Literal["gzip", "zlib"], verify: bool) -> None:
        self.path = path
        self.compression = compression
        self.verify = verify

    def windows(self, skip: bool, place: Place = START) -> Iterator[tuple[Entry, Window]]:
        """All from a place on, each window with the entry before it. With ``skip`` damage
        is passed over; without it, it is raised behind the records in front of it.
        """
        stream = Stream(self.path, self.compression, skip, place.entry)
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
            if fault is not None and _goes_on(fault) and not stream.ended:
                # The rest of the record has not been inflated yet.
                needed = fault.expected
            elif fault is not None and not skip:
                damage = self.error(fault, record, base, None)
                if stream.failures:
                    damage = self._broken(stream, record)
            elif fault is not None:
                lost.append(Skipped(self.path, record, base + fault.offset, fault_text(fault)))
                record += 1
                behind = stream.behind(used) if fault.code == _core.FaultCode.data_crc else None
                used, searching = (used + 1, True) if behind is None else (behind, False)
            stream.drop(used)
            if skip:
                lost += self._failed(stream, record, stream.base)
            if found.records or lost or needed > _WINDOW_SIZE:
                yield (
                    entry,
                    Window(
                        data, found.anchor_offsets, first, base, found, lost, needed, stream.passed
                    ),
                )
            if damage is not None:
                raise damage
            del data, found  # not held while the next ones are inflated
        if stream.failures and not skip:
            raise self._broken(stream, record)
        if stream.failures:
            end = np.empty(0, np.uint8)
            nothing = _core.scan(end, _core.ScanRequest())
            lost, base = self._failed(stream, record, None), stream.base
            window = Window(
                end, nothing.anchor_offsets, record, base, nothing, lost, passed=stream.passed
            )
            yield place.entry, window

    def _broken(self, stream: Stream, record: int) -> CompressionError:
        """The error for a stream of which the records before this one are sound."""
        failure = stream.failures[0][1]
        return CompressionError(
            f"{failure}; the first record that is lost is {record:,} "
            '(use errors="skip" to read what is sound, or recmap repair)',
            file=self.path,
            record=record,
            byte=failure.byte,
        )

    def _failed(self, stream: Stream, record: int, upto: int | None) -> list[Skipped]:
        """Takes those failures of the stream that lie before a place, or all."""
        passed = [f for f in stream.failures if upto is None or f[0] <= upto]
        del stream.failures[: len(passed)]
        return [Skipped(self.path, record, at, str(failure)) for at, failure in passed]

    def error(self, fault: _core.Fault, record: int, base: int, codec: Codec | None) -> Exception:
        """The error for a fault in a window that lies at ``base``."""
        error = (codec.error if codec else fault_error)(fault, self.path, record)
        place = f"at byte {fault.offset:,}"
        text = str(error).replace(place, f"at byte {base + fault.offset:,} of the inflated data")
        if isinstance(error, CorruptRecordError) and record == 0 and fault.offset == 0:
            text += f"; the {self.compression} data holds no TFRecord framing"
        return type(error)(
            text, file=self.path, record=record, byte=base + fault.offset, field=error.field
        )


def _goes_on(fault: _core.Fault) -> bool:
    """Whether a record is cut, and could be whole with more of the stream."""
    return fault.code in _CUT and 0 <= fault.expected <= _core.MAX_MESSAGE_SIZE
