"""Zarr arrays, written by zarr-python and read by it, by zarrs and by TensorStore."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np

from benchmarks.timing import Clock, Measure

# Imported by name, because they have no types.
zarr: Any = importlib.import_module("zarr")

__all__ = ["JOBS"]

_ZARRS = {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}


def make(folder: str, path: str, rows: int, batch: int, shard: int | None = None) -> Measure:
    """Write integers to an array of version 3 in chunks of a batch, compressed with zstd.

    ``shard`` is the rows of a shard.
    """
    values = np.load(f"{folder}/values.npy", mmap_mode="r")[:rows]
    integers = (values * 10_000).astype("int32")
    shards = None if shard is None else (shard, integers.shape[1])
    with Clock() as clock:
        group = zarr.open_group(path, mode="w", zarr_format=3)
        array = group.create_array(
            "x", shape=integers.shape, dtype="int32", chunks=(batch, integers.shape[1]),
            shards=shards,
        )  # fmt: skip
        array[:] = integers
    return Measure(clock.seconds, rows)


def read(path: str, slab: int, by: str, check: bool = False) -> Measure:
    """Read all rows, many chunks at a time."""
    rows, total = 0, 0.0
    with Clock() as clock, zarr.config.set(_ZARRS if by == "zarrs" else {}):
        array = _opened(path, by)
        for begin in range(0, array.shape[0], slab):
            values = array[begin : min(begin + slab, array.shape[0])]
            values = values.read().result() if by == "tensorstore" else values
            rows += len(values)
            if check:
                total += float(values.sum(dtype=np.float64))
    return Measure(clock.seconds, rows, total if check else None)


def _opened(path: str, by: str) -> Any:
    if by != "tensorstore":
        return zarr.open_group(path, mode="r")["x"]
    place = {"driver": "file", "path": f"{path}/x/"}
    return _tensorstore().open({"driver": "zarr3", "kvstore": place}, read=True).result()


@functools.cache
def _tensorstore() -> Any:
    return importlib.import_module("tensorstore")


JOBS = {"make": make, "read": read}
