"""A file mapped into memory, read in place."""

from __future__ import annotations

import errno
import math
import mmap
import os
import resource
import sys
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from threading import RLock
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from recmap.errors import CorruptRecordError, DataError, PathNotFoundError

__all__ = ["HeldFiles", "MappedFile", "MappedFiles"]

# Elsewhere the advice means something else, or nothing.
_LINUX = sys.platform == "linux"
# Mapped pages a pass keeps behind it.
_WINDOW_SIZE = 256 << 20
# A mapped file holds a descriptor, of which a process often has 1,024.
_OPEN_FILES = 128
# Files that are held on to take no more than a quarter of them, all together.
_MOST_HELD = 4096


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
        # The stretch that was mapped by reading in order.
        self._window = (0, 0)
        self.bytes: npt.NDArray[np.uint8] = np.frombuffer(self._map or b"", dtype=np.uint8)

    def check_size(self, expected: int) -> None:
        """Raises if the file is shorter than it was. It is the one that was mapped, also if
        another has taken its name.
        """
        size = self.size if self._map is None else min(self._map.size(), self.size)
        if size < expected:
            raise CorruptRecordError(
                f"{self.path}: the file shrank from {expected:,} to {size:,} bytes while it was "
                "open; open it again",
                file=self.path,
                byte=size,
            )

    def will_read(self, begin: int, end: int) -> None:
        """Gives back what lies far behind a stretch that is about to be read.

        A pass over a large file holds no more than a window of it in the process;
        a small file stays mapped, so that the next pass is quicker.
        """
        low, high = self._window
        if not low <= begin <= high:  # elsewhere in the file
            self.have_read(low, high)
            low = begin
        if end - low > _WINDOW_SIZE:
            self.have_read(low, begin)
            low = begin
        self._window = (low, max(end, high) if low != begin else end)

    def have_read(self, begin: int, end: int) -> None:
        """Gives back the pages of a stretch, unless the file is small. They stay cached
        by the system.
        """
        if self._map is None or not _LINUX or end <= begin or self.size <= _WINDOW_SIZE:
            return
        begin -= begin % mmap.PAGESIZE
        self._map.madvise(mmap.MADV_DONTNEED, begin, min(end, self.size) - begin)

    def view(self, offset: int, shape: tuple[int, ...], dtype: Any, stride: int) -> Any:
        """An array whose rows begin at ``offset`` and lie ``stride`` bytes apart."""
        inner = np.empty(shape[1:], dtype).strides
        return np.ndarray(shape, dtype, buffer=self._map, offset=offset, strides=(stride, *inner))

    def array(
        self, offset: int, shape: tuple[int, ...], dtype: Any, order: Literal["C", "F"] = "C"
    ) -> npt.NDArray[Any]:
        """An array that lies in the file at ``offset``."""
        dtype = np.dtype(dtype)
        needed = offset + math.prod(shape) * dtype.itemsize
        if needed > self.size:
            raise DataError(
                f"{self.path}: cut: {shape} of {dtype} from byte {offset:,} need {needed:,} bytes, "
                f"but the file has {self.size:,}",
                file=self.path,
                byte=self.size,
            )
        if math.prod(shape) == 0 or dtype.itemsize == 0:
            return np.empty(shape, dtype, order)
        return np.ndarray(shape, dtype, buffer=self._map, offset=offset, order=order)

    def span(self, view: npt.NDArray[Any]) -> tuple[int, int]:
        """The bytes of the file that a view of it lies in."""
        begin = view.ctypes.data - self.bytes.ctypes.data
        reach = sum((n - 1) * stride for n, stride in zip(view.shape, view.strides, strict=True))
        return begin, begin + reach + view.itemsize


class MappedFiles:
    """Maps files when they are used, and lets go of those that were not for longest."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, MappedFile] = OrderedDict()
        self._lock = RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedFiles, ()  # another process maps them itself

    def open(self, path: str) -> MappedFile:
        """The file, mapped. Hold on to it while you use it."""
        with self._lock:
            file = self._files.get(path)
            if file is None:
                file = self._files[path] = MappedFile(path)
            self._files.move_to_end(path)
            if len(self._files) > _OPEN_FILES:
                self._files.popitem(last=False)
            return file

    def hold(self, paths: Sequence[str]) -> HeldFiles | None:
        """All of these files, mapped as long as the result is in use; None if they are too
        many, with those that are held already.
        """
        held = HeldFiles()
        if not _held.take(len(paths)):
            return None
        weakref.finalize(held, _held.give, len(paths)).atexit = False
        try:
            held.extend(map(self.open, paths))
        except OSError as e:
            if e.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            return None
        return held


class HeldFiles(list[MappedFile]):
    """Files that stay mapped."""


class _Allowance:
    """Descriptors for files that are held, of the whole process."""

    def __init__(self) -> None:
        self._taken = 0
        # Given back by the garbage collector, at any moment: also in the middle of take().
        self._lock = RLock()

    def take(self, count: int) -> bool:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        most = _MOST_HELD if limit == resource.RLIM_INFINITY else min(limit // 4, _MOST_HELD)
        with self._lock:
            if self._taken + count > most:
                return False
            self._taken += count
            return True

    def give(self, count: int) -> None:
        with self._lock:
            self._taken -= count


_held = _Allowance()
