"""An iterator for one thread at a time."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Generic, Self, TypeVar

from recmap.errors import OptionError

_T = TypeVar("_T")


class Iteration(Generic[_T]):
    """Iterates over what a generator makes, and explains itself to a second thread."""

    __slots__ = ("__weakref__", "_items", "_next")

    def __init__(self, items: Iterator[_T]) -> None:
        self._items = items
        self._next = items.__next__  # runs for every row, and next() takes longer

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _T:
        try:
            return self._next()
        except ValueError as e:
            if e.args == ("generator already executing",):
                raise OptionError(
                    "another thread is using this iterator; make one for each thread, or let one "
                    'thread iterate and workers="threads" do the work'
                ) from None
            raise

    def close(self) -> None:
        """Stop, and free what is held for the next items."""
        if isinstance(self._items, Generator):
            self._items.close()
