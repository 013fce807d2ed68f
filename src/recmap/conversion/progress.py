"""How far a conversion is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from recmap.files.byte_size import size_text

__all__ = ["Counter", "Progress", "Report", "Watcher"]


@dataclass(frozen=True)
class Progress:
    """Rows and bytes read so far, of how many, and for how long."""

    rows: int
    total: int | None
    size: int
    seconds: float

    @property
    def rate(self) -> float:
        """Bytes a second."""
        return self.size / max(self.seconds, 1e-9)

    @property
    def left(self) -> float | None:
        """Seconds still to go, if the number of rows is known."""
        if self.total is None or not self.rows:
            return None
        return self.seconds * (self.total - self.rows) / self.rows


Watcher = Callable[[Progress], None]


class Counter:
    """Adds up what several threads have done, and tells a watcher now and then."""

    def __init__(self, total: int | None, watcher: Watcher | None) -> None:
        self._total, self._watcher = total, watcher
        self._lock = threading.Lock()
        self._rows = self._size = 0
        self._begun = time.monotonic()
        self._told = 0.0

    @property
    def watched(self) -> bool:
        """Whether anybody wants to know before the end."""
        return self._watcher is not None

    def add(self, rows: int, size: int) -> None:
        """Counts rows that were read and handed to a writer."""
        with self._lock:
            self._reach(self._rows + rows, self._size + size)

    def reach(self, rows: int, size: int) -> None:
        """Says how many they are by now: fewer than before, if some are read anew."""
        with self._lock:
            self._reach(rows, size)

    def _reach(self, rows: int, size: int) -> None:
        self._rows, self._size = rows, size
        now = time.monotonic()
        if self._watcher is None or now - self._told < 0.1:
            return
        self._told = now
        self._watcher(self.now())

    def finish(self) -> Progress:
        """The last word, which the watcher hears too."""
        with self._lock:
            last = self.now()
            if self._watcher is not None:
                self._watcher(last)
            return last

    def now(self) -> Progress:
        return Progress(self._rows, self._total, self._size, time.monotonic() - self._begun)


@dataclass(frozen=True)
class Report:
    """What a conversion did."""

    files: list[str]
    rows: int
    written: int
    skipped: int
    seconds: float
    resumed: int
    explanation: str

    def __str__(self) -> str:
        files = self.files[0] if len(self.files) == 1 else f"{len(self.files):,} files"
        text = f"{self.rows:,} rows in {files}, {size_text(self.written)}"
        if self.resumed == len(self.files):
            return f"{text}: all was done already"
        text += f", in {self.seconds:.2f} s ({size_text(self.written / max(self.seconds, 1e-9))}/s)"
        if self.resumed:
            text += f"; {self.resumed:,} of the files were there already"
        if self.skipped:
            text += f"; {self.skipped:,} bad records were left out"
        return text
