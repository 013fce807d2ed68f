"""Convert a memmap of float64 to a TFRecord file, without losing a bit."""

from __future__ import annotations

import argparse
import tempfile

import numpy as np

import recmap as rm

WIDTH = 10


def make(folder: str, rows: int) -> None:
    np.random.default_rng(0).random((rows, WIDTH)).tofile(f"{folder}/x64.dat")


def answer(folder: str) -> int:
    report = rm.convert(
        f"{folder}/x64.dat", f"{folder}/x64.tfrecord", dtype="float64", shape=(-1, WIDTH)
    )
    return report.rows


def check(folder: str, rows: int) -> None:
    import tensorflow as tf

    x = np.memmap(f"{folder}/x64.dat", np.float64, "r", shape=(rows, WIDTH))
    spec = {"data": tf.io.FixedLenFeature([], tf.string)}
    records = tf.data.TFRecordDataset(f"{folder}/x64.tfrecord").batch(rows)
    (parsed,) = (tf.io.parse_example(batch, spec) for batch in records)
    assert np.array_equal(tf.io.decode_raw(parsed["data"], tf.float64).numpy(), x)
    column = np.asarray(rm.open(f"{folder}/x64.tfrecord")["data"])
    assert column.dtype == np.float64
    assert np.array_equal(column, x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        make(folder, rows)
        print(f"converted {answer(folder):,} rows of float64[{WIDTH}]")
        check(folder, rows)
        print("TensorFlow and recmap read every bit of them")


if __name__ == "__main__":
    main()
