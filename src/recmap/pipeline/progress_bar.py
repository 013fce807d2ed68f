"""How far a loop is, on standard error, for people."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from recmap.pipeline.meter import Stats

__all__ = ["Bar"]

_WIDTH = 24
_EVERY = 0.2


class Bar:
    """A line that is written again and again in a terminal, and once at the end elsewhere."""

    def __init__(self, total: int | None, out: TextIO | None = None) -> None:
        self._total, self._out = total, sys.stderr if out is None else out
        self._terminal = self._out.isatty()
        self._shown = 0.0

    def show(self, stats: Stats) -> None:
        """What there is so far, unless that was told a moment ago."""
        now = time.monotonic()
        if self._terminal and now - self._shown >= _EVERY:
            self._shown = now
            self._out.write(f"\r{self._line(stats)}\x1b[K")
            self._out.flush()

    def finish(self, stats: Stats) -> None:
        """The last word."""
        line = self._line(stats)
        self._out.write(f"\r{line}\x1b[K\n" if self._terminal else f"{line}\n")
        self._out.flush()

    def _line(self, stats: Stats) -> str:
        rate = f"{stats.rows_per_second:,.0f} rows/s, {stats.waited:.0%} waiting"
        if not self._total:
            return f"{stats.batches:,} batches, {rate}"
        done = min(_WIDTH, _WIDTH * stats.batches // self._total)
        left = (self._total - stats.batches) * stats.elapsed / max(1, stats.batches)
        drawn = "#" * done + "-" * (_WIDTH - done)
        return f"[{drawn}] {stats.batches:,} of {self._total:,}, {rate}, {left:.0f} s left"
