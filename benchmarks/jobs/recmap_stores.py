"""recmap on datasets in a bucket, with the disk cache and without."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import recmap as rm
from benchmarks.memory_watch import MemoryWatch
from benchmarks.timing import Clock, Measure

__all__ = ["JOBS"]

_CACHE_SIZE = "100GB"


def read(
    path: str, batch: int, storage: dict[str, Any] | None = None, check: bool = False
) -> Measure:
    """Read all rows in order, without the cache."""
    with _cache(None):
        dataset = rm.open(path, storage=storage)
        return _epoch(dataset.batch(batch), check)


def shuffle(
    path: str,
    batch: int,
    storage: dict[str, Any] | None = None,
    cache: str | None = None,
    check: bool = False,
) -> Measure:
    """Run an exactly shuffled epoch, with an empty cache in the folder ``cache`` or without one."""
    with _cache(cache):
        dataset = rm.open(path, storage=storage)
        return _epoch(dataset.shuffle(seed=1).batch(batch), check)


def second_epoch(
    path: str,
    batch: int,
    storage: dict[str, Any] | None = None,
    cache: str | None = None,
    check: bool = False,
) -> Measure:
    """Run a shuffled epoch after another one, which has filled the cache."""
    with _cache(cache):
        pipeline = rm.open(path, storage=storage).shuffle(seed=1).batch(batch)
        _consume(pipeline, check=False)
        return _epoch(pipeline, check)


def open_one(path: str, storage: dict[str, Any]) -> Measure:
    """Open a dataset, for ``one_row``."""
    with _cache(None), Clock() as clock:
        _opened[path] = rm.open(path, storage=storage)
    return Measure(clock.seconds, 1)


def one_row(path: str, row: int) -> Measure:
    """Read the length and one row of the dataset that was opened."""
    dataset = _opened[path]
    with _cache(None), Clock() as clock:
        rows = len(dataset)
        dataset[row]
    return Measure(clock.seconds, min(rows, 1))


_opened: dict[str, rm.Dataset] = {}


def watched(of: str, **options: Any) -> Measure:
    """Run another job, and measure how much anonymous memory grew."""
    with MemoryWatch() as watch:
        run = JOBS[of](**options)
    return Measure(run.seconds, run.rows, peak=watch.peak, memory=watch.some)


@contextmanager
def _cache(folder: str | None) -> Iterator[None]:
    """Use an empty cache, which is removed in the end, or none."""
    if folder is None:
        os.environ["RECMAP_CACHE_SIZE"] = "0"
        yield
        return
    made = tempfile.mkdtemp(dir=folder)
    os.environ["RECMAP_CACHE"] = made
    os.environ["RECMAP_CACHE_SIZE"] = _CACHE_SIZE
    try:
        yield
    finally:
        shutil.rmtree(made)


def _epoch(batches: Iterable[dict[str, Any]], check: bool) -> Measure:
    with Clock() as clock:
        rows, total = _consume(batches, check)
    return Measure(clock.seconds, rows, total if check else None)


def _consume(batches: Iterable[dict[str, Any]], check: bool) -> tuple[int, float]:
    rows, total = 0, 0.0
    for batch in batches:
        rows += len(batch["x"])
        if check:
            total += float(batch["x"].sum(dtype=np.float64))
    return rows, total


JOBS: dict[str, Callable[..., Measure]] = {
    "one_row": one_row,
    "open_one": open_one,
    "read": read,
    "second_epoch": second_epoch,
    "shuffle": shuffle,
    "watched": watched,
}
