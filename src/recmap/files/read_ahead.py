"""Fetch what follows in an object while it is read in order."""

from __future__ import annotations

import weakref
from collections import deque
from threading import Lock
from typing import NamedTuple, Protocol

import numpy as np

from recmap.files.fetch_memory import bytes_ahead, bytes_behind, request_size
from recmap.files.lru import Lru
from recmap.files.spans import Places
from recmap.model.fetching import Closable

#: Fetch ahead this many times what has been read in order, so that a few rows cost little.
GROWTH = 2
# A span of this size is read ahead from the start.
_LARGE = 1 << 20
#: Objects that are read ahead at a time.
MOST_OBJECTS = 16


class _Fetchable(Protocol):
    @property
    def size(self) -> int: ...

    def start(self, begins: Places, ends: Places) -> Closable: ...


class _Droppable(Protocol):
    def drop(self) -> None: ...


class _AheadPiece(NamedTuple):
    end: int
    hold: Closable


class ReadAhead:
    """Watches which spans of an object are read, and fetches what follows."""

    def __init__(self, file: _Fetchable) -> None:
        self._file = weakref.ref(file)
        self._lock = Lock()
        self._pieces: deque[_AheadPiece] = deque()
        # The span read last, how much has been read in order, and how far it is fetched.
        self._begin = self._end = self._passed = self._stop = 0

    def passed(self, begin: int, end: int) -> None:
        """Note that a span is about to be read."""
        file = self._file()
        assert file is not None
        objects = _objects.count()
        most, behind = bytes_ahead(objects), bytes_behind(objects)
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
            while self._pieces and self._pieces[0].end <= begin - behind:
                self._pieces.popleft().hold.close()
            more = min(GROWTH * self._passed, most) if in_order else 0
            wanted = min(end + more, file.size)
            piece = min(request_size(), max(more, end - self._stop, 1))
            last = wanted == file.size
            while self._stop < (wanted if last else max(end, wanted - piece + 1)):
                stop = min(self._stop + piece, file.size)
                hold = file.start(np.array([self._stop]), np.array([stop]))
                self._pieces.append(_AheadPiece(stop, hold))
                self._stop = stop
        if self._pieces:
            _objects.note(self)

    def drop(self) -> None:
        """Give up what was fetched ahead."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        while self._pieces:
            self._pieces.popleft().hold.close()
        self._begin = self._end = self._passed = self._stop = 0
        _objects.forget(self)


class _Objects:
    """What is read ahead: objects, and sets of them. What was not read for longest is given up."""

    def __init__(self) -> None:
        self._kept = Lru[int, weakref.ref[_Droppable]](MOST_OBJECTS)

    def count(self) -> int:
        return len(self._kept)

    def note(self, ahead: _Droppable) -> None:
        key = id(ahead)
        for found in self._kept.put(key, weakref.ref(ahead, lambda _: self._kept.pop(key))):
            old = found()
            if old is not None:
                old.drop()

    def forget(self, ahead: _Droppable) -> None:
        self._kept.pop(id(ahead))


_objects = _Objects()
#: Note what is read ahead, forget it, and count all of it in this process.
note_ahead, forget_ahead, count_ahead = _objects.note, _objects.forget, _objects.count
