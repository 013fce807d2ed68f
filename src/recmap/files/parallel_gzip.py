"""Compression on several processors.

A stream is cut into blocks at fixed places; each is compressed alone, so that the
result is the same whatever the number of threads. With gzip each block is a member,
which can be inflated alone as well; zlib knows no members, and the blocks are one
stream.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, Literal

from isal import isal_zlib

from recmap.files.cpus import thread_count
from recmap.files.gzip_members import pack
from recmap.files.inflate import deflate, threads

__all__ = ["Deflater"]

_BLOCK_SIZE = 1 << 18
_ZLIB_HEADER = b"\x78\x9c"
_LAST_BLOCK = b"\x03\x00"  # empty, and marked as the last


class Deflater:
    """Compresses what it is given; the results come in order, a little later."""

    def __init__(self, compression: Literal["gzip", "zlib"]) -> None:
        self._gzip = compression == "gzip"
        self._threads = threads()
        self._waiting: deque[Future[bytes]] = deque()
        self._held = b""
        self._adler = 1
        self._begun = False

    def compress(self, data: Any) -> Iterator[bytes]:
        """Takes bytes; gives what is ready, waiting only if much is not."""
        view = memoryview(data).cast("B")
        if not self._gzip:
            self._adler = isal_zlib.adler32(view, self._adler)
        at = 0
        while len(self._held) + len(view) - at >= _BLOCK_SIZE:
            end = at + _BLOCK_SIZE - len(self._held)
            self._submit(b"".join((self._held, view[at:end])))
            self._held, at = b"", end
            if len(self._waiting) > 2 * thread_count():
                yield from self._next()
        self._held += view[at:].tobytes()

    def _submit(self, block: bytes) -> None:
        self._waiting.append(
            self._threads.submit(pack, block)
            if self._gzip
            else self._threads.submit(deflate, block, last=False)
        )

    def _next(self) -> Iterator[bytes]:
        if not self._begun:
            self._begun = True
            if not self._gzip:
                yield _ZLIB_HEADER
        if self._waiting:
            yield self._waiting.popleft().result()

    def finish(self) -> Iterator[bytes]:
        """The rest of the stream."""
        if self._held or (self._gzip and not self._begun and not self._waiting):
            self._submit(self._held)
        yield from self._next()
        while self._waiting:
            yield from self._next()
        if not self._gzip:
            yield _LAST_BLOCK + struct.pack(">I", self._adler)
