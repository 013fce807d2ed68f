"""Compress and decompress gzip and zlib on several CPUs.

A stream is divided into blocks at fixed places, and each block is compressed independently.
So the result does not depend on the number of threads. With gzip, every block is a member
that can be inflated independently too. zlib has no members; its blocks form one stream.

The header of a member has its size in an extra field, so that several members can be inflated
at once. recmap writes ``IG``, like pgzip and mgzip, and also reads bgzip's ``BC``. Other
readers see ordinary members.
"""

from __future__ import annotations

import os
import platform
import struct
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from isal import isal_zlib
from zlib_ng import zlib_ng

from recmap.machine.cpus import own_limit, pool_size, thread_count
from recmap.machine.memory import empty_bytes
from recmap.machine.threads import Threads
from recmap.native import _core

# On ARM, zlib-ng inflates 1.5 times as fast as ISA-L, which has fast paths written for x86.
_INFLATE = isal_zlib if platform.machine() in ("x86_64", "AMD64") else zlib_ng
# ISA-L compresses 2 to 4 times as fast as zlib at its default level, to about the same size.
_LEVEL = 3
_RAW = -15
_WBITS = {"gzip": 31, "zlib": 15}
_BLOCK_SIZE = 1 << 18
_ZLIB_HEADER = b"\x78\x9c"
_ZLIB_LAST_BLOCK = b"\x03\x00"  # empty, and flagged as the last
# Header of a member: magic, flags, (no time,) no system, size of the extra field.
_HEAD = struct.Struct("<3sB5xBH")
GZIP_MAGIC = b"\x1f\x8b\x08"
_HAS_CRC, _HAS_EXTRA, _HAS_NAME, _HAS_COMMENT, _RESERVED = 2, 4, 8, 16, 0xE0
_NO_SYSTEM = 255
_SUBFIELD = struct.Struct("<2sH")
_SIZE_NAME, _SIZE = b"IG", struct.Struct("<I")
_TRAILER = struct.Struct("<II")  # CRC and size of the plain bytes
#: Enough to find a member's size, if the extra field contains little else.
HEAD_SIZE = 64
# Plain bytes to inflate at once: of the first members, then of each thread.
_FIRST_RUN, _LEAST_RUN, _RUN_OF_THREAD = 3 << 18, 2 << 20, 1 << 19
#: Free bytes before plain ones, for what is left of those before.
ROOM = 1 << 18

Bytes = npt.NDArray[np.uint8]


def inflater(
    compression: Literal["gzip", "zlib"], *, whole: bool = False
) -> tuple[Any, type[Exception]]:
    """Return a new decompressor for one member, and the error it raises.

    Set ``whole`` if you pass all of the input in one call, with room for all of the output.
    """
    # If a zlib stream is passed in pieces, ISA-L loses its place near the end, because the
    # trailer is shorter than what it reads ahead. Up to three bytes after the stream vanish,
    # and some streams seem to end early. gzip members are not affected.
    library = _INFLATE if whole or compression == "gzip" else zlib_ng
    return library.decompressobj(wbits=_WBITS[compression]), library.error


class Deflater:
    """Compresses a stream in blocks. The results come in order, with a short delay."""

    def __init__(self, compression: Literal["gzip", "zlib"]) -> None:
        self._gzip = compression == "gzip"
        self._threads = stream_threads()
        self._waiting: deque[Future[bytes]] = deque()
        self._held = b""
        self._adler = 1
        self._begun = False

    def compress(self, data: Any) -> Iterator[bytes]:
        """Take bytes and yield what is ready. Wait only if many blocks are unfinished."""
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
            self._threads.submit(_make_member, block)
            if self._gzip
            else self._threads.submit(_deflate, block, last=False)
        )

    def _next(self) -> Iterator[bytes]:
        if not self._begun:
            self._begun = True
            if not self._gzip:
                yield _ZLIB_HEADER
        if self._waiting:
            yield self._waiting.popleft().result()

    def finish(self) -> Iterator[bytes]:
        """Yield the rest of the stream."""
        if self._held or (self._gzip and not self._begun and not self._waiting):
            self._submit(self._held)
        yield from self._next()
        while self._waiting:
            yield from self._next()
        if not self._gzip:
            yield _ZLIB_LAST_BLOCK + struct.pack(">I", self._adler)


