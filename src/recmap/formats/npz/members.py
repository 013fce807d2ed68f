"""The members of a .npz file: their checksums, and how deflated ones are read.

Stored members are mapped, so only their CRC is handled here. Deflated members are inflated and
their CRC checked while they are read. ``ZipReader`` reads both with zipfile and NumPy, to verify
what recmap reads.
"""

from __future__ import annotations

import io
import lzma
import math
import struct
import weakref
import zipfile
import zlib
from bisect import bisect_right
from collections.abc import Callable
from contextlib import ExitStack
from threading import Lock
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from isal import isal_zlib

from recmap.errors import CompressionError, CorruptRecordError, DataError, RecmapError
from recmap.formats.npy import MAX_HEADER, NpyHeader, parsed
from recmap.local.local_path import located
from recmap.machine.cpus import thread_count
from recmap.machine.lru import Lru
from recmap.machine.mapped import MappedFile
from recmap.store.open_object import SeekableObject

# A read at most this many bytes past the checked ones still belongs to the same pass: threads
# read several blocks at once, out of order.
_NEAR = 64 << 20
# Bytes checked at once.
_CHECKED = 16 << 20
# Bytes inflated at once.
_INFLATED = 1 << 18
# Recently inflated bytes that a pass can read again: spans of ragged offsets overlap by one
# offset, and must not restart the pass.
_LOOK_BACK = 1 << 12
# Deflate cannot compress better than this. Reject members that claim it does, before they make
# us allocate memory.
_MAX_RATIO = 1032
# A deflated array in Fortran order is inflated whole, because its rows are scattered.
MAX_LOADED = 256 << 20
# Bytes inflated at once to gather rows.
_GATHERED = 4 << 20
# Members kept open by zipfile; each has a 32 kB window.
_OPEN = 256
# Bytes of the header before a member, without its name.
LOCAL_SIZE = 30
_BROKEN = (zipfile.BadZipFile, EOFError, OSError, RuntimeError, zlib.error, lzma.LZMAError)


class StoredChecksum:
    """The CRC of ``size`` bytes of a file, starting at ``start``.

    Threads may check spans of the bytes in any order. After the last span, the CRCs are
    combined and compared.
    """

    def __init__(
        self, file: MappedFile, name: str, start: int, size: int, crc: int, field: str
    ) -> None:
        self._file, self._name, self._field = file, name, field
        self._start, self._size, self._crc = start, size, crc
        #: All bytes, because reading mapped bytes does not check them.
        self.ahead = size
        self._lock = Lock()
        # Disjoint spans in order, and their CRCs; a CRC is None while it is being computed.
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._crcs: list[int | None] = []
        # Whether the CRC is correct; None until it is known.
        self._correct: bool | None = None

    @property
    def known(self) -> bool:
        """Whether the CRC has been compared and is correct."""
        return self._correct is True

    def passed(self, start: int, stop: int, rows: int, *, in_order: bool) -> None:
        """Check the fraction of the bytes that these rows are of all rows."""
        if rows:
            begin, end = self._size * start // rows, self._size * stop // rows
            self._pass(begin, end, near=not in_order)
        else:
            self.check()

    def _pass(self, begin: int, end: int, *, near: bool) -> None:
        """Check the bytes from ``begin`` to ``end``.

        With ``near``, check them only if bytes shortly before them have been checked already.
        """
        if self._correct is True:
            return
        while self._correct is None and (span := self._reserve(begin, end, near)) is not None:
            self._compute(*span)
            begin, near = span[1], False
        if self._correct is False:
            raise self._error()

    def check(self) -> None:
        """Check all bytes, unless this has been done."""
        crc = 0
        for begin in range(0, 0 if self.known else self._size, _CHECKED):
            at, end = self._start + begin, self._start + min(begin + _CHECKED, self._size)
            with self._file.hold(at, end):
                crc = isal_zlib.crc32(self._file.bytes[at:end], crc)
            self._file.have_read(at, end)
        self._correct = self.known or crc == self._crc
        if not self._correct:
            raise self._error()

    def _reserve(self, begin: int, end: int, near: bool) -> tuple[int, int] | None:
        """Reserve the first span in ``begin`` to ``end`` that no thread has taken."""
        with self._lock:
            i = bisect_right(self._begins, begin)
            if i and self._ends[i - 1] > begin:
                begin = self._ends[i - 1]
                # Skip the spans that follow without a gap.
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
            self._crcs.insert(i, None)
            return begin, end

    def _compute(self, begin: int, end: int) -> None:
        at, upto = self._start + begin, self._start + end
        with self._file.hold(at, upto):
            computed = isal_zlib.crc32(self._file.bytes[at:upto])
        with self._lock:
            self._crcs[self._begins.index(begin)] = computed
            self._join()
            if (self._begins, self._ends) == ([0], [self._size]) and self._crcs[0] is not None:
                self._correct = self._crcs[0] == self._crc

    def _join(self) -> None:
        i = 1
        while i < len(self._begins):
            left, right = self._crcs[i - 1], self._crcs[i]
            if self._ends[i - 1] != self._begins[i] or left is None or right is None:
                i += 1
                continue
            size = self._ends[i] - self._begins[i]
            self._crcs[i - 1] = isal_zlib.crc32_combine(left, right, size)
            self._ends[i - 1] = self._ends[i]
            del self._begins[i], self._ends[i], self._crcs[i]

    def _error(self) -> CorruptRecordError:
        return CorruptRecordError(
            f"{self._file.path}: {self._name}: the CRC of its {self._size:,} bytes from byte "
            f"{self._start:,} on is not {self._crc:#010x}, as the zip says: it is damaged; save "
            "or copy it again (verify=False reads it as it is)",
            file=self._file.path,
            byte=self._start,
            field=self._field,
        )


