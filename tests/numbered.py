"""Rows that hold their own number, for tests of adapters."""

from __future__ import annotations

from typing import Any

import numpy as np

import recmap as rm

__all__ = ["double", "flat", "ids", "numbered"]


def numbered(rows: int) -> rm.Dataset:
    """Write a file of ``rows`` rows, with a target ``y`` that a model can learn from ``x``."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((rows, 3), np.float32)
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write(
            {
                "id": np.arange(rows),
                "x": x,
                "y": x @ np.array([1, -2, 3], np.float32),
                "t": rm.Ragged.from_rows([np.arange(i % 5) + i for i in range(rows)]),
                "u": rm.Ragged.from_rows([np.arange(i % 5) * 2 for i in range(rows)]),
                "name": [b"row %d" % i for i in range(rows)],
            }
        )
    return rm.open("x.tfrecord")


def ids(batches: Any) -> list[list[int]]:
    """Return the numbers of the rows, batch by batch."""
    return [np.asarray(batch["id"]).tolist() for batch in batches]


def flat(lists: list[list[int]]) -> list[int]:
    return [number for numbers in lists for number in numbers]


def double(row: dict[str, Any]) -> dict[str, Any]:
    """Double a column, in ``map``."""
    return {"id": row["id"], "x": row["x"] * 2}
