"""Write columns from several files into one set of TFRecord shards."""

from __future__ import annotations

import argparse
import glob
import tempfile

import numpy as np

import recmap as rm

WIDTH = 10


def make(folder: str, rows: int) -> None:
    rng = np.random.default_rng(0)
    rng.random((rows, WIDTH), np.float32).tofile(f"{folder}/x.dat")
    np.save(f"{folder}/label.npy", rng.integers(0, 5, rows))
    np.save(f"{folder}/weight.npy", rng.random(rows))


def answer(folder: str) -> int:
    x = rm.open(f"{folder}/x.dat", dtype="float32", shape=(-1, WIDTH))
    ds = rm.open({"x": x, "label": f"{folder}/label.npy", "weight": f"{folder}/weight.npy"})
    return ds.save(f"{folder}/out/", shards=4).rows


def check(folder: str, rows: int) -> None:
    import tensorflow as tf

    # float64 does not fit into a float feature, so it is stored as raw bytes.
    spec = {
        "x": tf.io.FixedLenFeature([WIDTH], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
        "weight": tf.io.FixedLenFeature([], tf.string),
    }
    shards = sorted(glob.glob(f"{folder}/out/*.tfrecord"))
    (parsed,) = (
        tf.io.parse_example(batch, spec) for batch in tf.data.TFRecordDataset(shards).batch(rows)
    )
    weights = tf.io.decode_raw(parsed["weight"], tf.float64)[:, 0]
    x = np.memmap(f"{folder}/x.dat", np.float32, "r", shape=(rows, WIDTH))
    assert np.array_equal(parsed["x"].numpy(), x)
    assert np.array_equal(parsed["label"].numpy(), np.load(f"{folder}/label.npy"))
    assert np.array_equal(weights.numpy(), np.load(f"{folder}/weight.npy"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        make(folder, rows)
        print(f"wrote {answer(folder):,} rows of three columns into four shards")
        print(f"  {rm.open(f'{folder}/out/').schema}")
        check(folder, rows)
        print("TensorFlow reads the values of all three files from them, in order")


if __name__ == "__main__":
    main()
