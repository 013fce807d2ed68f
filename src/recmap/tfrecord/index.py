"""Where the records of a file are."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import RLock
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from recmap.model.facts import Skipped
from recmap.native import _core

Offsets = npt.NDArray[np.uint64]

# One record in this many is an anchor; the others are reached by walking from an anchor.
# Every large record is an anchor, because each step of a walk would read another page.
ANCHOR_EVERY = 4
LARGE_RECORD = 4096
# With more anchors than this (16 MB), every second one is dropped.
MAX_ANCHORS = 1 << 20
# Number of anchor arrays to collect before joining them.
_MAX_ARRAYS = 1024
# The most bytes of records that are expected to have the size of those found. They are decoded in
# vain if one has not.
_MOST_EXPECTED = 256 << 20


@dataclass(frozen=True)
class ScannedSpan:
    """Records stored end to end, like a ``Scan`` of the native core, but small to send.

    One in ``every`` is an anchor. Records of one length need none.
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
    #: Whether there is no damage at ``end``.
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


class ExpectedRows(NamedTuple):
    """Consecutive rows that have one size if the file goes on as it began."""

    start: int
    stop: int
    stride: int
    lead: int


@dataclass
class Index:
    """The records found so far, as anchors from which all others are reached.

    If all records have the same size, no anchors are needed: record ``i`` is at ``i * stride``.
    The first record may be longer by ``lead`` bytes, which describe the columns; the others
    then begin that much later. ``end`` is where the scan resumes. ``complete`` means that the
    whole file has been scanned, and ``fault`` says why the scan cannot continue.
    """

    count: int = 0
    end: int = 0
    complete: bool = False
    length: int | None = None
    fault: _core.Fault | None = None
    skipped: list[Skipped] = field(default_factory=list)
    every: int = ANCHOR_EVERY
    _rows: list[Offsets] = field(default_factory=list)
    _offsets: list[Offsets] = field(default_factory=list)
    # The length of the longest record; None if unknown.
    longest: int | None = field(default=0, compare=False)
    # Hold this lock to add to the index, or to read it while other threads may add.
    lock: RLock = field(default_factory=RLock, repr=False, compare=False)
    # The first row after each gap. Their anchors must stay: no walk crosses a gap.
    _after_gap: set[int] = field(default_factory=set)
    lead: int = 0
    _anchored: int = field(default=0, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, lock=RLock())

    @classmethod
    def of_anchors(
        cls,
        count: int,
        length: int | None,
        rows: Offsets,
        offsets: Offsets,
        end: int,
        lead: int = 0,
    ) -> Index:
        """Make a complete index."""
        longest = None if length is None else length + lead
        index = cls(count, end, True, length, longest=longest, lead=lead)
        index._add_anchors(rows, offsets)
        return index

    @property
    def stride(self) -> int | None:
        """Bytes from each record to the next, if they are all the same (after the first)."""
        return None if self.length is None else self.length + _core.FRAME_SIZE

    def _strided(self, rows: Offsets) -> Offsets:
        """Return the offsets of records that are ``stride`` bytes apart."""
        offsets = rows * np.uint64(self.stride or 0)
        if self.lead:
            offsets[rows > 0] += np.uint64(self.lead)
        return offsets

    def _stays_uniform(self, records: int, first: int, least: int, most: int, total: int) -> bool:
        """Return whether all records still have one length, and remember it if so.

        The very first record of the file may be longer. The ``records`` to be added have
        ``total`` bytes, and the first of them has ``first``.
        """
        if self._rows or (self.count and self.length is None):
            return False
        # All records but the first have the least length if their lengths add up to that.
        behind = total - first == (records - 1) * least and first == most
        if self.count == 0 and behind:
            self.length, self.lead = least, most - least
            return True
        if least != most:
            return False
        if self.count == 1 and self.lead == 0 and self.length is not None and self.length > least:
            self.length, self.lead = least, self.length - least
        return self.length == least

    def begin(self, length: int) -> None:
        """Choose the number of records per anchor by the length of the first record."""
        self.every = 1 if length >= LARGE_RECORD else ANCHOR_EVERY

    def add(self, scan: _core.Scan | ScannedSpan, keep: int = 1) -> None:
        """Add records found at ``end``, or after a gap that follows it.

        Keep every ``keep``-th of their anchors.
        """
        if scan.records:
            gap = scan.begin != self.end
            if gap:
                self._after_gap.add(self.count)
            total = scan.end - scan.begin - scan.records * _core.FRAME_SIZE
            if gap or not self._stays_uniform(
                scan.records, scan.first_length, scan.min_length, scan.max_length, total
            ):
                self._leave_uniform()
                # Copy: a view would keep all anchors of the scan in memory.
                offsets = scan.anchor_offsets[::keep].copy()
                self._add_anchors(scan.anchor_rows[::keep] + np.uint64(self.count), offsets)
                self._thin()
        self._add_length(scan.max_length)
        self.count += scan.records
        self.end = scan.end

    def expect(self, start: int, stop: int, file_size: int) -> ExpectedRows | None:
        """Return rows of which some are not found yet, as if all records had one size.

        Return None if that is not to be expected, or if ``start`` is not among the rows found
        or the next. There are fewer rows if the file ends first.
        """
        if self.complete or self.fault is not None or self.stride is None:
            return None
        more, rest = divmod(file_size - self.end, self.stride)
        # With a rest, the last record has another size or is cut: a scan has to tell.
        if not rest:
            stop = min(stop, self.count + more)
        most = min(more, _MOST_EXPECTED // self.stride)
        if not start <= self.count < stop <= self.count + most:
            return None
        return ExpectedRows(start, stop, self.stride, self.lead)

    def confirm(self, rows: ExpectedRows, file_size: int) -> bool:
        """Add those of the rows that are not found yet: all of them have the size expected.

        Return False if the index has come to know otherwise, because the file changed.
        """
        if self.count < rows.stop:
            if self.fault is not None or (self.stride, self.lead) != (rows.stride, rows.lead):
                return False
            self.end += (rows.stop - self.count) * rows.stride
            self.count = rows.stop
            self.complete = self.end >= file_size
        return True

    def _add_length(self, length: int) -> None:
        self.longest = None if self.longest is None else max(self.longest, length)

    def add_written(self, offsets: Offsets) -> None:
        """Add records that were written at ``end``.

        ``offsets`` are relative to ``end``: one per record, and the end of the last.
        """
        lengths = np.diff(offsets) - np.uint64(_core.FRAME_SIZE)
        if not len(lengths):
            return
        first, longest = int(lengths[0]), int(lengths.max())
        if self.count == 0:
            self.begin(first)
        if not self._stays_uniform(
            len(lengths), first, int(lengths.min()), longest, int(lengths.sum())
        ):
            self._leave_uniform()
            new = slice(-self.count % self.every, len(lengths), self.every)
            rows = np.arange(self.count, self.count + len(lengths), dtype=np.uint64)[new]
            if len(rows):
                self._add_anchors(rows, offsets[new] + np.uint64(self.end))
                self._thin()
        self._add_length(longest)
        self.count += len(lengths)
        self.end += int(offsets[-1])

    def add_good(self, scan: _core.Scan, good: npt.NDArray[np.bool_]) -> None:
        """Add the ``good`` records of a scan with an anchor at every record."""
        if self.count == 0 and scan.records:
            first, *others = scan.anchor_offsets[:2].tolist()
            self.begin((others[0] if others else scan.end) - first - _core.FRAME_SIZE)
        if good.all():
            self.add(scan, self.every)
            return
        numbers = np.flatnonzero(good)
        # A walk reaches a record only from the one immediately before it.
        gap = np.diff(numbers, prepend=-2) != 1
        anchored = gap | (np.arange(len(numbers)) % self.every == 0)
        self._leave_uniform()
        rows = (np.flatnonzero(anchored) + self.count).astype(np.uint64)
        self._add_anchors(rows, scan.anchor_offsets[numbers[anchored]])
        self._after_gap.update((np.flatnonzero(gap) + self.count).tolist())
        self._add_length(scan.max_length)
        self.count += len(numbers)
        self.end = scan.end

    def _leave_uniform(self) -> None:
        if self.stride is None:
            return
        rows = np.arange(0, self.count, self.every, dtype=np.uint64)
        self._add_anchors(rows, self._strided(rows))
        self.length, self.lead = None, 0

    def _add_anchors(self, rows: Offsets, offsets: Offsets) -> None:
        self._rows.append(rows)
        self._offsets.append(offsets)
        self._anchored += len(rows)

    def _thin(self) -> None:
        if self._anchored <= MAX_ANCHORS and len(self._rows) <= _MAX_ARRAYS:
            return
        rows, offsets = self.anchors
        if self._anchored > MAX_ANCHORS:
            keep = self._kept(rows, 2)
            self._rows, self._offsets = [rows[keep]], [offsets[keep]]
            self._anchored = len(self._rows[0])
            self.every *= 2

    def _kept(self, rows: Offsets, every: int) -> npt.NDArray[np.bool_]:
        keep = np.zeros(len(rows), dtype=bool)
        keep[::every] = True
        gaps = np.fromiter(self._after_gap, np.uint64, len(self._after_gap))
        return keep | np.isin(rows, gaps)

    def span(self, start: int, stop: int, most: int) -> Index:
        """Return an index of the records from ``start`` to ``stop``, with about ``most`` anchors.

        This index must be complete.
        """
        rows, offsets = self.anchors
        first = max(int(np.searchsorted(rows, np.uint64(start), side="right")) - 1, 0)
        # The anchor after the last record says where that ends.
        mine = slice(first, int(np.searchsorted(rows, np.uint64(stop))) + 1)
        rows, offsets = rows[mine], offsets[mine]
        keep = self._kept(rows, max(1, -(-len(rows) // most)))
        keep[-1:] = True
        return Index.of_anchors(
            self.count, self.length, rows[keep], offsets[keep], self.end, self.lead
        )

    @property
    def anchors(self) -> tuple[Offsets, Offsets]:
        """Row and offset of each anchor, ascending."""
        if len(self._rows) != 1:
            empty = [np.empty(0, np.uint64)]
            self._rows = [np.concatenate(self._rows or empty)]
            self._offsets = [np.concatenate(self._offsets or empty)]
        return self._rows[0], self._offsets[0]

    def spans(self, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return where the bytes begin and end that hold each of these records.

        They are all that ``offsets`` and a decoder read. All of them must have been found.
        """
        with self.lock:
            wanted = rows.astype(np.uint64)
            if self.stride is not None:
                begins = self._strided(wanted)
                return begins, self._strided(wanted + np.uint64(1))
            anchors, offsets = self.anchors
            at = np.searchsorted(anchors, wanted, side="right")
            return offsets[at - 1], np.append(offsets, np.uint64(self.end))[at]

    def fitting(self, start: int, stop: int, size: int) -> int:
        """Return up to which row about ``size`` bytes reach from ``start``, at least one row."""
        with self.lock:
            if self.stride is not None:
                return min(stop, start + 1 + size // self.stride)
            anchors, offsets = self.anchors
            first = max(int(np.searchsorted(anchors, start, side="right")) - 1, 0)
            last = int(np.searchsorted(offsets, int(offsets[first]) + size))
            upto = int(anchors[last]) if last < len(anchors) else stop
            return min(stop, max(upto, start + 1))

    def offsets(
        self, file: npt.NDArray[np.uint8], rows: npt.NDArray[np.int64], threads: int
    ) -> tuple[Offsets, _core.Fault | None]:
        """Return the offsets of records by number. All of them must have been found."""
        files = _core.Files()
        with self.lock:
            if self.stride is not None:
                files.add(file, self.stride, lead=self.lead)
            else:
                files.add(file, 0, *self.anchors)
        return _core.locate(files, None, rows, threads)
