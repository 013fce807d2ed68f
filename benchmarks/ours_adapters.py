"""recmap pipelines as datasets of other frameworks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import recmap as rm
from benchmarks.timing import Clock, Measure

__all__ = ["JOBS"]


def plain(path: str, batch: int) -> Measure:
    """Return batches as they are."""
    return _epoch(path, batch, iter)


def to_torch(path: str, batch: int) -> Measure:
    """Return batches of PyTorch tensors."""
    return _epoch(path, batch, lambda pipeline: pipeline.to_torch())


def to_tf(path: str, batch: int) -> Measure:
    """Return batches of TensorFlow tensors."""
    return _epoch(path, batch, lambda pipeline: pipeline.to_tf())


def _epoch(path: str, batch: int, adapt: Callable[[Any], Iterable[dict[str, Any]]]) -> Measure:
    """Run one epoch. Datasets are made before the clock starts, as in training."""
    batches, rows = adapt(rm.open(path).shuffle(seed=1).batch(batch)), 0
    with Clock() as clock:
        for columns in batches:
            rows += columns["data"].shape[0]
    return Measure(clock.seconds, rows)


JOBS = {"plain": plain, "to_tf": to_tf, "to_torch": to_torch}
