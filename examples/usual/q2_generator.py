"""The usual way from a memmap to tf.data: slices from a generator, and a shuffle buffer."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from cost import Cost

SHAPE = (64, 64, 3)


def make(folder: str, rows: int) -> None:
    """Write images sorted by label."""
    labels = np.sort(np.random.default_rng(0).integers(0, 10, rows))
    labels.tofile(f"{folder}/labels.dat")
    images = np.memmap(f"{folder}/images.dat", np.float32, "w+", shape=(rows, *SHAPE))
    for start in range(0, rows, 1000):
        part = images[start : start + 1000]
        part[:] = np.random.default_rng(start).random(part.shape, np.float32)
    images.flush()


def dataset(folder: str) -> tf.data.Dataset:
    images = np.memmap(f"{folder}/images.dat", np.float32, "r").reshape(-1, *SHAPE)
    labels = np.memmap(f"{folder}/labels.dat", np.int64, "r")

    def generate() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        yield from zip(images, labels, strict=True)

    spec = (tf.TensorSpec(SHAPE, tf.float32), tf.TensorSpec((), tf.int64))
    return tf.data.Dataset.from_generator(generate, output_signature=spec)


def usual(folder: str) -> int:
    train = dataset(folder).shuffle(1000).batch(32).prefetch(tf.data.AUTOTUNE)
    return sum(len(labels) for _, labels in train)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000)
    with tempfile.TemporaryDirectory() as folder:
        make(folder, parser.parse_args().rows)
        seen = [len(np.unique(labels)) for _, labels in dataset(folder).batch(32).take(10)]
        print(f"not shuffled, the first 10 batches hold at most {max(seen)} of 10 labels")
        train = dataset(folder).shuffle(1000, seed=1).batch(32).take(10)
        found = np.concatenate([labels for _, labels in train])
        print(f"with shuffle(1000) they hold labels {found.min()} to {found.max()} of 0 to 9")
        with Cost() as cost:
            rows = usual(folder)
        print(f"{rows:,} rows {cost}")


if __name__ == "__main__":
    main()
