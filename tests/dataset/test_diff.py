"""rm.diff and recmap diff: where two datasets differ."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.cli import main

COLUMNS: dict[str, Any] = {
    "x": np.array([[0.5, np.nan], [1, 2], [3, 4]], np.float32),
    "n": np.array([1, 2, 2**60 + 1]),
    "s": rm.Ragged.from_bytes([b"a", b"", b"long"]),
    "t": rm.Ragged.from_rows([[1, 2], [], [3]]),
}


def test_the_same_rows_in_other_formats_do_not_differ(capsys: pytest.CaptureFixture[str]) -> None:
    ds = rm.from_arrays(COLUMNS)
    ds.save("x.tfrecord")
    ds.save("x.h5")
    assert rm.diff(rm.open("x.tfrecord"), rm.open("x.h5")).same
    assert main(["diff", "x.tfrecord", "x.h5"]) == 0
    assert capsys.readouterr().out == "no difference in 3 rows\n"


def test_each_column_tells_its_first_difference(capsys: pytest.CaptureFixture[str]) -> None:
    rm.from_arrays(COLUMNS).save("a.tfrecord")
    other = dict(COLUMNS)
    other["x"] = np.array([[0.5, np.nan], [1, 7], [3, 8]], np.float32)
    other["s"] = rm.Ragged.from_bytes([b"a", b"", b"gone"])
    other["t"] = rm.Ragged.from_rows([[1, 2], [0], [3]])
    rm.from_arrays(other).save("b.npz")
    found = rm.diff(rm.open("a.tfrecord"), rm.open("b.npz"))
    told = [(column.name, column.row, column.rows) for column in found.columns]
    assert told == [("x", 1, 2), ("s", 2, 1), ("t", 1, 1)]
    assert (found.rows, found.compared) == (2, 3)
    assert main(["diff", "a.tfrecord", "b.npz"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "x: row 1 is [2] 1 2 and [2] 1 7; 2 rows differ",
        "s: row 2 is 'long' and 'gone'; 1 row differs",
        "t: row 1 is [0] and [1] 0; 1 row differs",
        "2 of 3 compared rows differ",
    ]
    assert main(["diff", "a.tfrecord", "b.npz", "--json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["columns"][1] == {"name": "s", "row": 2, "a": "long", "b": "gone", "rows": 1}


def test_types_columns_and_row_counts_are_compared() -> None:
    a = rm.from_arrays({"n": COLUMNS["n"], "fixed": np.ones((3, 2)), "mine": np.arange(3)})
    ragged = rm.Ragged.from_rows([[1.0, 1.0]] * 4)
    b = rm.from_arrays({"n": np.array([1.0, 2.0, 2.0**60, 0.0]), "fixed": ragged})
    found = rm.diff(a, b)
    assert (found.rows_a, found.rows_b, found.only_a, found.only_b) == (3, 4, ["mine"], [])
    assert {name: tuple(map(str, both)) for name, both in found.types.items()} == {
        "n": ("int64", "float64"),
        "fixed": ("float64[2]", "float64[*]"),
    }
    # Integers are not rounded to floats.
    assert [(c.name, c.row) for c in found.columns] == [("n", 2)]
    same = rm.diff(a.cast({"n": "int64"}), rm.from_arrays({"n": COLUMNS["n"].astype(np.uint64)}))
    assert not same.columns
    assert not same.same


def test_blocks_of_different_sizes_are_aligned() -> None:
    wide = np.arange(600_000).reshape(100_000, 6)
    rm.from_arrays({"x": wide}).save("a.npy")
    changed = wide.copy()
    changed[99_999, 5] = -1
    rm.from_arrays({"x": changed}).save("b.tfrecord")
    found = rm.diff(rm.open("a.npy"), rm.open("b.tfrecord"))
    assert found.first is not None
    assert (found.first.row, found.rows, found.compared) == (99_999, 1, 100_000)


def test_integers_equal_floats_only_if_nothing_is_rounded() -> None:
    floats = np.array([2.0**64, 2.0**63, 3.0, 3.5, np.nan, np.inf, -1.0])
    whole = np.array([2**64 - 1, 2**63, 3, 3, 0, 0, 2**64 - 1], np.uint64)
    found = rm.diff(rm.from_arrays({"x": floats}), rm.from_arrays({"x": whole}))
    assert (found.rows, found.columns[0].row) == (5, 0)


def test_errors_exit_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    rm.from_arrays({"x": np.arange(3)}).save("a.npy")
    assert main(["diff", "a.npy", "nope.npy"]) == 2
    assert main(["diff", "a.npy"]) == 2
    assert "give two datasets" in capsys.readouterr().err


def test_anything_that_can_be_opened_is_compared() -> None:
    rm.from_arrays(COLUMNS).save("x.npz")
    assert rm.diff("x.npz", "x.npz").same
    assert rm.diff("x.npz", COLUMNS).same
    with pytest.raises(rm.PathNotFoundError, match="missing"):
        rm.diff("x.npz", "missing.npz")
    for wrong in (3, None, rm.open("x.npz").batch(2)):
        with pytest.raises(rm.OptionTypeError):
            rm.diff(rm.open("x.npz"), wrong)
