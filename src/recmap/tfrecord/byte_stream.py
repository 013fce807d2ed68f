"""The plain bytes of a compressed file, inflated piece by piece.

``inflate`` yields them in order, member by member, and resumes after damage where it can.
``ByteStream`` holds as many of them as a reader needs at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import CompressionError, Message, Option, OptionError
from recmap.files.gzip import inflate_members, inflater, member_size
from recmap.files.gzip_rescue import Rescue, find_member
from recmap.files.output_file import Compression
from recmap.files.threads import read_ahead
from recmap.native import _core

__all__ = ["ByteStream", "CompressionOption", "Entry", "check_compression", "inflate"]

CompressionOption: TypeAlias = Literal["auto", "gzip", "zlib"] | None

_GZIP_MAGIC = b"\x1f\x8b\x08"
# Larger buffers leave the CPU cache and make inflating 12% slower.
_READ_SIZE = 1 << 17
_OUT_SIZE = 3 << 16
# The search for members after damage may reread up to this many times the file's size.
_MAX_REREAD = 4
# Bytes held while searching for the next sound record. Larger records are not found.
_SEARCH_SIZE = 16 << 20
# Size of a stream's first allocation.
_FIRST_SIZE = 1 << 20
# Pieces to inflate ahead while records are decoded. Most have at most 256 KB.
_PIECES_AHEAD = 8


def check_compression(path: str, asked: CompressionOption) -> Compression:
    """Return how a file is compressed; raise if that is not what was asked for."""
    if asked not in ("auto", "gzip", "zlib", None):
        raise OptionError(f'compression={asked!r}: use "auto", "gzip", "zlib" or None')
    with open(path, "rb") as file:
        head = file.read(_core.FRAME_SIZE)
    found = _detect(head)
    if asked in ("auto", found) or not head:
        return found
    raise CompressionError(
        Message(
            f"{path}: compression={asked!r} was asked for, but the content is "
            f"{found or 'not compressed'} (use ",
            Option("compression", "auto", of_input=True),
            ")",
        ),
        file=path,
    )


def _detect(head: bytes) -> Compression:
    """Detect how a file is compressed from its first bytes.

    A plain file begins with the length of a record, which may look like gzip's magic number.
    The CRC that follows tells them apart.
    """
    first = _core.scan(np.frombuffer(head, np.uint8), _core.ScanRequest(limit=1))
    sound = first.records == 1 or (first.fault and first.fault.code == _core.FaultCode.data_cut)
    if sound and len(head) >= _core.HEADER_SIZE:
        return None
    if _begins(head, "gzip"):
        return "gzip"
    return "zlib" if _begins(head, "zlib") else None


def _begins(data: bytes, compression: Literal["gzip", "zlib"]) -> bool:
    """Return whether a compressed stream can begin with these bytes."""
    if compression == "gzip":
        return data[:3] == _GZIP_MAGIC[: len(data)] and len(data) > 0
    window = len(data) >= 2 and data[0] & 0x0F == 8 and data[0] >> 4 <= 7
    return window and int.from_bytes(data[:2], "big") % 31 == 0


class Piece(NamedTuple):
    """Plain bytes from one member.

    ``begin`` is where the member begins in the file if these are its first bytes, else None.
    ``end`` is how far the file has been read. ``failure`` is what is wrong with the stream
    after these bytes.
    """

    plain: bytes
    begin: int | None
    end: int
    failure: CompressionError | None = None


@dataclass
class _Member:
    """The member being inflated: where it begins, and how many plain bytes it has yielded."""

    begin: int
    plain: int = 0


def inflate(
    path: str, compression: Literal["gzip", "zlib"], position: int = 0, *, salvage: bool = False
) -> Iterator[Piece]:
    """Yield the plain bytes of a file, starting with the member at ``position``.

    Where the stream is damaged, everything that can still be inflated is followed by an empty
    piece with the failure. That piece is the last one, unless ``salvage`` finds a member after
    the damage.
    """
    with open(path, "rb", buffering=0) as file:
        size, reread = os.fstat(file.fileno()).st_size, 0
        while True:
            member = _Member(position)
            try:
                yield from _inflate_sound(file, path, compression, position, member)
                return
            except CompressionError as e:
                failure = e
            rescue = Rescue(file.fileno(), compression, member.begin)
            for plain in rescue.beyond(member.plain):
                yield Piece(plain, None if member.plain else member.begin, rescue.position)
                member.plain += len(plain)
            end, begin = rescue.position, None
            if salvage and compression == "gzip":
                # What was inflated may be noise that extends into the next members, so search
                # from the beginning of this one, but limit how much is read again.
                reread += end - member.begin
                trusted = rescue.ended or reread > _MAX_REREAD * size
                begin = find_member(file.fileno(), end if trusted else member.begin + 1)
            yield Piece(b"", None, end if begin is None else begin, failure)
            if begin is None:
                return
            position = begin


def _inflate_sound(
    file: FileIO, path: str, compression: Literal["gzip", "zlib"], position: int, member: _Member
) -> Iterator[Piece]:
    """Yield the plain bytes up to the first damage, then raise."""
    file.seek(position)
    engine, error = inflater(compression)
    # A member at ``distrusted`` is inflated as a stream: the size in its header may be wrong.
    fresh, pending, distrusted = True, b"", -1
    while True:
        data = pending or file.read(_READ_SIZE)
        if fresh:
            member.begin, member.plain = position, 0
        if fresh and position > 0:
            if not data:
                return
            # Zeros after a gzip member are padding, as on tapes.
            pending = data.lstrip(b"\0") if compression == "gzip" else data
            if len(pending) < len(data):
                position += len(data) - len(pending)
                continue
        if not data:
            why = f"the {compression} stream ends early, at byte {position:,}"
            raise CompressionError(f"{path}: {why}", file=path, byte=position)
        if fresh and position > 0 and not _begins(data, compression):
            why = f"what follows the {compression} stream at byte {position:,} is not"
            raise CompressionError(f"{path}: {why} {compression}", file=path, byte=position)
        if fresh and position != distrusted and member_size(data) is not None:
            for size, plain in inflate_members(file.fileno(), position):
                yield Piece(plain, position, position + size)
                position += size
            # The next member does not state its size, is damaged, or does not exist.
            file.seek(position)
            pending, distrusted = b"", position
            continue
        try:
            plain = engine.decompress(data, _OUT_SIZE)
        except error as e:
            why = f"damaged {compression} stream near byte {position:,}: {e}"
            raise CompressionError(f"{path}: {why}", file=path, byte=position) from e
        pending = engine.unused_data if engine.eof else engine.unconsumed_tail
        position += len(data) - len(pending)
        fresh = engine.eof
        if fresh:
            engine, error = inflater(compression)
        if plain:
            begin = None if member.plain else member.begin
            member.plain += len(plain)
            yield Piece(plain, begin, position)


@dataclass(frozen=True)
class Entry:
    """A member where reading can start, and the number of plain bytes before it."""

    position: int = 0
    base: int = 0


class ByteStream:
    """A moving window over the plain bytes: ``held`` begins at ``base``.

    A damaged stream ends at the damage, or continues after it with ``skip``. ``failures`` lists
    what is wrong, and where in the plain bytes.
    """

    def __init__(
        self, path: str, compression: Literal["gzip", "zlib"], skip: bool, entry: Entry
    ) -> None:
        self.base = entry.base
        # Compressed bytes of the file that have been inflated.
        self.passed = entry.position
        self.ended = False
        self.failures: list[tuple[int, CompressionError]] = []
        # Never written to again, so it stays valid when the stream moves on.
        self.held: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self._rest = memoryview(b"")
        self._entries: list[Entry] = []
        self._pieces = inflate(path, compression, entry.position, salvage=skip)
        self._begun = self._ahead = False

    def fill(self, size: int) -> bool:
        """Inflate until ``size`` bytes are held or the stream ends.

        Return False if nothing is held.
        """
        if len(self.held) < size and not self.ended:
            if self._begun and not self._ahead:
                # Start the thread only on the second call: often only the first bytes are read.
                self._pieces, self._ahead = read_ahead(self._pieces, _PIECES_AHEAD), True
            self._begun = True
        while len(self.held) < size and not self.ended:
            # A damaged record may claim any size, so memory grows step by step.
            self._extend(min(size, max(2 * len(self.held), _FIRST_SIZE)))
        return len(self.held) > 0

    def _extend(self, size: int) -> None:
        buffer, at = np.empty(size, np.uint8), len(self.held)
        buffer[:at] = self.held
        while at < size and (self._rest or self._next_piece(at)):
            count = min(len(self._rest), size - at)
            buffer[at : at + count] = np.frombuffer(self._rest, np.uint8, count)
            self._rest = self._rest[count:]
            at += count
        self.held = buffer[:at]
        self.held.flags.writeable = False

    def _next_piece(self, at: int) -> bool:
        """Take the next piece, which begins ``at`` bytes after ``base``; False at the end."""
        piece = next(self._pieces, None)
        while piece is not None and piece.failure is not None:
            self.failures.append((self.base + at, piece.failure))
            self.passed = piece.end
            piece = next(self._pieces, None)
        self.ended = piece is None
        if piece is None:
            return False
        if piece.begin is not None:
            self._entries.append(Entry(piece.begin, self.base + at))
        self._rest, self.passed = memoryview(piece.plain), piece.end
        return True

    def drop(self, size: int) -> None:
        """Move on by ``size`` bytes."""
        self.held = self.held[size:].copy()  # a view would keep all of it alive
        self.base += size
        while len(self._entries) > 1 and self._entries[1].base <= self.base:
            del self._entries[0]

    @property
    def entry(self) -> Entry:
        """The nearest entry at or before ``base``, once something is held."""
        return self._entries[0]

    def end_of_record(self, offset: int) -> int | None:
        """Return where the record at an offset ends. All of it must be held.

        Return None if its length cannot be trusted, because neither a record nor the end of
        the stream follows.
        """
        length = int.from_bytes(self.held[offset : offset + 8], "little")
        after = offset + _core.FRAME_SIZE + length
        self.fill(after + _core.HEADER_SIZE)
        if self.ended and after == len(self.held):
            return after
        fault = _core.scan(self.held, _core.ScanRequest(after, limit=1)).fault
        return after if fault is None or fault.code == _core.FaultCode.data_cut else None

    def seek_record(self) -> bool:
        """Move to the next sound record; return False if the held bytes contain none."""
        size = len(self.held)
        at = _core.find_record(self.held, 0, size)
        if at < size or self.ended:
            self.drop(at)
            return at < size
        # A record may begin near the end of the held bytes.
        self.drop(max(0, size - _SEARCH_SIZE))
        self.fill(len(self.held) + _SEARCH_SIZE)
        return False
