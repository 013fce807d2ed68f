"""Read JPEG images and labels from a TFRecord file as batches of tensors."""

from __future__ import annotations

import argparse
import tempfile

import numpy as np
import tensorflow as tf

import recmap as rm

SIDE = 256


def make(folder: str, rows: int) -> None:
    """Write images of a single colour, which tells the row."""
    with tf.io.TFRecordWriter(f"{folder}/x.tfrecord") as writer:
        for row in range(rows):
            colour = (row % 256, row // 256 % 256, 128)
            jpeg = tf.io.encode_jpeg(np.full((320, 320, 3), colour, np.uint8), quality=95)
            features = {
                "image_raw": tf.train.Feature(bytes_list=tf.train.BytesList(value=[jpeg.numpy()])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[row])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())


def answer(folder: str) -> int:
    images = rm.open(f"{folder}/x.tfrecord").shuffle(seed=1)
    train = images.decode_image("image_raw", (SIDE, SIDE), scale="0-1").batch(32).to_tf()
    return sum(len(batch["label"]) for batch in train)


def check(folder: str, rows: int) -> None:
    images = rm.open(f"{folder}/x.tfrecord").shuffle(seed=1)
    train = images.decode_image("image_raw", (SIDE, SIDE), scale="0-1").batch(32)
    seen = []
    for pixels, labels in train.to_tf(features="image_raw", label="label"):
        assert pixels.shape[1:] == (SIDE, SIDE, 3)
        for image, label in zip(pixels.numpy(), labels.numpy(), strict=True):
            colour = np.array([label % 256, label // 256 % 256, 128]) / 255
            assert np.abs(image - colour).max() < 0.02  # JPEG is not exact
            seen.append(int(label))
    assert sorted(seen) == list(range(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        make(folder, rows)
        print(f"decoded {answer(folder):,} JPEG images into float32[{SIDE},{SIDE},3]")
        check(folder, rows)
        print("every image came once, in a random order, with its label and its colour")


if __name__ == "__main__":
    main()
