"""Objects opened as files: for parts, from start to end, and for libraries that seek and read."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from copy import copy
from threading import Lock
from typing import Any, Self

from recmap.local.location import OpenFile
from recmap.machine.lru import Lru
from recmap.machine.mapped import MappedFile
from recmap.machine.spans import as_places
from recmap.store.fetched_file import FetchedFile, Hold, held_object
from recmap.store.object_address import ObjectAddress
from recmap.store.object_store import ObjectInfo, ObjectStore

# The beginning of an object, which is asked for several times, is fetched once.
_HEAD = 1 << 14
_KEPT_HEADS = 256
# What is read of an object is kept in blocks of this size. Metadata is read in small pieces, close
# to each other.
_BLOCK = 1 << 18
_KEPT = 64
# Blocks fetched at once.
_AT_ONCE = 32


# The beginnings of the objects that were looked at last.
_heads = Lru[tuple[str, ObjectInfo], bytes](_KEPT_HEADS)


class OpenObject(OpenFile):
    """An object, of which each part is a request; the beginning is kept."""

    def __init__(self, path: ObjectAddress) -> None:
        self._path, self._info = path, path.info

    @property
    def size(self) -> int:
        return self._info.size

    def pread(self, count: int, at: int) -> bytes:
        return self.pread_many([(count, at)])[0]

    def pread_many(self, parts: Sequence[tuple[int, int]]) -> list[bytes]:
        spans = [(min(at, self.size), min(at + count, self.size)) for count, at in parts]
        file = held_object(self._path, spans)
        if file is not None:
            with file.hold(*zip(*spans, strict=True)):
                return [file.bytes[begin:end].tobytes() for begin, end in spans]
        if all(end <= _HEAD for _, end in spans):
            head = self._head()
            return [head[begin:end] for begin, end in spans]
        read = self._path.store.read_many(self._info, spans)
        return [each.tobytes() for each in read]

    def _head(self) -> bytes:
        key = f"{self._path.store.place}/{self._info.key}", self._info
        head = _heads.get(key) if self._info.pinned else None
        if head is None:
            head = self._path.store.read(self._info, 0, min(_HEAD, self.size)).tobytes()
            if self._info.pinned:
                _heads.put(key, head)
        return head


class ReadInOrder(OpenFile):
    """An object that is read more or less in order: what follows is fetched ahead."""

    def __init__(self, file: FetchedFile) -> None:
        self._file = file
        # Keep what was fetched ahead until it has been read.
        held = self._file.holds(0, self.size)
        self._ahead = self._file.start(*as_places(0, self.size)) if held else None
        self._last: Hold | None = None

    @property
    def size(self) -> int:
        return self._file.size

    def pread(self, count: int, at: int) -> bytes:
        end = min(at + count, self.size)
        if at >= end:
            return b""
        hold = self._file.hold(at, end)
        hold.__enter__()
        # What was read last is often read again.
        self._close(self._last)
        self._last = hold
        return self._file.bytes[at:end].tobytes()

    def __exit__(self, *_: object) -> None:
        self._close(self._ahead)
        self._close(self._last)

    @staticmethod
    def _close(hold: Hold | None) -> None:
        if hold is not None:
            hold.close()


class _Seekable(io.RawIOBase):
    """A file of known size; subclasses read it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size, self._at = size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"cannot seek to {base + offset}, before the beginning")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at


class SeekableMapping(_Seekable):
    """A mapped file. What is read of an object is fetched, and kept in the disk cache."""

    def __init__(self, file: MappedFile) -> None:
        super().__init__(file.size)
        self._file = file

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, or as much of it as the file has."""
        view = memoryview(buffer).cast("B")
        end = max(self._at, min(self._at + len(view), self._size))
        with self._file.hold(self._at, end):
            view[: end - self._at] = self._file.bytes[self._at : end].data
        read, self._at = end - self._at, end
        return read


class SeekableObject(_Seekable):
    """An object as a file. What was read last is kept in memory, at most 16 MiB.

    Libraries may hide errors, or take them for something else; ``raise_error`` does not.
    ``beginning`` returns as many of the first bytes as it is asked for.
    """

    def __init__(
        self, store: ObjectStore, info: ObjectInfo, beginning: Callable[[int], bytes]
    ) -> None:
        super().__init__(info.size)
        self._error: BaseException | None = None
        self._info, self._store, self._beginning = info, store, beginning
        self._blocks = Lru[int, bytes](_KEPT)
        self._lock = Lock()

    def fetch_beginning(self) -> None:
        """Fetch the beginning, before a library takes its lock."""
        if self._size:
            self._blocks.put(0, self._beginning(_BLOCK))

    def __enter__(self) -> Self:
        self.fetch_beginning()
        return self

    def __exit__(self, *_: object) -> None:
        self.raise_error()

    def raise_error(self) -> None:
        """Raise what went wrong since the last call, if anything did."""
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error from None
        finally:
            del error  # its traceback leads to this frame

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, or as much of it as the object has."""
        view = memoryview(buffer).cast("B")
        with self._lock:
            end = min(self._at + len(view), self._size)
            begin = self._at
            try:
                while self._at < end:
                    number = self._at // _BLOCK
                    within = self._at - number * _BLOCK
                    part = self._block(number, end)[within : within + end - self._at]
                    view[self._at - begin : self._at - begin + len(part)] = part
                    self._at += len(part)
            except BaseException as e:
                # A copy, because the traceback leads to what h5py holds, which leads back here,
                # where no garbage collector can see it.
                self._error = copy(e)
                raise
        return max(0, end - begin)

    def _block(self, number: int, end: int) -> bytes:
        """Return a block. Those up to ``end`` are fetched with it."""
        found = self._blocks.get(number)
        if found is not None:
            return found
        last = min(-(-end // _BLOCK), number + _AT_ONCE)
        stop = next((i for i in range(number + 1, last) if i in self._blocks), last)
        begin, upto = number * _BLOCK, min(stop * _BLOCK, self._size)
        # In this thread: h5py holds a lock meanwhile, and other threads may wait for it, if
        # they happen to collect garbage of h5py.
        read = memoryview(self._store.get(self._info, begin, upto))
        blocks = [bytes(read[at : at + _BLOCK]) for at in range(0, upto - begin, _BLOCK)]
        for i, block in reversed(list(enumerate(blocks, number))):
            self._blocks.put(i, block)
        return blocks[0]
