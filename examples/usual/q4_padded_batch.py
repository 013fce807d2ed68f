"""The usual way to pad text: padded_batch with a maximum length, one record at a time."""

from __future__ import annotations

import argparse
import tempfile

import numpy as np
import tensorflow as tf
from cost import Cost

import recmap as rm

LENGTH = 128


def make(folder: str, rows: int, longest: int = LENGTH) -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, longest + 1, rows)
    tokens = rng.integers(1, 50_000, lengths.sum())
    sequences = rm.Ragged(tokens, np.concatenate([[0], np.cumsum(lengths)]))
    with rm.TFRecordWriter(f"{folder}/x.tfrecord", index=False, overwrite=True) as writer:
        writer.write({"sequence": sequences, "label": np.arange(rows)})


def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    spec = {
        "sequence": tf.io.VarLenFeature(tf.int64),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }
    example = tf.io.parse_single_example(record, spec)
    return tf.sparse.to_dense(example["sequence"]), example["label"]


def usual(folder: str) -> int:
    dataset = tf.data.TFRecordDataset(f"{folder}/x.tfrecord").map(parse).shuffle(1024)
    dataset = dataset.padded_batch(32, padded_shapes=([LENGTH], []))
    return sum(len(labels) for _, labels in dataset.prefetch(tf.data.AUTOTUNE))


def _message(error: Exception) -> str:
    found = str(error)
    return found[found.index("Attempted") :].split(".", 1)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        make(folder, rows, longest=LENGTH + 72)
        try:
            usual(folder)
        except tf.errors.OpError as error:
            print("sequences of up to 200 tokens:", _message(error))
        make(folder, rows)
        with Cost() as cost:
            read = usual(folder)
        print(f"{read:,} rows {cost}")


if __name__ == "__main__":
    main()
