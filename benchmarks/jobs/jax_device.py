"""Batches on a GPU as JAX arrays."""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any

import recmap as rm
from benchmarks.tasks import batch_hash, hash_weights
from benchmarks.timing import Clock, DifferentDataError, Measure

# By default, JAX takes most of the GPU's memory from the other entrants.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

# Imported by name, so that type checkers do not need it.
jax: Any = importlib.import_module("jax")

__all__ = ["JOBS"]

_PREFETCH = 2


def devices(platform: str) -> Measure:
    """Count the devices of a platform; ``rows`` is their number."""
    try:
        return Measure(0, len(jax.local_devices(backend=platform)))
    except RuntimeError:  # JAX does not know the platform
        return Measure(0, 0)


def recmap_batches(
    path: str, batch: int, shuffled: bool, device: str, check: bool = False
) -> Measure:
    """Run an epoch of ``to_jax(device=...)``."""
    if check:
        return _compared(path, batch, shuffled, device)
    rows, last = 0, None
    batches = _placed(path, batch, shuffled, device)
    with Clock() as clock:
        for columns in batches:
            (last,) = columns.values()
            rows += len(last)
        jax.block_until_ready(last)
    return Measure(clock.seconds, rows)


@functools.cache
def _placed(path: str, batch: int, shuffled: bool, device: str) -> Any:
    return _pipeline(path, batch, shuffled).to_jax(device=device, prefetch=_PREFETCH)


def _pipeline(path: str, batch: int, shuffled: bool) -> rm.Stream:
    dataset = rm.open(path)
    return (dataset.shuffle(seed=1) if shuffled else dataset).batch(batch)


def _weighted_sum(values: Any, weights: Any) -> Any:
    flat = jax.lax.bitcast_convert_type(values.reshape(-1), weights.dtype)
    return (flat * weights).sum()


_hash: Any = jax.jit(_weighted_sum)


def _compared(path: str, batch: int, shuffled: bool, device: str) -> Measure:
    """Hash every batch on the device, and compare it with the same batch in memory."""
    hashes, rows = [], 0
    with Clock() as clock:
        for columns in _pipeline(path, batch, shuffled).to_jax(device=device, prefetch=_PREFETCH):
            (values,) = columns.values()
            weights = jax.device_put(hash_weights(values.size), values.sharding)
            hashes.append(_hash(values, weights))
            rows += len(values)
    for i, columns in enumerate(_pipeline(path, batch, shuffled)):
        (array,) = columns.values()
        if int(hashes[i]) & 0xFFFFFFFF != batch_hash(array):
            raise DifferentDataError(f"batch {i} on {device} differs from the one in memory")
    return Measure(clock.seconds, rows)


JOBS = {"devices": devices, "recmap_batches": recmap_batches}
