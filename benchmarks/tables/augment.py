"""A user's function of images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.augmentation import CROP, SHAPE
from benchmarks.bench import Bench
from benchmarks.report import Table, compare

__all__ = ["measure"]

_NOTE = (
    "A NumPy function (crop, flip, noise, normalise) of each image of 128x128x3 float32 in an .npy "
    "file, then batches of {batch}. recmap: map(fn, workers=n) in processes, their start included. "
    "tf.data: map(numpy_function, num_parallel_calls=2). DataLoader: 2 worker processes, started "
    "before the clock. GB/s count what comes out."
)
_BATCH = 32


def measure(bench: Bench) -> Table:
    path = Path(bench.folder, "frames.npy")
    count = 128 if bench.quick else 4096
    np.save(path, np.random.default_rng(0).random((count, *SHAPE), np.float32))
    options: dict[str, Any] = {"path": str(path), "batch": _BATCH}
    entrants = [
        *bench.entrants("training", "recmap", "augmented", workers=2, **options),
        *bench.entrants("training", "recmap, 1 worker", "augmented", workers=1, **options),
        *bench.entrants("tf training", "tf.data", "augmented", **options),
        *bench.entrants("torch", "DataLoader, 2 workers", "augmented", workers=2, **options),
    ]
    timings = bench.race("augment", entrants, 4 * CROP * CROP * SHAPE[2])
    ours = timings.pop("recmap")
    targets = {"recmap, 1 worker": 1.8}
    rows = [
        compare("2 workers", ours, peer, targets.get(peer.name, 1.0)) for peer in timings.values()
    ]
    return Table("Augmentation", _NOTE.format(batch=_BATCH), rows)
