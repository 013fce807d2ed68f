"""Convert a memmap of int32 to int64 features; recmap reads them back as int32."""

from __future__ import annotations

import argparse
import tempfile

import numpy as np

import recmap as rm

WIDTH = 6


def make(folder: str, rows: int) -> None:
    counts = np.memmap(f"{folder}/counts.dat", np.int32, "w+", shape=(rows, WIDTH))
    counts[:] = np.random.default_rng(0).integers(-1_000, 1_000_000, (rows, WIDTH))
    counts.flush()


def answer(folder: str) -> int:
    report = rm.convert(
        f"{folder}/counts.dat", f"{folder}/counts.tfrecord", dtype="int32", shape=(-1, WIDTH)
    )
    return report.rows


def check(folder: str, rows: int) -> None:
    import tensorflow as tf

    counts = np.memmap(f"{folder}/counts.dat", np.int32, "r", shape=(rows, WIDTH))
    spec = {"data": tf.io.FixedLenFeature([WIDTH], tf.int64)}
    records = tf.data.TFRecordDataset(f"{folder}/counts.tfrecord").batch(rows)
    (parsed,) = (tf.io.parse_example(batch, spec) for batch in records)
    assert np.array_equal(parsed["data"].numpy(), counts)
    column = np.asarray(rm.open(f"{folder}/counts.tfrecord")["data"])
    assert column.dtype == np.int32
    assert np.array_equal(column, counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        make(folder, rows)
        print(f"converted {answer(folder):,} rows of int32[{WIDTH}] into int64 features")
        check(folder, rows)
        print("TensorFlow reads them as int64, recmap as int32")


if __name__ == "__main__":
    main()
