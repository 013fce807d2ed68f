"""Read a compressed HDF5 dataset as a tf.data.Dataset; chunks are inflated in parallel."""

from __future__ import annotations

import argparse
import tempfile

import h5py
import numpy as np
import tensorflow as tf

import recmap as rm

WIDTH = 100


def make(folder: str, rows: int) -> None:
    values = np.random.default_rng(0).integers(0, 1000, (rows, WIDTH)).astype(np.float32)
    chunks = (min(1000, rows), WIDTH)
    with h5py.File(f"{folder}/x.h5", "w") as file:
        file.create_dataset("x", data=values, chunks=chunks, compression="gzip")


def answer(folder: str) -> int:
    dataset = rm.open(f"{folder}/x.h5").batch(256).to_tf()
    return sum(len(batch["x"]) for batch in dataset)


def check(folder: str) -> None:
    with h5py.File(f"{folder}/x.h5") as file:
        x = file["x"][:]
    dataset = rm.open(f"{folder}/x.h5").batch(256).to_tf()
    assert dataset.element_spec == {"x": tf.TensorSpec((None, WIDTH), tf.float32)}
    assert np.array_equal(np.concatenate([batch["x"].numpy() for batch in dataset]), x)
    # A chunk is inflated whole, so the shuffle mixes windows of a few chunks.
    shuffled = rm.open(f"{folder}/x.h5").shuffle(seed=1, window=8_000).batch(256).to_tf()
    mixed = np.concatenate([batch["x"].numpy() for batch in shuffled])
    assert not np.array_equal(mixed, x)
    assert np.array_equal(mixed[np.lexsort(mixed.T)], x[np.lexsort(x.T)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        make(folder, rows)
        print(f"TensorFlow got {answer(folder):,} rows from gzip chunks of 1,000 rows")
        check(folder)
        print("every value is the one that h5py reads, in order and shuffled")


if __name__ == "__main__":
    main()
