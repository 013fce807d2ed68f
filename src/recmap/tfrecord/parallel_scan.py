"""The records of one file, found by several readers who each search a stretch of it.

A reader enters the file anywhere, at the first record whose CRCs are right. That may be
part of the data of another record: a record may hold a TFRecord file. So what was found
counts only if the walk through the stretch before it ends exactly where it begins; else
the stretch is walked again from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from recmap.files.cpus import thread_count
from recmap.files.mapped import MappedFile, guarded
from recmap.native import _core
from recmap.tfrecord.index import LARGE_RECORD, MARK_EVERY, MAX_MARKS, Index, Offsets

__all__ = ["Stretch", "choose_every", "find_stretch", "join_stretches"]

# Bytes searched before their pages are given back.
_WINDOW_SIZE = 64 << 20


@dataclass(frozen=True)
class Stretch:
    """Records that lie end to end, with a mark at every so many of them. Records of one
    length need no marks to be sent.
    """

    begin: int
    end: int
    records: int
    min_length: int
    max_length: int
    first_length: int
    every: int
    rows: Offsets
    offsets: Offsets
    #: Whether nothing is wrong with the record at ``end``.
    sound: bool

    @property
    def anchor_rows(self) -> Offsets:
        if not self._uniform:
            return self.rows
        return np.arange(0, self.records, self.every, dtype=np.uint64)

    @property
    def anchor_offsets(self) -> Offsets:
        if not self._uniform:
            return self.offsets
        return self.anchor_rows * np.uint64(self.min_length + _core.FRAME_SIZE) + np.uint64(
            self.begin
        )

    @property
    def _uniform(self) -> bool:
        return self.records > 0 and self.min_length == self.max_length


def choose_every(size: int, record_size: int) -> int:
    """How many records a mark is for, so that those of a file of so many bytes are few
    enough.
    """
    every = 1 if record_size >= LARGE_RECORD else MARK_EVERY
    while size // max(record_size, _core.FRAME_SIZE) // every > MAX_MARKS:
        every *= 2
    return every


@guarded
def find_stretch(path: str, begin: int, stop: int, every: int, *, entered: bool) -> Stretch:
    """The records that begin from ``begin`` to ``stop``. The first one is searched for,
    unless the file has been ``entered``: then it is at ``begin``.
    """
    file = MappedFile(path)
    at = begin if entered else _core.find_record(file.bytes, begin, stop)
    first, records, sound = at, 0, True
    lengths: list[int] = []
    first_length = 0
    rows, offsets = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    while at < stop and sound:
        upto = min(at + _WINDOW_SIZE, stop)
        request = _core.ScanRequest(at, upto, anchor_every=every, threads=thread_count())
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
    return Stretch(
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


def join_stretches(
    size: int,
    every: int,
    stops: Sequence[int],
    found: Sequence[Stretch],
    find_again: Callable[[int, int], Stretch],
) -> Index:
    """The index of a file of ``size`` bytes, of which stretches up to these places were
    searched. ``find_again`` walks from a record to such a place. The index is not complete
    if a record is damaged: whoever goes on from its end finds out how.
    """
    index = Index(every=every)
    for stop, stretch in zip(stops, found, strict=True):
        if index.end >= stop:
            continue  # one record spans it
        true = stretch if stretch.begin == index.end else find_again(index.end, stop)
        index.add(true, index.every // every)
        if not true.sound:
            return index
    index.complete = index.end >= size
    return index
