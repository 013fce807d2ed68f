"""Convert a memmap of float32 rows to a TFRecord file of float features."""

from __future__ import annotations

import argparse
import tempfile

import numpy as np

import recmap as rm

WIDTH = 10


def make(folder: str, rows: int) -> None:
    x = np.memmap(f"{folder}/x.dat", np.float32, "w+", shape=(rows, WIDTH))
    x[:] = np.random.default_rng(0).random((rows, WIDTH), np.float32)
    x.flush()


def answer(folder: str) -> int:
    report = rm.convert(
        f"{folder}/x.dat", f"{folder}/x.tfrecord", dtype="float32", shape=(-1, WIDTH)
    )
    return report.rows


def check(folder: str, rows: int) -> None:
    import tensorflow as tf

    spec = {"data": tf.io.FixedLenFeature([WIDTH], tf.float32)}
    records = tf.data.TFRecordDataset(f"{folder}/x.tfrecord").batch(rows)
    (parsed,) = (tf.io.parse_example(batch, spec) for batch in records)
    x = np.memmap(f"{folder}/x.dat", np.float32, "r", shape=(rows, WIDTH))
    assert np.array_equal(parsed["data"].numpy(), x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        make(folder, rows)
        print(f"converted {answer(folder):,} rows of float32[{WIDTH}]")
        check(folder, rows)
        print("TensorFlow reads the same rows from it")


if __name__ == "__main__":
    main()
