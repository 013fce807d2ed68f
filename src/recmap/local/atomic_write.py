"""Write files that appear complete or not at all."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from recmap.errors import OutputError, RecmapError
from recmap.local.temporary import remove, temporary_path

# For renameat2: paths are not relative to an open folder, and names are exchanged.
_HERE, _EXCHANGE = -100, 2


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


def sync_tree(path: str) -> None:
    """Wait until a file, or a folder with all that is in it, is on disk."""
    if not os.path.isdir(path):
        sync(path)
    for folder, _, files in os.walk(path):
        for name in [*files, "."]:
            sync(os.path.join(folder, name))


def put_in_place(temporary: str, path: str) -> None:
    """Rename a finished file or folder to its final name.

    If it replaces a file, it gets that file's permissions. A link stays a link: its target is
    replaced.
    """
    target = os.path.realpath(path) if os.path.islink(path) else path
    if os.path.isdir(temporary):
        _put_folder_in_place(temporary, target)
        return
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


def _put_folder_in_place(temporary: str, target: str) -> None:
    finished = _on_same_file_system(target, temporary)
    previous = temporary_path(target)
    if not os.path.lexists(target):
        os.rename(finished, target)
    elif not _exchange(finished, target):
        os.rename(target, previous)
        os.rename(finished, target)
    for old in (finished, previous, temporary):
        remove(old)


def _on_same_file_system(path: str, folder: str) -> str:
    """Return the folder, or a copy of it next to ``path`` if it is on another file system."""
    parent = os.path.dirname(path) or "."
    os.makedirs(parent, exist_ok=True)
    if os.stat(parent).st_dev == os.stat(folder).st_dev:
        return folder
    copy = temporary_path(path)
    try:
        shutil.copytree(folder, copy)
    except BaseException:
        remove(copy)
        raise
    return copy


def _exchange(one: str, other: str) -> bool:
    """Swap the names of two files or folders at once; return False where that is not possible."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        return False
    names = os.fsencode(os.path.abspath(one)), os.fsencode(os.path.abspath(other))
    return bool(rename(_HERE, names[0], _HERE, names[1], _EXCHANGE) == 0)
