"""The disk cache for blocks of objects.

An entry belongs to one version of one object. It appears when the object is first opened, and is
filled block by block. Nothing is replaced under a scan: once the budget is used up, further
blocks are refused, so that a dataset larger than the budget keeps a fixed part. (Evicting
what was used least recently would evict what the scan needs next.) Only entries of earlier runs
that no process has open make room for others, least recently opened first.

A block is written before its checksum, and without a lock: processes that write the same block
write the same bytes. Each process checks a block when it first uses it, because after a power
failure the checksum may be on disk without the data.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import stat
import time
from functools import cache

from recmap.cache.cache_entry import BLOCK, NUMBER, NUMBER_SIZE, CacheEntry, table_size
from recmap.cache.cache_folder import CacheBudget, CacheFolder, is_file, lock
from recmap.errors import NoCacheWarning, OptionError, shown_url, without_secrets
from recmap.local.temporary import remove, temporary_path
from recmap.model.arguments import parse_size
from recmap.warn import warn

__all__ = ["BLOCK", "BlockCache", "CacheEntry", "cache_budget", "cache_folder", "default_cache"]

_FOLDER, _SIZE = "RECMAP_CACHE", "RECMAP_CACHE_SIZE"
# By default, the cache may use this part of the disk that other files do not use.
_PART_OF_DISK = 10
# What the small files and the folder of a new entry take on disk.
_ENTRY_COST = 16 << 10
# Larger than any object. Servers are not trusted to tell the truth.
_LARGEST = 1 << 50
_ATTEMPTS = 100


def cache_folder() -> CacheFolder:
    """Return the folder that the environment names. It may not exist yet."""
    folder = os.environ.get(_FOLDER)
    if not folder:
        base = os.environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(base):  # the standard says to ignore it
            base = os.path.join(os.path.expanduser("~"), ".cache")
        if not os.path.isabs(base):
            raise FileNotFoundError(errno.ENOENT, "this user has no home folder", base)
        folder = os.path.join(base, "recmap")
    return CacheFolder(os.path.expanduser(folder))


def cache_budget(folder: CacheFolder) -> int:
    """Return how many bytes the cache may use: ``RECMAP_CACHE_SIZE``, or a part of the disk."""
    given = os.environ.get(_SIZE)
    if given:
        try:
            return parse_size(given)
        except OptionError as e:
            raise OptionError(f"{_SIZE}: {e}") from None
    path, used = folder.path, 0
    while not os.path.exists(path):
        path = os.path.dirname(path)
    if path == folder.path:
        known = folder.used()
        used = sum(one.allocated for one in folder.objects()) if known is None else known
    disk = os.statvfs(path)
    return (disk.f_bavail * disk.f_frsize + used) // _PART_OF_DISK


def default_cache() -> BlockCache | None:
    """Return the cache that the environment describes, or None if it is off.

    If the folder cannot be used, warn once and return None.
    """
    names = (_FOLDER, _SIZE, "XDG_CACHE_HOME", "HOME")
    return _cache_of(tuple(os.environ.get(name) for name in names))


@cache
def _cache_of(environment: tuple[str | None, ...]) -> BlockCache | None:
    """Return the cache for these settings: the same one for every caller."""
    try:
        folder = cache_folder()
        if environment[1] and cache_budget(folder) == 0:
            return None
        folder.make()
        folder.used()  # raises if the file system has no locks
        return BlockCache(folder, cache_budget(folder))
    except OSError as e:
        warn(
            f"{e.filename or 'the cache'} cannot be used, so data from object stores is not kept "
            f"on disk: {e.strerror or e}; set {_FOLDER} to another folder, or {_SIZE}=0 to "
            "turn the cache off",
            NoCacheWarning,
        )
        return None


class BlockCache:
    """The blocks of objects that are kept on this machine's disk, shared by its processes.

    Use it from any thread, and in forked processes. The budget covers everything in the folder.
    It may be exceeded by what several processes write at the same time. Entries opened ``since``
    a moment (default: now) are not evicted, even if no process has them open.
    """

    def __init__(self, folder: CacheFolder, budget: int, since: float | None = None) -> None:
        self.folder = folder
        self.budget = CacheBudget(folder, budget, time.time() if since is None else since)

    def entry(self, name: str, version: str, size: int) -> CacheEntry | None:
        """Open the entry of an object, and create it if necessary.

        ``name`` is the URL of the object. ``version`` changes whenever its content does, such as
        the ETag. Return None if the entry cannot be kept: there is no room, or the disk refuses.
        """
        key = hashlib.sha256(json.dumps([name, version, size]).encode()).hexdigest()
        about = {"url": shown_url(without_secrets(name)), "version": version, "size": size}
        content = json.dumps(about).encode()
        if size > _LARGEST:
            return None
        try:
            for _ in range(_ATTEMPTS):
                fd = self._open(key, content, size)
                if fd is not None:
                    return CacheEntry(self.budget, self.folder.place(key), fd, size)
                if not self.budget.reserve(_ENTRY_COST):
                    return None
                created = False
                try:
                    created = self._create(key, content, size)
                finally:
                    self.budget.give_up(0 if created else _ENTRY_COST)
        except OSError:
            # The cache saves time, and an object can be read without it.
            return None
        return None

    def _open(self, key: str, content: bytes, size: int) -> int | None:
        """Open the data of an entry and lock it. Remove the entry if it is damaged."""
        path = self.folder.place(key)
        if not os.path.lexists(path):
            return None
        if not _is_sound(path, content, size):
            self.folder.discard(key)
            return None
        data = os.path.join(path, "data")
        try:
            fd = os.open(data, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None  # evicted in the meantime
        try:
            if not lock(fd, fcntl.LOCK_SH):
                raise TimeoutError(errno.ETIMEDOUT, "another process holds the lock", data)
            if is_file(fd, data):
                now = time.time()  # by default, the file would get an earlier, coarser time
                os.utime(os.path.join(path, "object.json"), (now, now))
                return fd
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        return None

    def _create(self, key: str, content: bytes, size: int) -> bool:
        """Create an entry and return True, unless another process has."""
        path = self.folder.place(key)
        new = temporary_path(path)
        try:
            os.mkdir(new, 0o700)
            _create_file(os.path.join(new, "object.json"), content, len(content))
            _create_file(os.path.join(new, NUMBER), os.urandom(NUMBER_SIZE), NUMBER_SIZE)
            _create_file(os.path.join(new, "table"), b"", table_size(size))
            _create_file(os.path.join(new, "data"), b"", size)
            os.rename(new, path)
        except OSError as e:
            remove(new)
            if e.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
            return False
        return True


def _is_sound(path: str, content: bytes, size: int) -> bool:
    """Return whether an entry has the files it should have, and nothing strange."""
    sizes = {}
    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            return False
        with os.scandir(path) as inside:
            for item in inside:
                facts = item.stat(follow_symlinks=False)
                if not stat.S_ISREG(facts.st_mode):
                    return False
                sizes[item.name] = facts.st_size
        expected = {"data": size, "table": table_size(size), "object.json": len(content)}
        if not expected.items() <= sizes.items():
            return False
        with open(os.path.join(path, "object.json"), "rb") as file:
            return file.read(len(content) + 1) == content
    except (FileNotFoundError, PermissionError):
        return False


def _create_file(path: str, content: bytes, size: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, content)
        os.ftruncate(fd, size)
    finally:
        os.close(fd)
