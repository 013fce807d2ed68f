"""The usual way to augment in parallel: Pool.apply, which waits for each task."""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from cost import Cost

SHAPE = (64, 64, 3)
BATCH = 32


def make(folder: str, rows: int) -> None:
    np.random.default_rng(0).random((rows, *SHAPE), np.float32).tofile(f"{folder}/images.dat")
    (np.arange(rows) % 10).tofile(f"{folder}/labels.dat")


def augment(folder: str, start: int, stop: int) -> tuple[Any, ...]:
    """Return a batch with noise, its process, its first random number, and when it was made."""
    begin = time.perf_counter()
    images = np.memmap(f"{folder}/images.dat", np.float32, "r").reshape(-1, *SHAPE)
    labels = np.memmap(f"{folder}/labels.dat", np.int64, "r")
    first = np.random.random()  # noqa: NPY002  # as most people do
    made = []
    for image in images[start:stop]:
        noise = np.random.normal(0, 0.1, SHAPE).astype(np.float32)  # noqa: NPY002
        made.append(np.clip(image + noise, 0, 1))
    log = (os.getpid(), first, begin, time.perf_counter())
    return np.stack(made), np.array(labels[start:stop]), log


def batches(folder: str, log: list[tuple[int, float, float, float]]) -> Iterator[Any]:
    rows = os.path.getsize(f"{folder}/labels.dat") // 8
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for start in range(0, rows, BATCH):
            *batch, call = pool.apply(augment, (folder, start, min(start + BATCH, rows)))
            log.append(call)
            yield tuple(batch)


def usual(folder: str, log: list[tuple[int, float, float, float]] | None = None) -> int:
    spec = (tf.TensorSpec((None, *SHAPE), tf.float32), tf.TensorSpec((None,), tf.int64))
    kept = [] if log is None else log
    train = tf.data.Dataset.from_generator(lambda: batches(folder, kept), output_signature=spec)
    return sum(len(labels) for _, labels in train.prefetch(tf.data.AUTOTUNE))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=320)
    log: list[tuple[int, float, float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        make(folder, parser.parse_args().rows)
        with Cost() as cost:
            rows = usual(folder, log)
    together = sum(a[3] > b[2] for a, b in itertools.pairwise(log))
    print(f"batches made while another one was made: {together}")
    firsts = {process: first for process, first, *_ in reversed(log)}
    print(f"all processes began with the same random number: {len(set(firsts.values())) == 1}")
    print(f"{rows:,} rows {cost}")


if __name__ == "__main__":
    main()
