"""Train a Keras model on memmaps of images and labels, shuffled over all rows."""

from __future__ import annotations

import argparse
import tempfile

import keras
import numpy as np

import recmap as rm

SHAPE = (64, 64, 3)


def make(folder: str, rows: int) -> None:
    """Write images sorted by label, as files often are; higher labels are brighter."""
    labels = np.sort(np.random.default_rng(0).integers(0, 10, rows))
    labels.tofile(f"{folder}/labels.dat")
    images = np.memmap(f"{folder}/images.dat", np.float32, "w+", shape=(rows, *SHAPE))
    for row, label in enumerate(labels):
        images[row] = np.random.default_rng(row).random(SHAPE, np.float32) * (label + 1) / 10
    images.flush()


def open_both(folder: str) -> rm.Dataset:
    images = rm.open(f"{folder}/images.dat", dtype="float32", shape=(-1, *SHAPE))
    labels = rm.open(f"{folder}/labels.dat", dtype="int64", shape=(-1,))
    return rm.open({"image": images, "label": labels})


def answer(folder: str) -> int:
    """Read one epoch without a model, to time the batches."""
    train = open_both(folder).shuffle(seed=1).batch(32).to_tf(features="image", label="label")
    return sum(len(labels) for _, labels in train)


def check(folder: str, rows: int) -> None:
    labels = np.fromfile(f"{folder}/labels.dat", np.int64)
    images = np.memmap(f"{folder}/images.dat", np.float32, "r", shape=(rows, *SHAPE))
    order, mixed = [], []
    # A column of row numbers tells which rows a batch has.
    both = open_both(folder)
    numbered = rm.open({"image": both, "label": both, "row": np.arange(rows)})
    for batch in numbered.shuffle(seed=1).batch(32):
        assert np.array_equal(batch["image"], images[batch["row"]])
        assert np.array_equal(batch["label"], labels[batch["row"]])
        order += batch["row"].tolist()
        mixed.append(len(np.unique(batch["label"])))
    assert sorted(order) == list(range(rows))
    print(f"every row came once; batches of 32 hold {np.mean(mixed):.1f} of 10 labels on average")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        make(folder, rows)
        check(folder, rows)
        train = open_both(folder).shuffle(seed=1).batch(32).to_tf(features="image", label="label")
        model = keras.Sequential([keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.1), loss)
        losses = model.fit(train, epochs=3, shuffle=False, verbose=0).history["loss"]
        assert losses[-1] < losses[0]
        print(f"the loss fell from {losses[0]:.2f} to {losses[-1]:.2f} in 3 epochs")


if __name__ == "__main__":
    main()
