"""Measures a block: its time, and its peak memory.

Memory is the anonymous memory of this process and its children, above what they used before.
Only Linux reports it.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["Cost"]

_EVERY = 0.005  # seconds


class Cost:
    """``with Cost() as cost: ...``, then ``print(cost)``."""

    def __enter__(self) -> Self:
        # What a forked child shares with its parent does not count as its own.
        self._shared: dict[str, int] = {}
        self._before = self._most = self._held()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        self._begin = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.seconds = time.perf_counter() - self._begin
        self._done.set()
        self._thread.join()
        self.peak = max(self._most, self._held()) - self._before

    def _watch(self) -> None:
        while not self._done.wait(_EVERY):
            self._most = max(self._most, self._held())

    def _held(self) -> int:
        """Return the anonymous memory of this process and its children, in bytes."""
        anonymous, mapped = _memory("self")
        for child in _children():
            try:
                held, also_mapped = _memory(child)
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has just ended
            anonymous += held - min(held, self._shared.setdefault(child, held))
            # All of them map the same memory, so it counts once.
            mapped = max(mapped, also_mapped)
        return anonymous + mapped

    def __str__(self) -> str:
        return f"took {self.seconds:.2f} s and {self.peak / 1e6:,.0f} MB"


def _memory(process: str) -> tuple[int, int]:
    """Return the memory of a process: its own, and what it may share."""
    lines = (line.split() for line in Path(f"/proc/{process}/status").read_text().splitlines())
    facts = {words[0]: words[1] for words in lines if len(words) == 3}
    # A process that has just ended reports no memory.
    return int(facts.get("RssAnon:", 0)) * 1024, int(facts.get("RssShmem:", 0)) * 1024


def _children() -> list[str]:
    found: list[str] = []
    for task in os.listdir("/proc/self/task"):
        try:
            found += Path(f"/proc/self/task/{task}/children").read_text().split()
        except FileNotFoundError:
            continue  # the thread has just ended
    return found
