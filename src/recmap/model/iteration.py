"""Iterators for one thread at a time."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from threading import Lock
from typing import Any, Generic, Self, TypeVar

from recmap.errors import OptionError

_T = TypeVar("_T")


class Iteration(Generic[_T]):
    """Iterates over what a generator makes, and explains itself to a second thread."""

    __slots__ = ("__weakref__", "_items", "_next")

    def __init__(self, items: Iterator[_T]) -> None:
        self._items = items
        self._next = items.__next__  # runs for every item, and next() takes longer

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _T:
        try:
            return self._next()
        except ValueError as e:
            if e.args == ("generator already executing",):
                raise _shared() from None
            raise

    def close(self) -> None:
        """Stop, and free what is held for the next items."""
        if isinstance(self._items, Generator):
            self._items.close()


class BlockIteration(Generic[_T]):
    """Iterates over the items of blocks, which a generator makes.

    It does the same as an ``Iteration`` in less time for each item. Items may be small, so a
    subclass makes them in its own ``__next__`` instead of calling another function.
    """

    __slots__ = ("__weakref__", "_block", "_blocks", "_lock")

    def __init__(self, blocks: Generator[Any, None, None]) -> None:
        self._blocks = blocks
        self._block: Any = ()
        self._lock = Lock()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _T:
        while True:
            block = self._block
            for item in block:
                made: _T = item
                return made
            self._advance(block)

    def _advance(self, block: Any) -> None:
        """Take the next block after one that has ended; raise StopIteration at the end."""
        if not self._lock.acquire(blocking=False):
            raise _shared()
        try:
            if self._block is block:
                self._block = next(self._blocks)
        finally:
            self._lock.release()

    def close(self) -> None:
        """Stop, and free what is held for the next items."""
        self._blocks.close()
        self._block = ()


def _shared() -> OptionError:
    return OptionError(
        "another thread is using this iterator; make one for each thread, or let one "
        'thread iterate and workers="threads" do the work'
    )
