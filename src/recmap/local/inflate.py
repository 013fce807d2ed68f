"""Inflate gzip and zlib files member by member, and resume after damage where possible."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from recmap.errors import CompressionError
from recmap.local.deflate import (
    BlockInflater,
    Bytes,
    DeflateError,
    Point,
    can_inflate,
    can_resume,
)
from recmap.local.gzip import (
    GZIP_MAGIC,
    HEAD_SIZE,
    ROOM,
    header_size,
    inflate_members,
    inflater,
)
from recmap.local.local_path import located
from recmap.local.location import OpenFile
from recmap.native import _core

CompressionOption: TypeAlias = Literal["auto", "gzip", "zlib"] | None

# Larger buffers leave the CPU cache and make inflating 12% slower.
_READ_SIZE = 1 << 17
_OUT_SIZE = 3 << 16
# The search for members after damage may reread up to this many times the file's size.
_MAX_REREAD = 4
_RAW = -15
# Bytes read and inflated per call near damage. Where one size fails, the next smaller one
# continues.
_STEPS = ((_READ_SIZE, _OUT_SIZE), (1 << 10, 1 << 10), (1, 1))
_TRAILER = {"gzip": 8, "zlib": 4}
# Far more than any header takes.
_HEADER_SIZE = 1 << 17
_SEARCH_SIZE = 1 << 20
# Compressed bytes inflated to check whether a member begins here.
_TRIED = 1 << 10


def begins_stream(data: bytes, compression: Literal["gzip", "zlib"]) -> bool:
    """Return whether a compressed stream can begin with these bytes."""
    if compression == "gzip":
        return data[:3] == GZIP_MAGIC[: len(data)] and len(data) > 0
    window = len(data) >= 2 and data[0] & 0x0F == 8 and data[0] >> 4 <= 7
    return window and int.from_bytes(data[:2], "big") % 31 == 0


class Inflated(NamedTuple):
    """Plain bytes from one member, or from several.

    ``begins`` are the members that begin in these bytes: where in the file, and where in the
    bytes. ``end`` is how far the file has been read. ``failure`` is what is wrong with the stream
    after these bytes. ``point`` is where inflating can resume with these bytes, if known.
    ``memory`` ends with the bytes, and begins with some that are free for the receiver.
    """

    plain: bytes | memoryview
    begins: Sequence[tuple[int, int]]
    end: int
    failure: CompressionError | None = None
    point: Point | None = None
    memory: Bytes | None = None

    @classmethod
    def within(cls, memory: Bytes, begins: Sequence[tuple[int, int]], end: int) -> Inflated:
        """Make those that follow ``ROOM`` free bytes in their memory."""
        return cls(memory[ROOM:].data, begins, end, memory=memory)


@dataclass
class _InflatingMember:
    """The member being inflated: where it begins, and how many plain bytes it has yielded."""

    begin: int
    plain: int = 0

    def begins(self) -> list[tuple[int, int]]:
        """Return where the member begins in the next plain bytes, if it does."""
        return [] if self.plain else [(self.begin, 0)]


def inflate(
    path: str,
    compression: Literal["gzip", "zlib"],
    position: int = 0,
    *,
    salvage: bool = False,
    points: bool = False,
) -> Iterator[Inflated]:
    """Yield the plain bytes of a file, starting with the member at ``position``.

    With ``points``, find where inflating can resume.

    Where the stream is damaged, everything that can still be inflated is followed by a result
    without bytes, but with the failure. It is the last one, unless ``salvage`` finds a member
    after the damage.
    """
    with located(path).open(in_order=True) as file:
        size, reread = file.size, 0
        while True:
            member = _InflatingMember(position)
            try:
                yield from _inflate_sound(file, path, compression, position, member, points)
                return
            except CompressionError as e:
                failure = e
            rescue = _Rescue(file, compression, member.begin)
            for plain in rescue.beyond(member.plain):
                yield Inflated(plain, member.begins(), rescue.position)
                member.plain += len(plain)
            end, begin = rescue.position, None
            if salvage and compression == "gzip":
                # What was inflated may be noise that extends into the next members, so search
                # from the beginning of this one, but limit how much is read again.
                reread += end - member.begin
                trusted = rescue.ended or reread > _MAX_REREAD * size
                begin = _find_member(file, end if trusted else member.begin + 1)
            yield Inflated(b"", (), end if begin is None else begin, failure)
            if begin is None:
                return
            position = begin


def _inflate_sound(
    file: OpenFile,
    path: str,
    compression: Literal["gzip", "zlib"],
    position: int,
    member: _InflatingMember,
    points: bool,
) -> Iterator[Inflated]:
    """Yield the plain bytes up to the first damage, then raise."""
    engine, error = _engine(compression, points)
    point: Point | None = None
    # A member at ``distrusted`` is inflated as a stream: the size in its header may be wrong.
    fresh, pending, distrusted = True, b"", -1
    while True:
        data = pending or file.pread(_READ_SIZE, position)
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
        if fresh and position > 0 and not begins_stream(data, compression):
            why = f"what follows the {compression} stream at byte {position:,} is not"
            raise CompressionError(f"{path}: {why} {compression}", file=path, byte=position)
        if fresh and position != distrusted and _states_size(data):
            for memory, ends in inflate_members(file.pread, position):
                begins = [(position + at, plain) for at, plain in [(0, 0), *ends[:-1]]]
                position += ends[-1][0]
                yield Inflated.within(memory, begins, position)
                del memory
            # The next member does not state its size, is damaged, or does not exist.
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
        if plain:
            begins = member.begins()
            member.plain += len(plain)
            yield Inflated(plain, begins, position, None, point)
            point = None
        if isinstance(engine, BlockInflater) and engine.found is not None:
            point = Point(position, *engine.found)
        if fresh:
            engine, error = _engine(compression, points)
            point = None


def _states_size(data: bytes) -> bool:
    """Return whether a member that begins with this can be inflated at once, with others."""
    return _core.member_size(data[:HEAD_SIZE]) is not None and can_inflate()


def _engine(compression: Literal["gzip", "zlib"], points: bool) -> tuple[Any, type[Exception]]:
    if points and can_resume():
        return BlockInflater(compression), DeflateError
    return inflater(compression)


class _Rescue:
    """Inflates what can still be read of the damaged member that begins at ``begin``.

    When a decompressor reaches damage, it discards what it inflated in the same call. So the
    member is inflated again, in smaller and smaller steps towards the damage, and its checksum
    is ignored.
    """

    def __init__(self, file: OpenFile, compression: Literal["gzip", "zlib"], begin: int) -> None:
        self._file, self._compression = file, compression
        header = header_size(file.pread(_HEADER_SIZE, begin), compression)
        self._readable = header is not None
        #: How far into the file it has read.
        self.position = begin + (header or 0)
        #: Whether it reached the end of the member, so that only the checksum is wrong.
        self.ended = False

    def beyond(self, size: int) -> Iterator[bytes]:
        """Yield what can be inflated after the first ``size`` plain bytes."""
        if not self._readable:
            return
        engine, made = zlib.decompressobj(_RAW), 0
        for read, most in _STEPS:
            while True:
                before = engine.copy()
                data = self._file.pread(read, self.position)
                try:
                    plain = engine.decompress(data, most)
                except zlib.error:
                    engine = before
                    break
                rest = engine.unused_data if engine.eof else engine.unconsumed_tail
                self.position += len(data) - len(rest)
                if plain[max(0, size - made) :]:
                    yield plain[max(0, size - made) :]
                made += len(plain)
                if engine.eof:
                    self.ended = True
                    self.position += _TRAILER[self._compression]
                    return
                if not plain and len(data) == len(rest):
                    return  # end of file


def _find_member(file: OpenFile, begin: int) -> int | None:
    """Find where the next gzip member begins, judging by its first bytes."""
    while True:
        data = file.pread(_SEARCH_SIZE, begin)
        at = data.find(GZIP_MAGIC)
        while at >= 0:
            if _is_member(file, begin + at):
                return begin + at
            at = data.find(GZIP_MAGIC, at + 1)
        if len(data) < _SEARCH_SIZE:
            return None
        begin += len(data) - len(GZIP_MAGIC) + 1


def _is_member(file: OpenFile, begin: int) -> bool:
    data = file.pread(_HEADER_SIZE, begin)
    header = header_size(data, "gzip")
    if header is None:
        return False
    engine = zlib.decompressobj(_RAW)
    try:
        return bool(engine.decompress(data[header : header + _TRIED], _TRIED)) or engine.eof
    except zlib.error:
        # The damage may be within these bytes.
        return _inflates_some(data[header : header + _TRIED])


def _inflates_some(data: bytes) -> bool:
    engine = zlib.decompressobj(_RAW)
    try:
        return any(engine.decompress(data[i : i + 1]) for i in range(len(data)))
    except zlib.error:
        return False
