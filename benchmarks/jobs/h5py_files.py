"""h5py writes and reads HDF5 files."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from benchmarks.timing import Clock, Measure

# Imported by name, because it has no types.
h5py: Any = importlib.import_module("h5py")

__all__ = ["JOBS"]


def make(
    folder: str, path: str, rows: int, batch: int, compression: str | None, chunked: bool = True
) -> Measure:
    """Write a file for others to read: integers, compressed to about half or not at all."""
    values = np.load(f"{folder}/values.npy", mmap_mode="r")[:rows]
    options = {"compression": compression, "shuffle": True} if compression else {}
    with Clock() as clock, h5py.File(path, "w") as file:
        shape = (len(values), values.shape[1])
        chunks = (batch, values.shape[1]) if chunked else None
        dataset = file.create_dataset("x", shape, "int32", chunks=chunks, **options)
        for begin in range(0, len(values), batch):
            end = min(begin + batch, len(values))
            dataset[begin:end] = (values[begin:end] * 10_000).astype("int32")
    return Measure(clock.seconds, len(values))


def read(path: str, batch: int, check: bool = False) -> Measure:
    """Read all rows in batches."""
    rows, total = 0, 0.0
    with Clock() as clock, h5py.File(path) as file:
        dataset = file["x"]
        for begin in range(0, len(dataset), batch):
            values = dataset[begin : begin + batch]
            rows += len(values)
            if check:
                total += float(values.sum(dtype=np.float64))
    return Measure(clock.seconds, rows, total if check else None)


JOBS = {"make": make, "read": read}
