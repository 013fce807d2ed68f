"""Read parts of an object: from the disk cache what it has, and the rest from the store."""

from __future__ import annotations

import os
import resource
import sys
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, RLock

import numpy as np

from recmap.cache.block_cache import BLOCK, CacheEntry, default_cache
from recmap.errors import PathNotFoundError
from recmap.local.temporary import temporary_path
from recmap.machine.lru import Lru
from recmap.machine.mapped import MappedFile
from recmap.store.fetch import Fetch
from recmap.store.object_address import ObjectAddress

# Once the cache has this part of an object, the rest will likely be needed, too. So a missing block
# is then fetched with its neighbours, which takes hardly longer.
_LIKELY_WHOLE, _NEIGHBOURS = 1 / 8, 4
# Blocks to check before a read, once all are there, so that nobody waits long.
_CHECKED_AT_ONCE = 64
# One entry of the cache is kept open for this many descriptors that the process may have.
_DESCRIPTORS = 4


class CachedFile(MappedFile):
    """The copy of an object in the cache. All its blocks are sound, unless the file has changed.

    Whoever cleans up caches does not know who reads them. So views of it are never given away:
    what is read is copied, inside a guard. ``changed`` is when the copy was last changed, and
    ``origin`` is what to read once it is changed again.
    """

    def __init__(self, path: str, kept_at: str, origin: MappedFile, changed: int) -> None:
        super().__init__(path, kept_at)
        self._origin, self._changed = origin, changed

    @property
    def lends(self) -> bool:
        return False

    @property
    def intact(self) -> bool:
        """Whether the copy is still what it was. One that was removed stays as long as mapped."""
        return self._mapping.is_unchanged(self._changed)

    def current(self) -> MappedFile:
        """Return this file, or the object itself if the copy was changed."""
        return self if self.intact else self._origin


class ObjectReader:
    """Reads one version of one object, for several threads at once.

    What the cache takes is fetched in whole blocks, and what it refuses exactly as asked for.
    """

    def __init__(self, path: ObjectAddress) -> None:
        self.path, self._store, self.info = path, path.store, path.info
        # An entry that was closed is kept, because it knows which blocks are sound.
        self._entry: CacheEntry | None = None
        self._cached = self.info.pinned
        self._users = 0
        self._lock = RLock()
        # Blocks that are being fetched.
        self._coming: dict[int, Event] = {}

    def refuse_fork(self) -> None:
        """Raise in a process that was forked from one that had made requests."""
        self._store.refuse_fork(self.info.key)

    def start(self, parts: Sequence[Fetch]) -> None:
        """Begin to read parts of the object, in other threads."""
        self._store.submit(self._bring, parts)

    def mapped(self, origin: MappedFile) -> CachedFile | None:
        """Map the whole object, if the cache has it and this process has checked it.

        ``origin`` is what to read instead, should the copy be damaged.
        """
        if self._entry is None or not self._entry.complete:
            return None
        # While the entry is open, nobody can replace it. What is mapped stays.
        with self._open_entry() as entry:
            changed = None if entry is None else entry.settled(_CHECKED_AT_ONCE)
            if entry is None or changed is None:
                return None
            try:
                file = CachedFile(self.path, entry.file_of_data, origin, changed)
            except (OSError, PathNotFoundError):
                return None  # removed by hand, or too many mappings
            return file if file.intact else None

    def _bring(self, part: Fetch) -> None:
        if part.given_up:
            return
        with self._open_entry() as entry:
            # If the cache is found to be damaged, the blocks are fetched, and it is tried again.
            if entry is not None and any(self._fill(entry, part) for _ in range(2)):
                return
        part.put(self._store.get(self.info, part.begin, part.end))

    def _fill(self, entry: CacheEntry, part: Fetch) -> bool:
        """Read a part from the cache, after what it lacks was fetched; return whether it worked."""
        first, stop = part.begin // BLOCK, -(-part.end // BLOCK)
        had = int(entry.seen(first, stop).sum()) * BLOCK
        if not self._have_blocks(entry, first, stop) or not part.fill(entry.read):
            return False
        self._store.counter.add(cache_hits=min(had, part.end - part.begin))
        return True

    def _have_blocks(self, entry: CacheEntry, first: int, stop: int) -> bool:
        """Fetch the blocks that are not in the cache. Return whether all of them are there now."""
        if entry.seen(first, stop).all():
            return True
        around = first, stop
        if entry.known_blocks > entry.blocks * _LIKELY_WHOLE:
            around = _with_neighbours(first, stop, entry.blocks)
        missing = np.flatnonzero(~entry.seen(*around)) + around[0]
        done = Event()
        with self._lock:
            coming = [self._coming.get(block) for block in range(first, stop)]
            mine = [block for block in missing.tolist() if block not in self._coming]
            # Another thread may have brought some since they were found to be missing.
            mine = [block for block in mine if not entry.knows(block)]
            if mine and not entry.admit(len(mine)):
                return False
            self._coming.update(dict.fromkeys(mine, done))
        left = len(mine)
        try:
            for blocks in _runs(mine):
                begin = blocks[0] * BLOCK
                end = min((blocks[-1] + 1) * BLOCK, self.info.size)
                data = memoryview(self._store.get(self.info, begin, end))
                for i, block in enumerate(blocks):
                    left -= 1
                    entry.store(block, data[i * BLOCK : (i + 1) * BLOCK])
        finally:
            entry.give_back(left)
            with self._lock:
                for block in mine:
                    del self._coming[block]
            done.set()
        for other in coming:
            if other is not None:
                other.wait()
        # Another thread may have failed, or the disk may be full.
        return bool(entry.seen(first, stop).all())

    @contextmanager
    def _open_entry(self) -> Iterator[CacheEntry | None]:
        """Yield the entry of the cache, open; None if there is none."""
        with self._lock:
            self._users += 1
            if self._cached and (self._entry is None or self._entry.fd < 0):
                self._open()
            entry = self._entry if self._cached else None
        try:
            yield entry
        finally:
            with self._lock:
                self._users -= 1

    def _open(self) -> None:
        entry = _entry(self.path)
        if entry is None:
            self._cached = False
            return
        if self._entry is not None:
            entry.resume(self._entry)
        self._entry = entry
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _DESCRIPTORS
        for found in _open_readers.put(id(self), weakref.ref(self), most):
            old = found()
            if old is not None and not old.close():
                _open_readers.put(id(old), found, sys.maxsize)

    def close(self) -> bool:
        """Close the entry of the cache and return True, unless it is being used."""
        if not self._lock.acquire(blocking=False):  # its thread may be closing the reader of ours
            return False
        try:
            if self._users:
                return False
            if self._entry is not None and self._entry.fd >= 0:
                self._entry.close()
            return True
        finally:
            self._lock.release()


