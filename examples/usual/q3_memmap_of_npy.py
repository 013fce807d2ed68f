"""The usual way to stream an .npy file: np.memmap, header included."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from cost import Cost

WIDTH = 100
CHUNK = 10_000


def make(folder: str, rows: int) -> None:
    values = np.random.default_rng(0).random((rows, WIDTH), np.float32)
    np.save(f"{folder}/x.npy", values)


def chunks(folder: str) -> Iterator[tf.Tensor]:
    x = np.memmap(f"{folder}/x.npy", np.float32, "r")
    for start in range(0, len(x), CHUNK):
        yield tf.constant(x[start : start + CHUNK])


def usual(folder: str) -> int:
    """Read to the end, which works only if the shape of a chunk is left open."""
    spec = tf.TensorSpec((None,), tf.float32)
    dataset = tf.data.Dataset.from_generator(lambda: chunks(folder), output_signature=spec)
    dataset = dataset.prefetch(tf.data.AUTOTUNE)
    return sum(len(chunk) for chunk in dataset) // WIDTH


def message(error: Exception) -> str:
    lines = (line.strip() for line in str(error).splitlines())
    found = next(line for line in lines if line.startswith(("TypeError", "ValueError")))
    return found.replace("`", "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_050)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        make(folder, rows)
        first = np.memmap(f"{folder}/x.npy", np.float32, "r")
        header = (first.size - rows * WIDTH, bytes(first[:2])[1:6].decode())
        print(f"the first {header[0]} values are the header: {header[1]} ...")
        print(
            f"so row 0 is wrong: {not np.array_equal(first[:WIDTH], np.load(f'{folder}/x.npy')[0])}"
        )
        spec = tf.TensorSpec((CHUNK,), tf.float32)
        fixed = tf.data.Dataset.from_generator(lambda: chunks(folder), output_signature=spec)
        seen = 0
        try:
            for chunk in fixed:
                seen += len(chunk)
        except tf.errors.OpError as error:
            print(f"after {seen:,} values: {message(error)}")
        with Cost() as cost:
            read = usual(folder)
        print(f"{read:,} rows {cost}")


if __name__ == "__main__":
    main()
