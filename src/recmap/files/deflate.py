"""Deflate, both ways: the libraries, and compression on several processors.

A stream is cut into blocks at fixed places; each is compressed alone and ends at a
whole byte, so that together they are one ordinary gzip or zlib stream, the same
whatever the number of threads.
"""

from __future__ import annotations

import os
import platform
import struct
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any, Literal

from isal import isal_zlib
from zlib_ng import zlib_ng

from recmap.files.machine import thread_count

__all__ = ["Deflater", "inflater"]

# Measured on ARM: zlib-ng inflates 1.5 times as fast as ISA-L, whose fast paths are
# written for x86.
_INFLATE = isal_zlib if platform.machine() in ("x86_64", "AMD64") else zlib_ng
# ISA-L compresses 2 to 4 times as fast as zlib does by default, to about the same size.
_LEVEL = 3
_BLOCK_SIZE = 1 << 18
_RAW = -15
_WBITS = {"gzip": 31, "zlib": 15}
_GZIP_HEADER = b"\x1f\x8b\x08" + bytes(6) + b"\xff"  # no name, no time, no system
_ZLIB_HEADER = b"\x78\x9c"
_LAST_BLOCK = b"\x03\x00"  # empty, and marked as the last


def inflater(compression: Literal["gzip", "zlib"]) -> tuple[Any, type[Exception]]:
    """A new decompressor of one member, and the error it raises."""
    return _INFLATE.decompressobj(wbits=_WBITS[compression]), _INFLATE.error


class Deflater:
    """Compresses what it is given; the results come in order, a little later."""

    def __init__(self, compression: Literal["gzip", "zlib"]) -> None:
        self._gzip = compression == "gzip"
        self._pool = _pool(os.getpid())
        self._waiting: deque[Future[bytes]] = deque()
        self._held = bytearray()
        self._size = 0
        self._check = 0 if self._gzip else 1
        self._begun = False

    def compress(self, data: Any) -> Iterator[bytes]:
        """Takes bytes; gives what is ready, waiting only if much is not."""
        view = memoryview(data).cast("B")
        self._size += len(view)
        self._check = (
            isal_zlib.crc32(view, self._check)
            if self._gzip
            else isal_zlib.adler32(view, self._check)
        )
        while len(self._held) + len(view) >= _BLOCK_SIZE:
            taken = _BLOCK_SIZE - len(self._held)
            block = bytes(self._held) + view[:taken]
            self._held.clear()
            view = view[taken:]
            self._waiting.append(self._pool.submit(_deflate, block))
            if len(self._waiting) > 2 * thread_count():
                yield from self._next()
        self._held += view

    def _next(self) -> Iterator[bytes]:
        if not self._begun:
            self._begun = True
            yield _GZIP_HEADER if self._gzip else _ZLIB_HEADER
        if self._waiting:
            yield self._waiting.popleft().result()

    def finish(self) -> Iterator[bytes]:
        """The rest of the stream."""
        if self._held:
            self._waiting.append(self._pool.submit(_deflate, bytes(self._held)))
        yield from self._next()
        while self._waiting:
            yield from self._next()
        yield _LAST_BLOCK
        if self._gzip:
            yield struct.pack("<II", self._check, self._size & 0xFFFFFFFF)
        else:
            yield struct.pack(">I", self._check)


@lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:
    """One for all streams of a process: a fork has no threads, and makes its own."""
    return ThreadPoolExecutor(thread_count(), f"recmap-deflate-{process}")


def _deflate(block: bytes) -> bytes:
    engine = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _RAW)
    return engine.compress(block) + engine.flush(isal_zlib.Z_SYNC_FLUSH)
