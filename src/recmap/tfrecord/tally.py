"""How far a pass over whole files is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import TypeAlias

from recmap.tfrecord.framing import open_shard
from recmap.tfrecord.plain import PlainShard
from recmap.tfrecord.window import Window

__all__ = ["SizeWatcher", "Tally"]

SizeWatcher: TypeAlias = Callable[[int, int], None]
"""Is told how many bytes have been looked at, and of how many."""


class Tally:
    """Hands out the windows of files, perhaps to several threads, and tells a watcher."""

    def __init__(self, files: Sequence[str], watcher: SizeWatcher | None) -> None:
        self._total = sum(os.path.getsize(file) for file in files)
        self._done = 0
        self._watcher = watcher
        self._lock = Lock()
        self._stopped = False

    def windows(self, file: str) -> Iterator[Window]:
        """All records of a file whose CRCs hold, and between them the damage."""
        shard = open_shard(file, verify=True)
        counted = 0
        for window in shard.windows(skip=True):
            if self._stopped:
                return
            yield window
            # Of a compressed file nobody knows how much has been read.
            if isinstance(shard, PlainShard):
                self._add(window.scan.end - counted)
                counted = window.scan.end
        self._add(os.path.getsize(file) - counted)

    def stop(self) -> None:
        """Ends the passes of all threads at their next window."""
        self._stopped = True

    def _add(self, size: int) -> None:
        with self._lock:
            self._done += size
            if self._watcher is not None:
                self._watcher(self._done, self._total)
