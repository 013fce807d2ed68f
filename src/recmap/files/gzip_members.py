"""gzip members that say how long they are, so that several are inflated at a time.

The size of a member is in its header, in an extra field: ours is that of pgzip and
mgzip (``IG``), and that of bgzip (``BC``) is read too. To all other readers they are
ordinary members, one behind the other.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future

from isal import isal_zlib

from recmap.files.cpus import thread_count
from recmap.files.inflate import deflate, inflater, threads

__all__ = ["HEAD_SIZE", "member_size", "pack", "unpack_from"]

# Magic, flags, no time, no system, size of the extra field.
_HEAD = struct.Struct("<3sB5xBH")
_MAGIC = b"\x1f\x8b\x08"
_HAS_EXTRA = 4
_NO_SYSTEM = 255
_SUBFIELD = struct.Struct("<2sH")
# By name: how the size is stored, and what is to be added to it.
_SIZES = {b"IG": (struct.Struct("<I"), 0), b"BC": (struct.Struct("<H"), 1)}
_TRAILER = struct.Struct("<II")  # CRC and size of the plain bytes
# Enough to find the size, if the extra field has little else.
HEAD_SIZE = 64
# Larger members are inflated as a stream: they would take much memory at once.
_LARGEST = 1 << 19
# Members inflated at a time before the first is taken.
_FIRST = 3


def pack(block: bytes) -> bytes:
    """The block as a member."""
    body = deflate(block, last=True)
    name, (size, _) = next(iter(_SIZES.items()))
    extra = _SUBFIELD.size + size.size
    whole = _HEAD.size + extra + len(body) + _TRAILER.size
    return b"".join(
        (
            _HEAD.pack(_MAGIC, _HAS_EXTRA, _NO_SYSTEM, extra),
            _SUBFIELD.pack(name, size.size) + size.pack(whole),
            body,
            _TRAILER.pack(isal_zlib.crc32(block), len(block)),
        )
    )


def member_size(head: bytes) -> int | None:
    """The size of the member that begins so, if it says one that is small enough."""
    if len(head) < _HEAD.size:
        return None
    magic, flags, _, extra = _HEAD.unpack_from(head)
    if magic != _MAGIC or not flags & _HAS_EXTRA:
        return None
    at, end = _HEAD.size, min(_HEAD.size + extra, len(head))
    while at + _SUBFIELD.size <= end:
        name, length = _SUBFIELD.unpack_from(head, at)
        at += _SUBFIELD.size
        stored, more = _SIZES.get(name, (None, 0))
        if stored is not None and length == stored.size and at + length <= end:
            size = int(stored.unpack_from(head, at)[0]) + more
            return size if end + _TRAILER.size < size <= _LARGEST else None
        at += length
    return None


def unpack_from(file: int, position: int) -> Iterator[tuple[int, bytes]]:
    """Packed size and plain bytes of each member from ``position`` on, up to one that
    does not say its size, or not the truth. No more than a few are held, and fewer at
    first: who looks at the beginning of a file may not want the rest.
    """
    waiting: deque[tuple[int, Future[bytes | None]]] = deque()
    more, most = True, _FIRST
    while more or waiting:
        while more and len(waiting) < min(most, thread_count() + 2):
            size = member_size(os.pread(file, HEAD_SIZE, position))
            packed = os.pread(file, size or 0, position)
            more = size is not None and len(packed) == size
            if more:
                waiting.append((len(packed), threads().submit(_unpack, packed)))
                position += len(packed)
        if waiting:
            length, future = waiting.popleft()
            plain = future.result()
            if plain is None:
                return
            yield length, plain
            most += 1


def _unpack(member: bytes) -> bytes | None:
    """The plain bytes, or None if this is not one whole, sound and small member."""
    size = _TRAILER.unpack(member[-_TRAILER.size :])[1]
    engine, error = inflater("gzip")
    try:
        # One byte more than there may be, so that a member that goes on is noticed.
        plain: bytes = engine.decompress(member, min(size, _LARGEST) + 1)
    except error:
        return None  # inflating it as a stream says where it is damaged
    return plain if engine.eof and not engine.unused_data and len(plain) == size else None
