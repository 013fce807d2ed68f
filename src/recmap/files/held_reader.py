"""An object as a file, for libraries that seek and read large parts, such as pyarrow."""

from __future__ import annotations

import io
from typing import Any

from recmap.files.mapped import MappedFile

__all__ = ["HeldReader"]


class HeldReader(io.RawIOBase):
    """Reads a mapped file. What is read of an object is fetched, and kept in the disk cache.

    ``SeekableObject`` is for many small parts: it keeps them in memory.
    """

    def __init__(self, file: MappedFile) -> None:
        super().__init__()
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence]
        if base + offset < 0:
            raise ValueError(f"cannot seek to {base + offset}, before the beginning")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, or as much of it as the file has."""
        view = memoryview(buffer).cast("B")
        end = max(self._at, min(self._at + len(view), self._file.size))
        with self._file.hold(self._at, end):
            view[: end - self._at] = self._file.bytes[self._at : end].data
        read, self._at = end - self._at, end
        return read
