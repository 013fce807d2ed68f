"""The budget of the block cache: what may be written, and what makes room for it."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable

from recmap.files.cache_folder import CacheFolder, StoredObject

# Blocks leave this part of the budget to new entries and their small files.
_PART_FOR_SMALL_FILES = 64
# Looking for entries to evict takes time, so it is done at most every few seconds.
_LOOK_EVERY = 5.0


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
