"""The usual way to read several dimensions: np.memmap, which does not know the shape."""

from __future__ import annotations

import argparse
import tempfile

import numpy as np
from cost import Cost

SHAPE = (8, 16, 3)
CHUNK = 1_000


def make(folder: str, rows: int) -> None:
    values = np.random.default_rng(0).random((rows, *SHAPE))
    np.save(f"{folder}/x.npy", np.asfortranarray(values))


def usual(folder: str) -> int:
    """Read "samples" that are single numbers."""
    x = np.memmap(f"{folder}/x.npy", np.float32, "r")
    samples = 0
    for start in range(0, x.shape[0], CHUNK):
        samples += len(np.array(x[start : start + CHUNK]))
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        make(folder, rows)
        with Cost() as cost:
            samples = usual(folder)
        x = np.memmap(f"{folder}/x.npy", np.float32, "r")
        print(f"the array has the shape {(rows, *SHAPE)}, the memmap {x.shape}")
        print(f"{samples:,} samples are read where there are {rows:,}")
        inside = x[32:]
        wrong = np.mean((inside < 0) | (inside >= 1) | ~np.isfinite(inside))
        print(f"float64 read as float32: {wrong:.0%} of the values are not even between 0 and 1")
        print(f"{rows:,} rows {cost}")


if __name__ == "__main__":
    main()