# Readers with an open entry, those that were opened last.
_open_readers = Lru[int, "weakref.ref[ObjectReader]"](sys.maxsize)


def _entry(path: ObjectAddress) -> CacheEntry | None:
    """Open the entry of an object, if there is a cache and it has room."""
    cache, info = default_cache(), path.info
    if cache is None or not info.pinned:
        return None
    name = f"{path.store.place}/{info.key}"
    return cache.entry(name, f"{info.etag} {info.modified.isoformat()}", info.size)


def keep_beside(path: ObjectAddress, name: str, content: bytes) -> None:
    """Keep a small file with an object in the cache, if there is one."""
    entry = _entry(path)
    if entry is None:
        return
    try:
        target = entry.file(name)
        temporary = temporary_path(target)
        with open(temporary, "wb") as file:
            file.write(content)
        os.replace(temporary, target)
    except OSError:
        return  # it only saves time
    finally:
        entry.close()


def kept_beside(path: ObjectAddress, name: str, most: int) -> bytes | None:
    """Return the content of a small file that was kept with an object, if there is one."""
    entry = _entry(path)
    if entry is None:
        return None
    try:
        with open(entry.file(name), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            return file.read(size) if size <= most else None
    except OSError:
        return None
    finally:
        entry.close()


def _with_neighbours(first: int, stop: int, blocks: int) -> tuple[int, int]:
    """Widen a range of blocks to whole groups.

    >>> _with_neighbours(5, 6, 7)
    (4, 7)
    """
    return first // _NEIGHBOURS * _NEIGHBOURS, min(-(-stop // _NEIGHBOURS) * _NEIGHBOURS, blocks)


def _runs(blocks: Sequence[int]) -> list[list[int]]:
    """Divide numbers into runs without gaps.

    >>> _runs([1, 2, 5])
    [[1, 2], [5]]
    """
    runs: list[list[int]] = []
    for block in blocks:
        if runs and runs[-1][-1] == block - 1:
            runs[-1].append(block)
        else:
            runs.append([block])
    return runs
