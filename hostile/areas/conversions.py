"""Any format into any other and back, with random columns and options."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import recmap as rm
from hostile import arrays
from hostile.case import Case
from hostile.reading import check_some_ways, dense
from hostile.table import Table, table_of

__all__ = ["case"]

LOOSE = (".tfrecord", ".tfrecord.gz", ".npz", ".h5", ".zarr")
FIXED = (".npy", ".bin")


def case(case: Case) -> None:
    rows = case.between(1, 50)
    columns, table = _columns(case, rows)
    ds = rm.from_arrays(columns)
    for step in range(case.between(1, 3)):
        suffix = case.pick(LOOSE + (FIXED if dense(ds) else ()))
        path = case.path(f"{step}{suffix}")
        options: dict[str, Any] = {"verify": case.pick([True, False, "full"])}
        if case.chance(0.3):
            options["shards"] = case.between(1, 4)
        if case.chance(0.3):
            options["memory"] = case.pick(["30MB", "100MB"])
        sharded = options.get("shards", 1) > 1
        if sharded:
            path = case.path(f"{step}/") + f"part{suffix}"
        case.note(f"{list(ds.schema.items())} to {path} {options}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            report = ds.save(path, **options)
            ds = rm.open(report.files)
        if suffix in FIXED and len(table) == 1:
            # A single column may have got the format's name for it.
            (column,) = table.values()
            table = {next(iter(ds.schema)): column}
        check_some_ways(case, ds, table, 2)


def _columns(case: Case, rows: int) -> tuple[dict[str, Any], Table]:
    columns: dict[str, Any] = {}
    table: Table = {}
    for i in range(case.between(1, 4)):
        name = f"c{i}"
        kind = case.pick(["dense", "dense", "dense", "ragged", "bytes", "nested"])
        if kind == "dense":
            array = arrays.array(case, rows, strings=False)
            if 0 in array.shape:
                array = array.reshape(rows, -1)[:, :0].reshape(rows, 0)
                array = np.zeros(rows, array.dtype)
            columns[name] = arrays.lay_out(case, array)
            table.update(table_of({name: array}))
            continue
        if kind == "bytes":
            made: list[Any] = [case.rng.bytes(case.pick([0, 1, 5, 90])) for _ in range(rows)]
            columns[name] = rm.Ragged.from_bytes(made)
        elif kind == "ragged":
            dtype = np.dtype(case.pick(arrays.NUMBERS))
            inner = case.pick([(), (2,)])
            made = [arrays.values(case, (case.between(0, 4), *inner), dtype) for _ in range(rows)]
            offsets = np.cumsum([0, *map(len, made)])
            columns[name] = rm.Ragged(np.concatenate(made), offsets)
        else:
            steps = [[case.between(0, 3) for _ in range(case.between(0, 3))] for _ in range(rows)]
            made = [[case.rng.integers(0, 9, n) for n in row] for row in steps]
            flat = [values for row in made for values in row]
            inside = rm.Ragged(
                np.concatenate([*flat, np.empty(0, np.int64)]), np.cumsum([0, *map(len, flat)])
            )
            columns[name] = rm.Ragged(inside, np.cumsum([0, *map(len, made)]))
        table[name] = made
    return columns, table
