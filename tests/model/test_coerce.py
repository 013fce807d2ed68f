"""The types of columns that are given as lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm

LATER: list[Any] = [[1.5, 2.0], [], [3.0]]


def written(path: Path, batches: list[dict[str, Any]]) -> rm.Dataset:
    with rm.TFRecordWriter(path) as writer:
        for batch in batches:
            writer.write(batch)
    return rm.open(path)


def saved(path: Path, batches: list[dict[str, Any]]) -> rm.Dataset:
    rm.from_batches(iter(batches)).save(path)
    return rm.open(path)


def test_empty_lists_in_the_first_batch_do_not_fix_a_length(tmp_path: Path) -> None:
    batches = [{"x": [[], []]}, {"x": LATER}]
    for ds in (
        written(tmp_path / "b.tfrecord", batches),
        saved(tmp_path / "c.tfrecord", batches),
        saved(tmp_path / "c.npz", batches),
        rm.open([{"x": row} for row in [[], [], *LATER]]),
    ):
        assert str(ds.schema["x"]) == "float64[*]"
        assert [row.tolist() for row in ds["x"][:]] == [[], [], *LATER]
    nested = rm.from_batches(iter([{"x": [np.zeros((0, 4))] * 2}, {"x": [np.ones((3, 4))]}]))
    assert str(nested.schema["x"]) == "float64[*,4]"
    assert [len(row["x"]) for row in nested] == [0, 0, 3]


def test_an_array_of_length_0_keeps_its_shape(tmp_path: Path) -> None:
    batches = [{"x": np.zeros((2, 0), "int32")}] * 2
    for ds in (
        rm.open(batches[0]),
        rm.from_batches(iter(batches)),
        written(tmp_path / "a.tfrecord", batches),
    ):
        assert str(ds.schema["x"]) == "int32[0]"


def test_a_later_batch_of_another_type_is_refused_with_what_to_do(tmp_path: Path) -> None:
    batches: list[dict[str, Any]] = [{"x": [[], []]}, {"x": [["a"], []]}]
    with pytest.raises(rm.ColumnError, match=r"is bytes\[\*\]; .* give schema="):
        written(tmp_path / "a.tfrecord", batches)
    with pytest.raises(rm.ColumnError, match=r"is bytes\[\*\]; .* give schema="):
        saved(tmp_path / "b.tfrecord", batches)
    ds = rm.from_batches(iter(batches), schema={"x": "bytes[*]"})
    assert [len(row["x"]) for row in ds] == [0, 0, 1, 0]
