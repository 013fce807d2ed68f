"""Read token sequences from a TFRecord file as batches padded to 128, with their lengths."""

from __future__ import annotations

import argparse
import tempfile

import numpy as np
import tensorflow as tf

import recmap as rm

LENGTH = 128


def sequences(rows: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(1, 50_000, n) for n in rng.integers(0, 200, rows)]


def make(folder: str, rows: int) -> None:
    with tf.io.TFRecordWriter(f"{folder}/x.tfrecord") as writer:
        for row, tokens in enumerate(sequences(rows)):
            features = {
                "sequence": tf.train.Feature(int64_list=tf.train.Int64List(value=tokens)),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[row])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())


def answer(folder: str) -> int:
    text = rm.open(f"{folder}/x.tfrecord", columns={"sequence": "int64[*]", "label": "int64"})
    train = text.shuffle(seed=1).batch(32, pad={"sequence": LENGTH}, lengths=True).to_tf()
    return sum(len(batch["label"]) for batch in train)


def check(folder: str, rows: int) -> None:
    expected, seen = sequences(rows), []
    text = rm.open(f"{folder}/x.tfrecord", columns={"sequence": "int64[*]", "label": "int64"})
    train = text.shuffle(seed=1).batch(32, pad={"sequence": LENGTH}, lengths=True).to_tf()
    for batch in train:
        padded, lengths = batch["sequence"].numpy(), batch["sequence_length"].numpy()
        for tokens, length, row in zip(padded, lengths, batch["label"].numpy(), strict=True):
            assert np.array_equal(tokens[:length], expected[row][:LENGTH])
            assert not tokens[length:].any()
            seen.append(int(row))
    assert sorted(seen) == list(range(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        make(folder, rows)
        print(f"padded or cut {answer(folder):,} sequences to {LENGTH} tokens")
        check(folder, rows)
        print("every sequence came once, with its tokens and its length")


if __name__ == "__main__":
    main()