class Deflated:
    """A deflated member: ``size`` bytes in ``packed`` bytes of a file, starting at ``start``.

    A read continues where an earlier one ended, so that a pass inflates every byte once. A
    read that goes back starts over. Each thread can have its own pass.
    """

    #: Checking bytes ahead would inflate them twice.
    ahead = 0

    def __init__(
        self, file: MappedFile, name: str, start: int, packed: int, size: int, crc: int
    ) -> None:
        self.file, self.name = file, name
        self.start, self.packed, self.size, self.crc = start, packed, size, crc
        self._passes: list[_Pass] = []
        self._lock = Lock()
        #: Whether one pass has inflated all bytes and their CRC is correct.
        self.known = size == 0
        if size > (packed + 16) * _MAX_RATIO:
            raise self.error(f"{packed:,} bytes cannot inflate to {size:,}")

    def read(self, offset: int, size: int) -> npt.NDArray[np.uint8]:
        """Read inflated bytes; ``offset + size`` must not exceed the size of the member."""
        out = np.empty(size, np.uint8)
        nearest = self._nearest_pass(offset)
        nearest.read(offset, out)
        with self._lock:
            self._passes.append(nearest)
            del self._passes[: -thread_count()]
        return out

    def passed(self, start: int, stop: int, rows: int, *, in_order: bool) -> None:
        """Do nothing: bytes are checked as they are inflated."""

    def check(self) -> None:
        """Inflate all bytes, unless this has been done."""
        whole = _Pass(self)
        buffer = np.empty(_INFLATED, np.uint8)
        while not self.known and whole.position < self.size:
            whole.read(whole.position, buffer[: self.size - whole.position])

    def finished(self, crc: int) -> None:
        """Compare the CRC of all bytes at the end of a pass."""
        if crc != self.crc:
            raise self.error(
                f"the CRC is {crc:#010x}, expected {self.crc:#010x}: it is damaged; save or copy "
                "it again"
            )
        self.known = True

    def _nearest_pass(self, offset: int) -> _Pass:
        """Take the pass that has to skip the fewest bytes to reach ``offset``."""
        with self._lock:
            fit = [p for p in self._passes if p.earliest <= offset]
            if not fit:
                return _Pass(self)
            best = max(fit, key=lambda p: p.position)
            self._passes.remove(best)
            return best

    def error(self, why: str) -> CompressionError:
        return CompressionError(
            f"{self.file.path}: {self.name}: {why}", file=self.file.path, byte=self.start
        )


