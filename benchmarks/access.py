"""Access patterns of a column that is an array, the same for every array."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.timing import Clock, Measure

__all__ = ["gather_in_batches", "sum_in_batches"]


def sum_in_batches(column: Any, batch: int) -> Measure:
    """Sum all rows, batch by batch."""
    total = 0.0
    with Clock() as clock:
        for begin in range(0, len(column), batch):
            total += float(column[begin : begin + batch].sum())
    return Measure(clock.seconds, len(column), total)


def gather_in_batches(column: Any, batch: int) -> Measure:
    """Gather all rows in random order, batch by batch."""
    order = np.random.default_rng(1).permutation(len(column))
    first = 0.0
    with Clock() as clock:
        for begin in range(0, len(column), batch):
            first += float(column[order[begin : begin + batch]][0, 0])
    return Measure(clock.seconds, len(column), first)
