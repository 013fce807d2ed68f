"""Random lists, divided into rows, compared with plain Python on lists."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import recmap as rm
from hostile.case import Case
from hostile.reading import check_some_ways
from hostile.table import Table

__all__ = ["case"]

_ENDINGS = [".tfrecord", ".tfrecord.gz", ".npz", ".h5", ".zarr", ".parquet"]


def case(case: Case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rm.SlowOrderWarning)
        _case(case)


def _case(case: Case) -> None:
    rows = case.pick([1, 2, 5, 30])
    lengths = case.rng.integers(0, case.pick([1, 2, 6]) + 1, rows).tolist()
    fixed = case.between(1, 3)
    path = case.path("x" + case.pick(_ENDINGS))
    columns, values = _columns(case, rows, lengths, fixed)
    rm.from_arrays(columns).save(path)
    chosen = case.pick([["numbers"], ["numbers", "texts"], ["pairs", "numbers"], ["fixed"]])
    if case.chance(0.1):
        chosen = ["numbers", "other"]
    case.note(f"explode({chosen}) of {lengths} in {path}")
    ds = rm.open(path).explode(*chosen)
    try:
        len(ds)
    except rm.DataError as e:
        if "other" not in chosen or lengths == [len(row) for row in values["other"]]:
            raise
        case.note(f"refused: {e}")
        case.outcome = "refused"
        return
    table = _exploded(values, chosen)
    if len(ds) == 0:
        if any(table.values()):
            raise AssertionError(f"no rows, but {table}")
        return
    check_some_ways(case, ds, table)


def _columns(case: Case, rows: int, lengths: list[int], fixed: int) -> tuple[dict[str, Any], Table]:
    """Return columns as recmap takes them, and their rows as recmap gives them."""
    numbers = [case.rng.integers(-9, 9, n) for n in lengths]
    pairs = [case.rng.random((n, 2)).astype(np.float32) for n in lengths]
    texts = [[b"x" * case.between(0, 3) for _ in range(n)] for n in lengths]
    other = [case.rng.integers(0, 9, n) for n in case.pick([lengths, lengths[::-1]])]
    image = [bytes(case.between(0, 5)) for _ in range(rows)]
    same = case.rng.integers(0, 9, (rows, fixed))
    offsets = np.cumsum([0, *lengths])
    columns = {
        "row": np.arange(rows),
        "numbers": rm.Ragged.from_rows(numbers, np.int64),
        "pairs": rm.Ragged(np.concatenate(pairs), offsets),
        "texts": rm.Ragged(rm.Ragged.from_bytes([t for row in texts for t in row]), offsets),
        "other": rm.Ragged.from_rows(other, np.int64),
        "image": rm.Ragged.from_bytes(image),
        "fixed": same,
    }
    values: Table = {
        "row": list(np.arange(rows)),
        "numbers": numbers,
        "pairs": pairs,
        "texts": texts,
        "other": other,
        "image": image,
        "fixed": list(same),
    }
    return columns, values


def _exploded(values: Table, chosen: list[str]) -> Table:
    made: Table = {name: [] for name in values}
    for row in range(len(values["row"])):
        for item in range(len(values[chosen[0]][row])):
            for name, column in values.items():
                made[name].append(column[row][item] if name in chosen else column[row])
    return made
