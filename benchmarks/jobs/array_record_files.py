"""ArrayRecord files, read by its own reader, without Grain."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np

from benchmarks.timing import Clock, Measure, fastest

# Imported by name, because it has no types.
array_record: Any = importlib.import_module("array_record.python.array_record_module")

__all__ = ["JOBS"]

_READ_AHEAD = ("readahead_buffer_size:0", "readahead_buffer_size:16777216")


def make(source: str, path: str, rows: int, group: int) -> Measure:
    """Write the first rows of an .npy file as records of raw bytes, ``group`` to a chunk."""
    values = np.load(source, mmap_mode="r")[:rows]
    with Clock() as clock:
        writer = array_record.ArrayRecordWriter(path, f"group_size:{group},uncompressed")
        for row in values:
            writer.write(row.tobytes())
        writer.close()
    return Measure(clock.seconds, len(values))


def read(path: str, batch: int, width: int, check: bool = False) -> Measure:
    """Open a file and read all of it in batches, with the faster of two ways to read ahead."""
    return _read(path, batch, width, _best_read_ahead(path, batch, width), check)


@functools.cache
def _best_read_ahead(path: str, batch: int, width: int) -> str:
    return fastest(_READ_AHEAD, lambda option: _read(path, batch, width, option, check=False))


def _read(path: str, batch: int, width: int, option: str, check: bool) -> Measure:
    total = 0.0
    with Clock() as clock:
        reader = array_record.ArrayRecordReader(path, option)
        rows = reader.num_records()
        for begin in range(0, rows, batch):
            values = _array(reader.read(begin, min(begin + batch, rows)), width)
            if check:
                total += float(values.sum(dtype=np.float64))
    reader.close()
    return Measure(clock.seconds, rows, total if check else None)


def train(path: str, batch: int, width: int, check: bool = False) -> Measure:
    """Read all records in random order, batch by batch."""
    reader = _opened(path)
    order = np.random.default_rng(1).permutation(reader.num_records())
    got, total = 0, 0.0
    with Clock() as clock:
        for begin in range(0, len(order), batch):
            values = _array(reader.read(order[begin : begin + batch].tolist()), width)
            got += len(values)
            if check:
                total += float(values.sum(dtype=np.float64))
    return Measure(clock.seconds, got, total if check else None)


@functools.cache
def _opened(path: str) -> Any:
    return array_record.ArrayRecordReader(path, "readahead_buffer_size:0")


def _array(records: list[bytes], width: int) -> Any:
    return np.frombuffer(b"".join(records), np.float32).reshape(-1, width)


JOBS = {"make": make, "read": read, "train": train}
