"""Batches that are adjacent in memory are passed to TensorFlow as one element."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.frameworks import Lazy

tf: Any = Lazy("recmap.adapters.tf")


def _cut(rows: int, size: int) -> Iterator[dict[str, np.ndarray]]:
    whole = {"x": np.arange(rows), "y": np.arange(rows * 3.0).reshape(rows, 3)}
    for start in range(0, rows, size):
        yield {name: column[start : start + size] for name, column in whole.items()}


def test_slices_of_the_same_arrays_are_joined_without_a_copy() -> None:
    first, second = list(_cut(10, 3)), list(_cut(7, 3))
    blocks = list(tf.join_neighbours([*first, *second]))
    assert [len(block["x"]) for block in blocks] == [10, 7]
    assert np.shares_memory(blocks[0]["y"], first[2]["y"])
    assert np.array_equal(blocks[1]["y"], np.arange(21.0).reshape(7, 3))


def test_a_block_comes_as_soon_as_its_arrays_end() -> None:
    asked = []

    def batches() -> Iterator[dict[str, np.ndarray]]:
        for batch in [*_cut(4, 2), *_cut(4, 2)]:
            asked.append(batch)
            yield batch

    blocks = tf.join_neighbours(batches())
    assert len(next(blocks)["x"]) == 4
    assert len(asked) == 2


def test_only_neighbours_are_joined() -> None:
    one, two, three = _cut(9, 3)
    assert [b["x"].tolist() for b in tf.join_neighbours([one, three])] == [[0, 1, 2], [6, 7, 8]]
    assert [b["x"].tolist() for b in tf.join_neighbours([two, one])] == [[3, 4, 5], [0, 1, 2]]


@pytest.mark.parametrize(
    "odd",
    [
        {"x": np.arange(3)},
        {"x": np.arange(6)[::2]},
        {"x": np.arange(8).reshape(4, 2)[1:3, :1]},
        {"x": rm.Ragged.from_rows([[1], [2, 3]])},
        {"x": np.arange(8)[2:4], "y": np.arange(8)[4:6]},
        {"x": np.arange(8)[2:2]},
        {"x": np.arange(8, dtype=np.int32).view(np.int64)[1:2]},
        {"x": np.arange(9)[1:9].reshape(4, 2)[1:3]},
    ],
)
def test_other_batches_come_unchanged(odd: dict[str, Any]) -> None:
    before, after = list(_cut(4, 2)), list(_cut(4, 2))
    blocks = list(tf.join_neighbours([*before, odd, *after]))
    assert [len(b["x"]) for b in blocks] == [4, len(odd["x"]), 4]
    assert blocks[1]["x"].tolist() == odd["x"].tolist()


@pytest.mark.parametrize("drop_last", [False, True])
def test_tensorflow_gets_the_same_batches(drop_last: bool) -> None:
    rows = {"x": np.arange(1003), "y": np.arange(1003 * 40.0).reshape(1003, 40)}
    train = rm.from_arrays(rows).shuffle(seed=1).batch(10, drop_last=drop_last).repeat(3)
    assert train._feed().end_to_end
    wanted = [batch["y"] for batch in train]
    train.epoch = 0
    dataset = train.to_tf()
    assert int(dataset.cardinality()) == len(wanted)
    for batch, expected in zip(dataset, wanted, strict=True):
        assert np.array_equal(batch["y"], expected)
