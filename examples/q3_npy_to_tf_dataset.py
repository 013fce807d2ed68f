"""Read a large .npy file as a tf.data.Dataset that knows its shape, dtype and length."""

from __future__ import annotations

import argparse
import tempfile

import numpy as np
import tensorflow as tf

import recmap as rm

WIDTH = 100


def make(folder: str, rows: int) -> None:
    values = np.random.default_rng(0).random((rows, WIDTH), np.float32)
    np.save(f"{folder}/x.npy", values)


def answer(folder: str) -> int:
    dataset = rm.open(f"{folder}/x.npy").batch(256).to_tf()
    return sum(len(batch["data"]) for batch in dataset)


def check(folder: str, rows: int) -> None:
    x = np.load(f"{folder}/x.npy", mmap_mode="r")
    dataset = rm.open(f"{folder}/x.npy").batch(256).to_tf()
    assert dataset.element_spec == {"data": tf.TensorSpec((None, WIDTH), tf.float32)}
    assert dataset.cardinality() == -(-rows // 256)
    assert np.array_equal(np.concatenate([batch["data"].numpy() for batch in dataset]), x)
    shuffled = rm.open(f"{folder}/x.npy").shuffle(seed=1).batch(256).to_tf()
    firsts = np.concatenate([batch["data"].numpy()[:, 0] for batch in shuffled])
    assert np.array_equal(np.sort(firsts), np.sort(x[:, 0]))
    assert not np.array_equal(firsts, x[:, 0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        make(folder, rows)
        print(f"TensorFlow got {answer(folder):,} rows, the last batch of {rows % 256}")
        check(folder, rows)
        print("every value equals that of the file, in order and shuffled")


if __name__ == "__main__":
    main()
