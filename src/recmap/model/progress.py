"""Progress of long calls: the values ``progress=`` accepts, and what it reports.

>>> now = Progress(rows=50, total_rows=200, bytes=4_000, seconds=2.0)
>>> now.fraction, now.rate, now.left
(0.25, 2000.0, 6.0)
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TextIO, TypeAlias

from recmap.errors import OptionTypeError
from recmap.model.arguments import size_text

# The minimum number of seconds between two calls to a watcher.
_EVERY = 0.1
_WIDTH = 24


@dataclass(frozen=True)
class Progress:
    """Rows and bytes done so far, the totals, and the seconds elapsed.

    A total is None until it is known.
    """

    rows: int = 0
    total_rows: int | None = None
    bytes: int = 0
    total_bytes: int | None = None
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return self.bytes / max(self.seconds, 1e-9)

    @property
    def fraction(self) -> float | None:
        """The fraction done, from 0 to 1; None if no total is known."""
        if self.total_rows is not None:
            return min(1.0, self.rows / self.total_rows) if self.total_rows else 1.0
        if self.total_bytes is not None:
            return min(1.0, self.bytes / self.total_bytes) if self.total_bytes else 1.0
        return None

    @property
    def left(self) -> float | None:
        """The estimated seconds left; None if there is no estimate yet."""
        return self.seconds * (1 / self.fraction - 1) if self.fraction else None

    def __str__(self) -> str:
        """
        >>> print(Progress(rows=50, total_rows=200, bytes=4_000, seconds=2.0))
        50 of 200 rows, 2 kB/s, 0:06 left
        """
        words = []
        if self.rows or self.total_rows is not None:
            total = "" if self.total_rows is None else f" of {self.total_rows:,}"
            words.append(f"{self.rows:,}{total} rows")
        elif self.total_bytes is not None:
            words.append(f"{size_text(self.bytes)} of {size_text(self.total_bytes)}")
        if self.bytes:
            words.append(f"{size_text(self.rate)}/s")
        if self.left is not None:
            words.append(f"{_clock(self.left)} left")
        return ", ".join(words)


Watcher: TypeAlias = Callable[[Progress], None]
ProgressOption: TypeAlias = bool | Watcher | None


def check_progress(progress: Any) -> None:
    """Raise if ``progress=`` has an invalid value."""
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise OptionTypeError(
            f"progress={progress!r}: use True for a bar, or a function that takes a Progress"
        )


class Counter:
    """Adds up the work of several threads, and reports to a watcher from time to time.

    Use it as a context manager, so that a bar leaves the cursor on a line of its own even
    after an error.
    """

    def __init__(
        self,
        total_rows: int | None = None,
        progress: ProgressOption = None,
        *,
        total_bytes: int | None = None,
        every: float = _EVERY,
    ) -> None:
        self._every = every
        self._total_rows, self._total_bytes = total_rows, total_bytes
        self._bar = Bar() if progress is True else None
        self._watcher: Watcher | None = self._bar
        if not isinstance(progress, bool):
            self._watcher = progress
        self._lock = threading.Lock()
        self._rows = self._bytes = 0
        self._start = time.monotonic()
        self._told = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def watched(self) -> bool:
        """Whether there is a watcher to report to."""
        return self._watcher is not None

    def add(self, rows: int = 0, bytes: int = 0) -> None:
        """Add rows and bytes that are done; negative numbers if they will be done again."""
        with self._lock:
            self._reach(self._rows + rows, self._bytes + bytes)

    def reach(self, rows: int, bytes: int) -> None:
        """Set the rows and bytes done so far; fewer than before if some are done again."""
        with self._lock:
            self._reach(rows, bytes)

    def _reach(self, rows: int, bytes: int) -> None:
        self._rows, self._bytes = rows, bytes
        now = time.monotonic()
        if self._watcher is not None and now - self._told >= self._every:
            self._told = now
            self._watcher(self.now())

    def finish(self) -> Progress:
        """Report the final progress to the watcher, and return it."""
        with self._lock:
            last = self.now()
            if self._watcher is not None:
                self._watcher(last)
        self.close()
        return last

    def close(self) -> None:
        """End the line of the bar, if there is one."""
        if self._bar is not None:
            self._bar.close()

    def now(self) -> Progress:
        """Return the current progress."""
        return Progress(
            rows=self._rows,
            total_rows=self._total_rows,
            bytes=self._bytes,
            total_bytes=self._total_bytes,
            seconds=time.monotonic() - self._start,
        )


class Bar:
    """A progress bar on standard error.

    On a terminal it is redrawn continuously, otherwise printed once at the end.

    >>> bar = Bar(sys.stdout)
    >>> bar(Progress(rows=50, total_rows=200, bytes=4_000, seconds=2.0))
    >>> bar.close()
    [######------------------] 50 of 200 rows, 2 kB/s, 0:06 left
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = sys.stderr if out is None else out
        self._terminal = self._out.isatty()
        self._last: Progress | None = None

    def __call__(self, now: Progress) -> None:
        self._last = now
        if self._terminal:
            # A line that wraps could not be drawn over.
            line = self._line(now)[: shutil.get_terminal_size().columns - 1]
            self._out.write(f"\r{line}\x1b[K")
            self._out.flush()

    def close(self) -> None:
        """End the line; a second call does nothing."""
        if self._last is not None:
            self._out.write("\n" if self._terminal else f"{self._line(self._last)}\n")
            self._out.flush()
            self._last = None

    def _line(self, now: Progress) -> str:
        if now.fraction is None:
            return str(now)
        done = int(_WIDTH * now.fraction)
        return f"[{'#' * done}{'-' * (_WIDTH - done)}] {now}"


def _clock(seconds: float) -> str:
    """
    >>> _clock(61.2), _clock(4000)
    ('1:01', '1:06:40')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
