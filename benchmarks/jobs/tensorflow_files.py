"""TensorFlow reads and writes TFRecord files: as answers on the web do it, and tuned."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.timing import Clock, Measure, fastest
from benchmarks.workloads import FEATURES, Data, load

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

# TensorFlow has no types. Imported by name, it is Any for every type checker.
tf: Any = importlib.import_module("tensorflow")

__all__ = ["JOBS"]

_BUFFER = 8 << 20
# Datasets are tuned on this many batches.
_TRIAL = 32


def loop_write(
    source: str, form: str, path: str, rows: int, compression: str | None = None
) -> Measure:
    """Write one Example per row, in a Python loop."""
    data = load(source).first(rows)
    with Clock() as clock, tf.io.TFRecordWriter(path, compression) as writer:
        for features in _features(data, form):
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    os.unlink(path)
    return Measure(clock.seconds, rows)


def _features(data: Data, form: str) -> Iterator[dict[str, Any]]:
    make, name = _FEATURE[form], FEATURES[form]
    if data.labels is None:
        for row in data:
            yield {name: make(row)}
        return
    for row, label in zip(data, data.labels, strict=True):
        yield {name: make(row), "label": _int64([label])}


def _float(row: Any) -> Any:
    return tf.train.Feature(float_list=tf.train.FloatList(value=row))


def _int64(row: Any) -> Any:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=row))


def _bytes(row: Any) -> Any:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[row.tobytes()]))


_FEATURE = {"float": _float, "raw": _bytes, "tokens": _int64, "image": _bytes}


def loop_read(
    path: str, form: str, width: int, rows: int, batch: int, check: bool = False
) -> Measure:
    """Parse each record by itself, then batch."""
    dataset = tf.data.TFRecordDataset(path).take(rows)
    if form == "tokens":
        dataset = dataset.map(_parse_sequence).padded_batch(batch)
    else:
        dataset = dataset.map(functools.partial(_parse_single, form=form, width=width))
        dataset = dataset.batch(batch)
    return _consume(dataset, check)


def _parse_single(record: Any, form: str, width: int) -> Any:
    parsed = tf.io.parse_single_example(record, _spec(form, width))
    return _decoded(parsed, form, width)


def _parse_sequence(record: Any) -> Any:
    parsed = tf.io.parse_single_example(record, {"tokens": tf.io.VarLenFeature(tf.int64)})
    return {"tokens": tf.sparse.to_dense(parsed["tokens"])}


def _spec(form: str, width: int) -> dict[str, Any]:
    text = tf.io.FixedLenFeature([], tf.string)
    return {
        "float": {"x": tf.io.FixedLenFeature([width], tf.float32)},
        "raw": {"x": text},
        "image": {"image": text, "label": tf.io.FixedLenFeature([], tf.int64)},
    }[form]


def _decoded(parsed: Any, form: str, width: int) -> Any:
    if form != "raw":
        return parsed
    numbers = tf.io.decode_raw(parsed["x"], tf.float32)
    return {"x": tf.reshape(numbers, [-1, width] if parsed["x"].shape.rank else [width])}


def tuned_read(
    path: str,
    form: str,
    width: int,
    rows: int,
    batch: int,
    compression: str = "",
    check: bool = False,
) -> Measure:
    """Parse whole batches in parallel, with the settings that are fastest on this machine."""
    return _consume(_tuned(path, form, width, batch, compression)(rows), check)


@functools.cache
def _tuned(path: str, form: str, width: int, batch: int, compression: str) -> Callable[[int], Any]:
    parsers = (
        [_parse_ragged, _parse_sparse]
        if form == "tokens"
        else [functools.partial(_parse_batch, form=form, width=width)]
    )
    plans = [
        functools.partial(_plan, path, batch, compression, parser, buffer, parallel)
        for parser in parsers
        for buffer in (None, _BUFFER)
        for parallel in (None, tf.data.AUTOTUNE)
    ]
    return fastest(plans, lambda plan: _consume(plan(batch * _TRIAL)))


def _plan(
    path: str,
    batch: int,
    compression: str,
    parser: Callable[[Any], Any],
    buffer: int | None,
    parallel: int | None,
    rows: int,
) -> Any:
    records = tf.data.TFRecordDataset(path, compression_type=compression, buffer_size=buffer)
    batches = records.take(rows).batch(batch, num_parallel_calls=parallel)
    parsed = batches.map(parser, num_parallel_calls=tf.data.AUTOTUNE)
    return parsed.prefetch(tf.data.AUTOTUNE)


def _parse_batch(records: Any, form: str, width: int) -> Any:
    return _decoded(tf.io.parse_example(records, _spec(form, width)), form, width)


def _parse_ragged(records: Any) -> Any:
    feature = tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
    ragged = tf.io.parse_example(records, {"tokens": feature})["tokens"]
    return {"tokens": ragged.flat_values, "splits": ragged.row_splits}


def _parse_sparse(records: Any) -> Any:
    feature = tf.io.VarLenFeature(tf.int64)
    sparse = tf.io.parse_example(records, {"tokens": feature})["tokens"]
    # Not as_numpy_iterator, which takes seconds for one SparseTensor.
    return {"tokens": sparse.values, "indices": sparse.indices, "shape": sparse.dense_shape}


def _consume(dataset: Any, check: bool = False) -> Measure:
    rows, total = 0, 0.0
    with Clock() as clock:
        for columns in dataset.as_numpy_iterator():
            rows += _rows(columns)
            if check:
                total += sum(_sum(columns[name]) for name in columns.keys() & _SUMMED)
    return Measure(clock.seconds, rows, total if check else None)


_SUMMED = {*FEATURES.values(), "label"}


def _rows(columns: dict[str, Any]) -> int:
    if "shape" in columns:
        return int(columns["shape"][0])
    return len(columns["splits"]) - 1 if "splits" in columns else len(next(iter(columns.values())))


def _sum(column: Any) -> float:
    if column.dtype == object:
        return float(sum(map(len, column)))
    return float(column.sum(dtype=np.float64))


JOBS = {"loop_read": loop_read, "loop_write": loop_write, "tuned_read": tuned_read}
