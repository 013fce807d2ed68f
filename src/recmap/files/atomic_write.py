"""Write files that appear complete or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from recmap.errors import OutputError, RecmapError
from recmap.files.object_path import ObjectPath
from recmap.files.object_writer import put_object, refuse_http
from recmap.files.open_file import open_file
from recmap.files.temporary import remove, temporary_path

__all__ = ["make_folder", "put_in_place", "read_whole", "sync", "write_whole", "writing"]


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
        refuse_http(path)
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
    if os.path.isfile(target):
        os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
    try:
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
