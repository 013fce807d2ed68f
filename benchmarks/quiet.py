"""Waits until nothing else uses the machine."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

__all__ = ["Quiet"]

_STAT = Path("/proc/stat")
# The kernel counts in hundredths of a second.
_SAMPLE_SECONDS = 0.05
_NAP_SECONDS = 1.0
_BUSY = 0.2


class Quiet:
    """Measures how busy the CPUs are while the workers are idle, and waits while they are.

    All waits together take ``budget`` seconds at most.
    """

    def __init__(self, budget: float) -> None:
        self._left = budget
        self.waited = 0.0
        self._shares: list[float] = []

    def wait(self) -> None:
        """Return when the machine is quiet, or the time is up."""
        os.sync()  # finish earlier writes
        if not _STAT.exists():
            return
        share = _share()
        while share > _BUSY and self._left > 0:
            begin = time.perf_counter()
            time.sleep(_NAP_SECONDS)
            share = _share()
            spent = time.perf_counter() - begin
            self._left -= spent
            self.waited += spent
        self._shares.append(share)

    def describe(self) -> str:
        """How busy other programs kept the CPUs before each turn."""
        if not self._shares:
            return "unknown"
        median, most = statistics.median(self._shares), max(self._shares)
        return f"median {median:.0%}, at most {most:.0%}"


def _share() -> float:
    before = _ticks()
    time.sleep(_SAMPLE_SECONDS)
    idle, total = (now - then for now, then in zip(_ticks(), before, strict=True))
    return 1 - idle / max(total, 1)


def _ticks() -> tuple[int, int]:
    numbers = [int(number) for number in _STAT.read_text().split("\n", 1)[0].split()[1:]]
    # Idle, and waiting for a disk. The last two columns are part of the first two.
    return numbers[3] + numbers[4], sum(numbers[:8])
