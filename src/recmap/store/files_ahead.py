"""Fetch the objects that come next while others are read in order.

Who reads in order knows where that ends, and when it is broken off. What is read file after file
knows how far it has come. ``FilesAhead`` connects the two: the one enters its context and calls
``reading`` around each read, the other calls ``reach`` for each file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from threading import Lock
from typing import Self

from recmap.local.local_path import located
from recmap.model.fetching import Coming
from recmap.model.source import Source
from recmap.store.fetch import bytes_ahead
from recmap.store.mapped_files import fetch_whole
from recmap.store.read_ahead import Begun, far_ahead, forget_ahead, note_ahead

# Far more files than there are requests at a time gain nothing. Those that are opened ahead must
# not close each other.
_MOST_FILES = 32
# Bytes to fetch ahead of a pass that may be broken off at any time. Its first read takes as many.
_FIRST_BYTES = 1 << 20


class FilesAhead:
    """Fetches small files ahead, as many as fit into memory. Leave its context to stop.

    A file that does not fit is read ahead once its own turn has come. Unless all files are ``sure``
    to be read, what is fetched ahead grows with what has been read.
    """

    def __init__(self, coming: Iterator[Coming], *, sure: bool) -> None:
        self._coming, self._sure = coming, sure
        self._next = next(coming, None)
        self._files: list[Coming] = []
        self._begun = Begun()
        # The bytes of the files that have been read.
        self._passed = 0
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._next = None
        self.drop()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Fetch ahead of what this thread reads inside the context."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def knows(self, source: object) -> bool:
        """Return whether files of a source are fetched ahead."""
        files = [self._next, *self._files]
        return any(file is not None and file.source is source for file in files)

    def reach(self, source: object, row: int) -> None:
        """Note that ``row`` of a source is about to be read, and all files before it have been."""
        if self._next is None and not self._files:
            return
        most = bytes_ahead(note_ahead(self))
        with self._lock:
            for file in [file for file in self._files if _is_passed(file, source, row)]:
                self._files.remove(file)
                self._begun.end(id(file))
                self._passed += file.size
            while self._next is not None and _is_passed(self._next, source, row):
                self._passed += self._next.size
                self._next = next(self._coming, None)
            if not self._sure:
                most = far_ahead(self._passed, least=_FIRST_BYTES, most=most)
            while (
                self._next is not None
                and self._begun.size + self._next.size <= most
                and len(self._begun) < _MOST_FILES
            ):
                self._files.append(self._next)
                self._begun.begin(id(self._next), self._next.size, self._next.fetch)
                self._next = next(self._coming, None)

    def drop(self) -> None:
        """Give up what was fetched ahead."""
        with self._lock:
            while self._files:
                self._begun.end(id(self._files.pop()))
        forget_ahead(self)


_current: ContextVar[FilesAhead | None] = ContextVar("recmap files ahead", default=None)


def files_ahead(
    source: Source, start: int, stop: int, limit: int | None
) -> AbstractContextManager[FilesAhead]:
    """Return what fetches ahead while rows are read file after file.

    That is what a longer pass fetches, if there is one. A read with a ``limit`` may end anywhere.
    """
    ahead = _current.get()
    if ahead is not None and ahead.knows(source):
        return nullcontext(ahead)
    return FilesAhead(source.coming(start, stop) if limit is None else iter(()), sure=True)


@contextmanager
def files_in_turn(
    paths: Sequence[str],
) -> Iterator[Callable[[int], AbstractContextManager[None]]]:
    """Fetch objects ahead that are read whole and begun in this order, by one or more threads.

    What this yields returns a context for the number of a file. Read the file inside.
    """
    turn = object()
    being_read: set[int] = set()
    coming = (
        Coming(turn, path.stat().size, partial(fetch_whole, path), partial(int, number + 1))
        for number, path in enumerate(map(located, paths))
        if number and path.remote and not path.is_folder()
    )
    with FilesAhead(coming, sure=True) as ahead:

        @contextmanager
        def reading(number: int) -> Iterator[None]:
            being_read.add(number)
            ahead.reach(turn, min(list(being_read)))
            try:
                yield
            finally:
                being_read.discard(number)

        yield reading


def _is_passed(file: Coming, source: object, row: int) -> bool:
    stop = file.stop() if file.source is source else None
    return stop is not None and stop <= row
