"""Read SequenceExamples: a context, and feature lists of any number of steps."""

from __future__ import annotations

import argparse
import tempfile

import numpy as np
import tensorflow as tf

import recmap as rm

WIDTH = 8


def videos(rows: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.random((n, WIDTH), np.float32) for n in rng.integers(1, 30, rows)]


def make(folder: str, rows: int) -> None:
    with tf.io.TFRecordWriter(f"{folder}/x.tfrecord") as writer:
        for row, frames in enumerate(videos(rows)):
            label = tf.train.Feature(int64_list=tf.train.Int64List(value=[row]))
            steps = [
                tf.train.Feature(float_list=tf.train.FloatList(value=frame)) for frame in frames
            ]
            lists = tf.train.FeatureLists(
                feature_list={"frames": tf.train.FeatureList(feature=steps)}
            )
            context = tf.train.Features(feature={"label": label})
            record = tf.train.SequenceExample(context=context, feature_lists=lists)
            writer.write(record.SerializeToString())


def answer(folder: str) -> int:
    ds = rm.open(f"{folder}/x.tfrecord", columns={"frames": "float32[*,8]", "label": "int64"})
    train = ds.shuffle(seed=1).batch(16, pad={"frames": "longest"}, lengths=True).to_tf()
    return sum(len(batch["label"]) for batch in train)


def check(folder: str, rows: int) -> None:
    expected, seen = videos(rows), []
    ds = rm.open(f"{folder}/x.tfrecord", columns={"frames": "float32[*,8]", "label": "int64"})
    train = ds.shuffle(seed=1).batch(16, pad={"frames": "longest"}, lengths=True).to_tf()
    for batch in train:
        lengths = batch["frames_length"].numpy()
        for frames, length, row in zip(batch["frames"], lengths, batch["label"], strict=True):
            assert np.array_equal(frames[:length].numpy(), expected[int(row)])
            seen.append(int(row))
    assert sorted(seen) == list(range(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        make(folder, rows)
        print(f"read the feature lists of {answer(folder):,} SequenceExamples as float32[*,8]")
        check(folder, rows)
        print("every step of every list is the one that TensorFlow wrote")


if __name__ == "__main__":
    main()