def _make_member(block: bytes) -> bytes:
    body = _deflate(block, last=True)
    extra = _SUBFIELD.size + _SIZE.size
    whole = _HEAD.size + extra + len(body) + _TRAILER.size
    return b"".join(
        (
            _HEAD.pack(GZIP_MAGIC, _HAS_EXTRA, _NO_SYSTEM, extra),
            _SUBFIELD.pack(_SIZE_NAME, _SIZE.size) + _SIZE.pack(whole),
            body,
            _TRAILER.pack(isal_zlib.crc32(block), len(block)),
        )
    )


def _deflate(block: bytes, last: bool) -> bytes:
    """Compress one block independently, without header or checksum.

    Unless it is the last of its stream, it ends on a byte boundary, where the next one follows.
    """
    engine = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _RAW)
    end = isal_zlib.Z_FINISH if last else isal_zlib.Z_SYNC_FLUSH
    return engine.compress(block) + engine.flush(end)


def inflate_members(
    pread: Callable[[int, int], bytes], position: int
) -> Iterator[tuple[Bytes, list[tuple[int, int]]]]:
    """Yield the plain bytes of members that follow one another, starting at ``position``.

    ``pread`` is that of an ``OpenFile``. Each array begins with ``ROOM`` bytes that are
    free. With it come the ends of its members: how many bytes after its position in the file, and
    in the plain bytes. Stop at the first member that does not state its size, or states a wrong
    one. Members are inflated at once on all CPUs, fewer at first, because many callers need only
    the beginning.
    """
    most = _FIRST_RUN
    asked = _core.MAX_MEMBER_SIZE
    while True:
        stored = np.frombuffer(pread(asked, position), np.uint8)
        ends = _core.find_members(stored, most)
        if not ends and len(stored) == asked < _core.MAX_MEMBER_SIZE:
            asked = _core.MAX_MEMBER_SIZE
            continue
        if not ends:
            return
        memory = empty_bytes(ROOM + ends[-1][1])
        sound = _core.inflate_members(stored, ends, memory[ROOM:], thread_count())
        if sound == 0:
            return
        passed, plain = ends[sound - 1]
        yield memory[: ROOM + plain], ends[:sound]
        if sound < len(ends):
            return
        del memory
        position += passed
        if own_limit() is None:  # a memory budget has no room for more
            most = min(2 * most, max(_LEAST_RUN, _RUN_OF_THREAD * thread_count()))
        # As many as probably hold so many plain bytes.
        asked = min(most, (passed + _BLOCK_SIZE) * most // max(plain, 1)) + HEAD_SIZE


def header_size(data: bytes, compression: Literal["gzip", "zlib"]) -> int | None:
    """Return the size of the header before the compressed data; None if it is invalid."""
    if compression == "zlib":
        return 2 if len(data) > 2 and not data[1] & 0x20 else None
    if len(data) < 10 or data[:3] != GZIP_MAGIC or data[3] & _RESERVED:
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


def stream_threads() -> Threads:
    """Return the pool for all streams of this process, with one thread per CPU."""
    return _make_threads(os.getpid(), pool_size(), "deflate")


def gathering_threads() -> Threads:
    """Return another pool, for work that may wait for ``stream_threads``."""
    return _make_threads(os.getpid(), pool_size(), "gather")


# Several of each: conversions with small budgets have their own pools, and may run in parallel
# with others.
@lru_cache(maxsize=8)
def _make_threads(process: int, count: int, work: str) -> Threads:
    """Start a pool. A forked process inherits no threads and makes its own."""
    return Threads(count, f"recmap-{work}-{process}")
