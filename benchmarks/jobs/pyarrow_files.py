"""Parquet files, written and scanned by pyarrow."""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any

import numpy as np

import recmap as rm
from benchmarks.timing import Clock, Measure

# Imported by name, because they have no types.
pa: Any = importlib.import_module("pyarrow")
dataset: Any = importlib.import_module("pyarrow.dataset")
parquet: Any = importlib.import_module("pyarrow.parquet")

__all__ = ["JOBS"]


def make(source: str, path: str) -> Measure:
    """Convert a file to Parquet with recmap, for all to scan."""
    with Clock() as clock:
        report = rm.convert(source, path, overwrite=True)
    return Measure(clock.seconds, report.rows)


def write(source: str, path: str, group_rows: int) -> Measure:
    """Write columns in memory, with the compression and row groups of recmap's files."""
    table = _table(source)
    with Clock() as clock:
        parquet.write_table(
            table, path,
            compression="zstd", use_dictionary=False, row_group_size=group_rows,
            write_page_checksum=True,
        )  # fmt: skip
    os.unlink(path)
    return Measure(clock.seconds, table.num_rows)


@functools.lru_cache(maxsize=1)
def _table(source: str) -> Any:
    return pa.table(rm.open(source))


def scan(path: str, batch: int, check: bool = False) -> Measure:
    """Scan all of a file, with checksums as recmap does."""
    options = dataset.ParquetFragmentScanOptions(page_checksum_verification=True)
    form = dataset.ParquetFileFormat(default_fragment_scan_options=options)
    rows, total = 0, 0.0
    with Clock() as clock:
        for columns in dataset.dataset(path, format=form).to_batches(batch_size=batch):
            rows += columns.num_rows
            for column in columns.columns:
                values = column.flatten().to_numpy()
                if check:
                    total += float(values.sum(dtype=np.float64))
    return Measure(clock.seconds, rows, total if check else None)


def stream(path: str) -> Measure:
    """Read a TFRecord file as a stream of Arrow batches."""
    rows = 0
    with Clock() as clock:
        for columns in pa.RecordBatchReader.from_stream(rm.open(path)):
            rows += columns.num_rows
    return Measure(clock.seconds, rows)


JOBS = {"make": make, "scan": scan, "stream": stream, "write": write}
