"""Convert a memmap to a TFRecord file that stores each row as one string of raw bytes.

recmap stores float64 this way by default, because a float feature has only 32 bits.
"""

from __future__ import annotations

import argparse
import tempfile

import numpy as np

import recmap as rm

WIDTH = 10


def make(folder: str, rows: int) -> None:
    x = np.memmap(f"{folder}/x.dat", np.float32, "w+", shape=(rows, WIDTH))
    x[:] = np.random.default_rng(0).random((rows, WIDTH), np.float32)
    x.flush()


def answer(folder: str) -> int:
    report = rm.convert(
        f"{folder}/x.dat",
        f"{folder}/x.tfrecord",
        dtype="float32",
        shape=(-1, WIDTH),
        encoding={"data": "raw"},
    )
    return report.rows


def check(folder: str, rows: int) -> None:
    import tensorflow as tf

    x = np.memmap(f"{folder}/x.dat", np.float32, "r", shape=(rows, WIDTH))
    spec = {"data": tf.io.FixedLenFeature([], tf.string)}
    records = tf.data.TFRecordDataset(f"{folder}/x.tfrecord").batch(rows)
    (parsed,) = (tf.io.parse_example(batch, spec) for batch in records)
    assert np.array_equal(tf.io.decode_raw(parsed["data"], tf.float32).numpy(), x)
    # The file describes the bytes, so recmap needs no columns=.
    ds = rm.open(f"{folder}/x.tfrecord")
    assert str(ds.schema["data"]) == f"float32[{WIDTH}]"
    assert np.array_equal(ds["data"], x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        make(folder, rows)
        print(f"converted {answer(folder):,} rows into strings of {WIDTH * 4} bytes")
        check(folder, rows)
        print("decode_raw gives back the memmap, and so does recmap, with dtype and shape")


if __name__ == "__main__":
    main()