class _Pass:
    """A pass that inflates a member from its start; used by one thread at a time."""

    def __init__(self, source: Deflated) -> None:
        self._source = source
        self._engine = isal_zlib.decompressobj(wbits=-15)
        self._at = source.start
        self._pending = b""
        self._crc = 0
        self._tail = b""
        # Bytes inflated so far.
        self.position = 0

    @property
    def earliest(self) -> int:
        """The first byte that can be read without starting over."""
        return self.position - len(self._tail)

    def read(self, offset: int, out: npt.NDArray[np.uint8]) -> None:
        while self.position < offset:
            self._next(min(_INFLATED, offset - self.position))
        held = self._tail[offset - self.earliest :][: len(out)]
        out[: len(held)] = np.frombuffer(held, np.uint8)
        filled = len(held)
        while filled < len(out):
            data = self._next(min(_INFLATED, len(out) - filled))
            out[filled : filled + len(data)] = np.frombuffer(data, np.uint8)
            filled += len(data)

    def _next(self, most: int) -> bytes:
        """Inflate the next bytes: at least one, at most ``most``."""
        source = self._source
        end = source.start + source.packed
        data = b""
        while not data:
            ended = self._engine.eof or (not self._pending and self._at == end)
            if not self._pending:
                stop = min(self._at + _INFLATED, end)
                with source.file.hold(self._at, stop):
                    self._pending = source.file.bytes[self._at : stop].tobytes()
                self._at = stop
            try:
                # After the last byte of the member, the engine may still hold output.
                data = b"" if self._engine.eof else self._engine.decompress(self._pending, most)
            except isal_zlib.error as e:  # type: ignore[misc]  # isal's stub errs
                raise source.error(f"damaged deflate stream near byte {self._at:,}: {e}") from e
            self._pending = self._engine.unconsumed_tail
            if ended and not data:
                raise source.error(
                    f"the deflate stream ends after {self.position:,} of {source.size:,} bytes"
                )
        self._advance(data)
        return data

    def _advance(self, data: bytes) -> None:
        self.position += len(data)
        self._tail = (self._tail + data[-_LOOK_BACK:])[-_LOOK_BACK:]
        self._crc = isal_zlib.crc32(data, self._crc)
        if self.position == self._source.size:
            self._source.finished(self._crc)


