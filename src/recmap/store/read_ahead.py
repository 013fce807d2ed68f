"""How far to read ahead of what is read in order, and what was begun before its turn.

Whatever is read in order, the rule is the same: begin twice what has been read, so that
a few rows cost little, within a number of bytes and of pieces. Give up what has been passed, and
everything once the reading breaks off. Bytes of one object (``ReadAhead``), files one after another
(``files_ahead``), rows of a pipeline (``pipeline/workers/lookahead``) and row groups
(``formats/row_group_scan``) differ in what a piece is.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Protocol

import numpy as np

from recmap.errors import RecmapError
from recmap.machine.lru import Lru
from recmap.machine.spans import Places
from recmap.model.fetching import Closable, Fetching
from recmap.store.fetch import bytes_ahead, request_size

# Read ahead this many times what has been read in order.
_GROWTH = 2
# A span of this size is read ahead from the start.
_LARGE = 1 << 20
#: Objects that are read ahead at a time.
MOST_OBJECTS = 16


def far_ahead(passed: int, *, least: int = 0, most: int = sys.maxsize) -> int:
    """Return how far to read ahead once so much was read in order, in bytes or in rows.

    >>> [far_ahead(passed, least=10, most=100) for passed in (0, 10, 80)]
    [10, 20, 100]
    """
    return min(most, max(least, _GROWTH * passed))


class Begun:
    """What was begun before its turn, by key. Any thread may use it."""

    def __init__(self) -> None:
        self._parts: dict[Hashable, tuple[Fetching | None, int]] = {}
        self._lock = Lock()
        self._closed = False
        #: The bytes of all parts, and the places they are in.
        self.size = self.spans = 0

    def __len__(self) -> int:
        return len(self._parts)

    def begin(self, key: Hashable, size: int, fetch: Callable[[], Fetching | None]) -> None:
        """Begin to fetch a part. It counts as ``size`` bytes if nothing has to be fetched."""
        try:
            fetching = fetch()
        except (RecmapError, OSError):
            fetching = None  # reading it raises the error, in its turn
        with self._lock:
            if not self._closed:
                self._parts[key] = fetching, size if fetching is None else fetching.size
                self._count(key, 1)
                return
        if fetching is not None:
            fetching.close()

    def end(self, key: Hashable) -> None:
        """Give up a part, which has been read."""
        with self._lock:
            if key not in self._parts:
                return
            self._count(key, -1)
            fetching, _ = self._parts.pop(key)
        if fetching is not None:
            fetching.close()

    def close(self) -> None:
        """Give up everything, also what is begun later."""
        with self._lock:
            self._closed, begun = True, list(self._parts)
        for key in begun:
            self.end(key)

    def _count(self, key: Hashable, sign: int) -> None:
        fetching, size = self._parts[key]
        self.size += sign * size
        self.spans += 0 if fetching is None else sign * fetching.spans


class _Fetchable(Protocol):
    @property
    def size(self) -> int: ...

    def start(self, begins: Places, ends: Places) -> Closable: ...


class ReadAhead:
    """Watches which spans of an object are read, and fetches what follows."""

    def __init__(self, file: _Fetchable) -> None:
        self._file = weakref.ref(file)
        self._lock = Lock()
        # Where each piece ends, and what holds it.
        self._pieces: deque[tuple[int, Closable]] = deque()
        # The span read last, how much has been read in order, and how far it is fetched.
        self._begin = self._end = self._passed = self._stop = 0

    def passed(self, begin: int, end: int) -> None:
        """Note that a span is about to be read."""
        file = self._file()
        assert file is not None
        most = bytes_ahead(len(_reading))
        behind = most // 2  # for other threads that still read there
        with self._lock:
            in_order = self._begin - behind <= begin <= max(self._end, self._stop)
            if not in_order:
                self._drop()
                # Keep a large span: a scan is often followed by a read of the same.
                self._end = begin
                self._stop = begin if end - begin >= _LARGE else end
            elif end <= self._end:
                return
            self._begin, self._passed = begin, self._passed + end - self._end
            self._end = end
            while self._pieces and self._pieces[0][0] <= begin - behind:
                self._pieces.popleft()[1].close()
            more = far_ahead(self._passed, most=most) if in_order else 0
            wanted = min(end + more, file.size)
            piece = min(request_size(), max(more, end - self._stop, 1))
            last = wanted == file.size
            while self._stop < (wanted if last else max(end, wanted - piece + 1)):
                stop = min(self._stop + piece, file.size)
                hold = file.start(np.array([self._stop]), np.array([stop]))
                self._pieces.append((stop, hold))
                self._stop = stop
        if self._pieces:
            note_ahead(self)

    def drop(self) -> None:
        """Give up what was fetched ahead."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        while self._pieces:
            self._pieces.popleft()[1].close()
        self._begin = self._end = self._passed = self._stop = 0
        forget_ahead(self)


class _Droppable(Protocol):
    def drop(self) -> None: ...


# What is read ahead in this process: objects, and sets of them.
_reading = Lru[int, weakref.ref[_Droppable]](MOST_OBJECTS)


def note_ahead(ahead: _Droppable) -> int:
    """Note what is read ahead, and return how many are. Give up what was not read for longest."""
    key = id(ahead)
    for found in _reading.put(key, weakref.ref(ahead, lambda _: _reading.pop(key))):
        old = found()
        if old is not None:
            old.drop()
    return len(_reading)


def forget_ahead(ahead: _Droppable) -> None:
    """Forget what is no longer read ahead."""
    _reading.pop(id(ahead))
