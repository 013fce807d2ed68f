"""recmap reads, writes and converts files."""

from __future__ import annotations

import functools
import importlib
import os
from pathlib import Path
from typing import Any

import numpy as np

import recmap as rm
from benchmarks.memory_watch import MemoryWatch
from benchmarks.tasks import gather_in_batches, sum_in_batches
from benchmarks.timing import Clock, Measure
from benchmarks.workloads import FEATURES, Data, load
from recmap.tfrecord.sidecar import remove_sidecar, stream_index_path

__all__ = ["JOBS"]


def _columns(data: Data, form: str) -> dict[str, Any]:
    if data.offsets is None:
        return {"x": data.values}
    values = data.values.view("S1") if data.values.dtype == np.uint8 else data.values
    columns: dict[str, Any] = {FEATURES[form]: rm.Ragged(values, data.offsets)}
    return columns if data.labels is None else columns | {"label": data.labels}


def _encoding(form: str) -> dict[str, str] | None:
    return {"x": "raw"} if form == "raw" else None


def make(
    source: str,
    form: str,
    path: str,
    rows: int,
    align: int | None = None,
    compression: Any = None,
    index: bool = False,
    shards: int = 1,
) -> Measure:
    """Write one file or several for others to read: ``rows`` rows, repeated if the source has
    fewer.
    """
    data = load(source)
    whole = len(data.values) if data.offsets is None else len(data.offsets) - 1
    with (
        Clock() as clock,
        rm.TFRecordWriter(
            path,
            align=align,
            compression=compression,
            index=index,
            encoding=_encoding(form),
            shards=shards,
            rows=rows if shards > 1 else None,
        ) as writer,
    ):
        for begin in range(0, rows, whole):
            writer.write(_columns(data.first(min(whole, rows - begin)), form))
    return Measure(clock.seconds, rows)


def write(source: str, form: str, path: str, rows: int) -> Measure:
    """Write values in memory to a TFRecord file and its index."""
    columns = _columns(load(source).first(rows), form)
    with (
        Clock() as clock,
        rm.TFRecordWriter(path, durable=False, encoding=_encoding(form)) as writer,
    ):
        writer.write(columns)
    _remove(path)
    return Measure(clock.seconds, rows)


def convert(source: str, path: str, rows: int) -> Measure:
    """Convert one file to another, and verify it."""
    with Clock() as clock:
        rm.convert(source, path, options={"durable": False})
    _remove(path)
    return Measure(clock.seconds, rows)


def write_gzip(source: str, form: str, path: str, rows: int) -> Measure:
    """Write values in memory to a gzip file."""
    columns = _columns(load(source).first(rows), form)
    with (
        Clock() as clock,
        rm.TFRecordWriter(
            path, durable=False, encoding=_encoding(form), compression="gzip"
        ) as writer,
    ):
        writer.write(columns)
    _remove(path)
    return Measure(clock.seconds, rows)


def _remove(path: str) -> None:
    folder, name = os.path.split(path)
    for left in Path(folder).glob(f"*{name}*"):
        left.unlink()


def read(
    path: str,
    batch: int,
    fields: dict[str, str] | None = None,
    verify: bool = True,
    check: bool = False,
) -> Measure:
    """Open a file and read all of it in batches."""
    rows, total = 0, 0.0
    with Clock() as clock:
        for columns in rm.open(path, fields, verify=verify).batches(batch):
            rows += len(next(iter(columns.values())))
            if check:
                total += sum(_sum(column) for column in columns.values())
    return Measure(clock.seconds, rows, total if check else None)


def count(path: str) -> Measure:
    """Count the rows of a compressed stream, which leaves an index beside the file."""
    with Clock() as clock:
        rows = len(rm.open(path))
    if not stream_index_path(path).exists():
        raise ValueError(f"{path}: no index was left")
    return Measure(clock.seconds, rows)


def read_first(path: str, batch: int, check: bool = False) -> Measure:
    """Read a file that has no index yet."""
    remove_sidecar(path)
    return read(path, batch, check=check)


def read_again(path: str, batch: int, check: bool = False) -> Measure:
    """Read all of a file in slices. It was opened before, and read once."""
    dataset = _opened(path, batch)
    total = 0.0
    with Clock() as clock:
        for start in range(0, len(dataset), batch):
            columns = dataset[start : start + batch]
            if check:
                total += sum(_sum(column) for column in columns.values())
    return Measure(clock.seconds, len(dataset), total if check else None)


@functools.cache
def _opened(path: str, batch: int) -> rm.Dataset:
    dataset = rm.open(path)
    for _ in dataset.batches(batch):
        pass
    return dataset


def _sum(column: Any) -> float:
    if isinstance(column, rm.Ragged):
        return float(column.lengths.sum() if column.is_bytes else np.sum(np.asarray(column.flat)))
    return float(column.sum(dtype=np.float64))


def column_sum(path: str, batch: int) -> Measure:
    """Sum a mapped column, batch by batch."""
    column: Any = rm.open(path)["x"]
    return sum_in_batches(column, batch)


def column_gather(path: str, batch: int) -> Measure:
    """Gather all rows of a mapped column in random order, batch by batch."""
    column: Any = rm.open(path)["x"]
    return gather_in_batches(column, batch)


def verify(path: str) -> Measure:
    """Check both CRCs of every record of a file."""
    with Clock() as clock:
        found = rm.verify(path)
    assert found.ok, found
    return Measure(clock.seconds, found.records)


def scan(path: str) -> Measure:
    """Open a file without an index, and count its records."""
    with Clock() as clock:
        rows = len(rm.open(path))
    return Measure(clock.seconds, rows)


def peak_memory(path: str, batch: int) -> Measure:
    """Read all of a file in batches, and measure how much anonymous memory grew."""
    importlib.import_module("recmap.dataset.open")  # so that its import does not count
    with MemoryWatch() as watch:
        run = read(path, batch)
    return Measure(run.seconds, run.rows, peak=watch.peak, memory=watch.some)


def shuffle_steps(path: str, batch: int) -> Measure:
    """Read all steps of all episodes of a TFDS folder in random order, and measure the memory."""
    importlib.import_module("recmap.dataset.open")  # so that its import does not count
    with Clock() as clock, MemoryWatch() as watch:
        steps = rm.open(path, split="train", unit="steps").shuffle(seed=1).batch(batch)
        rows = sum(len(each["reward"]) for each in steps)
    return Measure(clock.seconds, rows, peak=watch.peak, memory=watch.some)


JOBS = {
    "column_gather": column_gather,
    "column_sum": column_sum,
    "convert": convert,
    "count": count,
    "make": make,
    "peak_memory": peak_memory,
    "read": read,
    "read_again": read_again,
    "read_first": read_first,
    "scan": scan,
    "shuffle_steps": shuffle_steps,
    "verify": verify,
    "write": write,
    "write_gzip": write_gzip,
}
