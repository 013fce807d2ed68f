"""Read a TFRecord file row by row, and single rows without reading those before."""

from __future__ import annotations

import argparse
import tempfile

import numpy as np

import recmap as rm

WIDTH = 256


def make(folder: str, rows: int) -> None:
    import tensorflow as tf

    rng = np.random.default_rng(0)
    with tf.io.TFRecordWriter(f"{folder}/x.tfrecord") as writer:
        for _ in range(rows):
            value = tf.train.BytesList(value=[rng.random(WIDTH, np.float32).tobytes()])
            features = tf.train.Features(feature={"data": tf.train.Feature(bytes_list=value)})
            writer.write(tf.train.Example(features=features).SerializeToString())


def answer(folder: str) -> int:
    ds = rm.open(f"{folder}/x.tfrecord", columns={"data": "float32[256]"})
    norms = [float(np.linalg.norm(row["data"])) for row in ds.pipeline()]
    last = ds[len(ds) - 1]["data"]
    np.savez(f"{folder}/found.npz", norms=norms, last=last)
    return len(norms)


def check(folder: str, rows: int) -> None:
    rng = np.random.default_rng(0)
    x = np.stack([rng.random(WIDTH, np.float32) for _ in range(rows)])
    with np.load(f"{folder}/found.npz") as found:
        assert np.allclose(found["norms"], np.linalg.norm(x, axis=1), rtol=1e-6)
        assert np.array_equal(found["last"], x[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        make(folder, rows)
        print(f"read {answer(folder):,} rows one by one, then the last one alone")
        check(folder, rows)
        print("they are the rows that TensorFlow wrote")


if __name__ == "__main__":
    main()
