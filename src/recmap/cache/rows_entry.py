"""An entry of the disk cache that holds rows: what ``ds.cache()`` keeps of a dataset.

::

    <sha256 of the rows>/
      object.json    what it is; has "files", with the size and checksum of each, once all are there
      data           empty; locked by the process that fills the entry, and by those who read it
      rows/          the files

One process fills an entry, and the others wait. The system releases the lock of a process that is
killed, so another one goes on from there. Nobody reads an entry that is not complete.

Nobody waits for the disk, so after a power failure, an entry may be there without its data. The
checksums are compared when it is first opened after the machine was started, or after a file was
changed.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypeGuard

import numpy as np

from recmap.cache.block_cache import BlockCache
from recmap.cache.cache_folder import CacheFolder, allocated_below, is_file, lock
from recmap.errors import OutputError
from recmap.local.file_state import FileState
from recmap.local.temporary import remove, temporary_path
from recmap.model.arguments import size_text
from recmap.native import _core

_ABOUT, _DATA, _ROWS = "object.json", "data", "rows"
# Seconds between two looks at an entry that another process fills.
_LOOK_EVERY = 0.02
# Bytes read at a time to compute a checksum.
_READ_SIZE = 1 << 20


#: Fills a folder, within the room there is, and returns the names of the files, and facts on them.
Fill: TypeAlias = "Callable[[str, CacheRoom], tuple[Sequence[str], Any]]"


class CacheRoom:
    """The bytes of the budget that an entry may use. It asks for more as it grows."""

    def __init__(self, cache: BlockCache) -> None:
        self._budget, self.reserved = cache.budget, 0

    def reserve(self, size: int) -> None:
        """Make sure that there is room for ``size`` bytes in all; raise OutputError if not."""
        more = size - self.reserved
        if more <= 0:
            return
        if not self._budget.reserve(more):
            raise OutputError(
                f"they take {size_text(size)} or more, and the budget of the cache is "
                f"{size_text(self._budget.size)}; give it more with RECMAP_CACHE_SIZE"
            )
        self.reserved = size

    def settle(self, used: int) -> None:
        """Give back what was reserved and is not used."""
        if used > self.reserved:
            self._budget.reserve(used - self.reserved)  # it is used, whether there is room or not
        self._budget.give_up(max(0, self.reserved - used))
        self._budget.settle()
        self.reserved = used


class RowsEntry:
    """The files of an entry, all of them there. No process evicts it while this object lives.

    ``facts`` is what ``fill`` said of them. A ``private`` entry is of use to nobody else, and
    removed in the end.
    """

    def __init__(
        self, folder: CacheFolder, key: str, fd: int, told: Mapping[str, Any], private: bool
    ) -> None:
        self.files = [_file(folder.place(key), name) for name in told["files"]]
        self.facts = told["facts"]
        self._folder, self._key = folder, key
        owner = os.getpid() if private else None
        self._close = weakref.finalize(self, _close, fd, folder, key, owner)

    def discard(self) -> None:
        """Remove the entry, because it is damaged. Others who have it open keep their files."""
        with suppress(OSError):
            self._folder.discard(self._key)
        self._close()


def _close(fd: int, folder: CacheFolder, key: str, owner: int | None) -> None:
    # Without unlocking: a forked process may go on with the entry.
    os.close(fd)
    if owner == os.getpid():
        with suppress(OSError):
            folder.drop(key)


def open_rows(
    cache: BlockCache, key: str, about: str, fill: Fill, *, private: bool = False
) -> RowsEntry:
    """Open the entry with this key. If nobody has filled it, ``fill`` a folder with files.

    The facts that ``fill`` returns must be JSON. Raise an OSError or OutputError if it cannot be
    kept, and what ``fill`` raises.
    """
    cache.folder.make()  # somebody may have removed it since
    while True:
        _create(cache, key, about)
        found = _locked(cache, key, about, fill)
        if found is not None:
            return RowsEntry(cache.folder, key, *found, private)
        time.sleep(_LOOK_EVERY)


def _create(cache: BlockCache, key: str, about: str) -> None:
    """Create an entry without rows, unless there is one."""
    path = cache.folder.place(key)
    if os.path.isfile(os.path.join(path, _DATA)):
        return
    if os.path.lexists(path):
        cache.folder.discard(key)  # damaged: an entry appears with its lock
    new = temporary_path(path)
    try:
        os.mkdir(new, 0o700)
        _write_about(new, {"url": about, "size": 0})
        with open(os.path.join(new, _DATA), "xb"):
            pass
        os.rename(new, path)
    except OSError as e:
        remove(new)
        if e.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise


def _locked(
    cache: BlockCache, key: str, about: str, fill: Fill
) -> tuple[int, Mapping[str, Any]] | None:
    """Open and lock an entry, and return what it says of itself.

    Return None if another process fills it, or has just removed it.
    """
    path = cache.folder.place(key)
    data = os.path.join(path, _DATA)
    try:
        fd = os.open(data, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        told = _told(path)
        if told is None or (_is_filled(told) and not _is_sound(path, told)):
            cache.folder.discard(key)
            return None
        if not _is_filled(told) and lock(fd, fcntl.LOCK_EX, patience=0) and is_file(fd, data):
            told = _told(path)
            if told is not None and not _is_filled(told):
                told = _filled(cache, key, about, fill)
        # Whoever evicts the entry holds the lock for a moment.
        if _is_filled(told) and lock(fd, fcntl.LOCK_SH) and is_file(fd, data):
            now = time.time()  # by default, the file would get an earlier, coarser time
            os.utime(os.path.join(path, _ABOUT), (now, now))
            return os.dup(fd), told
        return None
    finally:
        os.close(fd)


def _filled(cache: BlockCache, key: str, url: str, fill: Fill) -> Mapping[str, Any] | None:
    """Fill an entry that this process has locked, and return what it says of itself."""
    path, room = cache.folder.place(key), CacheRoom(cache)
    rows = os.path.join(path, _ROWS)
    room.reserved = allocated_below(rows)  # what a killed process has left is counted already
    try:
        names, facts = fill(rows, room)
        files = {name: _measured(_file(path, name)) for name in names}
        size = sum(size for size, _ in files.values())
        about = {"url": url, "size": size, "files": files, "facts": facts}
        _write_about(path, {**about, "checked": _changes(path, files)})
    except (OSError, OutputError):
        room.settle(allocated_below(rows))
        cache.folder.discard(key)  # others need the room
        raise
    finally:
        room.settle(allocated_below(rows))
    return _told(path)


def _told(path: str) -> Mapping[str, Any] | None:
    """Return what an entry says of itself; None if it is damaged."""
    try:
        with open(os.path.join(path, _ABOUT), encoding="utf-8") as file:
            told = json.load(file)
    except (OSError, ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


def _is_filled(told: Mapping[str, Any] | None) -> TypeGuard[Mapping[str, Any]]:
    """Return whether an entry is complete."""
    return told is not None and isinstance(told.get("files"), dict) and "facts" in told


def _is_sound(path: str, told: Mapping[str, Any]) -> bool:
    """Return whether the files are as they were written."""
    files = told["files"]
    try:
        if any(os.path.getsize(_file(path, name)) != size for name, (size, _) in files.items()):
            return False
        changes = _changes(path, files)
        if told.get("checked") == changes:
            return True
        if any(_measured(_file(path, name)) != found for name, found in files.items()):
            return False
    except (OSError, TypeError, ValueError):
        return False
    _write_about(path, {**told, "checked": changes})
    return True


def _file(path: str, name: str) -> str:
    return os.path.join(path, _ROWS, os.path.basename(name))


def _measured(file: str) -> list[int]:
    """Return the size and the checksum of a file."""
    size, crc = 0, 0
    with open(file, "rb", buffering=0) as opened:
        buffer = np.empty(_READ_SIZE, np.uint8)
        while count := opened.readinto(buffer.data):
            size, crc = size + count, _core.crc32c(buffer[:count], crc)
    return [size, crc]


def _changes(path: str, files: Iterable[str]) -> list[Any]:
    """Return when the machine was started, and when each file was last changed."""
    boot = FileState.of(path).machine
    return [boot, *(os.stat(_file(path, name)).st_ctime_ns for name in files)]


def _write_about(path: str, about: dict[str, Any]) -> None:
    target = os.path.join(path, _ABOUT)
    new = temporary_path(target)
    try:
        with open(new, "x", encoding="utf-8") as file:
            json.dump(about, file)
        os.rename(new, target)
    except BaseException:
        remove(new)
        raise
