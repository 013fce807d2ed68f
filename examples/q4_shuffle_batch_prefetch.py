"""Read TFRecord shards for two epochs: shuffled over all rows, batched and prefetched."""

from __future__ import annotations

import argparse
import tempfile

import numpy as np
import tensorflow as tf

import recmap as rm

SHARDS = 4


def make(folder: str, rows: int) -> None:
    for shard, numbers in enumerate(np.array_split(np.arange(rows), SHARDS)):
        with tf.io.TFRecordWriter(f"{folder}/x-{shard}.tfrecord") as writer:
            for row in numbers:
                value = tf.train.FloatList(value=[row, row / 2])
                number = tf.train.Int64List(value=[row])
                features = {
                    "x": tf.train.Feature(float_list=value),
                    "row": tf.train.Feature(int64_list=number),
                }
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString())


def answer(folder: str) -> tf.data.Dataset:
    return rm.open(f"{folder}/x-*.tfrecord").shuffle(seed=1).batch(64).prefetch(4).to_tf()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        make(folder, rows)
        train, orders = answer(folder), []
        for _ in range(2):
            epoch = list(train)
            order = np.concatenate([batch["row"].numpy() for batch in epoch])
            x = np.concatenate([batch["x"].numpy() for batch in epoch])
            assert np.array_equal(np.sort(order), np.arange(rows))
            assert np.array_equal(x, np.stack([order, order / 2], axis=1).astype(np.float32))
            orders.append(order)
        assert not np.array_equal(orders[0], orders[1])
        print(f"{rows:,} rows of {SHARDS} shards came once in each epoch, in a different order")
        # 64 rows drawn from all shards include some of each.
        assert len(np.unique(orders[0][:64] * SHARDS // rows)) == SHARDS
        print("the first batch holds rows of all shards")


if __name__ == "__main__":
    main()
