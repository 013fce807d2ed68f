"""The folder of the block cache: its entries, who has them open, and the room that they may take.

::

    objects-v1/
      usage                      bytes reserved or allocated, changed under a lock
      <sha256 of the object>/    appears complete, by a rename
        object.json              what it is; its modification time is when it was last opened
        data                     sparse, as long as the object; locked by those who have it open
        table                    a checksum for each block that is there
        ...                      small files, such as an index

The folder belongs to one user. What is in it may be damaged, but only by accident or by programs
of that user.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import stat
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from recmap.local.local_path import located
from recmap.local.temporary import process_of, remove, runs, temporary_path, this_process

# Another layout gets another name, so that versions of recmap do not disturb each other.
_LAYOUT = "objects-v1"
_ENTRY = re.compile(r"[0-9a-f]{64}")
# Used bytes, all bytes that were ever reserved, and a check: garbage is not mistaken for usage.
_USAGE = struct.Struct("<QQQ")
_CHECK = int.from_bytes(b"recmap-1", "little")
_ALL_ONES = (1 << 64) - 1
# Seconds to wait for a lock. Locks are held for moments, unless a process was stopped.
_PATIENCE = 5.0
_LONGEST_DESCRIPTION = 1 << 16
_DAMAGED = (errno.EISDIR, errno.ELOOP, errno.ENOTDIR, errno.ENXIO)
# Blocks leave this part of the budget to new entries and their small files.
_PART_FOR_SMALL_FILES = 64
# Looking for entries to evict takes time, so it is done at most every few seconds.
_LOOK_EVERY = 5.0


@dataclass(frozen=True)
class StoredObject:
    """An entry as found on disk."""

    key: str
    path: str
    allocated: int
    #: When it was last opened, in seconds since 1970.
    opened: float


class CacheFolder:
    """The folder with all entries. Every method may be called from any thread and process."""

    def __init__(self, path: str) -> None:
        self.path = os.path.join(os.path.abspath(path), _LAYOUT)

    def make(self) -> None:
        """Create the folder, for this user only. Raise an OSError if that fails."""
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        try:
            os.mkdir(self.path, 0o700)
        except FileExistsError:
            facts = os.lstat(self.path)
            if not stat.S_ISDIR(facts.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, "not a folder", self.path) from None
            if facts.st_uid != os.geteuid():
                reason = "it belongs to another user"
                raise PermissionError(errno.EPERM, reason, self.path) from None
            if stat.S_IMODE(facts.st_mode) != 0o700:
                os.chmod(self.path, 0o700)

    def place(self, key: str) -> str:
        """Return the path of an entry."""
        return os.path.join(self.path, key)

    def objects(self) -> Iterator[StoredObject]:
        """Find the entries. What killed processes left half made or half removed is removed."""
        for name in _names(self.path):
            path = os.path.join(self.path, name)
            if _ENTRY.fullmatch(name):
                allocated, opened = _measure(path)
                yield StoredObject(name, path, allocated, opened)
            elif _is_left_over(name):
                with suppress(OSError):  # somebody has made it impossible to remove
                    remove(path)

    def describe(self, key: str) -> tuple[str, int] | None:
        """Return the URL and the size of an entry's object, or None if they cannot be read."""
        path = os.path.join(self.place(key), "object.json")
        try:
            if not stat.S_ISREG(os.lstat(path).st_mode):
                return None
            about = json.loads(located(path).text(_LONGEST_DESCRIPTION))
            url, size = about["url"], about["size"]
        except (OSError, KeyError, RecursionError, TypeError, ValueError):
            return None
        return (url, size) if type(url) is str and type(size) is int else None

    def in_use(self, key: str) -> bool:
        """Return whether a process has an entry open."""
        with self._if_free(key) as free:
            return not free

    def drop(self, key: str) -> int | None:
        """Remove an entry and return its size on disk, or None if a process has it open."""
        with self._usage() as fd, self._if_free(key) as free:
            if not free:
                return None
            aside, size = self._set_aside(key, fd)
        remove(aside)
        return size

    def discard(self, key: str) -> None:
        """Remove an entry. Those who have it open keep their data, which nobody else sees."""
        with self._usage() as fd:
            aside, _ = self._set_aside(key, fd)
        remove(aside)

    def _set_aside(self, key: str, usage: int) -> tuple[str, int]:
        """Rename an entry in a moment, before its files are removed one by one."""
        aside = temporary_path(self.place(key))
        try:
            os.rename(self.place(key), aside)
        except FileNotFoundError:
            return aside, 0  # another process was first
        allocated, _ = _measure(aside)
        _subtract(usage, allocated)
        return aside, allocated

    @contextmanager
    def _if_free(self, key: str) -> Iterator[bool]:
        """Lock an entry. Yield False if a process has it open."""
        data = os.path.join(self.place(key), "data")
        try:
            fd = os.open(data, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as e:
            if e.errno not in (errno.ENOENT, *_DAMAGED):
                raise
            yield True  # an entry appears with its data, so this one is damaged, or gone
            return
        try:
            yield lock(fd, fcntl.LOCK_EX, patience=0) and is_file(fd, data)
        finally:
            # A process that was forked in the meantime has the same lock.
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    # -- the room that is used -------------------------------------------------------------------

    def used(self) -> int | None:
        """Return the bytes that are used or reserved, or None if they have to be counted."""
        with self._usage() as fd:
            usage = _read(fd)
            return None if usage is None else usage[0]

    def reserve(self, size: int, limit: int, reserved: Callable[[], None]) -> bool:
        """Add to the bytes used and call ``reserved``, unless there would be over ``limit``."""
        with self._usage() as fd:
            usage = _read(fd)
            if usage is None or usage[0] + size > limit:
                return False
            _write(fd, usage[0] + size, usage[1] + size)
            reserved()
            return True

    def give_back(self, size: Callable[[], int]) -> None:
        """Subtract from the bytes used. ``size`` is called while nobody counts them."""
        with self._usage() as fd:
            _subtract(fd, size())

    def count(self, reserved: Callable[[], int]) -> list[StoredObject]:
        """Count the bytes used by all entries, and what this process has reserved.

        What other processes have reserved, but not written yet, is forgotten. What changes
        during the count may be counted twice, but is not missed.
        """
        with self._usage() as fd:
            before = _read(fd) or (0, 0)
            pending = reserved()
        found = list(self.objects())
        with self._usage() as fd:
            now = _read(fd) or before
            meanwhile = (now[1] - before[1]) & _ALL_ONES
            _write(fd, sum(one.allocated for one in found) + pending + meanwhile, now[1])
        return found

    @contextmanager
    def _usage(self) -> Iterator[int]:
        path = os.path.join(self.path, "usage")
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
            remove(path)
        fd = os.open(path, flags, 0o600)
        try:
            # Threads exclude each other, too, because each opens the file itself.
            if not lock(fd, fcntl.LOCK_EX):
                raise TimeoutError(errno.ETIMEDOUT, "another process holds the lock", path)
            yield fd
        finally:
            # A process that was forked in the meantime has the same lock.
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)


