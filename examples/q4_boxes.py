"""Read bounding boxes, any number per image, as padded batches with a mask."""

from __future__ import annotations

import argparse
import tempfile

import numpy as np
import tensorflow as tf

import recmap as rm


def boxes_of(rows: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.random((n, 4), np.float32) for n in rng.integers(0, 6, rows)]


def make(folder: str, rows: int) -> None:
    with tf.io.TFRecordWriter(f"{folder}/x.tfrecord") as writer:
        for row, boxes in enumerate(boxes_of(rows)):
            features = {
                "boxes": tf.train.Feature(float_list=tf.train.FloatList(value=boxes.reshape(-1))),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[row])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())


def answer(folder: str) -> int:
    ds = rm.open(f"{folder}/x.tfrecord", columns={"boxes": "float32[*,4]", "label": "int64"})
    train = ds.shuffle(seed=1).batch(32, pad={"boxes": "longest"}, mask=True).to_tf()
    return sum(len(batch["label"]) for batch in train)


def check(folder: str, rows: int) -> None:
    expected, seen = boxes_of(rows), []
    ds = rm.open(f"{folder}/x.tfrecord", columns={"boxes": "float32[*,4]", "label": "int64"})
    for batch in ds.shuffle(seed=1).batch(32, pad={"boxes": "longest"}, mask=True).to_tf():
        boxes, mask = batch["boxes"].numpy(), batch["boxes_mask"].numpy()
        for row, label in enumerate(batch["label"].numpy()):
            assert np.array_equal(boxes[row][mask[row]], expected[label])
            seen.append(int(label))
    assert sorted(seen) == list(range(rows))
    # Without pad they stay ragged: ds[7]["boxes"] is n x 4.
    assert np.array_equal(ds[7]["boxes"], expected[7])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        make(folder, rows)
        print(f"read the boxes of {answer(folder):,} images as float32[*,4]")
        check(folder, rows)
        print("the mask is true for the boxes that TensorFlow wrote, and for no others")


if __name__ == "__main__":
    main()
