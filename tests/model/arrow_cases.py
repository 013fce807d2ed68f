"""Random batches, and how Python would print them."""

from __future__ import annotations

from typing import Any

import numpy as np

from recmap.model.field import Field
from recmap.model.ragged import Column, Ragged
from recmap.model.schema import Batch, Schema

NUMBERS = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
]
TIMES = [f"{kind}[{unit}]" for kind in ("M8", "m8") for unit in ("s", "ms", "us", "ns")]
STRINGS = ["bytes", "text"]
SHAPES: list[tuple[int | None, ...]] = [
    (),
    (),
    (3,),
    (1,),
    (2, 3),
    (2, 1, 2),
    (None,),
    (None,),
    (None, 2),
    (None, None),
    (None, None, 2),
]
LETTERS = ["", "a", "é", "ab\0c", "a longer string than a view can hold", "🙂🙂", "x" * 300]


def random_schema(rng: np.random.Generator, dtypes: list[str]) -> Schema:
    fields = {}
    for number in range(int(rng.integers(1, 7))):
        shape = SHAPES[int(rng.integers(len(SHAPES)))]
        fields[f"x{number}"] = Field(str(rng.choice(dtypes)), shape)
    return Schema(fields)


def random_batch(rng: np.random.Generator, schema: Schema, rows: int) -> Batch:
    return {name: random_column(rng, field, rows) for name, field in schema.items()}


def random_column(rng: np.random.Generator, field: Field, rows: int) -> Column:
    if field.shape and (field.ragged or field.is_bytes):
        axis, inner = field.shape[0], Field(field.dtype, field.shape[1:])
        lengths = rng.integers(0, 4, rows) if axis is None else np.full(rows, axis)
        # Rows need not begin with the first value, nor end with the last.
        before, after = (int(n) for n in rng.integers(0, 3, 2))
        before, after = (before, after) if axis is None else (0, 0)
        values = random_column(rng, inner, before + int(lengths.sum()) + after)
        return Ragged(values, np.concatenate([[before], before + np.cumsum(lengths)]))
    if field.is_bytes:
        strings = [LETTERS[int(n)] for n in rng.integers(0, len(LETTERS), rows)]
        if field.is_text:
            return Ragged.from_text(strings)
        return Ragged.from_bytes([each.encode() + b"\xff" * (len(each) % 2) for each in strings])
    return random_numbers(rng, field, rows)


def random_numbers(rng: np.random.Generator, field: Field, rows: int) -> Column:
    dtype, shape = field.dtype, (rows, *field.inner)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "mM":
        # Python's dates end with the year 9999.
        times = rng.integers(-(2**30), 2**30, shape).view(dtype)
        times[rng.random(shape) < 0.2] = "NaT"
        return times
    if dtype.kind == "f":
        numbers = rng.normal(size=shape).astype(dtype)
        numbers[rng.random(shape) < 0.1] = np.inf
        numbers[rng.random(shape) < 0.1] = -0.0
        return numbers
    limits = np.iinfo(dtype)
    found = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    # Strided, as the columns of a mapped TFRecord file are.
    return np.repeat(found, 2, axis=0)[::2] if rng.random() < 0.5 else found


def as_lists(column: Column) -> list[Any]:
    """Return the rows as plain Python objects, with None for NaT."""
    return [_plain(row) for row in column]


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | Ragged):
        return [_plain(item) for item in value]
    if isinstance(value, np.datetime64 | np.timedelta64):
        return None if np.isnat(value) else value
    return value.item() if isinstance(value, np.generic) else value


def assert_same(found: Batch, expected: Batch) -> None:
    assert list(found) == list(expected)
    for name, column in expected.items():
        _assert_same(found[name], column)


def _assert_same(found: Column, expected: Column) -> None:
    """Compare columns; NaN and NaT are equal to themselves."""
    assert found.dtype == expected.dtype
    if isinstance(expected, Ragged):
        assert isinstance(found, Ragged)
        np.testing.assert_array_equal(found.lengths, expected.lengths)
        _assert_same(found.flat, expected.flat)
    else:
        np.testing.assert_array_equal(found, expected)