class StreamedArray:
    """A deflated array, read by rows. ``read`` returns inflated bytes, given offset and size."""

    note = "deflated, read in order"

    def __init__(
        self, read: Callable[[int, int], npt.NDArray[np.uint8]], header: NpyHeader
    ) -> None:
        self._inflated, self._header = read, header
        self.dtype, self.shape = header.dtype, header.shape
        self._row_size = header.dtype.itemsize * math.prod(header.shape[1:])
        self._scattered = header.fortran and sum(axis > 1 for axis in header.shape) > 1
        # Reading a row inflates all rows before it, so the whole array is one chunk.
        self.chunk_rows = self.stored_rows = max(1, self.shape[0])
        self.chunk_bytes = self.shape[0] * self._row_size if self._scattered else 0
        self._whole: npt.NDArray[Any] | None = None
        self._lock = Lock()

    def keep(self, groups: int | None) -> None:
        """Do nothing: no rows are cached."""

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        if self._scattered:
            return self._loaded()[start:stop]
        return self._rows(start, stop)

    def gather(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        if self._scattered:
            return self._loaded()[rows]
        out = np.empty((len(rows), *self.shape[1:]), self.dtype)
        order = np.argsort(rows, kind="stable")
        wanted = rows[order]
        step = max(1, _GATHERED // max(self._row_size, 1))
        done = 0
        while done < len(wanted):
            first = int(wanted[done])
            upto = int(np.searchsorted(wanted, first + step))
            some = wanted[done:upto]
            out[order[done:upto]] = self._rows(first, int(some[-1]) + 1)[some - first]
            done = upto
        return out

    def _rows(self, start: int, stop: int) -> npt.NDArray[Any]:
        shape = (stop - start, *self.shape[1:])
        if math.prod(shape) == 0:
            return np.empty(shape, self.dtype)
        offset = self._header.size + start * self._row_size
        data = self._inflated(offset, (stop - start) * self._row_size)
        return data.view(self.dtype).reshape(shape)

    def _loaded(self) -> npt.NDArray[Any]:
        with self._lock:
            if self._whole is None:
                data = self._inflated(self._header.size, self.shape[0] * self._row_size)
                self._whole = data.view(self.dtype).reshape(self.shape, order="F")
            return self._whole


class ZipReader:
    """Reads the members of a zip with zipfile and NumPy, from any thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._opened = ExitStack()
        self._seekable = self._opened.enter_context(located(path).seekable())
        self._archive = zipfile.ZipFile(self._seekable)
        self._file = self._opened.enter_context(located(path).open())
        self._members = Lru[int, IO[bytes]](_OPEN)
        weakref.finalize(self, _close, self._archive, self._members, self._opened)
        self._lock = Lock()

    def header(self, info: zipfile.ZipInfo) -> NpyHeader | None:
        """Read the header of an array; None for a version that NumPy has no public reader for."""
        file = io.BytesIO(self._read(info, 0, MAX_HEADER))
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            return None
        read: Any = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        begin = file.tell()

        def parse() -> Any:
            file.seek(begin)
            return read(file, max_header_size=MAX_HEADER)

        shape, fortran, dtype = parsed(parse)
        return NpyHeader(dtype.base, (*shape, *dtype.shape), fortran, file.tell())

    def read(self, info: zipfile.ZipInfo, offset: int, size: int) -> npt.NDArray[np.uint8]:
        """Read exactly ``size`` bytes of a member."""
        data = self._read(info, offset, size)
        if len(data) < size:
            raise DataError(
                f"{self._path}: {info.filename}: it ends after {offset + len(data):,} bytes",
                file=self._path,
            )
        return np.frombuffer(data, np.uint8)

    def _read(self, info: zipfile.ZipInfo, offset: int, size: int) -> bytes:
        """Read bytes of a member; fewer if it ends first."""
        try:
            if info.compress_type == zipfile.ZIP_STORED:
                return self._stored(info, offset, min(size, info.file_size - offset))
            with self._lock:
                member = self._member(info)
                member.seek(offset)
                return member.read(size)
        except RecmapError:
            raise
        except _BROKEN as e:
            if isinstance(self._seekable, SeekableObject):
                self._seekable.raise_error()
            raise DataError(f"{self._path}: {info.filename}: {e}", file=self._path) from e

    def _stored(self, info: zipfile.ZipInfo, offset: int, size: int) -> bytes:
        # Not through zipfile, which would read all bytes before the offset.
        local = self._file.pread(LOCAL_SIZE, info.header_offset)
        name, extra = struct.unpack_from("<HH", local, 26)
        at = info.header_offset + LOCAL_SIZE + name + extra + offset
        found = []
        while size > 0 and (data := self._file.pread(size, at)):
            found.append(data)
            at, size = at + len(data), size - len(data)
        return b"".join(found)

    def _member(self, info: zipfile.ZipInfo) -> IO[bytes]:
        member = self._members.get(info.header_offset)
        if member is None:
            member = self._archive.open(info)
            for old in self._members.put(info.header_offset, member):
                old.close()
        return member


def _close(archive: zipfile.ZipFile, members: Lru[int, IO[bytes]], opened: ExitStack) -> None:
    for member in members.shrink(0):
        member.close()
    archive.close()
    opened.close()
