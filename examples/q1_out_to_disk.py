"""Convert a TFRecord file to an .npy file that NumPy can map, within 64 MB of memory."""

from __future__ import annotations

import argparse
import tempfile

import numpy as np

import recmap as rm

SHAPE = (64, 64)


def make(folder: str, rows: int) -> None:
    import tensorflow as tf

    rng = np.random.default_rng(0)
    with tf.io.TFRecordWriter(f"{folder}/x.tfrecord") as writer:
        for _ in range(rows):
            value = tf.train.BytesList(value=[rng.random(SHAPE, np.float32).tobytes()])
            features = tf.train.Features(feature={"data": tf.train.Feature(bytes_list=value)})
            writer.write(tf.train.Example(features=features).SerializeToString())


def answer(folder: str) -> int:
    report = rm.convert(
        f"{folder}/x.tfrecord", f"{folder}/x.npy", columns={"data": "float32[64,64]"}, memory="64MB"
    )
    return report.rows


def check(folder: str, rows: int) -> None:
    x = np.load(f"{folder}/x.npy", mmap_mode="r")
    assert x.shape == (rows, *SHAPE)
    rng = np.random.default_rng(0)
    assert all(np.array_equal(row, rng.random(SHAPE, np.float32)) for row in x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        make(folder, rows)
        print(f"wrote {answer(folder):,} arrays of float32[64,64] into x.npy")
        check(folder, rows)
        print("np.load(mmap_mode='r') finds every row that TensorFlow wrote")


if __name__ == "__main__":
    main()
