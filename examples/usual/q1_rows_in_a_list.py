"""The usual way to read rows "one by one": a list of all rows, then an array of the list."""

from __future__ import annotations

import argparse
import tempfile

import numpy as np
import tensorflow as tf
from cost import Cost

import recmap as rm

WIDTH = 256


def make(folder: str, rows: int) -> None:
    x = np.random.default_rng(0).random((rows, WIDTH), np.float32)
    with rm.TFRecordWriter(f"{folder}/x.tfrecord", encoding={"data": "raw"}, index=False) as writer:
        writer.write({"data": x})


def parse(record: tf.Tensor) -> tf.Tensor:
    example = tf.io.parse_single_example(record, {"data": tf.io.FixedLenFeature([], tf.string)})
    return tf.reshape(tf.io.decode_raw(example["data"], tf.float32), [WIDTH])


def usual(folder: str) -> tuple[list[np.ndarray], np.ndarray]:
    dataset = tf.data.TFRecordDataset(f"{folder}/x.tfrecord").map(parse)
    rows = [row.numpy() for row in dataset]
    return rows, np.array(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000)
    with tempfile.TemporaryDirectory() as folder:
        make(folder, parser.parse_args().rows)
        with Cost() as cost:
            rows, array = usual(folder)
    size = sum(row.nbytes for row in rows) + array.nbytes
    print(f"list and array hold {size / 1e6:,.0f} MB: {size / array.nbytes:.0f} times the values")
    print(f"{len(rows):,} rows {cost}")


if __name__ == "__main__":
    main()
