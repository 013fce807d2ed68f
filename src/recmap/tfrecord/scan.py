"""Go over the records of a file without an index: all of them, a sample, or spans in parallel.

A scan enters its span at the first record with matching CRCs. That record may be inside
another one, since a record may contain a TFRecord file. So a result counts only if the scan of
the previous span ends exactly where this one begins. Otherwise the span is scanned again from
that end.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager

import numpy as np

from recmap.local.local_path import located
from recmap.machine.cpus import thread_count
from recmap.machine.mapped import MappedFile, guarded
from recmap.model.facts import Skipped
from recmap.native import _core
from recmap.store.fetch import bytes_ahead
from recmap.tfrecord.faults import fault_error, fault_text
from recmap.tfrecord.index import ANCHOR_EVERY, LARGE_RECORD, MAX_ANCHORS, Index, ScannedSpan
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
# Bytes of a span scanned before their pages are released.
_SPAN_SIZE = 64 << 20
# Bytes of an object searched at a time.
_SEARCHED = 1 << 20


def hold_headers(file: MappedFile, begin: int, stop: int) -> AbstractContextManager[None]:
    """Make available what a scan reads: the headers of all records that begin in a span."""
    return file.hold(begin, min(stop + _core.HEADER_SIZE, file.size))


def find_record(file: MappedFile, begin: int, stop: int) -> int:
    """Return the offset of the first sound record that begins in a span, else ``stop``."""
    if file.whole:
        return _core.find_record(file.bytes, begin, stop)
    at = begin
    while at < stop:
        upto = min(at + _SEARCHED, stop)
        with hold_headers(file, at, upto):
            at = _core.find_record(file.bytes, at, upto, verify=False)
            end = at if at == upto else _core.scan(file.bytes, _core.ScanRequest(at, limit=1)).end
        if at == upto:
            continue
        # Its length is sound. Is its data?
        with file.hold(at, end):
            if _core.scan(file.bytes, _core.ScanRequest(at, limit=1, verify=True)).records:
                return at
        at += 1
    return stop


def all_windows(
    file: MappedFile, size: int, verify: bool, skip: bool, *, offsets: bool = True
) -> Iterator[Window]:
    """Yield all records of a file of ``size`` bytes in order. Check their CRCs if ``verify``.

    With ``skip``, damage is left out and listed in the windows. Otherwise, it is raised
    after the records that precede it. The index does not change.
    """
    begin, record = 0, 0
    found: _core.Scan | None = None
    while begin < size:
        threads = thread_count()
        # Damage makes the next scan begin in the middle of this one.
        sound = found is None or found.fault is None
        step = _COUNTED_SIZE * threads if sound and not offsets else _WINDOW_SIZE
        if not file.whole:
            step = min(_WINDOW_SIZE, bytes_ahead())
        stop = min(begin + step, size)
        request = _core.ScanRequest(
            begin, stop, anchor_every=int(offsets), verify=verify, threads=threads
        )
        with file.hold(begin, _end_of_records(file, begin, stop)):
            found = _core.scan(file.bytes, request)
            first, next_begin, skipped = record, found.end, []
            record += found.records
            if found.fault is not None and skip:
                reason = fault_text(found.fault)
                skipped.append(Skipped(file.path, record, found.fault.offset, reason))
                next_begin = _end_of_damage(file, size, found.fault)
            yield Window(
                file.bytes, found.anchor_offsets, first, 0, found, skipped, passed=next_begin
            )
        if found.fault is not None:
            if not skip:
                raise fault_error(found.fault, file.path, record)
            record += 1
        file.have_read(begin, next_begin)
        begin = next_begin


def _end_of_records(file: MappedFile, begin: int, stop: int) -> int:
    """Return where the last of the records ends that begin in a span."""
    if file.whole:
        return stop
    with hold_headers(file, begin, stop):
        return max(stop, _core.scan(file.bytes, _core.ScanRequest(begin, stop)).end)


def _end_of_damage(file: MappedFile, size: int, fault: _core.Fault) -> int:
    """Find where to resume after a fault."""
    if fault.code != _core.FaultCode.data_crc:
        return find_record(file, fault.offset + 1, size)
    # The length is sound, so it gives the start of the next record, unless this record was
    # cut short and others were appended.
    with hold_headers(file, fault.offset, fault.offset + 1):
        header = file.bytes[fault.offset : fault.offset + _LENGTH_SIZE]
        after = fault.offset + _core.FRAME_SIZE + int.from_bytes(header, "little")
    if after == size or _is_header(file, after):
        return after
    return find_record(file, fault.offset + 1, after)


def _is_header(file: MappedFile, offset: int) -> bool:
    with hold_headers(file, offset, offset + 1):
        fault = _core.scan(file.bytes, _core.ScanRequest(offset, limit=1)).fault
    return fault is None or fault.code == _core.FaultCode.data_cut


def sampled_windows(file: MappedFile, size: int, spots: int, skip: bool) -> Iterator[Window]:
    """Yield the first records, and a few from each of ``spots`` places across the file.

    With ``skip``, search after damage too.
    """
    head = yield from _sample_at(file, size, 0, _HEAD_BYTES, _HEAD_ROWS)
    places = [size * i // spots for i in range(1, spots)]
    if head.fault is not None and skip:
        places.append(head.fault.offset + 1)
    end = head.end
    for begin in sorted(places):
        if begin < end:
            continue  # no record counts twice
        at = find_record(file, begin, min(begin + _SEEK_BYTES, size))
        found = yield from _sample_at(file, size, at, _SPOT_BYTES, _SPOT_ROWS)
        end = max(at, found.end)


def _sample_at(
    file: MappedFile, size: int, begin: int, most: int, rows: int
) -> Generator[Window, None, _core.Scan]:
    """Yield the records at a place, and return what a scan found there."""
    stop = min(begin + most, size)
    with (
        hold_headers(file, begin, stop),
        file.hold(begin, _end_of_records(file, begin, stop)),
    ):
        request = _core.ScanRequest(begin, stop, limit=rows, anchor_every=1)
        found = _core.scan(file.bytes, request)
        yield Window(file.bytes, found.anchor_offsets, 0 if begin == 0 else None, 0, found, [])
    return found


def choose_every(size: int, record_size: int) -> int:
    """Choose the number of records per anchor.

    A file of ``size`` bytes must not get too many anchors.
    """
    every = 1 if record_size >= LARGE_RECORD else ANCHOR_EVERY
    while size // max(record_size, _core.FRAME_SIZE) // every > MAX_ANCHORS:
        every *= 2
    return every


@guarded
def scan_span(path: str, begin: int, stop: int, every: int, *, entered: bool) -> ScannedSpan:
    """Find the records that begin between ``begin`` and ``stop``.

    If ``entered``, the first record is at ``begin``. Otherwise, search for it.
    """
    file = located(path).map()
    at = begin if entered else find_record(file, begin, stop)
    first, records, sound = at, 0, True
    lengths: list[int] = []
    first_length = 0
    rows, offsets = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    while at < stop and sound:
        upto = min(at + _SPAN_SIZE, stop)
        request = _core.ScanRequest(at, upto, anchor_every=every, threads=thread_count())
        with hold_headers(file, at, upto):
            scan = _core.scan(file.bytes, request)
        file.have_read(at, upto)
        if scan.records:
            first_length = first_length if lengths else scan.first_length
            lengths += [scan.min_length, scan.max_length]
        rows.append(scan.anchor_rows + np.uint64(records))
        offsets.append(scan.anchor_offsets)
        at, records, sound = scan.end, records + scan.records, scan.fault is None
    shortest, longest = min(lengths, default=0), max(lengths, default=0)
    if shortest == longest:
        rows, offsets = rows[:1], offsets[:1]
    return ScannedSpan(
        begin=first,
        end=at,
        records=records,
        min_length=shortest,
        max_length=longest,
        first_length=first_length,
        every=every,
        rows=np.concatenate(rows),
        offsets=np.concatenate(offsets),
        sound=sound,
    )


def join_spans(
    size: int,
    every: int,
    stops: Sequence[int],
    found: Sequence[ScannedSpan],
    find_again: Callable[[int, int], ScannedSpan],
) -> Index:
    """Make the index of a file of ``size`` bytes from scans of the spans that end at ``stops``.

    ``find_again`` scans from a record to one of these stops. If a record is damaged, the index
    is not complete; a scan that resumes at its end reports the damage.
    """
    index = Index(every=every)
    for stop, span in zip(stops, found, strict=True):
        if index.end >= stop:
            continue  # one record covers all of it
        true = span if span.begin == index.end else find_again(index.end, stop)
        index.add(true, index.every // every)
        if not true.sound:
            return index
    index.complete = index.end >= size
    return index
