"""Remembered: a value that takes long to compute, such as one made of a whole column."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Generic, TypeVar

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Remembered(Generic[_K, _V]):
    """Values by key, each computed when it is first asked for. The last few are kept.

    Threads wait for one that computes. Other processes get ``first``, the value of that key, with
    the pickle: it is computed before, so that not every one of them does.

    >>> squares = Remembered(lambda number: number**2, first=3)
    >>> squares.at(3), squares.at(4)
    (9, 16)
    """

    def __init__(
        self,
        compute: Callable[[_K], _V],
        first: _K,
        *,
        only: bool = False,
        keep: int = 1,
        pickled: bool = True,
    ) -> None:
        """With ``only``, the value is the same for all keys, so ``compute`` is not pickled.

        Unless values are ``pickled``, other processes compute those that they need.
        """
        self._compute: Callable[[_K], _V] | None = compute
        self._first, self._only, self._keep, self._pickled = first, only, keep, pickled
        self._values: dict[_K, _V] = {}
        self._lock, self._process = Lock(), os.getpid()

    def at(self, key: _K) -> _V:
        """Return the value of a key."""
        if self._only:
            key = self._first
        try:
            return self._values[key]
        except KeyError:
            pass
        if self._process != os.getpid():  # a thread of the parent may hold the lock, forever
            self._lock, self._process = Lock(), os.getpid()
        with self._lock:
            if key not in self._values:
                assert self._compute is not None
                while len(self._values) >= self._keep:
                    self._values.pop(next(iter(self._values)), None)
                self._values[key] = self._compute(key)
            return self._values[key]

    def known(self, key: _K) -> _V | None:
        """Return the value of a key if it has been computed, else None."""
        return self._values.get(self._first if self._only else key)

    def __getstate__(self) -> dict[str, Any]:
        values = {self._first: self.at(self._first)} if self._pickled else {}
        compute = None if self._only else self._compute
        return {**self.__dict__, "_values": values, "_compute": compute, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock, self._process = Lock(), os.getpid()
