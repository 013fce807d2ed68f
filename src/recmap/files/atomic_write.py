"""Write files that appear complete or not at all."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from recmap.errors import OutputError, RecmapError
from recmap.files.object_path import ObjectPath
from recmap.files.object_writer import (
    create_object,
    put_object,
    read_object,
    refuse_unwritable,
    replace_object,
)
from recmap.files.open_file import open_file
from recmap.files.temporary import remove, temporary_path

__all__ = [
    "exchange",
    "make_folder",
    "put_in_place",
    "read_whole",
    "sync",
    "update_whole",
    "write_whole",
    "writing",
]

# For renameat2: paths are not relative to an open folder, and names are exchanged.
_HERE, _EXCHANGE = -100, 2
# How often an object is changed again because another was faster.
_ATTEMPTS = 20


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn an operating system error into an OutputError that names the output."""
    try:
        yield
    except RecmapError:
        raise
    except OSError as e:
        reason = e.strerror or str(e)
        if e.errno in (errno.EEXIST, errno.ENOTDIR):
            reason = "a part of its path is a file, not a folder"
        failed = OutputError(f"{path} cannot be written: {reason}")
        failed.errno, failed.strerror = e.errno, e.strerror
        raise failed from e


def make_folder(path: str) -> None:
    """Create the folder of an output, and refuse a name that no file can have."""
    if isinstance(path, ObjectPath):
        refuse_unwritable(path)
        return  # stores have no folders
    with writing(path):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with suppress(FileNotFoundError):
            os.lstat(path)


def sync(path: str) -> None:
    """Wait until a file, or the list of names in a folder, is on disk."""
    descriptor = os.open(path or ".", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def put_in_place(temporary: str, path: str) -> None:
    """Rename a finished file to its final name.

    If it replaces a file, it gets that file's permissions. A link stays a link: its target is
    replaced.
    """
    target = os.path.realpath(path) if os.path.islink(path) else path
    try:
        if os.path.isfile(target):
            os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
        os.replace(temporary, target)
    except OSError as e:
        if e.errno != errno.EXDEV:
            remove(temporary)
            raise
        # The link points to another file system, and a rename works only within one.
        near = temporary_path(target)
        try:
            shutil.copy2(temporary, near)
            os.replace(near, target)
        finally:
            remove(near)
        os.unlink(temporary)


def exchange(one: str, other: str) -> bool:
    """Swap the names of two files or folders at once; return False where that is not possible."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        return False
    names = os.fsencode(os.path.abspath(one)), os.fsencode(os.path.abspath(other))
    return bool(rename(_HERE, names[0], _HERE, names[1], _EXCHANGE) == 0)


def read_whole(path: str, most: int) -> str:
    """Read a text file; raise a ValueError if it is over ``most`` bytes or not UTF-8.

    This allocates memory for the file's size. ``file.read(most)`` would allocate ``most`` bytes.
    """
    with open_file(path) as file:
        if file.size > most:
            raise ValueError(f"{file.size:,} bytes are too many")
        return file.pread(file.size, 0).decode()


def write_whole(path: str, text: str) -> None:
    """Write a text file under a temporary name and rename it. A failure leaves nothing behind."""
    if isinstance(path, ObjectPath):
        put_object(path, text.encode())
        return
    make_folder(path)
    temporary = temporary_path(path)
    try:
        with writing(path), open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        remove(temporary)
        raise


def update_whole(path: str, change: Callable[[str | None], str]) -> None:
    """Replace a text file by what ``change`` makes of it; None means that there is none yet.

    If several processes do this at once, each sees what the one before it wrote. In a
    store, ``change`` is called again if another process was faster.
    """
    if isinstance(path, ObjectPath):
        _update_object(path, change)
        return
    make_folder(path)
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(folder, fcntl.LOCK_EX)
        text = None
        with suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
            text = file.read()
        write_whole(path, change(text))
    finally:
        os.close(folder)


def _update_object(path: ObjectPath, change: Callable[[str | None], str]) -> None:
    for _ in range(_ATTEMPTS):
        found = read_object(path)
        if found is None:
            done = create_object(path, change(None).encode())
        else:
            done = replace_object(path, change(found[0].decode()).encode(), found[1])
        if done is not None:
            return
    raise OutputError(f"{path} cannot be written: other processes keep changing it")
