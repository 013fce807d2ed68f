"""How far a pass over whole files is."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from threading import Lock
from typing import TypeAlias

from recmap.tfrecord.framing import open_shard
from recmap.tfrecord.record_window import Window
from recmap.tfrecord.survey import Shard

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
        return self.of(open_shard(file, verify=True), skip=True)

    def of(self, shard: Shard, skip: bool) -> Generator[Window, None, None]:
        """The windows of a file that is open."""
        counted = 0
        try:
            for window in shard.windows(skip):
                if self._stopped:
                    return
                yield window
                self._add(window.passed - counted)
                counted = window.passed
        except GeneratorExit:
            self._add(-counted)  # it is looked at anew, or by nobody
            raise
        self._add(os.path.getsize(shard.path) - counted)

    def stop(self) -> None:
        """Ends the passes of all threads at their next window."""
        self._stopped = True

    def _add(self, size: int) -> None:
        with self._lock:
            self._done += size
            if self._watcher is not None:
                self._watcher(self._done, self._total)
