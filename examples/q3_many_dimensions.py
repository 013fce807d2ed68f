"""Read an .npy file of four dimensions, in Fortran order, as a tf.data.Dataset of its rows."""

from __future__ import annotations

import argparse
import tempfile

import numpy as np
import tensorflow as tf

import recmap as rm

SHAPE = (8, 16, 3)


def make(folder: str, rows: int) -> None:
    values = np.random.default_rng(0).random((rows, *SHAPE))
    np.save(f"{folder}/x.npy", np.asfortranarray(values))


def answer(folder: str) -> int:
    dataset = rm.open(f"{folder}/x.npy").batch(64).to_tf()
    return sum(len(batch["data"]) for batch in dataset)


def check(folder: str, rows: int) -> None:
    x = np.load(f"{folder}/x.npy", mmap_mode="r")
    dataset = rm.open(f"{folder}/x.npy").batch(64).to_tf()
    assert dataset.element_spec == {"data": tf.TensorSpec((None, *SHAPE), tf.float64)}
    found = np.concatenate([batch["data"].numpy() for batch in dataset])
    assert found.shape == (rows, *SHAPE)
    assert np.array_equal(found, x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        make(folder, rows)
        print(f"TensorFlow got {answer(folder):,} rows of float64[8,16,3]")
        check(folder, rows)
        print("every value is in its place, although the file is in Fortran order")


if __name__ == "__main__":
    main()
