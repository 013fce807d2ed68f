"""A user's function applied to images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench import Bench
from benchmarks.report import Table, compare
from benchmarks.tasks import CROP, SHAPE

__all__ = ["measure"]

_NOTE = (
    "A NumPy function (crop, flip, noise, normalize) of each image of 128x128x3 float32 in an .npy "
    "file, then batches of {batch}. recmap: map(fn, workers=n) in processes. tf.data: "
    "map(numpy_function, num_parallel_calls=2). DataLoader: num_workers=2. Starting processes "
    "counts, except in the last case (repeat() in recmap, persistent_workers in DataLoader). Half "
    "of the function is drawing noise: recmap passes it a generator (SFC64) that is faster than "
    "the default_rng() of the others. GB/s count the output."
)
_BATCH = 32


def measure(bench: Bench) -> Table:
    path = Path(bench.folder, "frames.npy")
    count = 128 if bench.quick else 4096
    np.save(path, np.random.default_rng(0).random((count, *SHAPE), np.float32))
    options: dict[str, Any] = {"path": str(path), "batch": _BATCH}
    started = [
        *bench.entrants("training", "recmap", "augmented", workers=2, **options),
        *bench.entrants("training", "recmap, 1 worker", "augmented", workers=1, **options),
        *bench.entrants("tf training", "tf.data", "augmented", **options),
        *bench.entrants("torch", "DataLoader, 2 workers", "augmented", workers=2, **options),
    ]
    running = [
        *bench.entrants("training", "recmap", "augmented_again", workers=2, **options),
        *bench.entrants("torch", "DataLoader, 2 workers", "augmented_again", workers=2, **options),
    ]
    rows = []
    for case, entrants in (("2 workers", started), ("2 workers, started before", running)):
        timings = bench.race(f"augment, {case}", entrants, 4 * CROP * CROP * SHAPE[2])
        ours = timings.pop("recmap")
        for peer in timings.values():
            target = 1.8 if peer.name == "recmap, 1 worker" else 1.0
            rows.append(compare(case, ours, peer, target))
    return Table("Augmentation", _NOTE.format(batch=_BATCH), rows)