def lock(fd: int, kind: int, *, patience: float = _PATIENCE) -> bool:
    """Lock a file and return True, or False if others hold it for too long.

    >>> fd = os.open(os.curdir, os.O_RDONLY)
    >>> lock(fd, fcntl.LOCK_SH)
    True
    >>> os.close(fd)
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.001)
        else:
            return True


def is_file(fd: int, path: str) -> bool:
    """Return whether a path still names the file that is open."""
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []


def _is_left_over(name: str) -> bool:
    """Return whether a process of this machine made this name, and has ended."""
    owner = process_of(name)
    if owner is None or owner.machine != this_process().machine:
        return False
    return runs(owner) is False


def _measure(path: str) -> tuple[int, float]:
    """Return the disk space of an entry, and when it was last opened."""
    try:
        opened = os.lstat(os.path.join(path, "object.json")).st_mtime
    except OSError:
        opened = 0.0  # removed in the meantime, or damaged
    return allocated_below(path), opened


def allocated_below(path: str) -> int:
    """Return the disk space of a file, or of a folder and all that is in it."""
    try:
        facts = os.lstat(path)
        total = facts.st_blocks * 512
        if stat.S_ISDIR(facts.st_mode):
            with os.scandir(path) as inside:
                total += sum(allocated_below(item.path) for item in inside)
    except (FileNotFoundError, PermissionError):
        return 0  # removed in the meantime, or damaged
    return total


def _read(fd: int) -> tuple[int, int] | None:
    data = os.pread(fd, _USAGE.size + 1, 0)
    if len(data) != _USAGE.size:
        return None
    used, reserved, check = _USAGE.unpack(data)
    return (used, reserved) if used ^ reserved ^ check == _CHECK else None


def _subtract(fd: int, size: int) -> None:
    usage = _read(fd)
    if usage is not None:
        _write(fd, max(usage[0] - size, 0), usage[1])


def _write(fd: int, used: int, reserved: int) -> None:
    reserved &= _ALL_ONES
    data = _USAGE.pack(used, reserved, used ^ reserved ^ _CHECK)
    os.pwrite(fd, data, 0)
    if os.fstat(fd).st_size != len(data):
        os.ftruncate(fd, len(data))


class CacheBudget:
    """The bytes that the folder may use, shared by all processes.

    An entry makes room for others if no process has it open, and if it was not opened ``since``
    this moment. Otherwise a scan over more objects than a process keeps open would evict what it
    needs in the next epoch.

    No lock is taken but that of the folder's usage, so a forked process can use it, too.
    """

    def __init__(self, folder: CacheFolder, size: int, since: float) -> None:
        self.size = size
        self.since = since
        self._folder = folder
        self._full = False
        # By descriptor. Then the processes and bytes of reservations that were given up.
        self._reservations: dict[int, Reservations] = {}
        self._given_up: deque[tuple[int, int]] = deque()
        self._candidates: list[StoredObject] = []
        self._look_again = 0.0

    def register(self, fd: int, reservations: Reservations) -> None:
        """Count the reservations of an entry."""
        self._reservations[fd] = reservations

    def unregister(self, fd: int) -> None:
        """Give up the reservations of an entry."""
        reservations = self._reservations.pop(fd, None)
        if reservations is not None:
            self.give_up(reservations.pending)

    def admit(self, reservations: Reservations, count: int) -> bool:
        """Reserve room for blocks and return True, or return False if there is none."""
        if self._full:
            return False
        limit = self.size - self.size // _PART_FOR_SMALL_FILES
        try:
            return self._reserve(count * reservations.cost, limit, lambda: reservations.add(count))
        except OSError:
            # The cache saves time, and objects can be read without it.
            return False

    def reserve(self, size: int) -> bool:
        """Reserve bytes for other files than blocks."""
        return self._reserve(size, self.size, lambda: None)

    def stop(self) -> None:
        """Admit nothing more, because the disk is full."""
        self._full = True

    def give_up(self, size: int) -> None:
        """Give up reserved bytes, later: the garbage collector calls this at any moment."""
        if size:
            self._given_up.append((os.getpid(), size))

    def settle(self) -> None:
        """Subtract what was given up from the bytes used."""
        if self._given_up:
            self._folder.give_back(self._take_given_up)

    def _reserve(self, size: int, limit: int, reserved: Callable[[], None]) -> bool:
        self.settle()
        if size > limit:
            return False
        while not self._folder.reserve(size, limit, reserved):
            if not self._evict_one():
                return False
        return True

    def _evict_one(self) -> bool:
        """Evict the entry that was opened least recently, or count again what is there."""
        begin = time.monotonic()
        if begin >= self._look_again or self._folder.used() is None:
            found = self._folder.count(self._pending)
            now = time.time()
            old = [one for one in found if not self.since <= one.opened <= now]
            self._candidates = sorted(old, key=lambda one: one.opened, reverse=True)
            self._look_again = begin + max(_LOOK_EVERY, 20 * (time.monotonic() - begin))
            return True
        while self._candidates:
            if self._folder.drop(self._candidates.pop().key) is not None:
                return True
        return False

    def _take_given_up(self) -> int:
        total = 0
        while self._given_up:
            process, size = self._given_up.pop()
            # A forked process has a copy of what its parent gave up.
            total += size if process == os.getpid() else 0
        return total

    def _pending(self) -> int:
        """Return the bytes that are reserved and not written yet."""
        given_up = sum(size for process, size in list(self._given_up) if process == os.getpid())
        return given_up + sum(one.pending for one in list(self._reservations.values()))


class Reservations:
    """The number of blocks for which an entry has reserved room.

    They are counted by lists, whose methods are atomic. A lock could be left locked by a fork.
    """

    def __init__(self, cost: int) -> None:
        #: Bytes of a block on disk.
        self.cost = cost
        self._process = os.getpid()
        self._free: list[None] = []
        self._taken: list[None] = []

    @property
    def pending(self) -> int:
        """The bytes that are reserved and not written yet."""
        self._forget_parent()
        return (len(self._free) + len(self._taken)) * self.cost

    def add(self, count: int) -> None:
        self._forget_parent()
        self._free.extend([None] * count)

    def take(self) -> bool:
        """Take one to write a block. Call ``finish`` when it is written."""
        self._forget_parent()
        self._taken.append(None)
        try:
            self._free.pop()
        except IndexError:
            self._taken.pop()
            return False
        return True

    def finish(self) -> None:
        self._taken.pop()

    def _forget_parent(self) -> None:
        """Forget what this process has a copy of, because it was forked."""
        if os.getpid() != self._process:
            self._process, self._free, self._taken = os.getpid(), [], []
