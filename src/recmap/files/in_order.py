"""Read parts of files more or less in order, on disk or in a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from recmap.files.fetched_file import Hold
from recmap.files.mapped_files import fetched
from recmap.files.object_path import ObjectPath
from recmap.files.open_file import OpenFile, open_file
from recmap.files.spans import as_places

__all__ = ["open_in_order"]


def open_in_order(path: str) -> OpenFile:
    """Open a file to read it in order. What follows in an object is fetched ahead."""
    return _FetchedInOrder(path) if isinstance(path, ObjectPath) else open_file(path)


class _FetchedInOrder:
    def __init__(self, path: ObjectPath) -> None:
        self._file = fetched(path)
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

    def pread_many(self, parts: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.pread(count, at) for count, at in parts]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close(self._ahead)
        self._close(self._last)

    @staticmethod
    def _close(hold: Hold | None) -> None:
        if hold is not None:
            hold.close()
