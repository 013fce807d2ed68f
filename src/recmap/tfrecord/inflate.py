"""Compressed files as a stream of plain bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from recmap.errors import CompressionError, OptionError
from recmap.files.gzip_members import member_size, unpack_from
from recmap.files.gzip_rescue import Rescue, find_member
from recmap.files.inflate import inflater
from recmap.files.output_file import Compression
from recmap.native import _core

__all__ = ["CompressionOption", "Piece", "check_compression", "detect", "inflate"]

CompressionOption: TypeAlias = Literal["auto", "gzip", "zlib"] | None

_GZIP_MAGIC = b"\x1f\x8b\x08"
# Larger ones make inflating 12% slower: they do not stay in the cache.
_READ_SIZE = 1 << 17
_OUT_SIZE = 3 << 16
# Times the size of a file that are read again at most, in search of members behind damage.
_AGAIN = 4


class Piece(NamedTuple):
    """Plain bytes, where their member begins in the file if they are the first of it, how
    far the file has been read for them, and what is wrong with the stream behind them.
    """

    plain: bytes
    begin: int | None
    end: int
    failure: CompressionError | None = None


def detect(head: bytes) -> Compression:
    """How a file that begins with these bytes is compressed, by its content.

    A plain file begins with a record's length, which can look like the magic of
    gzip; its CRC tells them apart.
    """
    first = _core.scan(np.frombuffer(head, np.uint8), _core.ScanRequest(limit=1))
    sound = first.records == 1 or (first.fault and first.fault.code == _core.FaultCode.data_cut)
    if sound and len(head) >= _core.HEADER_SIZE:
        return None
    if _begins(head, "gzip"):
        return "gzip"
    return "zlib" if _begins(head, "zlib") else None


def _begins(data: bytes, compression: Literal["gzip", "zlib"]) -> bool:
    """Whether these can be the first bytes of such a stream."""
    if compression == "gzip":
        return data[:3] == _GZIP_MAGIC[: len(data)] and len(data) > 0
    window = len(data) >= 2 and data[0] & 0x0F == 8 and data[0] >> 4 <= 7
    return window and int.from_bytes(data[:2], "big") % 31 == 0


def check_compression(path: str, asked: CompressionOption) -> Compression:
    """How the file is compressed; an error if that is not what was asked for."""
    if asked not in ("auto", "gzip", "zlib", None):
        raise OptionError(f'compression={asked!r}: use "auto", "gzip", "zlib" or None')
    with open(path, "rb") as file:
        head = file.read(_core.FRAME_SIZE)
    found = detect(head)
    if asked in ("auto", found) or not head:
        return found
    raise CompressionError(
        f"{path}: compression={asked!r} was asked for, but the content is "
        f'{found or "not compressed"} (use compression="auto")',
        file=path,
    )


@dataclass
class _Member:
    """The member being inflated: where it begins, and the plain bytes it has given."""

    begin: int
    plain: int = 0


def inflate(
    path: str, compression: Literal["gzip", "zlib"], position: int = 0, *, salvage: bool = False
) -> Iterator[Piece]:
    """The plain bytes of a file in pieces, through all its members, from the one at
    ``position`` on. Where the stream is damaged, a piece without bytes that says why comes
    behind all that could be inflated. It is the last one, unless there are members behind the
    damage to ``salvage``.
    """
    with open(path, "rb", buffering=0) as file:
        size, again = os.fstat(file.fileno()).st_size, 0
        while True:
            member = _Member(position)
            try:
                yield from _members(file, path, compression, position, member)
                return
            except CompressionError as e:
                failure = e
            rescue = Rescue(file.fileno(), compression, member.begin)
            for plain in rescue.beyond(member.plain):
                yield Piece(plain, None if member.plain else member.begin, rescue.position)
                member.plain += len(plain)
            end = rescue.position
            begin = None
            if salvage and compression == "gzip":
                # What was inflated may be noise, and reach into the next members. But not all
                # is read again and again.
                again += end - member.begin
                known = rescue.ended or again > _AGAIN * size
                begin = find_member(file.fileno(), end if known else member.begin + 1)
            passed = end if begin is None else begin
            yield Piece(b"", None, passed, failure)
            if begin is None:
                return
            position = begin


def _members(
    file: FileIO, path: str, compression: Literal["gzip", "zlib"], position: int, member: _Member
) -> Iterator[Piece]:
    """The plain bytes up to the first damage, which is raised."""
    file.seek(position)
    engine, error = inflater(compression)
    fresh, pending, doubted = True, b"", -1
    while True:
        data = pending or file.read(_READ_SIZE)
        if fresh:
            member.begin, member.plain = position, 0
        if fresh and position > 0:
            if not data:
                return
            # Zeros behind a gzip member are padding, as tapes have it.
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
        if fresh and position != doubted and member_size(data) is not None:
            for size, plain in unpack_from(file.fileno(), position):
                yield Piece(plain, position, position + size)
                position += size
            # The next one does not say its size, is damaged, or is not there.
            file.seek(position)
            pending, doubted = b"", position
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
