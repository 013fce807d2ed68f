"""TFDS folders, written and read by ``tensorflow_datasets``."""

from __future__ import annotations

import importlib
import importlib.resources.abc
import os
import sys
from typing import Any

import numpy as np

import recmap as rm
from benchmarks.memory_watch import MemoryWatch
from benchmarks.timing import Clock, Measure

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("NO_GCE_CHECK", "true")
# Builders need this package, which tensorflow_datasets no longer depends on.
sys.modules.setdefault("importlib_resources", importlib.resources)
# Imported by name, because it has no types.
tfds: Any = importlib.import_module("tensorflow_datasets")
tfds.core.utils.gcs_utils._is_gcs_disabled = True

__all__ = ["JOBS"]


def make(source: str, path: str, rows: int) -> Measure:
    """Write the first rows of an .npy file as a folder of TFDS."""
    with Clock() as clock:
        named = {"name": "rows", "split": "train"}
        ds = rm.open({"x": source}).take(rows)
        ds.save(path, format="tfds", overwrite=True, options=named)
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


def make_episodes(path: str, steps: int, width: int) -> Measure:
    """Write episodes of 100 steps, each with a vector, with tensorflow_datasets itself."""
    length, features = 100, tfds.features
    episodes = steps // length

    def episode(number: int) -> dict[str, Any]:
        rng = np.random.default_rng(number)
        states = rng.random((length, width), np.float32)
        return {"steps": [{"state": state, "reward": np.float32(1)} for state in states]}

    with Clock() as clock:
        tfds.dataset_builders.AdhocBuilder(
            name="episodes", version="1.0.0", data_dir=path,
            features=features.FeaturesDict({"steps": features.Dataset({
                "state": features.Tensor(shape=(width,), dtype=np.float32),
                "reward": np.float32,
            })}),
            split_datasets={"train": [(i, episode(i)) for i in range(episodes)]},
        ).download_and_prepare()  # fmt: skip
    return Measure(clock.seconds, episodes * length)


def shuffle_steps(path: str, batch: int, steps: int) -> Measure:
    """Read all steps of all episodes in random order, and measure the memory."""
    data = tfds.builder_from_directory(path).as_dataset(split="train")
    shuffled = data.flat_map(lambda episode: episode["steps"]).shuffle(steps, seed=1)
    with Clock() as clock, MemoryWatch() as watch:
        rows = sum(len(each["reward"]) for each in tfds.as_numpy(shuffled.batch(batch)))
    return Measure(clock.seconds, rows, peak=watch.peak, memory=watch.some)


JOBS = {
    "make": make,
    "make_episodes": make_episodes,
    "read": read,
    "shuffle_steps": shuffle_steps,
}
