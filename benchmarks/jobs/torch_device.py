"""Batches on a GPU as PyTorch tensors: recmap, a DataLoader, and a plain copy."""

from __future__ import annotations

import functools
import importlib
import os
import shutil
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

import recmap as rm
from benchmarks.jobs.torch_training import MappedBatches, batch_loader
from benchmarks.tasks import batch_hash, hash_weights
from benchmarks.timing import Clock, DifferentDataError, Measure, fastest

# Imported by name, so that type checkers do not need it.
torch: Any = importlib.import_module("torch")

__all__ = ["JOBS"]

_PREFETCH = 2
_SHARED_MEMORY = "/dev/shm"
# Batches that a worker of a DataLoader has ready, and one that it makes.
_BATCHES_PER_WORKER = 3


def recmap_batches(
    path: str, batch: int, shuffled: bool, device: str, check: bool = False
) -> Measure:
    """Run an epoch of ``to_torch(device=...)``."""
    if check:
        return _compared(path, batch, shuffled, device)
    batches = _placed(path, batch, shuffled, device)
    return _epoch((next(iter(columns.values())) for columns in batches), device, check=False)


@functools.cache
def _placed(path: str, batch: int, shuffled: bool, device: str) -> Any:
    return _pipeline(path, batch, shuffled).to_torch(device=device, prefetch=_PREFETCH)


def _pipeline(path: str, batch: int, shuffled: bool) -> rm.Stream:
    dataset = rm.open(path)
    return (dataset.shuffle(seed=1) if shuffled else dataset).batch(batch)


def _compared(path: str, batch: int, shuffled: bool, device: str) -> Measure:
    """Hash every batch on the device, and compare it with the same batch in memory."""
    weights, hashes, rows, total = None, [], 0, 0.0
    with Clock() as clock:
        placed = _pipeline(path, batch, shuffled).to_torch(device=device, prefetch=_PREFETCH)
        for columns in placed:
            (values,) = columns.values()
            if weights is None:
                weights = torch.from_numpy(hash_weights(values.numel())).to(device)
            flat = values.reshape(-1).view(torch.int32)
            # Not read here: that would wait for the copy, and hide one that comes too late.
            hashes.append((flat * weights[: flat.numel()]).sum(dtype=torch.int64))
            total += values.sum(dtype=torch.float64)
            rows += len(values)
    for i, columns in enumerate(_pipeline(path, batch, shuffled)):
        (array,) = columns.values()
        if int(hashes[i]) & 0xFFFFFFFF != batch_hash(array):
            raise DifferentDataError(f"batch {i} on {device} differs from the one in memory")
    return Measure(clock.seconds, rows, float(total))


def host_batches(path: str, batch: int, shuffled: bool, check: bool = False) -> Measure:
    """Run an epoch of the same pipeline without a device."""
    rows, total = 0, 0.0
    pipeline = _opened(path, batch, shuffled)
    with Clock() as clock:
        for columns in pipeline:
            (values,) = columns.values()
            rows += len(values)
            if check:
                total += float(values.sum(dtype=np.float64))
    return Measure(clock.seconds, rows, total if check else None)


_opened = functools.cache(_pipeline)


def loader_batches(path: str, batch: int, device: str, check: bool = False) -> Measure:
    """Run an epoch of a DataLoader that gathers whole batches, with the fastest workers."""
    loader = _loader(path, batch, _best_workers(path, batch, device), device)
    return _epoch(_copied(loader, device), device, check)


@functools.cache
def _best_workers(path: str, batch: int, device: str) -> int:
    dataset = MappedBatches(path, batch)
    needed = _BATCHES_PER_WORKER * batch * dataset[[0]].nbytes
    cpus = len(os.sched_getaffinity(0))
    most = min(cpus, int(shutil.disk_usage(_SHARED_MEMORY).free / needed))
    choices = [0, *(n for n in (2, 4, 8) if n <= most)]

    def run(workers: int) -> Measure:
        return _epoch(_copied(_loader(path, batch, workers, device), device), device, False)

    return fastest(choices, run)


def _loader(path: str, batch: int, workers: int, device: str) -> Any:
    return batch_loader(path, batch, None, workers, pin_memory=device != "cpu")


def _copied(loader: Any, device: str) -> Iterator[Any]:
    for batch in loader:
        yield batch.to(device, non_blocking=True)


def pinned_copy(rows: int, batch: int, width: int, device: str) -> Measure:
    """Copy one page-locked batch to the device, again and again."""
    source = torch.empty((batch, width), dtype=torch.float32, pin_memory=device != "cpu")
    target = torch.empty((batch, width), dtype=torch.float32, device=device)
    batches = rows // batch
    _wait(device)
    with Clock() as clock:
        for _ in range(batches):
            target.copy_(source, non_blocking=True)
        _wait(device)
    return Measure(clock.seconds, batches * batch)


def _epoch(batches: Iterable[Any], device: str, check: bool) -> Measure:
    rows, total = 0, 0.0
    with Clock() as clock:
        for batch in batches:
            rows += len(batch)
            if check:
                total += batch.sum(dtype=torch.float64)
        _wait(device)
    return Measure(clock.seconds, rows, float(total) if check else None)


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize(device)


JOBS = {
    "host_batches": host_batches,
    "loader_batches": loader_batches,
    "pinned_copy": pinned_copy,
    "recmap_batches": recmap_batches,
}
