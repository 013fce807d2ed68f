"""How much anonymous memory a process takes while it works, sampled every millisecond."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Self

__all__ = ["MemoryWatch"]

_SHOWN = 300


class MemoryWatch:
    """Measure a ``with`` block: ``peak`` is the most that was taken above what was before.

    ``some`` are moments and what was taken then, for a plot.
    """

    def __enter__(self) -> Self:
        self._seen: list[tuple[float, int]] = []
        self._done = threading.Event()
        self._before, self._begin = _anonymous(), time.perf_counter()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def peak(self) -> int:
        return max((held for _, held in self._seen), default=0)

    @property
    def some(self) -> list[tuple[float, int]]:
        return self._seen[:: max(1, len(self._seen) // _SHOWN)]

    def _watch(self) -> None:
        while not self._done.wait(0.001):
            self._seen.append((time.perf_counter() - self._begin, _anonymous() - self._before))


def _anonymous() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError("this kernel does not report RssAnon")
