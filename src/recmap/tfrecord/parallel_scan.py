"""Find the records of one file by scanning several spans of it in parallel.

A scan enters its span at the first record with matching CRCs. That record may be inside
another one, since a record may contain a TFRecord file. So a result counts only if the scan of
the previous span ends exactly where this one begins. Otherwise the span is scanned again from
that end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from recmap.local.local_path import located
from recmap.machine.cpus import thread_count
from recmap.machine.mapped import MappedFile, guarded
from recmap.native import _core
from recmap.tfrecord.index import ANCHOR_EVERY, LARGE_RECORD, MAX_ANCHORS, Index, ScannedSpan

# Bytes scanned before their pages are released.
_WINDOW_SIZE = 64 << 20
# Bytes of an object searched at a time.
_SEARCHED = 1 << 20


def choose_every(size: int, record_size: int) -> int:
    """Choose the number of records per anchor.

    A file of ``size`` bytes must not get too many anchors.
    """
    every = 1 if record_size >= LARGE_RECORD else ANCHOR_EVERY
    while size // max(record_size, _core.FRAME_SIZE) // every > MAX_ANCHORS:
        every *= 2
    return every


def find_record(file: MappedFile, begin: int, stop: int) -> int:
    """Return the offset of the first sound record that begins in a span, else ``stop``."""
    if file.whole:
        return _core.find_record(file.bytes, begin, stop)
    at = begin
    while at < stop:
        upto = min(at + _SEARCHED, stop)
        with file.hold(at, min(upto + _core.HEADER_SIZE, file.size)):
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
        upto = min(at + _WINDOW_SIZE, stop)
        request = _core.ScanRequest(at, upto, anchor_every=every, threads=thread_count())
        with file.hold(at, min(upto + _core.HEADER_SIZE, file.size)):
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
