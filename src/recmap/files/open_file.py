"""Ask about files and read parts of them, on disk or in a store.

This is for headers, footers and small files. Rows are read from ``mapped.map_file``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Protocol, Self, TypeVar

from recmap.errors import PathNotFoundError
from recmap.files.found_path import check_unchanged
from recmap.files.held_objects import held_object
from recmap.files.lru import Lru
from recmap.files.object_path import ObjectPath, in_store
from recmap.files.object_store import ObjectInfo
from recmap.files.threads import Threads

__all__ = [
    "OpenFile",
    "beside",
    "file_size",
    "for_each",
    "for_each_file",
    "inside",
    "is_file",
    "is_folder",
    "open_file",
]

# The beginning of an object, which is asked for several times, is fetched once.
_HEAD = 1 << 14
_KEPT_HEADS = 256
# Objects looked at a time.
_AT_ONCE = 64

_S = TypeVar("_S")
_T = TypeVar("_T")


class OpenFile(Protocol):
    """A file to read parts of."""

    @property
    def size(self) -> int: ...

    def pread(self, count: int, at: int) -> bytes:
        """Return the bytes from ``at``; fewer than ``count`` if the file ends before."""
        ...

    def pread_many(self, parts: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of several parts, each given as in ``pread``."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def open_file(path: str) -> OpenFile:
    """Open a file. Leave its context to close it."""
    return _ObjectFile(path) if isinstance(path, ObjectPath) else _LocalFile(path)


def file_size(path: str) -> int:
    """Return the size of a file in bytes."""
    return path.info.size if isinstance(path, ObjectPath) else os.path.getsize(path)


def is_file(path: str) -> bool:
    """Return whether there is such a file."""
    return path.exists if isinstance(path, ObjectPath) else os.path.isfile(path)


def is_folder(path: str) -> bool:
    """Return whether a path is that of a folder. Objects that were found are not."""
    if isinstance(path, ObjectPath):
        return path.key.endswith("/") or not path.key
    return os.path.isdir(path)


def beside(path: str, name: str) -> str:
    """Return the path of another file in the folder of a file."""
    if isinstance(path, ObjectPath):
        return path.beside(name)
    return os.path.join(os.path.dirname(path), name)


def inside(folder: str, name: str) -> str:
    """Return the path of a file in a folder."""
    return folder.inside(name) if isinstance(folder, ObjectPath) else os.path.join(folder, name)


def for_each_file(function: Callable[[str], _T], paths: Sequence[str]) -> list[_T]:
    """Return what a function returns for each file; of objects, it is called for many at once."""
    return for_each(function, paths, paths)


def for_each(
    function: Callable[[_S], _T], items: Sequence[_S], paths: Sequence[str], most: int = _AT_ONCE
) -> list[_T]:
    """Return what a function returns for each item; if ``paths`` are objects, many at once."""
    if len(items) < 2 or not in_store(paths):
        return [function(item) for item in items]
    pool = Threads(min(len(items), most), "recmap-open")
    try:
        return list(pool.map(function, items))
    finally:
        pool.shutdown(cancel_futures=True)  # after an error, the others need not begin


class _LocalFile:
    def __init__(self, path: str) -> None:
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise PathNotFoundError(f"{path}: no such file") from None
        try:
            check_unchanged(path, os.fstat(self._fd))
        except BaseException:
            os.close(self._fd)
            raise

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def pread(self, count: int, at: int) -> bytes:
        return os.pread(self._fd, count, at)

    def pread_many(self, parts: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.pread(count, at) for count, at in parts]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


class _ObjectFile:
    def __init__(self, path: ObjectPath) -> None:
        self._path, self._info = path, path.info

    @property
    def size(self) -> int:
        return self._info.size

    def _head(self) -> bytes:
        key = f"{self._path.store.place}/{self._info.key}", self._info
        head = _heads.get(key) if self._info.pinned else None
        if head is None:
            head = self._path.store.read(self._info, 0, min(_HEAD, self.size)).tobytes()
            if self._info.pinned:
                _heads.put(key, head)
        return head

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


# The beginnings of the objects that were looked at last.
_heads = Lru[tuple[str, ObjectInfo], bytes](_KEPT_HEADS)
