"""Compressed files as a stream of plain bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

import numpy as np

from recmap._core import FRAME_SIZE, HEADER_SIZE, FaultCode, scan
from recmap.errors import CompressionError, OptionError
from recmap.files.deflate import inflater
from recmap.files.output import Compression

__all__ = ["CompressionOption", "check_compression", "detect", "inflate"]

CompressionOption: TypeAlias = Literal["auto", "gzip", "zlib"] | None

_GZIP_MAGIC = b"\x1f\x8b\x08"
_READ_SIZE = 1 << 18
# What is inflated before a fault in the stream is kept up to the last piece.
_OUT_SIZE = 1 << 17


def detect(head: bytes) -> Compression:
    """How a file that begins with these bytes is compressed, by its content.

    A plain file begins with a record's length, which can look like the magic of
    gzip; its CRC tells them apart.
    """
    first = scan(np.frombuffer(head, np.uint8), 0, len(head), 1, 0, False, 1)
    sound = first.records == 1 or (first.fault and first.fault.code == FaultCode.data_cut)
    if sound and len(head) >= HEADER_SIZE:
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
        head = file.read(FRAME_SIZE)
    found = detect(head)
    if asked in ("auto", found) or not head:
        return found
    raise CompressionError(
        f"{path}: compression={asked!r} was asked for, but the content is "
        f'{found or "not compressed"} (use compression="auto")',
        file=path,
    )


def inflate(
    path: str, compression: Literal["gzip", "zlib"], watch: Callable[[int], None] = lambda _: None
) -> Iterator[bytes]:
    """The plain bytes of a file in pieces, through all its members. ``watch`` is told how
    many bytes of the file they come from.
    """
    with open(path, "rb", buffering=0) as file:
        engine, error = inflater(compression)
        fresh, position, pending = True, 0, b""
        while True:
            data = pending or file.read(_READ_SIZE)
            pending = b""
            if not data:
                if fresh and position > 0:
                    return
                raise CompressionError(
                    f"{path}: the {compression} stream ends early, at byte {position:,}",
                    file=path,
                    byte=position,
                )
            if fresh and position > 0:
                if not data.strip(b"\0"):
                    position += len(data)  # padding behind the last member, as tapes have it
                    continue
                if not _begins(data, compression):
                    raise CompressionError(
                        f"{path}: what follows the {compression} stream at byte {position:,} is "
                        f"not {compression}",
                        file=path,
                        byte=position,
                    )
            try:
                plain = engine.decompress(data, _OUT_SIZE)
            except error as e:
                raise CompressionError(
                    f"{path}: damaged {compression} stream near byte {position:,}: {e}",
                    file=path,
                    byte=position,
                ) from e
            rest = engine.unused_data if engine.eof else engine.unconsumed_tail
            position += len(data) - len(rest)
            fresh, pending = False, rest
            if engine.eof:
                (engine, error), fresh = inflater(compression), True
            watch(position)
            if plain:
                yield plain
