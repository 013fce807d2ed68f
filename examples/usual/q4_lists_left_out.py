"""The usual way to parse, used on SequenceExamples: their feature lists are lost, silently."""

from __future__ import annotations

import argparse
import tempfile

import numpy as np
import tensorflow as tf
from cost import Cost

WIDTH = 8


def make(folder: str, rows: int) -> None:
    rng = np.random.default_rng(0)
    with tf.io.TFRecordWriter(f"{folder}/x.tfrecord") as writer:
        for row in range(rows):
            label = tf.train.Feature(int64_list=tf.train.Int64List(value=[row]))
            steps = [
                tf.train.Feature(float_list=tf.train.FloatList(value=frame))
                for frame in rng.random((rng.integers(1, 30), WIDTH), np.float32)
            ]
            lists = tf.train.FeatureLists(
                feature_list={"frames": tf.train.FeatureList(feature=steps)}
            )
            context = tf.train.Features(feature={"label": label})
            record = tf.train.SequenceExample(context=context, feature_lists=lists)
            writer.write(record.SerializeToString())


def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    spec = {
        "frames": tf.io.VarLenFeature(tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }
    example = tf.io.parse_single_example(record, spec)
    return tf.reshape(tf.sparse.to_dense(example["frames"]), [-1, WIDTH]), example["label"]


def usual(folder: str) -> tuple[int, int]:
    rows = steps = 0
    for frames, _ in tf.data.TFRecordDataset(f"{folder}/x.tfrecord").map(parse):
        rows += 1
        steps += len(frames)
    return rows, steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300)
    with tempfile.TemporaryDirectory() as folder:
        make(folder, parser.parse_args().rows)
        with Cost() as cost:
            rows, steps = usual(folder)
    print(f"{rows:,} records are parsed without an error, with {steps} steps in all of them")
    print(f"{rows:,} rows {cost}")


if __name__ == "__main__":
    main()
