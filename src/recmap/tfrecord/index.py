"""Where the records of a file lie."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import RLock
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from recmap.model.source import Skipped
from recmap.native import _core

__all__ = ["LARGE_RECORD", "MARK_EVERY", "MAX_MARKS", "Found", "Index", "Offsets"]

Offsets = npt.NDArray[np.uint64]

# One record in this many is marked; the others are found by walking from there. Of large
# ones each is: every step would be a page more to be read.
MARK_EVERY = 4
LARGE_RECORD = 4096
# With more marks than this (16 MB), every second one is dropped.
MAX_MARKS = 1 << 20
# Marks that were added one by one are put together when there are so many pieces.
_MAX_PIECES = 1024


class Found(Protocol):
    """Records that lie end to end; a Scan of the native core is one."""

    @property
    def begin(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def records(self) -> int: ...

    @property
    def min_length(self) -> int: ...

    @property
    def max_length(self) -> int: ...

    @property
    def first_length(self) -> int: ...

    @property
    def anchor_rows(self) -> Offsets: ...

    @property
    def anchor_offsets(self) -> Offsets: ...


@dataclass
class Index:
    """The records found so far, as marks from which all others are reached.

    A file whose records all have one size needs no marks: record ``i`` is at
    ``i * stride``. The first one may be longer by ``lead`` bytes, in which it describes
    the columns; the others then lie that much further on. ``end`` is where the search
    goes on; ``complete`` says that it has seen the whole file, and ``fault`` why it cannot.
    """

    count: int = 0
    end: int = 0
    complete: bool = False
    length: int | None = None
    fault: _core.Fault | None = None
    skipped: list[Skipped] = field(default_factory=list)
    every: int = MARK_EVERY
    _rows: list[Offsets] = field(default_factory=list)
    _offsets: list[Offsets] = field(default_factory=list)
    # No record is longer; None if nobody knows.
    longest: int | None = field(default=0, compare=False)
    # Held by whoever adds to the index or reads it while others may.
    lock: RLock = field(default_factory=RLock, repr=False, compare=False)
    # Rows behind a gap, whose marks must stay: they cannot be walked to.
    _behind_gap: set[int] = field(default_factory=set)
    lead: int = 0
    _marked: int = field(default=0, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, lock=RLock())

    @classmethod
    def of_marks(
        cls,
        count: int,
        length: int | None,
        rows: Offsets,
        offsets: Offsets,
        end: int,
        lead: int = 0,
    ) -> Index:
        """A complete index."""
        longest = None if length is None else length + lead
        index = cls(count, end, True, length, longest=longest, lead=lead)
        index._mark(rows, offsets)
        return index

    @property
    def stride(self) -> int | None:
        """Bytes from each record to the next, if they are all the same (after the first)."""
        return None if self.length is None else self.length + _core.FRAME_SIZE

    def _strided(self, rows: Offsets) -> Offsets:
        """The offsets of records that are ``stride`` bytes apart."""
        offsets = rows * np.uint64(self.stride or 0)
        if self.lead:
            offsets[rows > 0] += np.uint64(self.lead)
        return offsets

    def _stays_uniform(self, records: int, first: int, least: int, most: int, total: int) -> bool:
        """Whether all records have one length, the very first perhaps a greater one, with
        ``records`` more of ``total`` bytes, of which the first has ``first``. Notes their
        length if so.
        """
        if self._rows or (self.count and self.length is None):
            return False
        # Of all but the first: if their sum is that of as many of the least, all are.
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
        """Chooses which records are marked, by the length of the first."""
        self.every = 1 if length >= LARGE_RECORD else MARK_EVERY

    def add(self, scan: Found, keep: int = 1) -> None:
        """Adds records that were found, at ``end`` or behind a gap that follows it,
        with every ``keep``-th of their marks.
        """
        if scan.records:
            gap = scan.begin != self.end
            if gap:
                self._behind_gap.add(self.count)
            total = scan.end - scan.begin - scan.records * _core.FRAME_SIZE
            if gap or not self._stays_uniform(
                scan.records, scan.first_length, scan.min_length, scan.max_length, total
            ):
                self._leave_uniform()
                # A copy, because a view would keep the marks that are not kept.
                offsets = scan.anchor_offsets[::keep].copy()
                self._mark(scan.anchor_rows[::keep] + np.uint64(self.count), offsets)
                self._thin()
        self._add_length(scan.max_length)
        self.count += scan.records
        self.end = scan.end

    def _add_length(self, length: int) -> None:
        self.longest = None if self.longest is None else max(self.longest, length)

    def add_written(self, offsets: Offsets) -> None:
        """Adds records that were appended: the offset of each, and of their end, from
        ``end`` on.
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
                self._mark(rows, offsets[new] + np.uint64(self.end))
                self._thin()
        self._add_length(longest)
        self.count += len(lengths)
        self.end += int(offsets[-1])

    def add_good(self, scan: _core.Scan, good: npt.NDArray[np.bool_]) -> None:
        """Adds those records of a scan with a mark at every record that are ``good``."""
        if self.count == 0 and scan.records:
            first, *others = scan.anchor_offsets[:2].tolist()
            self.begin((others[0] if others else scan.end) - first - _core.FRAME_SIZE)
        if good.all():
            self.add(scan, self.every)
            return
        numbers = np.flatnonzero(good)
        # A record can be walked to only from the one right before it.
        gap = np.diff(numbers, prepend=-2) != 1
        marked = gap | (np.arange(len(numbers)) % self.every == 0)
        self._leave_uniform()
        rows = (np.flatnonzero(marked) + self.count).astype(np.uint64)
        self._mark(rows, scan.anchor_offsets[numbers[marked]])
        self._behind_gap.update((np.flatnonzero(gap) + self.count).tolist())
        self._add_length(scan.max_length)
        self.count += len(numbers)
        self.end = scan.end

    def _leave_uniform(self) -> None:
        if self.stride is None:
            return
        rows = np.arange(0, self.count, self.every, dtype=np.uint64)
        self._mark(rows, self._strided(rows))
        self.length, self.lead = None, 0

    def _mark(self, rows: Offsets, offsets: Offsets) -> None:
        self._rows.append(rows)
        self._offsets.append(offsets)
        self._marked += len(rows)

    def _thin(self) -> None:
        if self._marked <= MAX_MARKS and len(self._rows) <= _MAX_PIECES:
            return
        rows, offsets = self.marks
        if self._marked > MAX_MARKS:
            keep = self._kept(rows, 2)
            self._rows, self._offsets = [rows[keep]], [offsets[keep]]
            self._marked = len(self._rows[0])
            self.every *= 2

    def _kept(self, rows: Offsets, every: int) -> npt.NDArray[np.bool_]:
        keep = np.zeros(len(rows), dtype=bool)
        keep[::every] = True
        gaps = np.fromiter(self._behind_gap, np.uint64, len(self._behind_gap))
        return keep | np.isin(rows, gaps)

    def part(self, start: int, stop: int, most: int) -> Index:
        """What reaches the records from ``start`` to ``stop``, with about ``most`` marks.
        The index must be complete.
        """
        rows, offsets = self.marks
        first = max(int(np.searchsorted(rows, np.uint64(start), side="right")) - 1, 0)
        mine = slice(first, int(np.searchsorted(rows, np.uint64(stop))))
        rows, offsets = rows[mine], offsets[mine]
        keep = self._kept(rows, max(1, -(-len(rows) // most)))
        return Index.of_marks(
            self.count, self.length, rows[keep], offsets[keep], self.end, self.lead
        )

    @property
    def marks(self) -> tuple[Offsets, Offsets]:
        """Row and offset of each mark, ascending."""
        if len(self._rows) != 1:
            empty = [np.empty(0, np.uint64)]
            self._rows = [np.concatenate(self._rows or empty)]
            self._offsets = [np.concatenate(self._offsets or empty)]
        return self._rows[0], self._offsets[0]

    def offsets(
        self, file: npt.NDArray[np.uint8], rows: npt.NDArray[np.int64], threads: int
    ) -> tuple[Offsets, _core.Fault | None]:
        """The offsets of records by number, all of which must have been found."""
        files = _core.Files()
        with self.lock:
            if self.stride is not None:
                files.add(file, self.stride, lead=self.lead)
            else:
                files.add(file, 0, *self.marks)
        return _core.locate(files, None, rows, threads)
