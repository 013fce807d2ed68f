"""Grain's pipelines on ArrayRecord files."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np

from benchmarks.timing import Clock, Measure

# Imported by name, because they have no types.
grain: Any = importlib.import_module("grain")
array_record: Any = importlib.import_module("array_record.python.array_record_module")

__all__ = ["JOBS"]


def make(source: str, path: str, rows: int) -> Measure:
    """Write the rows of an .npy file as records."""
    values = np.load(source, mmap_mode="r")[:rows]
    with Clock() as clock:
        writer = array_record.ArrayRecordWriter(path, "group_size:1")
        for row in values:
            writer.write(row.tobytes())
        writer.close()
    return Measure(clock.seconds, len(values))


def train(path: str, batch: int, check: bool = False) -> Measure:
    """Run an epoch of exactly shuffled batches, with the fastest number of reading threads."""
    return _epoch(path, batch, _best_threads(path, batch), check)


@functools.cache
def _best_threads(path: str, batch: int) -> int:
    return min((0, 2, 16), key=lambda threads: _epoch(path, batch, threads).seconds)


def _epoch(path: str, batch: int, threads: int, check: bool = False) -> Measure:
    got, total = 0, 0.0
    batches = _shuffled(path, batch, threads)
    with Clock() as clock:
        for rows in batches:
            got += len(rows)
            if check:
                total += float(rows.sum(dtype=np.float64))
    return Measure(clock.seconds, got, total if check else None)


@functools.cache
def _shuffled(path: str, batch: int, threads: int) -> Any:
    records = grain.MapDataset.source(grain.sources.ArrayRecordDataSource(path))
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=16 * threads)
    return records.shuffle(seed=1).map(_row).batch(batch).to_iter_dataset(options)


def _row(record: bytes) -> Any:
    return np.frombuffer(record, np.float32)


JOBS = {"make": make, "train": train}
