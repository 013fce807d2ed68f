"""Shared by the programs that train: make a file larger than memory, and limit the memory."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from typing import Any

import numpy as np

import recmap as rm

__all__ = ["WIDTH", "limit_memory", "prepare"]

WIDTH = 256
_ROWS = 1024


def prepare(path: str, size: int, limit: int) -> None:
    """Limit the memory to ``limit`` MB, and make a file of ``size`` MB unless it exists."""
    if size <= limit:
        raise SystemExit(f"{size} MB fits into {limit} MB: choose a larger --size")
    limit_memory(limit)
    if not os.path.exists(path):
        make(path, size)
    print(f"{size} MB of values, {limit} MB of memory", flush=True)


def limit_memory(megabytes: int) -> None:
    """Let this process allocate only so much more memory.

    Mapped files do not count, because the system takes their pages back when it needs them.
    """
    with open("/proc/self/status") as status:
        held = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData"))
    most = held + megabytes * 1_000_000
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def make(path: str, megabytes: int) -> None:
    """Write rows of numbers ``x``, and a number ``y`` to learn from them, block by block."""
    rows = megabytes * 1_000_000 // (4 * WIDTH)
    weights = np.random.default_rng(0).standard_normal(WIDTH, np.float32) / 16

    def blocks() -> Iterator[dict[str, Any]]:
        for start in range(0, rows, _ROWS):
            rng = np.random.default_rng(start)
            x = rng.standard_normal((min(_ROWS, rows - start), WIDTH), np.float32)
            yield {"x": x, "y": np.tanh((x * weights).sum(axis=1))}

    rm.from_batches(blocks()).save(path, memory="64MB", workers=1)
