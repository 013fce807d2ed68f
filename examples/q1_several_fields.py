"""Read images and labels from one TFRecord file: batches of both, or one column."""

from __future__ import annotations

import argparse
import tempfile

import numpy as np

import recmap as rm

SHAPE = (16, 16, 3)


def images_and_labels(rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((rows, *SHAPE), np.float32), rng.integers(0, 10, rows)


def make(folder: str, rows: int) -> None:
    import tensorflow as tf

    with tf.io.TFRecordWriter(f"{folder}/x.tfrecord") as writer:
        for image, label in zip(*images_and_labels(rows), strict=True):
            pixels = tf.train.BytesList(value=[image.tobytes()])
            number = tf.train.Int64List(value=[int(label)])
            features = {
                "image": tf.train.Feature(bytes_list=pixels),
                "label": tf.train.Feature(int64_list=number),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())


def answer(folder: str) -> tuple[int, np.ndarray]:
    ds = rm.open(f"{folder}/x.tfrecord", columns={"image": "float32[16,16,3]", "label": "int64"})
    brightness = np.zeros(10)
    for batch in ds.batches(32):
        np.add.at(brightness, batch["label"], batch["image"].mean(axis=(1, 2, 3)))
    return len(ds["label"]), brightness / np.bincount(ds["label"], minlength=10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        make(folder, rows)
        read, brightness = answer(folder)
        print(f"read {read:,} images with their labels")
        images, labels = images_and_labels(rows)
        means = images.mean(axis=(1, 2, 3))
        expected = [means[labels == label].mean() for label in range(10)]
        assert np.allclose(brightness, expected, rtol=1e-5)
        print("the mean brightness of each label is that of the images TensorFlow wrote")


if __name__ == "__main__":
    main()
