"""Lance datasets, scanned and gathered."""

from __future__ import annotations

import functools
import importlib
from typing import Any, TypeAlias

import numpy as np

from benchmarks.timing import Clock, Measure, fastest

# Imported by name, because they have no types.
lance: Any = importlib.import_module("lance")
pa: Any = importlib.import_module("pyarrow")

__all__ = ["JOBS"]

_Options: TypeAlias = tuple[tuple[str, str], ...]

# A scan gives this many batches at once; a trial finds the fastest.
_MULTIPLES = (1, 8, 64)


def make(
    source: str, path: str, version: str | None = None, storage: dict[str, str] | None = None
) -> Measure:
    """Write an .npy file as one column of lists of one size; ``version`` is that of the format."""
    values = np.load(source)
    column = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
    with Clock() as clock:
        lance.write_dataset(
            pa.table({"x": column}), path, data_storage_version=version, storage_options=storage
        )
    return Measure(clock.seconds, len(values))


def read(
    path: str, batch: int, width: int, storage: dict[str, str] | None = None, check: bool = False
) -> Measure:
    """Open a dataset and scan it in batches."""
    options = tuple((storage or {}).items())
    return _scan(path, batch, width, options, _best_multiple(path, batch, width, options), check)


@functools.cache
def _best_multiple(path: str, batch: int, width: int, storage: _Options) -> int:
    def scan(multiple: int) -> Measure:
        return _scan(path, batch, width, storage, multiple, check=False)

    return fastest(_MULTIPLES, scan)


def _scan(
    path: str, batch: int, width: int, storage: _Options, multiple: int, check: bool
) -> Measure:
    rows, total = 0, 0.0
    # In a store, all entrants open their datasets before the clock starts.
    opened = lance.dataset(path, storage_options=dict(storage)) if storage else None
    with Clock() as clock:
        dataset = opened or lance.dataset(path)
        for found in dataset.to_batches(columns=["x"], batch_size=batch * multiple):
            block = found.column(0).flatten().to_numpy().reshape(-1, width)
            for begin in range(0, len(block), batch):
                values = block[begin : begin + batch]
                rows += len(values)
                if check:
                    total += float(values.sum(dtype=np.float64))
    return Measure(clock.seconds, rows, total if check else None)


def train(
    path: str,
    batch: int,
    width: int,
    rows: int,
    storage: dict[str, str] | None = None,
    check: bool = False,
) -> Measure:
    """Take the first rows in random order, batch by batch."""
    order = np.random.default_rng(1).permutation(rows)
    dataset = _opened(path, tuple((storage or {}).items()))
    got, total = 0, 0.0
    with Clock() as clock:
        for begin in range(0, rows, batch):
            found = dataset.take(order[begin : begin + batch], columns=["x"])
            values = found["x"].combine_chunks().flatten().to_numpy().reshape(-1, width)
            got += len(values)
            if check:
                total += float(values.sum(dtype=np.float64))
    return Measure(clock.seconds, got, total if check else None)


@functools.cache
def _opened(path: str, storage: _Options) -> Any:
    return lance.dataset(path, storage_options=dict(storage))


def make_labels(source: str, path: str) -> Measure:
    """Write an .npy file of integers as a column."""
    values = np.load(source)
    with Clock() as clock:
        lance.write_dataset(pa.table({"label": values}), path, mode="overwrite")
    return Measure(clock.seconds, len(values))


def find(path: str, value: int) -> Measure:
    """Open a dataset, and find the numbers of the rows with a label."""
    with Clock() as clock:
        dataset = lance.dataset(path)
        found = dataset.scanner(filter=f"label = {value}", columns=[], with_row_id=True).to_table()
    return Measure(clock.seconds, dataset.count_rows(), found.num_rows)


JOBS = {"find": find, "make": make, "make_labels": make_labels, "read": read, "train": train}
