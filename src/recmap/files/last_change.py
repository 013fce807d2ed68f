"""Wait until the time of a file's last change tells it from any later one."""

from __future__ import annotations

import sys
import time

from recmap.files.local_path import located

__all__ = ["settled_change"]

# The clock that file systems take their times from. It ticks every few milliseconds.
_CLOCK = 5 if sys.platform == "linux" else time.CLOCK_REALTIME  # CLOCK_REALTIME_COARSE
# The longest to wait for the next tick, in ns.
_LONGEST = 50_000_000
# A time in whole seconds is that of a file system that keeps no fractions.
_SECOND = 1_000_000_000


def settled_change(path: str) -> int | None:
    """Return the time of the last change of a file, once any later change has another time.

    Changes within a tick of the clock have the same time, so wait for the next tick. Return None
    if the times are too coarse, or come from another clock.
    """
    changed = located(path).last_change()
    if changed is None or changed % _SECOND == 0:
        return None
    while (now := time.clock_gettime_ns(_CLOCK)) <= changed:
        if changed - now > _LONGEST:
            return None
        time.sleep(0.0005)
    return changed if located(path).last_change() == changed else None
