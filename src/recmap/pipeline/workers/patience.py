"""How long a consumer waits for workers before it says so."""

from __future__ import annotations

import sys
import time
import traceback
import warnings
from collections.abc import Callable

from recmap.errors import StalledWorkersWarning

__all__ = ["Patience", "stack_of"]

# Seconds without an answer before a warning; the next comes after twice as many.
PATIENCE = 60.0


class Patience:
    """That of a consumer who waits; ``tell`` says where the workers stand."""

    def __init__(self, tell: Callable[[], str], advice: str) -> None:
        self._tell, self._advice = tell, advice
        self._since = time.monotonic()
        self._limit = PATIENCE

    def answered(self) -> None:
        self._since, self._limit = time.monotonic(), PATIENCE

    def check(self) -> None:
        """Warns if it has run out, and then waits on."""
        waited = time.monotonic() - self._since
        if waited < self._limit:
            return
        self._limit *= 2
        warnings.warn(
            f"no worker has answered for {waited:,.0f} seconds; still waiting. Where they are "
            f"(most recent call first):\n{self._tell()}\n{self._advice}",
            StalledWorkersWarning,
            stacklevel=2,
        )


def stack_of(thread: int | None) -> str:
    """Where a thread of this process is."""
    frame = sys._current_frames().get(thread or 0)  # noqa: SLF001 - there is no other way
    frames = [] if frame is None else traceback.extract_stack(frame)
    lines = [f'    File "{f.filename}", line {f.lineno} in {f.name}' for f in reversed(frames)]
    return "\n".join(lines)
