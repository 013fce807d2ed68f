"""Objects as memory: the bytes of a span are fetched before they are read.

The memory has the size of the object, but only what is held takes space. So an offset in the
object is an offset in the memory, and everything that reads mapped files reads objects, too.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from threading import Lock
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from recmap.machine.mapped import MappedFile
from recmap.machine.spans import (
    Places,
    allowed_gap,
    as_places,
    cut_spans,
    merge_spans,
    numbers_within,
    within_pages,
)
from recmap.machine.sparse_memory import PAGE, SparseFile
from recmap.store.fetch import Fetch, request_size, wait_for
from recmap.store.object_address import ObjectAddress
from recmap.store.object_reader import ObjectReader
from recmap.store.object_store import ObjectInfo
from recmap.store.read_ahead import ReadAhead

# Spans that are this close are fetched in one request: a request takes as long as this many bytes.
# But what is between them must not take more memory than the spans, or this much.
_GAP, _LEAST_WASTE = 64 << 10, 1 << 20


class FetchedFile(SparseFile):
    """An object in memory. Only the spans that are held can be read."""

    def __init__(self, path: ObjectAddress) -> None:
        self._reader = ObjectReader(path)
        super().__init__(path, self._reader.info.size)
        self.counter = path.store.counter
        # What is on its way, or failed.
        self._fetches: list[Fetch] = []
        self._lock = Lock()
        self._ahead = ReadAhead(self)

    def current(self) -> MappedFile:
        """Return the object as a mapped file, if the cache has all of it."""
        return self._reader.mapped(self) or self

    def hold(self, begins: int | npt.ArrayLike, ends: int | npt.ArrayLike) -> Hold:
        """Fetch the bytes of spans, and keep them while inside the context."""
        first, stop = as_places(begins, ends)
        if len(first) > 1:
            first, stop = merge_spans(first, stop)
        elif len(first) and not self.holds(int(first[0]), int(stop[0])):
            self._ahead.passed(int(first[0]), int(stop[0]))
        self.counter.add(used=int((stop - first).sum()))
        return self.start(first, stop)

    def drop_ahead(self) -> None:
        """Free what was fetched ahead."""
        self._ahead.drop()

    def start(self, begins: Places, ends: Places) -> Hold:
        """Begin to fetch the bytes of spans. Enter the result to wait for them."""
        self._reader.refuse_fork()  # another thread may have held the lock
        if len(begins) == 1 and (held := self._hold_again(int(begins[0]), int(ends[0]))):
            return held
        runs = merge_spans(*within_pages(begins, ends, PAGE))
        runs = merge_spans(*runs, allowed_gap(*runs, _GAP // PAGE, _LEAST_WASTE // PAGE))
        with self._lock:
            self._fetches = [each for each in self._fetches if not self._is_settled(each)]
            pages = numbers_within(*runs)
            parts = cut_spans(*self._absent(pages), request_size())
            # What failed before is fetched again.
            failed = {each for each in _meeting(self._fetches, runs) if each.failed}
            self._fetches = [each for each in self._fetches if each not in failed]
            parts += [(each.begin, each.end) for each in failed]
            fetches = [self._fetch(begin, end) for begin, end in parts]
            self._reader.start(fetches)
            self._fetches += fetches
            self._users[pages] += 1
            # Some of it may be on its way already.
            return Hold(self, runs, _meeting(self._fetches, runs))

    def _hold_again(self, begin: int, end: int) -> Hold | None:
        """Hold a span that is there because others hold it, or return None."""
        first, stop = begin // PAGE, -(-end // PAGE)
        with self._lock:
            users = self._users[first:stop]
            if first >= stop or not users.all():
                return None
            if any(each.begin < end and begin < each.end for each in self._fetches):
                return None
            users += 1
        return Hold(self, (np.array([first]), np.array([stop])), ())

    def _fetch(self, begin: int, end: int) -> Fetch:
        target = self._memory.bytes[begin:end]
        return Fetch(begin, end, target, partial(self._memory.prepare, begin, end))

    def release(self, runs: tuple[Places, Places]) -> None:
        """Free the pages that no other hold needs."""
        with self._lock:
            pages = numbers_within(*runs)
            self._users[pages] -= 1
            if self._users[pages].all():
                return
            unused = [each for each in _meeting(self._fetches, runs) if self._is_free(each)]
            for fetch in unused:
                fetch.give_up()
            gone = set(unused)
            self._fetches = [each for each in self._fetches if each not in gone]
            # They may have brought more than this hold asked for.
            more = within_pages(*_places(unused), PAGE)
            begins, ends = (np.concatenate(each) for each in zip(runs, more, strict=True))
            self._free(numbers_within(*merge_spans(begins, ends)))

    def holds(self, begin: int, end: int) -> bool:
        """Return whether someone has planned for all of these bytes."""
        return bool(self._users[begin // PAGE : -(-end // PAGE)].all())

    def _is_settled(self, fetch: Fetch) -> bool:
        """Return whether a fetch has arrived, and each of its pages belongs to a hold."""
        return fetch.arrived and bool(self._pages(fetch).all())

    def _pages(self, fetch: Fetch) -> npt.NDArray[np.uint16]:
        return self._users[fetch.begin // PAGE : -(-fetch.end // PAGE)]

    def _is_free(self, fetch: Fetch) -> bool:
        """Return whether nobody needs any of these bytes."""
        return not self._pages(fetch).any()


def _places(fetches: Sequence[Fetch]) -> tuple[Places, Places]:
    """Return where fetches begin and end."""
    count = len(fetches)
    begins = np.fromiter((each.begin for each in fetches), np.int64, count)
    return begins, np.fromiter((each.end for each in fetches), np.int64, count)


def _meeting(fetches: Sequence[Fetch], runs: tuple[Places, Places]) -> list[Fetch]:
    """Return the fetches that bring some of these pages."""
    first, stop = runs
    if not len(first):
        return []
    begins, ends = _places(fetches)
    after = np.searchsorted(stop * PAGE, begins, side="right")
    meets = (after < len(first)) & (first[np.minimum(after, len(first) - 1)] * PAGE < ends)
    return [fetches[i] for i in np.flatnonzero(meets).tolist()]


def note_held(path: ObjectAddress, file: FetchedFile) -> ExitStack:
    """Let others find what is held of an object, until it is closed and the beginning is gone."""
    key = path.store.place, path.info
    if path.info.pinned:
        _held[key] = file

    def forget() -> None:
        if not file.holds(0, 1) and _held.get(key) is file:
            _held.pop(key, None)

    noted = ExitStack()
    noted.callback(forget)
    return noted


# The last one that was fetched ahead of each version of an object: nothing is fetched twice.
_held: WeakValueDictionary[tuple[str, ObjectInfo], FetchedFile] = WeakValueDictionary()


def held_object(path: ObjectAddress, spans: Sequence[tuple[int, int]]) -> FetchedFile | None:
    """Return an object of which all these spans are held, or on their way; else None."""
    file = _held.get((path.store.place, path.info))
    return file if file is not None and all(file.holds(*span) for span in spans) else None


class Hold:
    """Pages of an object that are being fetched, or are there. Entering it waits for them."""

    def __init__(
        self, file: FetchedFile, runs: tuple[Places, Places], fetches: Sequence[Fetch]
    ) -> None:
        self._file, self._runs, self._fetches = file, runs, fetches
        #: The bytes of memory that it takes.
        self.size = int((runs[1] - runs[0]).sum()) * PAGE
        self._closed = False

    def __enter__(self) -> None:
        began = time.perf_counter()
        try:
            wait_for(self._fetches)
        except BaseException:
            self.close()
            raise
        finally:
            if self._fetches:
                self._file.counter.add(waited=time.perf_counter() - began)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the pages up."""
        if not self._closed:
            self._closed = True
            self._file.release(self._runs)
