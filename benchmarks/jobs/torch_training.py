"""PyTorch's DataLoader over a memmap, and over an HDF5 file."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.tasks import augment, drop_from_cache, for_some_time
from benchmarks.timing import Clock, Measure

# Imported by name, so that type checkers do not need it.
torch: Any = importlib.import_module("torch")
data: Any = importlib.import_module("torch.utils.data")

__all__ = ["JOBS", "MappedBatches", "batch_loader"]


class MappedRows:
    """Rows of a memmap by number, as most people write it."""

    def __init__(self, path: str, rows: int | None) -> None:
        self._values = np.load(path, mmap_mode="r")[:rows]

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, row: int) -> Any:
        return torch.from_numpy(np.array(self._values[row]))


class MappedBatches(MappedRows):
    """Rows of a memmap by lists of numbers: one gather per batch."""

    def __getitem__(self, rows: Any) -> Any:
        return torch.from_numpy(self._values[rows])


class H5pyRows:
    """Rows of an HDF5 file by number, which each worker opens when it needs it."""

    def __init__(self, path: str, rows: int) -> None:
        self._path, self._rows = path, rows

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, row: int) -> Any:
        return torch.from_numpy(self._values[row])

    @functools.cached_property
    def _values(self) -> Any:
        return importlib.import_module("h5py").File(self._path)["x"]


class AugmentedRows(MappedRows):
    """Rows of a memmap by number, augmented."""

    def __getitem__(self, row: int) -> Any:
        return torch.from_numpy(augment(self._values[row], self._rng))

    @functools.cached_property
    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(torch.initial_seed())


# A loader lives as long as its process, so its workers start once and are not timed.
@functools.cache
def _row_loader(
    kind: Callable[[str, int], Any], path: str, batch: int, rows: int, workers: int
) -> Any:
    return data.DataLoader(
        kind(path, rows),
        batch,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )


@functools.cache
def batch_loader(
    path: str, batch: int, rows: int | None, workers: int, *, pin_memory: bool = False
) -> Any:
    """Make a loader that gathers whole batches, of all rows or of the first."""
    dataset = MappedBatches(path, rows)
    sampler = data.BatchSampler(data.RandomSampler(dataset), batch, drop_last=False)
    return data.DataLoader(
        dataset,
        batch_size=None,
        sampler=sampler,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=pin_memory,
    )


@functools.cache
def _augmenting_loader(path: str, batch: int, workers: int, persistent: bool) -> Any:
    return data.DataLoader(
        AugmentedRows(path, sys.maxsize), batch, num_workers=workers, persistent_workers=persistent
    )


def augmented(path: str, batch: int, workers: int) -> Measure:
    """Run an epoch of a loader that augments each row, and starts its workers."""
    return _consume(_augmenting_loader(path, batch, workers, persistent=False), check=False)


def augmented_again(path: str, batch: int, workers: int) -> Measure:
    """Do the same with workers that run already, except in the first call."""
    return _consume(_augmenting_loader(path, batch, workers, persistent=True), check=False)


def train_rows(path: str, batch: int, rows: int, workers: int, check: bool = False) -> Measure:
    """Run an epoch of a loader with shuffle=True."""
    return _consume(_row_loader(MappedRows, path, batch, rows, workers), check)


def train_h5py_rows(path: str, batch: int, rows: int, workers: int, check: bool = False) -> Measure:
    """Do the same with an HDF5 file."""
    return _consume(_row_loader(H5pyRows, path, batch, rows, workers), check)


def train_batches(path: str, batch: int, rows: int, workers: int, check: bool = False) -> Measure:
    """Run an epoch of a loader that reads whole batches."""
    return _consume(batch_loader(path, batch, rows, workers), check)


def shuffle_larger(path: str, batch: int, workers: int, seconds: float) -> Measure:
    """Take shuffled batches of a file that is not cached, for some time."""
    drop_from_cache(path)
    dataset = MappedBatches(path, None)
    sampler = data.BatchSampler(data.RandomSampler(dataset), batch, drop_last=False)
    loader = data.DataLoader(dataset, batch_size=None, sampler=sampler, num_workers=workers)
    return for_some_time((tensors.numpy() for tensors in loader), seconds)


def _consume(loader: Any, check: bool) -> Measure:
    rows, total = 0, 0.0
    with Clock() as clock:
        for batch in loader:
            rows += len(batch)
            if check:
                total += float(batch.numpy().sum(dtype=np.float64))
    return Measure(clock.seconds, rows, total if check else None)


JOBS = {
    "augmented": augmented,
    "augmented_again": augmented_again,
    "shuffle_larger": shuffle_larger,
    "train_batches": train_batches,
    "train_h5py_rows": train_h5py_rows,
    "train_rows": train_rows,
}
