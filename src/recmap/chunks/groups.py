"""Decoded row groups: those that are kept for the next read, and those that are decoded ahead."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from threading import Lock
from typing import Any

import numpy.typing as npt

from recmap.chunks.pool import submit
from recmap.machine.lru import Lru

Values = npt.NDArray[Any]
# Bytes of partially read row groups to keep.
_KEPT_SIZE = 64 << 20
# A row group larger than this is decoded again on every read.
_LARGEST_KEPT = 256 << 20
# Reads in order before anything is decoded ahead.
_READS = 2


class ChunkCache:
    """The most recently used row groups of a file, by array and number (see ``Grid``).

    A row group larger than the whole cache is kept alone, so that a pass in small batches
    decodes it only once.
    """

    def __init__(self) -> None:
        self._groups = Lru[tuple[str, int], Values](_KEPT_SIZE, lambda rows: rows.nbytes)

    @staticmethod
    def worth_keeping(size: int, already: int) -> bool:
        """Tell whether to keep ``size`` bytes, given ``already`` bytes kept by the same read."""
        return size <= (_KEPT_SIZE - already if already else _LARGEST_KEPT)

    def get(self, array: str, group: int) -> Values | None:
        """Return the rows of a row group, or None if they are not cached."""
        return self._groups.get((array, group))

    def put(self, array: str, group: int, rows: Values) -> None:
        """Keep a row group, and drop the least recently used ones."""
        self._groups.put((array, group), rows)

    def shrink(self, array: str, most: int) -> None:
        """Keep only the ``most`` recently used row groups of an array."""
        mine = [key for key in self._groups if key[0] == array]
        for key in mine[: max(len(mine) - most, 0)]:
            self._groups.pop(key)


class GroupsAhead:
    """Notices that rows are read in order, and holds the row groups that come next."""

    def __init__(self) -> None:
        self._next = self._reads = 0
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._process = os.getpid()
        self._begun: dict[int, Future[Values]] = {}
        self._lock = Lock()

    def _locked(self) -> Lock:
        if self._process != os.getpid():  # threads do not survive a fork
            self._begin_anew()
        return self._lock

    def in_order(self, start: int, stop: int) -> bool:
        """Note a read, and tell whether it goes on where the last ones ended."""
        with self._locked():
            if start != self._next:
                self._reads = 0
                self._drop(list(self._begun))
            self._reads, self._next = self._reads + 1, stop
            return self._reads > _READS

    def begin(self, groups: Iterable[int], decode: Callable[[int], Values]) -> None:
        """Decode row groups ahead, unless they are being decoded, and forget others before them.

        ``decode`` is a method, whose object is not kept alive.
        """
        method = weakref.WeakMethod(decode)
        with self._locked():
            wanted = list(groups)
            self._drop([group for group in self._begun if wanted and group < wanted[0]])
            for group in wanted:
                if group not in self._begun:
                    self._begun[group] = submit(_decode, method, group)

    def take(self, group: int) -> Values | None:
        """Wait for a row group; None if it is not being decoded."""
        with self._locked():
            future = self._begun.pop(group, None)
        return None if future is None else future.result()

    def _drop(self, groups: list[int]) -> None:
        for group in groups:
            self._begun.pop(group).cancel()


def _decode(method: weakref.WeakMethod[Callable[[int], Values]], group: int) -> Values:
    decode = method()
    if decode is None:
        raise RuntimeError("these rows are no longer being read")
    return decode(group)
