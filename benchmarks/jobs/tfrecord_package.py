"""The tfrecord package, which reads and writes Examples without TensorFlow."""

from __future__ import annotations

import importlib
import itertools
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.timing import Clock, Measure
from benchmarks.workloads import FEATURES, Data, load

# Imported by name, these are Any for every type checker.
_reader: Any = importlib.import_module("tfrecord.reader")
_writer: Any = importlib.import_module("tfrecord.writer")

__all__ = ["JOBS"]

_TYPES = {"float": "float", "raw": "byte", "tokens": "int", "image": "byte"}


def loop_write(source: str, form: str, path: str, rows: int) -> Measure:
    """Write one dict per row, in a Python loop."""
    data = load(source).first(rows)
    with Clock() as clock:
        writer = _writer.TFRecordWriter(path)
        for row in _rows(data, form):
            writer.write(row)
        writer.close()
    os.unlink(path)
    return Measure(clock.seconds, rows)


def _rows(data: Data, form: str) -> Iterator[dict[str, Any]]:
    name, kind = FEATURES[form], _TYPES[form]
    labels = itertools.repeat(None) if data.labels is None else iter(data.labels.tolist())
    for row, label in zip(data, labels, strict=False):
        features: dict[str, Any] = {name: (row.tobytes() if kind == "byte" else row, kind)}
        if label is not None:
            features["label"] = (label, "int")
        yield features


def loop_read(path: str, form: str, rows: int, batch: int, check: bool = False) -> Measure:
    """Read one dict per record, stacked into batches if rows have one size; CRCs unchecked."""
    name = FEATURES[form]
    kinds = {name: _TYPES[form]} | ({"label": "int"} if form == "image" else {})
    total = 0.0
    with Clock() as clock:
        records = itertools.islice(_reader.tfrecord_loader(path, None, kinds), rows)
        seen = 0
        while some := list(itertools.islice(records, batch)):
            seen += len(some)
            column = [record[name] for record in some]
            if form == "raw":
                column = [np.frombuffer(row, np.float32) for row in column]
            made = np.stack(column) if form in ("float", "raw") else column
            labels = [record["label"] for record in some] if form == "image" else []
            if check:
                total += _sum(made) + float(sum(int(label[0]) for label in labels))
    return Measure(clock.seconds, seen, total if check else None)


def _sum(column: Any) -> float:
    if isinstance(column, np.ndarray):
        return float(column.sum(dtype=np.float64))
    return float(sum(len(row) if isinstance(row, bytes) else row.sum() for row in column))


JOBS = {"loop_read": loop_read, "loop_write": loop_write}
