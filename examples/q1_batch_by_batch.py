"""Read a TFRecord file of arrays, stored as raw bytes, in batches of NumPy arrays."""

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
    rows, total = 0, np.zeros(SHAPE)
    for batch in rm.open(f"{folder}/x.tfrecord", columns={"data": "float32[64,64]"}).batches(32):
        total += batch["data"].sum(axis=0, dtype=np.float64)
        rows += len(batch["data"])
    np.save(f"{folder}/mean.npy", total / rows)
    return rows


def check(folder: str, rows: int) -> None:
    rng = np.random.default_rng(0)
    expected = sum(rng.random(SHAPE, np.float32).astype(np.float64) for _ in range(rows)) / rows
    assert np.allclose(np.load(f"{folder}/mean.npy"), expected, rtol=1e-12)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        make(folder, rows)
        read = answer(folder)
        assert read == rows
        print(f"read {read:,} arrays of float32[64,64] in batches of 32, the last of {rows % 32}")
        check(folder, rows)
        print("their mean is that of the arrays that TensorFlow wrote")


if __name__ == "__main__":
    main()
