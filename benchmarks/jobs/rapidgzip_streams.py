"""gzip streams, inflated by rapidgzip on all CPUs."""

from __future__ import annotations

import importlib
from typing import Any

from benchmarks.timing import Clock, Measure

# Imported by name, because it has no types.
rapidgzip: Any = importlib.import_module("rapidgzip")

__all__ = ["JOBS"]

_PIECE = 8 << 20


def inflate(path: str, rows: int) -> Measure:
    """Inflate a file from beginning to end, and leave it at that."""
    with Clock() as clock, rapidgzip.open(path, parallelization=0) as file:
        while file.read(_PIECE):
            pass
    return Measure(clock.seconds, rows)


JOBS = {"inflate": inflate}
