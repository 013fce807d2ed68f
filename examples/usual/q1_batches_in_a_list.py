"""The usual way to read a large TFRecord file "in batches": every batch is kept."""

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


def usual(folder: str) -> list[np.ndarray]:
    batches = []
    for batch in tf.data.TFRecordDataset(f"{folder}/x.tfrecord").map(parse).batch(32):
        batches.append(batch.numpy())  # noqa: PERF401
    return batches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000)
    with tempfile.TemporaryDirectory() as folder:
        make(folder, parser.parse_args().rows)
        with Cost() as cost:
            batches = usual(folder)
    size = sum(batch.nbytes for batch in batches)
    print(f"at the end the list holds {size / 1e6:,.0f} MB: all values of the file")
    print(f"{sum(map(len, batches)):,} rows {cost}")


if __name__ == "__main__":
    main()
