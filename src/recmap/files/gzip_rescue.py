"""Inflate what can still be read of a damaged gzip or zlib stream.

When a decompressor reaches damage, it discards what it inflated in the same call. So the member
is inflated again, in smaller and smaller steps towards the damage, and its checksum is ignored.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from typing import Literal

__all__ = ["Rescue", "find_member"]

_RAW = -15
# Bytes read and inflated per call. Where one size fails, the next smaller one continues.
_STEPS = ((1 << 17, 3 << 16), (1 << 10, 1 << 10), (1, 1))
_MAGIC = b"\x1f\x8b\x08"
_HAS_CRC, _HAS_EXTRA, _HAS_NAME, _HAS_COMMENT, _RESERVED = 2, 4, 8, 16, 0xE0
_TRAILER = {"gzip": 8, "zlib": 4}
# Far more than any header takes.
_HEADER_SIZE = 1 << 17
_SEARCH_SIZE = 1 << 20
# Compressed bytes inflated to check whether a member begins here.
_TRIED = 1 << 10


class Rescue:
    """Inflates the damaged member that begins at ``begin``."""

    def __init__(self, file: int, compression: Literal["gzip", "zlib"], begin: int) -> None:
        self._file, self._compression = file, compression
        header = _header_size(os.pread(file, _HEADER_SIZE, begin), compression)
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
                data = os.pread(self._file, read, self.position)
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


def find_member(file: int, begin: int) -> int | None:
    """Find where the next gzip member begins, judging by its first bytes."""
    while True:
        data = os.pread(file, _SEARCH_SIZE, begin)
        at = data.find(_MAGIC)
        while at >= 0:
            if _is_member(file, begin + at):
                return begin + at
            at = data.find(_MAGIC, at + 1)
        if len(data) < _SEARCH_SIZE:
            return None
        begin += len(data) - len(_MAGIC) + 1


def _is_member(file: int, begin: int) -> bool:
    data = os.pread(file, _HEADER_SIZE, begin)
    header = _header_size(data, "gzip")
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


def _header_size(data: bytes, compression: Literal["gzip", "zlib"]) -> int | None:
    """Return the size of the header before the compressed data; None if it is invalid."""
    if compression == "zlib":
        return 2 if len(data) > 2 and not data[1] & 0x20 else None
    if len(data) < 10 or data[:3] != _MAGIC or data[3] & _RESERVED:
        return None
    flags, at = data[3], 10
    if flags & _HAS_EXTRA:
        at += 2 + int.from_bytes(data[at : at + 2], "little")
    for flag in (_HAS_NAME, _HAS_COMMENT):
        if flags & flag:
            end = data.find(b"\0", at)
            if end < 0:
                return None
            at = end + 1
    at += 2 if flags & _HAS_CRC else 0
    return at if at < len(data) else None
