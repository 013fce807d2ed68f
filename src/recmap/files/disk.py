"""What files and folders have in common: names until they are whole, size, removal."""

from __future__ import annotations

import os
import shutil

__all__ = ["process_of", "remove", "size_on_disk", "sync", "temporary_path"]

_END = ".tmp"


def temporary_path(path: str, owner: object = None, mark: str = "") -> str:
    """A hidden name beside a path, of this process, and of an object in it.

    >>> process_of(temporary_path("out/x.npy", mark=".shuffle")) == os.getpid()
    True
    """
    folder, name = os.path.split(path)
    own = "" if owner is None else f"-{id(owner):x}"
    return os.path.join(folder, f".{name}{mark}.{os.getpid()}{own}{_END}")


def process_of(path: str) -> int | None:
    """The process that made a temporary name; None if it is none."""
    name = os.path.basename(path)
    if not name.startswith(".") or not name.endswith(_END):
        return None
    number = name.removesuffix(_END).rpartition(".")[2].partition("-")[0]
    return int(number) if number.isdecimal() else None


def sync(path: str) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path or ".", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def size_on_disk(path: str) -> int:
    """Bytes of a file, or of all files in a folder."""
    if not os.path.isdir(path):
        return os.path.getsize(path)
    inside = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    return sum(map(os.path.getsize, inside))


def remove(path: str) -> None:
    """Removes a file, a link or a folder, if it is there."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
