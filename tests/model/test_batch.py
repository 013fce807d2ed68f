"""Rows of several batches are put into one, in any order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.model.batch import interleave, join
from recmap.model.ragged import masked


def _numbers(rng: np.random.Generator, rows: int) -> Any:
    return rng.integers(0, 1000, rows)


def _big_endian(rng: np.random.Generator, rows: int) -> Any:
    return rng.random((rows, 3)).astype(">f4")


def _columns_first(rng: np.random.Generator, rows: int) -> Any:
    return np.asfortranarray(rng.random((rows, 3)))


def _no_values(rng: np.random.Generator, rows: int) -> Any:
    return rng.random((rows, 0))


def _large(rng: np.random.Generator, rows: int) -> Any:
    return rng.random((rows, 3000))


def _records(rng: np.random.Generator, rows: int) -> Any:
    return _numbers(rng, 2 * rows).view([("a", "i8"), ("b", "i8")])


def _nullable(rng: np.random.Generator, rows: int) -> Any:
    return masked(_numbers(rng, rows), rng.random(rows) < 0.3)


def _ragged(rng: np.random.Generator, rows: int) -> rm.Ragged:
    lengths = rng.integers(0, 5, rows + 2)
    values = rng.integers(0, 1000, (int(lengths.sum()), 2))
    return rm.Ragged(values, np.append(0, np.cumsum(lengths)))[1:-1]


def _text(rng: np.random.Generator, rows: int) -> rm.Ragged:
    return rm.Ragged.from_text(["ä" * n for n in rng.integers(0, 9, rows)])


def _nullable_bytes(rng: np.random.Generator, rows: int) -> Any:
    strings = rm.Ragged.from_bytes([bytes(n) for n in rng.integers(0, 9, rows)])
    return masked(strings, rng.random(rows) < 0.3)


def _nested(rng: np.random.Generator, rows: int) -> rm.Ragged:
    return rm.Ragged(_ragged(rng, 2 * rows), 2 * np.arange(rows + 1))


_KINDS = (
    _numbers, _big_endian, _columns_first, _no_values, _large, _records, _nullable, _ragged, _text,
    _nullable_bytes, _nested,
)  # fmt: skip


@pytest.mark.parametrize("column", _KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_rows_of_several_batches_are_put_where_they_belong(column: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 40, rng.integers(2, 5))
    parts = [column(rng, int(size)) for size in sizes]
    places = np.split(rng.permutation(sizes.sum()), np.cumsum(sizes)[:-1])
    found = interleave([{"x": part} for part in parts], places)["x"]
    expected: list[Any] = [None] * int(sizes.sum())
    for part, mine in zip(parts, places, strict=True):
        for place, row in zip(mine.tolist(), part.tolist(), strict=True):
            expected[place] = row
    assert found.tolist() == expected
    assert found.dtype == parts[0].dtype
    if isinstance(found, rm.Ragged):
        assert (found.is_text, found.is_bytes) == (parts[0].is_text, parts[0].is_bytes)


def test_batches_of_other_byte_orders_are_joined_by_value() -> None:
    parts: list[Any] = [{"x": np.arange(3, dtype="<i4")}, {"x": np.arange(10, 12, dtype=">i4")}]
    found = interleave(parts, [np.array([4, 0, 2]), np.array([1, 3])])["x"]
    assert found.tolist() == [1, 10, 2, 11, 0]


@pytest.mark.parametrize("seed", range(8))
def test_large_batches_are_joined_as_numpy_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dtype = ["u1", "<f4", ">f4", "i8", "M8[s]", "S3", "?", "<f8"][seed]
    inner = [(), (3,), (7, 5), (2048,)][seed % 4]
    size = np.dtype(dtype).itemsize * math.prod(inner)
    counts = rng.integers(0, 1_500_000 // size, 4)
    parts = [
        np.frombuffer(rng.integers(0, 2, n * size, np.uint8), dtype).reshape(n, *inner)
        for n in (*counts.tolist(), 0, 1)
    ]
    if seed > 5:
        parts[1] = parts[1][::-1]  # not contiguous
    found = join([{"x": part} for part in parts])["x"]
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.dtype(dtype)
    assert found.tobytes() == np.concatenate(parts, dtype=dtype).tobytes()
    found[:1] = found[:1]  # writable
