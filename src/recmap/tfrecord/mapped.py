"""A file mapped into memory, read in place."""

from __future__ import annotations

import mmap
import os
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import CorruptRecordError, PathNotFoundError

__all__ = ["MappedFile"]

# Linux 5.14: maps a stretch in one call instead of one fault per few pages.
_POPULATE_READ = 22
_LINUX = sys.platform == "linux"


class MappedFile:
    """A whole file as an array of bytes. Views of it stay valid after it is dropped."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            with open(path, "rb") as file:
                self.size = os.fstat(file.fileno()).st_size
                # An empty file cannot be mapped.
                self._map = (
                    mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self.size else None
                )
        except FileNotFoundError:
            raise PathNotFoundError(f"{path}: no such file") from None
        self.bytes: npt.NDArray[np.uint8] = np.frombuffer(self._map or b"", dtype=np.uint8)

    def check_size(self) -> None:
        """Raises if the file got shorter: touching what it lost would kill the process."""
        size = os.stat(self.path).st_size
        if size < self.size:
            raise CorruptRecordError(
                f"{self.path}: the file shrank from {self.size:,} to {size:,} bytes while it was "
                "open; open it again",
                file=self.path,
                byte=size,
            )

    def will_read(self, begin: int, end: int) -> None:
        """Maps the pages of a stretch that is about to be read."""
        self._advise(_POPULATE_READ, begin, end)

    def have_read(self, begin: int, end: int) -> None:
        """Gives back the pages of a stretch that was passed; they stay cached."""
        self._advise(mmap.MADV_DONTNEED, begin, end)

    def _advise(self, advice: int, begin: int, end: int) -> None:
        if self._map is None or not _LINUX:
            return
        begin -= begin % mmap.PAGESIZE
        try:
            self._map.madvise(advice, begin, min(end, self.size) - begin)
        except OSError:
            # Advice is only that: an older kernel does without.
            return

    def view(self, offset: int, shape: tuple[int, ...], dtype: Any, stride: int) -> Any:
        """An array whose rows begin at ``offset`` and lie ``stride`` bytes apart."""
        inner = np.empty(shape[1:], dtype).strides
        return np.ndarray(shape, dtype, buffer=self._map, offset=offset, strides=(stride, *inner))
