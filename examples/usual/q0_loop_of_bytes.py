"""The usual way from a memmap to TFRecord: an Example of raw bytes for every row.

The feature description that comes with it says float32, and the number of rows is the number of
values.
"""

from __future__ import annotations

import argparse
import tempfile

import numpy as np
import tensorflow as tf
from cost import Cost

WIDTH = 10


def make(folder: str, rows: int) -> None:
    np.random.default_rng(0).random((rows, WIDTH), np.float32).tofile(f"{folder}/x.dat")


def usual(folder: str) -> int:
    x = np.memmap(f"{folder}/x.dat", np.float32, "r").reshape(-1, WIDTH)
    with tf.io.TFRecordWriter(f"{folder}/usual.tfrecord") as writer:
        for row in x:
            value = tf.train.BytesList(value=[row.tobytes()])
            features = tf.train.Features(feature={"data": tf.train.Feature(bytes_list=value)})
            writer.write(tf.train.Example(features=features).SerializeToString())
    return len(x)


def shape_from_values(folder: str) -> None:
    values = np.memmap(f"{folder}/x.dat", np.float32, "r").shape[0]
    try:
        np.memmap(f"{folder}/x.dat", np.float32, "r", shape=(values, WIDTH))
    except ValueError as error:
        print(f"shape=(values of the file, {WIDTH}): {error}")


def read_as_floats(folder: str) -> None:
    (record,) = tf.data.TFRecordDataset(f"{folder}/usual.tfrecord").take(1)
    found = tf.train.Example.FromString(record.numpy()).features.feature["data"]
    size = len(found.bytes_list.value[0])
    print(f"all that a record says about its row: {found.WhichOneof('kind')}, {size} bytes")
    try:
        tf.io.parse_single_example(record, {"data": tf.io.FixedLenFeature([WIDTH], tf.float32)})
    except tf.errors.InvalidArgumentError as error:
        message = next(line for line in str(error).splitlines() if "Data types" in line)
        print("read as floats:", message[message.index("Data types") :].split(" [Op")[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000)
    with tempfile.TemporaryDirectory() as folder:
        make(folder, parser.parse_args().rows)
        shape_from_values(folder)
        with Cost() as cost:
            rows = usual(folder)
        read_as_floats(folder)
        print(f"{rows:,} rows {cost}")


if __name__ == "__main__":
    main()
