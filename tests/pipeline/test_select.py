"""select: columns, or rows by number or by a mask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.frameworks import torch


def numbers(pipeline: Any) -> list[int]:
    return [row["x"].item() for row in pipeline]


def test_select_picks_columns_or_rows() -> None:
    ds = rm.from_arrays({"x": np.arange(5), "y": np.arange(5)})
    assert list(ds.select("y").schema) == ["y"]
    assert list(ds.select(["y", "x"]).schema) == ["y", "x"]
    assert numbers(ds.select([4, -5])) == [4, 0]
    assert numbers(ds.select(slice(1, None, 2))) == [1, 3]
    assert numbers(ds.select(np.array([True, False, True, False, False]))) == [0, 2]
    with pytest.raises(rm.FieldNotFoundError, match="'z'"):
        ds.select("z")
    with pytest.raises(rm.RowNotFoundError, match="row 5 is out of range: there are 5"):
        ds.select([5])


def test_select_takes_numbers_and_masks_in_any_form() -> None:
    ds = rm.from_arrays({"x": np.arange(5)})
    odd = [False, True, False, True, False]
    for mask in (odd, tuple(odd), np.array(odd), torch.tensor(odd), ds["x"] % 2 == 1):
        assert numbers(ds.select(mask)) == [1, 3]
        assert ds[np.asarray(mask)]["x"].tolist() == [1, 3]
    for rows in ([1, 3], (1, -2), range(1, 5, 2), np.array([1, 3], "u8"), slice(1, -1, 2)):
        assert numbers(ds.select(rows)) == [1, 3]
    for nothing in ([], (), range(0), np.empty(0, int), slice(0, 0), [False] * 5):
        assert numbers(ds.select(nothing)) == []
    assert numbers(ds.select([True, False, True, True, False]).select([False, True, True])) == [
        2,
        3,
    ]


def test_select_keeps_its_rows_when_the_array_changes() -> None:
    rows = np.array([1, 3])
    chosen = rm.from_arrays({"x": np.arange(5)}).select(rows)
    rows[:] = 0
    assert numbers(chosen) == [1, 3]


def test_select_refuses_what_is_not_rows() -> None:
    ds = rm.from_arrays({"x": np.arange(5)})
    for mask in ([True] * 4, np.ones(6, bool), np.empty(0, bool)):
        with pytest.raises(rm.RowNotFoundError, match=f"a mask of {len(mask)} values, but"):
            ds.select(mask)
    last = np.array([2**64 - 1], np.uint64)
    for rows in ([5], [-6], range(6), last):
        with pytest.raises(rm.RowNotFoundError, match="there are 5"):
            ds.select(rows)
    wrong: list[Any] = [[0.5], [[1]], np.ones((5, 1), bool), 3, np.empty(0), [None], {"x": 1}]
    for rows in wrong:
        with pytest.raises(rm.OptionError, match="select"):
            ds.select(rows)
    with pytest.raises(rm.RecmapError, match="mask"):
        ds.select(np.ma.array([1, 2], mask=[True, False]))


def test_select_of_columns_works_after_map_and_after_batch() -> None:
    made = rm.from_arrays({"x": np.arange(4)}).map(lambda row: {"a": row["x"], "b": row["x"] * 2})
    assert [row["b"].item() for row in made.select("b")] == [0, 2, 4, 6]
    assert list(next(iter(made.batch(2).select("a")))) == ["a"]
