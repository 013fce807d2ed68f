"""The usual way to convert what does not fit into memory: append batches with np.save."""

from __future__ import annotations

import argparse
import tempfile

import numpy as np
import tensorflow as tf
from cost import Cost

import recmap as rm

SHAPE = (64, 64)


def make(folder: str, rows: int) -> None:
    x = np.random.default_rng(0).random((rows, *SHAPE), np.float32)
    with rm.TFRecordWriter(f"{folder}/x.tfrecord", encoding={"data": "raw"}, index=False) as writer:
        writer.write({"data": x})


def parse(record: tf.Tensor) -> tf.Tensor:
    example = tf.io.parse_single_example(record, {"data": tf.io.FixedLenFeature([], tf.string)})
    return tf.reshape(tf.io.decode_raw(example["data"], tf.float32), SHAPE)


def usual(folder: str) -> int:
    rows = 0
    with open(f"{folder}/usual.npy", "ab") as file:
        for batch in tf.data.TFRecordDataset(f"{folder}/x.tfrecord").map(parse).batch(32):
            np.save(file, batch.numpy())
            rows += len(batch)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000)
    with tempfile.TemporaryDirectory() as folder:
        make(folder, parser.parse_args().rows)
        with Cost() as cost:
            rows = usual(folder)
        found = np.load(f"{folder}/usual.npy", mmap_mode="r")
        print(f"{rows:,} rows were appended; np.load finds {len(found)}: the first batch")
        print(f"{rows:,} rows {cost}")


if __name__ == "__main__":
    main()
