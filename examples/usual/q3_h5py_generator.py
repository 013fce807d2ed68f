"""The usual way from HDF5 to tf.data: a generator that slices with h5py."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator

import h5py
import numpy as np
import tensorflow as tf
from cost import Cost

WIDTH = 100
CHUNK = 1_000


def make(folder: str, rows: int) -> None:
    values = np.random.default_rng(0).integers(0, 1000, (rows, WIDTH)).astype(np.float32)
    shape = (min(1000, rows), WIDTH)
    with h5py.File(f"{folder}/x.h5", "w") as file:
        file.create_dataset("x", data=values, chunks=shape, compression="gzip")


def chunks(folder: str) -> Iterator[tf.Tensor]:
    with h5py.File(f"{folder}/x.h5") as file:
        for start in range(0, len(file["x"]), CHUNK):
            yield tf.constant(file["x"][start : start + CHUNK])


def rows_of(folder: str) -> Iterator[np.ndarray]:
    with h5py.File(f"{folder}/x.h5") as file:
        yield from file["x"]


def usual(folder: str) -> int:
    """Read row by row, so that rows can be shuffled and batched."""
    spec = tf.TensorSpec((WIDTH,), tf.float32)
    dataset = tf.data.Dataset.from_generator(lambda: rows_of(folder), output_signature=spec)
    return sum(len(batch) for batch in dataset.batch(256).prefetch(tf.data.AUTOTUNE))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_500)
    with tempfile.TemporaryDirectory() as folder:
        make(folder, parser.parse_args().rows)
        spec = tf.TensorSpec((None, WIDTH), tf.float32)
        dataset = tf.data.Dataset.from_generator(lambda: chunks(folder), output_signature=spec)
        try:
            for batch in dataset.batch(32):
                print(f"a batch of 32 has the shape {tuple(batch.shape)}")
        except tf.errors.InvalidArgumentError as error:
            found = str(error)
            print(found[found.index("Cannot batch") :].split(" [Op", 1)[0])
        with Cost() as cost:
            rows = usual(folder)
        print(f"{rows:,} rows {cost}")


if __name__ == "__main__":
    main()
