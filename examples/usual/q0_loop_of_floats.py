"""The usual way to write float features: float64 goes in, float32 comes out."""

from __future__ import annotations

import argparse
import tempfile

import numpy as np
import tensorflow as tf
from cost import Cost

WIDTH = 10


def make(folder: str, rows: int) -> None:
    np.random.default_rng(0).random((rows, WIDTH), np.float64).tofile(f"{folder}/x64.dat")


def usual(folder: str) -> int:
    x = np.memmap(f"{folder}/x64.dat", np.float64, "r").reshape(-1, WIDTH)
    with tf.io.TFRecordWriter(f"{folder}/usual.tfrecord") as writer:
        for row in x:
            value = tf.train.FloatList(value=row)
            features = tf.train.Features(feature={"data": tf.train.Feature(float_list=value)})
            writer.write(tf.train.Example(features=features).SerializeToString())
    return len(x)


def lost(folder: str) -> None:
    x = np.memmap(f"{folder}/x64.dat", np.float64, "r").reshape(-1, WIDTH)
    spec = {"data": tf.io.FixedLenFeature([WIDTH], tf.float32)}
    records = tf.data.TFRecordDataset(f"{folder}/usual.tfrecord").batch(len(x))
    (parsed,) = (tf.io.parse_example(batch, spec) for batch in records)
    changed = np.mean(parsed["data"].numpy() != x)
    print(f"{changed:.0%} of the float64 values are changed, without an error")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000)
    with tempfile.TemporaryDirectory() as folder:
        make(folder, parser.parse_args().rows)
        with Cost() as cost:
            rows = usual(folder)
        lost(folder)
        print(f"{rows:,} rows {cost}")


if __name__ == "__main__":
    main()
