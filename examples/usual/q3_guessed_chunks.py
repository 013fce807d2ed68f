"""The usual way to write HDF5: chunks=True, and h5py guesses chunks that cut every row."""

from __future__ import annotations

import argparse
import tempfile

import h5py
import numpy as np
from cost import Cost

WIDTH = 100
BATCH = 256


def make(folder: str, rows: int) -> None:
    values = np.random.default_rng(0).integers(0, 1000, (rows, WIDTH)).astype(np.float32)
    np.save(f"{folder}/x.npy", values)
    with h5py.File(f"{folder}/guessed.h5", "w") as file:
        file.create_dataset("data", data=values, chunks=True, compression="gzip")


def usual(folder: str) -> int:
    """Read batches of neighbouring rows, in random order."""
    rows = 0
    with h5py.File(f"{folder}/guessed.h5") as file:
        data = file["data"]
        starts = np.arange(0, len(data), BATCH)
        for start in np.random.default_rng(1).permutation(starts):
            rows += len(data[start : start + BATCH])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    with tempfile.TemporaryDirectory() as folder:
        make(folder, parser.parse_args().rows)
        with h5py.File(f"{folder}/guessed.h5") as file:
            chunk = file["data"].chunks
        across = -(-WIDTH // chunk[1])
        inflated = across * chunk[0] * chunk[1] / (BATCH * WIDTH)
        print(f"chunks of {chunk}: a row lies in {across} of them")
        print(f"a batch of {BATCH} rows inflates {inflated:.1f} times its values, or more")
        with Cost() as cost:
            rows = usual(folder)
        print(f"{rows:,} rows {cost}")


if __name__ == "__main__":
    main()
