"""Jobs on a Ray cluster, with Ray's own readers and writers and with recmap's."""

from __future__ import annotations

import functools
import importlib
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

import recmap as rm
from benchmarks.timing import Clock, Measure

# Imported by name, so that type checkers do not need it.
ray: Any = importlib.import_module("ray")

__all__ = ["JOBS"]

_BATCH = 4096


@functools.cache
def _cluster() -> Any:
    """Start one cluster for all jobs of this process, on all its CPUs."""
    ray.init(
        address="local",  # never a cluster that others run on this machine
        num_cpus=len(os.sched_getaffinity(0)),
        include_dashboard=False,
        logging_level=logging.ERROR,
        log_to_driver=False,
    )
    data = importlib.import_module("ray.data")
    context = data.DataContext.get_current()
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    return data


def read(path: str, by: str, check: bool = False) -> Measure:
    """Read all rows in batches of NumPy arrays. ``by`` is "recmap", one of Ray's readers, or
    "memory": rows that the cluster has loaded already.
    """
    data = _cluster()
    known = _in_memory(path, None) if by == "memory" else None
    with Clock() as clock:
        if known is not None:
            dataset = known
        else:
            dataset = rm.ray.read(path) if by == "recmap" else getattr(data, by)(path)
        rows, total = 0, 0.0
        for batch in dataset.iter_batches(batch_size=_BATCH, batch_format="numpy"):
            (values,) = batch.values()
            rows += len(values)
            if check:
                total += float(np.asarray(values.tolist(), np.float64).sum())
    return Measure(clock.seconds, rows, total if check else None)


@functools.cache
def _in_memory(path: str, rows: int | None) -> Any:
    return _cluster().from_numpy(np.load(path, mmap_mode="r")[:rows]).materialize()


def write(path: str, out: str, rows: int, by: str) -> Measure:
    """Write rows in the memory of the cluster to TFRecord files."""
    dataset = _in_memory(path, rows)
    shutil.rmtree(out, ignore_errors=True)
    with Clock() as clock:
        if by == "recmap":
            rm.ray.write(dataset, f"{out}/", format="tfrecord", options={"durable": False})
        else:
            dataset.write_tfrecords(out)
    shutil.rmtree(out)
    return Measure(clock.seconds, rows)


def to_parquet(path: str, out: str) -> Measure:
    """Convert a TFRecord file to Parquet files with Ray's own reader and writer."""
    data = _cluster()
    shutil.rmtree(out, ignore_errors=True)
    with Clock() as clock:
        dataset = data.read_tfrecords(path)
        dataset.write_parquet(out)
    rows = data.read_parquet(out).count()
    shutil.rmtree(out)
    return Measure(clock.seconds, rows)


def convert(path: str, out: str, workers: int, shards: int) -> Measure:
    """Convert one large file to several, with ``workers`` tasks at a time."""
    _cluster()
    Path(f"{path}.recmap").unlink(missing_ok=True)
    shutil.rmtree(out, ignore_errors=True)
    with Clock() as clock:
        report = rm.convert(
            path,
            f"{out}/",
            format="tfrecord",
            shards=shards,
            engine="ray",
            workers=workers,
            memory="256MB",
            options={"durable": False},
        )
    shutil.rmtree(out)
    return Measure(clock.seconds, report.rows)


JOBS = {"convert": convert, "read": read, "to_parquet": to_parquet, "write": write}
