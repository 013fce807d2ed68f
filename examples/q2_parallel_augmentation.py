"""Augment the images of a memmap in several processes, for TensorFlow."""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import numpy as np

import recmap as rm

SHAPE = (64, 64, 3)


def make(folder: str, rows: int) -> None:
    np.random.default_rng(0).random((rows, *SHAPE), np.float32).tofile(f"{folder}/images.dat")
    (np.arange(rows) % 10).tofile(f"{folder}/labels.dat")


def augment(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    noise = rng.normal(0, 0.1, row["image"].shape).astype(np.float32)
    return {**row, "image": np.clip(row["image"] + noise, 0, 1)}


def open_both(folder: str) -> rm.Dataset:
    images = rm.open(f"{folder}/images.dat", dtype="float32", shape=(-1, *SHAPE))
    labels = rm.open(f"{folder}/labels.dat", dtype="int64", shape=(-1,))
    return rm.open({"image": images, "label": labels})


def answer(folder: str, workers: int = 2) -> int:
    train = open_both(folder).map(augment, workers=workers).batch(32).to_tf()
    return sum(len(batch["label"]) for batch in train)


def check(folder: str, rows: int) -> None:
    images = np.memmap(f"{folder}/images.dat", np.float32, "r", shape=(rows, *SHAPE))
    serial = [batch["image"] for batch in open_both(folder).map(augment).batch(32)]
    parallel = open_both(folder).map(augment, workers=2).batch(32).to_tf()
    for one, other in zip(serial, parallel, strict=True):
        assert np.array_equal(one, other["image"].numpy())
    noise = np.concatenate(serial) - images
    assert 0.08 < noise.std() < 0.1  # a little less than 0.1, because of the clipping
    assert len(np.unique(noise[:, 0, 0, 0])) > rows * 0.8  # no two rows share their noise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        make(folder, rows)
        print(f"2 processes augmented {answer(folder):,} images")
        check(folder, rows)
        print("each row gets its own noise, the same with any number of processes")


if __name__ == "__main__":
    main()
