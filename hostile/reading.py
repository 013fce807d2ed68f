"""Every way of reading a dataset, compared with the expected rows."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np

import recmap as rm
from hostile.case import Case
from hostile.table import Table, assert_same, plain

__all__ = ["check_reading", "check_some_ways", "dense", "length"]

Way = Callable[[Case, rm.Dataset, Table], None]


def length(table: Table) -> int:
    return len(next(iter(table.values())))


def dense(ds: rm.Dataset) -> bool:
    """Tell whether all rows have the same size."""
    return all(field.row_bytes is not None for field in ds.schema.values())


def check_reading(case: Case, ds: rm.Dataset, table: Table) -> None:
    """Read in every way, one after the other."""
    for way in WAYS:
        _try(case, way, ds, table)


def check_some_ways(case: Case, ds: rm.Dataset, table: Table, count: int = 4) -> None:
    """Read in a few ways, in random order, because the first read may affect the others."""
    for number in case.rng.permutation(len(WAYS))[:count]:
        _try(case, WAYS[number], ds, table)


def _try(case: Case, way: Way, ds: rm.Dataset, table: Table) -> None:
    case.note(f"read: {way.__name__}")
    table = table | _needless_masks(ds, table)
    if set(ds.schema) != set(table):
        raise AssertionError(f"columns {list(ds.schema)}, not {list(table)}")
    way(case, ds, table)


def _needless_masks(ds: rm.Dataset, table: Table) -> Table:
    """Return masks that tell of no null: a sliced struct may have nulls outside of the slice."""
    masks = [name for name in ds.schema if name.endswith("/is_null") and name not in table]
    return {
        name: [np.False_] * length(table)
        for name in masks
        if name.removesuffix("/is_null") in table
    }


def _compare(batch: Any, table: Table, numbers: Any, where: str) -> None:
    for name, column in table.items():
        assert_same(batch[name], [column[i] for i in numbers], f"{where}, column {name!r}")


def whole(case: Case, ds: rm.Dataset, table: Table) -> None:
    if len(ds) != length(table):
        raise AssertionError(f"{len(ds)} rows, not {length(table)}")
    _compare(ds[:], table, range(length(table)), "ds[:]")


def rows_by_number(case: Case, ds: rm.Dataset, table: Table) -> None:
    rows = length(table)
    for _ in range(min(rows, 5)):
        i = case.between(-rows, rows - 1)
        row = ds[i]
        for name, column in table.items():
            if plain(row[name]) != plain(column[i]):
                raise AssertionError(f"ds[{i}][{name!r}] is {row[name]!r}, not {column[i]!r}")


def slices(case: Case, ds: rm.Dataset, table: Table) -> None:
    rows = length(table)
    for _ in range(4):
        start, stop = (case.pick([None, case.between(-rows - 2, rows + 2)]) for _ in range(2))
        step = case.pick([None, 1, 2, 3, -1, -2])
        chosen = slice(start, stop, step)
        _compare(ds[chosen], table, range(*chosen.indices(rows)), f"ds[{chosen}]")


def gathers(case: Case, ds: rm.Dataset, table: Table) -> None:
    rows = length(table)
    if rows:
        numbers = case.rng.integers(-rows, rows, case.between(0, 2 * rows))
        _compare(ds[numbers], table, numbers.tolist(), "ds[numbers]")
    mask = case.rng.random(rows) < 0.5
    _compare(ds[mask], table, np.flatnonzero(mask).tolist(), "ds[mask]")


def batches(case: Case, ds: rm.Dataset, table: Table) -> None:
    size, rows = case.between(1, length(table) + 2), length(table)
    read = list(ds.batches(size))
    sizes = [len(next(iter(batch.values()))) for batch in read]
    if sizes != [min(size, rows - i) for i in range(0, rows, size)]:
        raise AssertionError(f"batches({size}) of {rows} rows are of {sizes}")
    for name, column in table.items():
        assert_same(chain.from_iterable(b[name] for b in read), column, f"batches, {name!r}")


def iteration(case: Case, ds: rm.Dataset, table: Table) -> None:
    read = list(ds)
    for name, column in table.items():
        assert_same([row[name] for row in read], column, f"iteration, column {name!r}")


def one_column(case: Case, ds: rm.Dataset, table: Table) -> None:
    name = case.pick(list(table))
    rows, column = length(table), ds[name]
    if len(column) != rows:
        raise AssertionError(f"column {name!r} has {len(column)} rows, not {rows}")
    assert_same(column, table[name], f"ds[{name!r}]")
    start, stop = sorted((case.between(0, rows), case.between(0, rows)))
    assert_same(column[start:stop], table[name][start:stop], f"ds[{name!r}][{start}:{stop}]")
    field = ds.schema[name]
    if field.row_bytes is not None and not field.has_nulls:
        assert_same(np.asarray(column), table[name], f"np.asarray(ds[{name!r}])")


def pickled(case: Case, ds: rm.Dataset, table: Table) -> None:
    _compare(pickle.loads(pickle.dumps(ds))[:], table, range(length(table)), "pickled")


def pipeline_in_order(case: Case, ds: rm.Dataset, table: Table) -> None:
    size = case.between(1, length(table) + 1)
    names = [name for name in table if case.chance(0.7)] or list(table)[:1]
    read = list(ds.select(*names).batch(size))
    for name in names:
        found = chain.from_iterable(batch[name] for batch in read)
        assert_same(found, table[name], f"pipeline of batches of {size}, column {name!r}")


def pipeline_shuffled(case: Case, ds: rm.Dataset, table: Table) -> None:
    rows, seed = length(table), case.between(0, 99)
    window = case.pick([None, None, case.between(2, rows + 2)])
    numbered = rm.zip(ds, rm.from_arrays({"hostile number": np.arange(rows)}))
    shuffled = numbered.shuffle(seed=seed, window=window).batch(case.between(1, rows + 1))
    read = list(shuffled)
    order = [int(i) for batch in read for i in batch["hostile number"]]
    if sorted(order) != list(range(rows)):
        raise AssertionError(f"shuffle(seed={seed}, window={window}): rows {order}")
    for name, column in table.items():
        found = chain.from_iterable(batch[name] for batch in read)
        assert_same(found, [column[i] for i in order], f"shuffled, column {name!r}")


WAYS: list[Way] = [
    whole,
    rows_by_number,
    slices,
    gathers,
    batches,
    iteration,
    one_column,
    pickled,
    pipeline_in_order,
    pipeline_shuffled,
]
