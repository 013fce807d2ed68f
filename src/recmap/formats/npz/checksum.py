"""The checksum of bytes that are mapped, checked as they are read in order."""

from __future__ import annotations

from bisect import bisect_right
from threading import Lock

from isal import isal_zlib

from recmap.errors import CorruptRecordError
from recmap.files.mapped import MappedFile

__all__ = ["StoredSum"]

# A read so far behind what was checked still belongs to a pass: threads read several
# blocks at once, and not in their order.
_NEAR = 64 << 20
_PIECE = 16 << 20


class StoredSum:
    """The CRC of ``size`` bytes of a file from ``start`` on, of which parts may be checked in
    any order, by any thread. When all have been, it is compared.
    """

    def __init__(
        self, file: MappedFile, name: str, start: int, size: int, crc: int, field: str
    ) -> None:
        self._file, self._name, self._field = file, name, field
        self._start, self._size, self._crc = start, size, crc
        self._lock = Lock()
        # Beginnings and ends of parts that do not overlap, in order, and their CRCs, of which
        # those that are being computed are missing.
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._sums: list[int | None] = []
        self._state: bool | None = None

    @property
    def known(self) -> bool:
        """Whether it has been compared, and was right."""
        return self._state is True

    @property
    def ahead(self) -> int:
        """All of it: reading looks at no checksum."""
        return self._size

    def passed(self, start: int, stop: int, rows: int, *, in_order: bool) -> None:
        """Check as large a share of the bytes as these rows are of all."""
        if rows:
            begin, end = self._size * start // rows, self._size * stop // rows
            self._pass(begin, end, near=not in_order)
        else:
            self.check()

    def _pass(self, begin: int, end: int, *, near: bool) -> None:
        """Check the bytes from ``begin`` to ``end``; with ``near`` only if others shortly
        before them have been.
        """
        if self._state is True:
            return
        while self._state is None and (part := self._reserve(begin, end, near)) is not None:
            self._compute(*part)
            begin, near = part[1], False
        if self._state is False:
            raise self._error()

    def check(self) -> None:
        """Check all of it, unless that has been done."""
        crc = 0
        for begin in range(0, 0 if self.known else self._size, _PIECE):
            at, end = self._start + begin, self._start + min(begin + _PIECE, self._size)
            crc = isal_zlib.crc32(self._file.bytes[at:end], crc)
            self._file.have_read(at, end)
        self._state = self.known or crc == self._crc
        if not self._state:
            raise self._error()

    def _reserve(self, begin: int, end: int, near: bool) -> tuple[int, int] | None:
        """The first part from ``begin`` to ``end`` that nobody has checked."""
        with self._lock:
            i = bisect_right(self._begins, begin)
            if i and self._ends[i - 1] > begin:
                begin = self._ends[i - 1]
                # What is in turn before the next part may be checked as well.
                while i < len(self._begins) and self._begins[i] == begin:
                    begin, i = self._ends[i], i + 1
            if near and begin > _NEAR + (self._ends[i - 1] if i else 0):
                return None
            if i < len(self._begins):
                end = min(end, self._begins[i])
            if begin >= end:
                return None
            self._begins.insert(i, begin)
            self._ends.insert(i, end)
            self._sums.insert(i, None)
            return begin, end

    def _compute(self, begin: int, end: int) -> None:
        data = self._file.bytes[self._start + begin : self._start + end]
        computed = isal_zlib.crc32(data)
        with self._lock:
            self._sums[self._begins.index(begin)] = computed
            self._join()
            if (self._begins, self._ends) == ([0], [self._size]) and self._sums[0] is not None:
                self._state = self._sums[0] == self._crc

    def _join(self) -> None:
        i = 1
        while i < len(self._begins):
            left, right = self._sums[i - 1], self._sums[i]
            if self._ends[i - 1] != self._begins[i] or left is None or right is None:
                i += 1
                continue
            size = self._ends[i] - self._begins[i]
            self._sums[i - 1] = isal_zlib.crc32_combine(left, right, size)
            self._ends[i - 1] = self._ends[i]
            del self._begins[i], self._ends[i], self._sums[i]

    def _error(self) -> CorruptRecordError:
        return CorruptRecordError(
            f"{self._file.path}: {self._name}: the CRC of its {self._size:,} bytes from byte "
            f"{self._start:,} on is not {self._crc:#010x}, as the zip says: it is damaged; make "
            "it anew, or copy it again (verify=False reads it as it is)",
            file=self._file.path,
            byte=self._start,
            field=self._field,
        )
