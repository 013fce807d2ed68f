"""recmap's verbs of rows: where, sample, cache, and map before save."""

from __future__ import annotations

import functools
import os
import shutil
from pathlib import Path
from typing import Any, Literal

import numpy as np

import recmap as rm
from benchmarks.tasks import augment
from benchmarks.timing import Clock, Measure

__all__ = ["JOBS"]

_LABELS = 1000


def make_labels(path: str, rows: int) -> Measure:
    """Write integers from 0 to 999 as an .npy file."""
    with Clock() as clock:
        np.save(path, np.random.default_rng(0).integers(0, _LABELS, rows, np.int32))
    return Measure(clock.seconds, rows)


def make_labelled(path: str, rows: int, width: int) -> Measure:
    """Write rows of floats with a label each as a TFRecord file with its index."""
    rng = np.random.default_rng(0)
    columns = {"label": rng.integers(0, _LABELS, rows), "x": rng.random((rows, width), np.float32)}
    with Clock() as clock:
        rm.from_arrays(columns).save(path)
        len(rm.open(path))
    return Measure(clock.seconds, rows)


def make_channels(path: str, rows: int, width: int) -> Measure:
    """Write rows of normal float32 values as an .npy file."""
    rng = np.random.default_rng(0)
    with Clock() as clock:
        np.save(path, rng.standard_normal((rows, width), np.float32))
    return Measure(clock.seconds, rows)


def statistics(path: str, quantiles: list[float]) -> Measure:
    """Open a file, and compute the statistics of each channel, with or without quantiles."""
    with Clock() as clock:
        found = rm.open(path).stats(axis=-1, quantiles=quantiles)
    (stats,) = found.values()
    assert stats.channels is not None
    return Measure(clock.seconds, stats.rows, float(stats.channels.mean.sum()))


def where(path: str, column: str, value: int) -> Measure:
    """Open a file, and find the rows with a value in a column."""
    with Clock() as clock:
        dataset = rm.open(path)
        found = len(dataset.where(rm.col(column) == value))
    return Measure(clock.seconds, len(dataset), found)


def read_column(path: str, column: str) -> Measure:
    """Open a file, and read one column of it in blocks."""
    rows = 0
    with Clock() as clock:
        for batch in rm.open(path).select(column).batches(1 << 16):
            rows += len(batch[column])
    return Measure(clock.seconds, rows)


def draw(path: str, batch: int, verb: str) -> Measure:
    """Run an epoch of shuffled or sampled rows."""
    pipeline, rows = _drawn(path, batch, verb), 0
    with Clock() as clock:
        for columns in pipeline:
            rows += len(columns["data"])
    return Measure(clock.seconds, rows)


@functools.cache
def _drawn(path: str, batch: int, verb: str) -> rm.Stream:
    dataset = rm.open(path)
    weights = np.random.default_rng(2).random(len(dataset))
    orders: dict[str, Any] = {
        "shuffle": lambda: dataset.shuffle(seed=1),
        "sample": lambda: dataset.sample(seed=1),
        "weights": lambda: dataset.sample(weights=weights, seed=1),
    }
    drawn: rm.Stream = orders[verb]().batch(batch)
    next(iter(drawn))  # the tables of weights are made once, not in every epoch
    return drawn


def map_and_save(path: str, output: str, workers: int) -> Measure:
    """Save augmented images as .npy files."""
    shutil.rmtree(output, ignore_errors=True)
    with Clock() as clock:
        report = (
            rm.open(path)
            .map(_augmented)
            .save(
                f"{output}/images.npy",
                shards=2 * workers,
                workers=f"processes:{workers}",
                verify=False,
                options={"durable": False},
            )
        )
    shutil.rmtree(output)
    return Measure(clock.seconds, report.rows)


def map_and_iterate(path: str, batch: int, workers: int) -> Measure:
    """Read augmented images in batches."""
    rows = 0
    with Clock() as clock:
        for columns in rm.open(path).map(_augmented, workers=f"processes:{workers}").batch(batch):
            rows += len(columns["image"])
    return Measure(clock.seconds, rows)


