"""Map many files, on disk or in stores, as they are needed."""

from __future__ import annotations

import errno
import weakref
from collections.abc import Sequence
from functools import cache
from threading import RLock
from typing import Any

import numpy.typing as npt

from recmap.local.local_path import located
from recmap.machine.lru import Lru
from recmap.machine.mapped import MappedFile
from recmap.machine.spans import as_places
from recmap.model.fetching import Fetching
from recmap.store.fetch import bytes_ahead
from recmap.store.fetched_file import FetchedFile, note_held
from recmap.store.object_address import ObjectAddress

# Files that a dataset keeps mapped while it reads one after another.
_OPEN_FILES = 1024
# Files held for random access use at most half of the mappings that the system allows a
# process, and at most this many.
_MOST_HELD = 1 << 15
# An object is small if as many can be fetched ahead.
_SMALL = 4
_MAP_COUNT = "/proc/sys/vm/max_map_count"
# Errors for too many mappings or descriptors.
_TOO_MANY = (errno.ENOMEM, errno.EMFILE, errno.ENFILE)


def fetch_ahead(
    file: MappedFile, begins: int | npt.ArrayLike, ends: int | npt.ArrayLike
) -> Fetching | None:
    """Begin to fetch spans that are going to be held; None if the file has them all."""
    if not isinstance(file, FetchedFile) or file.whole:
        return None
    first, stop = as_places(begins, ends)
    hold = file.start(first, stop)
    # Rows in order: what opens the object, or checks it before, finds its beginning.
    if isinstance(begins, int) and isinstance(file.path, ObjectAddress):
        return Fetching(hold.size, 1, [hold, note_held(file.path, file)])
    return Fetching(hold.size, len(first), [hold])


def fetch_whole(file: MappedFile | str) -> Fetching | None:
    """Begin to fetch all of a small object, open or not; None if it is large, or no object."""
    if isinstance(file, str):
        if not located(file).remote:
            return None
        file = located(file).map()
    if file.size > bytes_ahead(_SMALL):
        return None
    return fetch_ahead(file, 0, file.size)


class MappedFiles:
    """Maps files on first use, and releases the least recently used."""

    def __init__(self) -> None:
        self._files = Lru[str, MappedFile](_OPEN_FILES)
        self._lock = RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedFiles, ()  # another process maps its own

    def open(self, path: str) -> MappedFile:
        """Return the mapped file. Keep a reference while you use it."""
        with self._lock:
            kept = self._files.get(path)
            file = self._map(path) if kept is None else kept.current()
            if file is not kept:
                self._files.put(path, file)
            return file

    def _map(self, path: str) -> MappedFile:
        try:
            return located(path).map()
        except OSError as e:
            if e.errno not in _TOO_MANY or not self._files:
                raise
            self._files.shrink(0)
            return located(path).map()

    def hold(self, paths: Sequence[str]) -> HeldFiles | None:
        """Map all of these files for as long as the result lives.

        Return None if the process would hold too many.
        """
        held = HeldFiles()
        if not _held.take(len(paths)):
            return None
        weakref.finalize(held, _held.give, len(paths)).atexit = False
        try:
            held.extend(map(self.open, paths))
        except OSError as e:
            if e.errno not in _TOO_MANY:
                raise
            return None
        return held


class HeldFiles(list[MappedFile]):
    """Files that stay mapped."""


class _Allowance:
    """Limits the number of held files in the whole process."""

    def __init__(self) -> None:
        self._taken = 0
        # Reentrant: the garbage collector may call give() in the middle of take().
        self._lock = RLock()

    def take(self, count: int) -> bool:
        with self._lock:
            if self._taken + count > min(_map_count() // 2, _MOST_HELD):
                return False
            self._taken += count
            return True

    def give(self, count: int) -> None:
        with self._lock:
            self._taken -= count


@cache
def _map_count() -> int:
    """Return how many mappings the system allows a process."""
    try:
        with open(_MAP_COUNT, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 2 * _MOST_HELD


_held = _Allowance()
