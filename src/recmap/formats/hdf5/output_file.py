"""The file below an HDF5 file that is being written."""

from __future__ import annotations

import io
from typing import Any

__all__ = ["Hdf5Output"]


class Hdf5Output(io.FileIO):
    """A new file that HDF5 writes through, and that never fails.

    HDF5 1.14 crashes when a file is closed after a write that failed, as on a full disk.
    So it is told that all went well, and what could not be written is held, for it may
    be read again; check() raises the error, and nothing more should be written then.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path, "x+")
        self._error: BaseException | None = None
        self._lost: list[tuple[int, bytes]] = []

    def check(self) -> None:
        """Raises what went wrong."""
        if self._error is not None:
            raise self._error

    def write(self, data: Any) -> int:
        """Writes all of it, or seems to."""
        view = memoryview(data).cast("B")
        size = len(view)
        at = self.tell()
        try:
            while view:
                done = super().write(view) or 0
                at, view = at + done, view[done:]
        except BaseException as e:  # raised by check(), when HDF5 is not in between
            self._error = self._error or e
            self._lost.append((at, bytes(view)))
        return size

    def readinto(self, buffer: Any) -> int:
        """Fills the buffer; beyond the end with zeros."""
        view = memoryview(buffer).cast("B")
        at = self.tell()
        done = 0
        while done < len(view) and (count := super().readinto(view[done:])):
            done += count
        view[done:] = bytes(len(view) - done)
        for begin, data in self._lost:
            first, last = max(begin, at), min(begin + len(data), at + len(view))
            if first < last:
                view[first - at : last - at] = data[first - begin : last - begin]
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """Sets the size of the file, or seems to."""
        try:
            return super().truncate(size)
        except OSError as e:
            self._error = self._error or e
            return size or 0