def windows(path: str, size: int, batch: int) -> Measure:
    """Read shuffled windows; count the rows in them."""
    dataset, rows = rm.open(path), 0
    with Clock() as clock:
        for columns in (
            dataset.windows(size).shuffle(seed=1).take(len(dataset) // size).batch(batch)
        ):
            rows += columns["data"].shape[0] * size
    return Measure(clock.seconds, rows)


def gathered(path: str, size: int, batch: int) -> Measure:
    """Read as many shuffled rows as ``windows``."""
    dataset, rows = rm.open(path), 0
    with Clock() as clock:
        for columns in (
            dataset.shuffle(seed=1).take(len(dataset) // size * size).batch(batch * size)
        ):
            rows += len(columns["data"])
    return Measure(clock.seconds, rows)


def make_documents(path: str, tokens: int) -> Measure:
    """Write documents of token numbers."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 2000, tokens // 1000)
    values = rng.integers(0, 50_000, int(lengths.sum()), np.uint16)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    with Clock() as clock:
        rm.from_arrays({"ids": rm.Ragged(values, offsets)}).save(path)
    return Measure(clock.seconds, tokens)


def make_sequences(path: str, rows: int) -> Measure:
    """Save short sequences, unless they are there."""
    with Clock() as clock:
        if not Path(path).exists():
            lengths = np.random.default_rng(0).integers(1, 41, rows)
            values = np.arange(lengths.sum(), dtype=np.int32)
            offsets = np.concatenate([[0], np.cumsum(lengths)])
            rm.from_arrays({"ids": rm.Ragged(values, offsets)}).save(path, progress=False)
    return Measure(clock.seconds, rows)


def packed(path: str, length: int, batch: int, fit: Literal["online", "best"]) -> Measure:
    """Join sequences into rows; the sequences are counted."""
    ds = rm.open(path)
    stream = ds.pack(length, fit=fit).batch(batch)
    next(iter(stream))
    with Clock() as clock:
        for _ in stream:
            pass
    return Measure(clock.seconds, len(ds))


def cost_batches(path: str, limit: int) -> Measure:
    """Read shuffled batches of up to ``limit`` tokens; the first has cut the epoch."""
    return _batches(rm.open(path).shuffle(seed=1).batch(cost="ids", limit=limit))


def row_batches(path: str, size: int) -> Measure:
    """Read shuffled batches of ``size`` sequences."""
    return _batches(rm.open(path).shuffle(seed=1).batch(size))


def _batches(stream: rm.Stream) -> Measure:
    next(iter(stream))
    rows = 0
    with Clock() as clock:
        for columns in stream:
            rows += len(columns["ids"])
    return Measure(clock.seconds, rows)


def token_rows(path: str, length: int, batch: int) -> Measure:
    """Read an epoch of shuffled rows of tokens."""
    stream, tokens = rm.open(path).tokens("ids", length).shuffle(seed=1).batch(batch), 0
    next(iter(stream))
    with Clock() as clock:
        for columns in stream:
            tokens += columns["ids"].size
    return Measure(clock.seconds, tokens)


def copied(path: str, length: int, batch: int) -> Measure:
    """Copy batches of as many tokens and targets out of the mapped file, in order."""
    column = rm.open(path)["ids"]
    values, tokens = column[0 : len(column)].values, 0
    size = length * batch
    with Clock() as clock:
        for start in range(0, len(values) - size, size):
            np.array(values[start : start + size])
            tokens += len(np.array(values[start + 1 : start + 1 + size]))
    return Measure(clock.seconds, tokens)


def first_tokens(path: str, length: int, batch: int) -> Measure:
    """Open documents, and read one shuffled batch of rows of tokens."""
    with Clock() as clock:
        next(iter(rm.open(path).tokens("ids", length).shuffle(seed=1).batch(batch)))
    return Measure(clock.seconds, 1)


def one_second() -> Measure:
    return Measure(1.0, 1)


def cached_epoch(path: str, batch: int, cache: str, first: bool) -> Measure:
    """Run an epoch of shuffled rows with a cache: the first one, or a later one."""
    os.environ.update(RECMAP_CACHE=cache, RECMAP_CACHE_SIZE="1GB")
    if first:
        shutil.rmtree(cache, ignore_errors=True)
        return _epochs(rm.open(path).cache().shuffle(seed=1).batch(batch))
    pipeline = _cached(path, batch)
    next(iter(pipeline))  # filled
    return _epochs(pipeline)


@functools.cache
def _cached(path: str, batch: int) -> rm.Stream:
    return rm.open(path).cache().shuffle(seed=1).batch(batch)


def separate(path: str, array: str, batch: int, in_order: bool) -> Measure:
    """Shuffle as many rows of an .npy file as ``path`` has, maybe after a pass over that."""
    dataset = rm.open(path)
    shuffled = _first_rows(array, len(dataset)).shuffle(seed=1).batch(batch)
    return _epochs(dataset.batch(batch), shuffled) if in_order else _epochs(shuffled)


@functools.cache
def _first_rows(path: str, rows: int) -> rm.Dataset:
    return rm.open(path).take(rows)


def _epochs(*pipelines: rm.Stream) -> Measure:
    """Run an epoch of each, and count the rows of one."""
    rows = 0
    with Clock() as clock:
        for pipeline in pipelines:
            rows = sum(len(next(iter(columns.values()))) for columns in pipeline)
    return Measure(clock.seconds, rows)


def _augmented(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {"image": augment(row["data"], rng)}


JOBS = {
    "cached_epoch": cached_epoch,
    "copied": copied,
    "cost_batches": cost_batches,
    "draw": draw,
    "first_tokens": first_tokens,
    "gathered": gathered,
    "make_channels": make_channels,
    "make_documents": make_documents,
    "make_labelled": make_labelled,
    "make_labels": make_labels,
    "make_sequences": make_sequences,
    "map_and_iterate": map_and_iterate,
    "map_and_save": map_and_save,
    "one_second": one_second,
    "packed": packed,
    "read_column": read_column,
    "row_batches": row_batches,
    "separate": separate,
    "statistics": statistics,
    "token_rows": token_rows,
    "where": where,
    "windows": windows,
}
