"""Read parts of files more or less in order, on disk or in a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from recmap.files.fetched_file import FetchedFile
from recmap.files.object_path import ObjectPath
from recmap.files.open_file import OpenFile, open_file

__all__ = ["open_in_order"]


def open_in_order(path: str) -> OpenFile:
    """Open a file to read it in order. What follows in an object is fetched ahead."""
    return _FetchedInOrder(path) if isinstance(path, ObjectPath) else open_file(path)


class _FetchedInOrder:
    def __init__(self, path: ObjectPath) -> None:
        self._file = FetchedFile(path)

    @property
    def size(self) -> int:
        return self._file.size

    def pread(self, count: int, at: int) -> bytes:
        end = min(at + count, self.size)
        with self._file.hold(at, end):
            return self._file.bytes[at:end].tobytes()

    def pread_many(self, parts: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.pread(count, at) for count, at in parts]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return
