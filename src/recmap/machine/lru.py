"""Keep what was used last."""

from __future__ import annotations

import os
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from threading import RLock
from typing import Any, Generic, TypeVar

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Lru(Generic[_K, _V]):
    """The values that were used last, by key, in the order of use. Threads may share it.

    It keeps at most ``most`` of them or, with ``size``, values of ``most`` bytes together. The
    value put last is always kept, however large it is.

    >>> lru = Lru[str, bytes](4, len)
    >>> lru.put("a", b"12"), lru.put("b", b"3"), lru.get("a"), lru.put("c", b"45")
    ([], [], b'12', [b'3'])
    """

    def __init__(self, most: int, size: Callable[[_V], int] | None = None) -> None:
        self._most, self._size, self._used = most, size, 0
        self._values: OrderedDict[_K, _V] = OrderedDict()
        # Reentrant: the garbage collector may run anywhere, and call what uses this again.
        self._lock = RLock()
        _all.add(self)

    def unlock_in_child(self) -> None:
        """Make another lock in a forked process, where the thread is gone that held it."""
        self._lock = RLock()

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: _K) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[_K]:
        with self._lock:
            return iter(list(self._values))

    def get(self, key: _K) -> _V | None:
        """Return a value, which is now the most recently used, or None."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: _K, value: _V, most: int | None = None) -> list[_V]:
        """Keep a value; return those dropped for it. ``most`` takes the place of the limit."""
        with self._lock:
            self.pop(key)
            self._values[key] = value
            self._used += self._measure(value)
            return self._drop(self._most if most is None else most, 1)

    def pop(self, key: _K) -> _V | None:
        """Remove a value and return it, or None."""
        with self._lock:
            value = self._values.pop(key, None)
            if value is not None:
                self._used -= self._measure(value)
            return value

    def shrink(self, most: int) -> list[_V]:
        """Drop the least recently used values until ``most`` are left, and return them."""
        with self._lock:
            return self._drop(most, 0)

    def _drop(self, most: int, least: int) -> list[_V]:
        # They are returned so that they are closed or freed outside the lock.
        dropped = []
        while self._used > most and len(self._values) > least:
            _, value = self._values.popitem(last=False)
            self._used -= self._measure(value)
            dropped.append(value)
        return dropped

    def _measure(self, value: _V) -> int:
        return 1 if self._size is None else self._size(value)


def _after_fork() -> None:
    for lru in list(_all):
        lru.unlock_in_child()


_all = weakref.WeakSet[Lru[Any, Any]]()
os.register_at_fork(after_in_child=_after_fork)
