"""The usual way to load images: decode them, then shuffle a buffer of 1,024."""

from __future__ import annotations

import argparse
import tempfile

import numpy as np
import tensorflow as tf
from cost import Cost

import recmap as rm

SIDE = 256


def make(folder: str, rows: int) -> None:
    """Write JPEGs of 320 x 320 pixels, for a model that takes 256 x 256."""
    rng = np.random.default_rng(0)
    tiles = rng.integers(0, 256, (16, 40, 40, 3), np.uint8)
    pixels = tiles.repeat(8, axis=1).repeat(8, axis=2)
    encoded = [tf.io.encode_jpeg(image).numpy() for image in pixels]
    with rm.TFRecordWriter(f"{folder}/x.tfrecord", index=False) as writer:
        jpegs = [encoded[row % len(encoded)] for row in range(rows)]
        writer.write({"image_raw": jpegs, "label": np.arange(rows)})


def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    spec = {
        "image_raw": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }
    example = tf.io.parse_single_example(record, spec)
    image = tf.image.convert_image_dtype(tf.io.decode_jpeg(example["image_raw"]), tf.float32)
    return tf.image.resize(image, [SIDE, SIDE]), example["label"]


def usual(folder: str) -> int:
    dataset = tf.data.TFRecordDataset(f"{folder}/x.tfrecord").map(parse).shuffle(1024)
    return sum(len(labels) for _, labels in dataset.batch(32).prefetch(tf.data.AUTOTUNE))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300)
    with tempfile.TemporaryDirectory() as folder:
        make(folder, parser.parse_args().rows)
        with Cost() as cost:
            rows = usual(folder)
    held = 4 * SIDE * SIDE * 3 * min(1024, rows)
    print(f"the buffer fills with {held / 1e6:,.0f} MB of pixels before the first batch")
    print(f"{rows:,} rows {cost}")


if __name__ == "__main__":
    main()
