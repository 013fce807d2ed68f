"""TFDS folders, read by ``tensorflow_datasets``."""

from __future__ import annotations

import importlib
import os
from typing import Any

import numpy as np

import recmap as rm
from benchmarks.timing import Clock, Measure

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
# Imported by name, because it has no types.
tfds: Any = importlib.import_module("tensorflow_datasets")

__all__ = ["JOBS"]


def make(source: str, path: str, rows: int) -> Measure:
    """Write the first rows of an .npy file as a folder of TFDS."""
    with Clock() as clock:
        rm.open({"x": source}).save(path, format="tfds", name="rows", split="train",
                                    rows=slice(rows), overwrite=True)  # fmt: skip
    return Measure(clock.seconds, rows)


def read(path: str, batch: int = 0, check: bool = False) -> Measure:
    """Read all rows as NumPy arrays, one by one or in batches."""
    builder = tfds.builder_from_directory(path)
    data = builder.as_dataset(split="train")
    got, total = 0, 0.0
    with Clock() as clock:
        for row in tfds.as_numpy(data.batch(batch) if batch else data):
            got += len(row["x"]) if batch else 1
            if check:
                total += float(row["x"].sum(dtype=np.float64))
    return Measure(clock.seconds, got, total if check else None)


JOBS = {"make": make, "read": read}
