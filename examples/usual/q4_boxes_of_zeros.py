"""The usual way to load boxes: padded with boxes of zeros that look like any other."""

from __future__ import annotations

import argparse
import tempfile

import numpy as np
import tensorflow as tf
from cost import Cost

import recmap as rm


def make(folder: str, rows: int) -> None:
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 6, rows)
    boxes = rng.random((counts.sum(), 4), np.float32)
    ragged = rm.Ragged(boxes, np.concatenate([[0], np.cumsum(counts)]))
    with rm.TFRecordWriter(f"{folder}/x.tfrecord", index=False) as writer:
        writer.write({"boxes": ragged, "label": np.arange(rows)})


def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    spec = {
        "boxes": tf.io.VarLenFeature(tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }
    example = tf.io.parse_single_example(record, spec)
    return tf.reshape(tf.sparse.to_dense(example["boxes"]), [-1, 4]), example["label"]


def usual(folder: str) -> tuple[int, int, int]:
    dataset = tf.data.TFRecordDataset(f"{folder}/x.tfrecord").map(parse).shuffle(1024)
    rows = boxes = zeros = 0
    for padded, labels in dataset.padded_batch(32).prefetch(tf.data.AUTOTUNE):
        rows += len(labels)
        boxes += padded.shape[0] * padded.shape[1]
        zeros += int(np.sum(~padded.numpy().any(axis=2)))
    return rows, boxes, zeros


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000)
    with tempfile.TemporaryDirectory() as folder:
        make(folder, parser.parse_args().rows)
        with Cost() as cost:
            rows, boxes, zeros = usual(folder)
    print(f"{zeros:,} of {boxes:,} boxes are zeros, and nothing says that these are not real")
    print(f"{rows:,} rows {cost}")


if __name__ == "__main__":
    main()
