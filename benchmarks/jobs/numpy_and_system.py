"""NumPy and the operating system alone: the limits of the machine."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tasks import (
    copy_all,
    drop_from_cache,
    for_some_time,
    gather_in_batches,
    sum_in_batches,
)
from benchmarks.timing import Clock, Measure

__all__ = ["JOBS"]

_WRITE_BYTES = 1 << 20


@functools.lru_cache(maxsize=1)
def _bytes(path: str) -> bytes:
    return Path(path).read_bytes()


def write(source: str, path: str, rows: int) -> Measure:
    """Write the bytes of a finished file to a new one."""
    data = memoryview(_bytes(source))
    with Clock() as clock:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        for begin in range(0, len(data), _WRITE_BYTES):
            piece = data[begin : begin + _WRITE_BYTES]
            while piece:
                piece = piece[os.write(file, piece) :]
        os.close(file)
    os.unlink(path)
    return Measure(clock.seconds, rows)


def copy(source: str, path: str, rows: int) -> Measure:
    """Copy a file with ``cp``."""
    with Clock() as clock:
        subprocess.run(["cp", source, path], check=True)
    os.unlink(path)
    return Measure(clock.seconds, rows)


def read(folder: str, batch: int, check: bool = False) -> Measure:
    """Copy batches out of memory-mapped arrays."""
    with Clock() as clock:
        values = np.load(f"{folder}/values.npy", mmap_mode="r")
        ragged = os.path.exists(f"{folder}/offsets.npy")
        offsets = np.load(f"{folder}/offsets.npy") if ragged else None
        rows = len(values) if offsets is None else len(offsets) - 1
        total = 0.0
        for begin in range(0, rows, batch):
            end = min(begin + batch, rows)
            span = (begin, end) if offsets is None else (offsets[begin], offsets[end])
            copy = np.array(values[span[0] : span[1]])
            if check:
                total += float(copy.size if copy.dtype == np.uint8 else copy.sum(dtype=np.float64))
        if check and os.path.exists(f"{folder}/labels.npy"):
            total += float(np.load(f"{folder}/labels.npy").sum())
    return Measure(clock.seconds, rows, total if check else None)


def repeat(source: str, path: str, rows: int) -> Measure:
    """Write an .npy file of ``rows`` rows: those of another one, as often as needed."""
    values = np.load(source, mmap_mode="r")
    with Clock() as clock:
        made = np.lib.format.open_memmap(path, "w+", values.dtype, (rows, *values.shape[1:]))
        for begin in range(0, rows, len(values)):
            made[begin : begin + len(values)] = values[: rows - begin]
    return Measure(clock.seconds, rows)


def number_rows(path: str, rows: int, width: int) -> Measure:
    """Write an .npy file of random rows that begin with their numbers."""
    some = np.random.default_rng(0).random((1 << 14, width), np.float32)
    with Clock() as clock, open(path, "wb") as file:
        header = {"descr": some.dtype.str, "fortran_order": False, "shape": (rows, width)}
        np.lib.format.write_array_header_1_0(file, header)
        for begin in range(0, rows, len(some)):
            part = some[: rows - begin]
            part[:, 0] = np.arange(begin, begin + len(part))
            part.tofile(file)
    return Measure(clock.seconds, rows)


def shuffle_larger(path: str, batch: int, seconds: float) -> Measure:
    """Gather shuffled batches of a file that is not cached, for some time."""
    drop_from_cache(path)
    values = np.load(path, mmap_mode="r")
    order = np.random.default_rng(1).permutation(len(values))
    batches = (values[order[begin : begin + batch]] for begin in range(0, len(order), batch))
    return for_some_time(batches, seconds)


def read_larger(path: str, batch: int) -> Measure:
    """Copy batches out of a memory-mapped file that is not cached."""
    drop_from_cache(path)
    with Clock() as clock:
        values = np.load(path, mmap_mode="r")
        rows = copy_all(values[begin : begin + batch] for begin in range(0, len(values), batch))
    return Measure(clock.seconds, rows)


def _mapped(folder: str) -> Any:
    return np.load(f"{folder}/values.npy", mmap_mode="r")


def column_sum(folder: str, batch: int) -> Measure:
    """Sum a memory-mapped array, batch by batch."""
    return sum_in_batches(_mapped(folder), batch)


def column_gather(folder: str, batch: int) -> Measure:
    """Gather all rows of a memory-mapped array in random order, batch by batch."""
    return gather_in_batches(_mapped(folder), batch)


def find(path: str, value: int) -> Measure:
    """Map an .npy file, and find the numbers of the rows with a value."""
    with Clock() as clock:
        values = np.load(path, mmap_mode="r")
        found = np.flatnonzero(values == value)
    return Measure(clock.seconds, len(values), len(found))


def import_time(module: str, cache: str) -> Measure:
    """Import a module in a new interpreter, whose own start does not count."""
    program = (
        f"import time; begin = time.perf_counter(); import {module}; "
        "print(time.perf_counter() - begin)"
    )
    # All compiled files in one cache, so that an editable install has no disadvantage.
    env = {**os.environ, "PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env
    )
    return Measure(float(found.stdout.split()[-1]), 1)


JOBS = {
    "copy": copy,
    "column_gather": column_gather,
    "column_sum": column_sum,
    "find": find,
    "import_time": import_time,
    "number_rows": number_rows,
    "read": read,
    "read_larger": read_larger,
    "repeat": repeat,
    "shuffle_larger": shuffle_larger,
    "write": write,
}
