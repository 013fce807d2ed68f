"""Ragged columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import recmap as rm

ROWS = [[1, 2, 3], [], [4], [5, 6]]


@pytest.fixture
def ragged() -> rm.Ragged:
    return rm.Ragged.from_rows(ROWS)


def test_rows_have_their_own_lengths(ragged: rm.Ragged) -> None:
    assert len(ragged) == 4
    assert [row.tolist() for row in ragged] == ROWS
    assert ragged[-1].tolist() == [5, 6]
    assert ragged.lengths.tolist() == [3, 0, 1, 2]
    with pytest.raises(rm.RowNotFoundError):
        ragged[4]


@pytest.mark.parametrize("key", [slice(1, 3), slice(None), slice(3, 1), slice(None, None, -1)])
def test_slices_match_those_of_a_list(ragged: rm.Ragged, key: slice) -> None:
    assert ragged[key].tolist() == ROWS[key]


def test_gathers_keep_order_and_repeats(ragged: rm.Ragged) -> None:
    assert ragged[[3, 0, 0, 1]].tolist() == [ROWS[3], ROWS[0], ROWS[0], ROWS[1]]
    assert ragged[np.array([True, False, True, False])].tolist() == [ROWS[0], ROWS[2]]
    assert ragged[1:][[2, 0]].tolist() == [ROWS[3], ROWS[1]]
    long = rm.Ragged.from_rows([np.arange(1000), np.arange(5)])
    assert long[[1, 0]].lengths.tolist() == [5, 1000]


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (None, [[1, 2, 3], [9, 9, 9], [4, 9, 9], [5, 6, 9]]),
        (2, [[1, 2], [9, 9], [4, 9], [5, 6]]),
        (4, [[1, 2, 3, 9], [9, 9, 9, 9], [4, 9, 9, 9], [5, 6, 9, 9]]),
        (0, [[], [], [], []]),
    ],
)
def test_padding_fills_and_truncates_rows(
    ragged: rm.Ragged, length: int | None, expected: list[list[int]]
) -> None:
    assert ragged.pad(length, fill=9).tolist() == expected
    if length != 4:
        assert ragged[1:].pad(length, fill=9).tolist()[0] == [9] * len(
            ragged[1:].pad(length, fill=9)[0]
        )


def test_rows_by_number_are_those_of_a_list() -> None:
    rng = np.random.default_rng(0)
    for inner in [(), (3,), (0,)]:
        lengths = rng.integers(0, 5, 50)
        values = rng.integers(0, 100, (int(lengths.sum()) + 3, *inner))
        offsets = 2 + np.concatenate([[0], np.cumsum(lengths)])
        mask = rng.random(50) < 0.2
        for column in (
            rm.Ragged(values, offsets),
            rm.Ragged(values, offsets, mask),
            rm.Ragged(rm.Ragged(values, np.arange(len(values) + 1)), offsets),
        ):
            rows = column.tolist()
            for numbers in (
                rng.integers(0, 50, 80),
                rng.integers(-50, 50, 80),
                rng.integers(0, 50, 80)[::3],
                rng.integers(0, 50, 80).astype(np.uint16),
                np.empty(0, np.int64),
            ):
                assert column[numbers].tolist() == [rows[i] for i in numbers.tolist()]


@pytest.mark.parametrize("row", [4, -5, 2**62])
def test_rows_that_do_not_exist_are_errors(ragged: rm.Ragged, row: int) -> None:
    with pytest.raises(rm.RowNotFoundError, match="4 rows"):
        ragged[np.array([0, row])]


@pytest.mark.parametrize("offsets", [[0, 9, 4], [0, 2, 9], [-1, 2, 3], [-(2**63), 2**63 - 1, 0]])
def test_rows_outside_of_the_values_are_not_read(offsets: list[int]) -> None:
    with pytest.raises((ValueError, OverflowError, MemoryError)):
        rm.Ragged(np.arange(4), np.array(offsets))[np.array([0, 1])]


def test_padding_keeps_inner_axes() -> None:
    ragged = rm.Ragged.from_rows([np.ones((2, 2)), np.ones((0, 2))])
    assert ragged.pad().shape == (2, 2, 2)
    assert ragged.pad()[1].sum() == 0


def test_byte_strings_are_rows() -> None:
    ragged = rm.Ragged.from_bytes([b"a\0", b"", b"bc"])
    assert ragged.tolist() == [b"a\0", b"", b"bc"]
    assert ragged[1:][1] == b"bc"
    assert ragged[[2, 0]].tolist() == [b"bc", b"a\0"]
    with pytest.raises(rm.OptionError):
        ragged.pad()


def test_equality_compares_values_and_dtypes(ragged: rm.Ragged) -> None:
    assert ragged == rm.Ragged.from_rows(ROWS)
    assert ragged[1:] == rm.Ragged.from_rows(ROWS[1:])
    assert ragged != rm.Ragged.from_rows([[1], *ROWS[1:]])
    assert ragged != rm.Ragged.from_rows(ROWS, np.int32)
    assert (ragged == "x") is False
    assert rm.Ragged.from_rows([[np.nan]]) == rm.Ragged.from_rows([[np.nan]])


def test_rows_may_be_ragged_themselves() -> None:
    nested = rm.Ragged(rm.Ragged.from_rows(ROWS), [0, 2, 4])
    assert nested[0].tolist() == ROWS[:2]
    assert nested[[1, 0]].tolist() == [ROWS[2:], ROWS[:2]]
    assert nested.tolist() == [ROWS[:2], ROWS[2:]]


def test_repr_shows_rows_dtype_and_longest(ragged: rm.Ragged) -> None:
    assert repr(ragged) == "Ragged(4 rows of int64, longest 3: [1, 2, 3], [], [4], ...)"
    assert repr(rm.Ragged.from_bytes([b"ab"])) == "Ragged(1 row of bytes, longest 2: b'ab')"
    nested = rm.Ragged(rm.Ragged.from_bytes([b"x" * 99, b"y"]), [0, 2])
    assert repr(nested) == "Ragged(1 row of bytes, longest 2: [b'xxxxxxxxxxxxxxxx'..., b'y'])"
    assert "array of 2 x 3" in repr(rm.Ragged(np.zeros((2, 3)), [0, 2]))


@pytest.mark.parametrize(
    ("first", "second", "dtype"),
    [("int8", 1000, "int64"), ("float32", 1e300, "float64"), ("uint8", 0.5, "float64")],
)
def test_arrays_of_different_sizes_keep_their_values(first: str, second: Any, dtype: str) -> None:
    rows = [np.zeros((2, 3), first), np.full((3, 2), second)]
    dataset = rm.from_arrays({"x": rows})
    assert str(dataset.schema["x"]) == f"{dtype}[*,*]"
    assert dataset[1]["x"].pad().tolist() == rows[1].tolist()


def test_arrays_that_cannot_be_joined_are_refused_by_name() -> None:
    for rows in (
        [np.zeros((2, 3)), np.zeros((2, 3, 4))],
        [np.zeros((2, 2)), np.zeros((3, 3), "S3")],
    ):
        with pytest.raises(rm.ColumnError, match="column 'x'"):
            rm.from_arrays({"x": rows})
