"""Files for libraries that seek and read: zipfile, h5py and pyarrow."""

from __future__ import annotations

import io
from collections.abc import Callable
from copy import copy
from threading import Lock
from typing import Any, Self

from recmap.files.lru import Lru
from recmap.files.mapped import MappedFile
from recmap.files.object_store import ObjectInfo, ObjectStore

# What is read of an object is kept in blocks of this size. Metadata is read in small pieces, close
# to each other.
_BLOCK = 1 << 18
_KEPT = 64
# Blocks fetched at once.
_AT_ONCE = 32


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
