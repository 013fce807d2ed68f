"""The data to read and write: rows of several sizes, sequences and images, as .npy files."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["FEATURES", "MB", "Data", "Workload", "load", "make", "workloads"]

Array = npt.NDArray[Any]

MB = 1 << 20

# The name of the feature that holds the row, by form.
FEATURES = {"float": "x", "raw": "x", "tokens": "tokens", "image": "image", "short": "text"}


@dataclass(frozen=True)
class Workload:
    """Rows to write and read.

    Slow peers read only the first ``tuned_rows`` or ``loop_rows``; all are compared by rows
    per second. ``forms`` are the ways the rows are stored:
    ``float`` (float_list), ``raw`` (the bytes of a row), ``tokens`` (int64_list),
    ``image`` (bytes and a label) and ``short`` (bytes).
    """

    name: str
    title: str
    forms: tuple[str, ...]
    rows: int
    batch: int
    row_bytes: float
    tuned_rows: int
    loop_rows: int
    width: int = 0
    lengths: tuple[int, int] = (0, 0)

    @property
    def large(self) -> bool:
        """Whether rows have 4 KB or more, so that the target is the speed of copying bytes."""
        return self.row_bytes >= 4096


@dataclass(frozen=True)
class Data:
    """Values in memory: row ``i`` is ``values[i]``, or the values between two offsets."""

    values: Array
    offsets: Array | None = None
    labels: Array | None = None

    def __iter__(self) -> Iterator[Array]:
        if self.offsets is None:
            yield from self.values
            return
        ends = self.offsets.tolist()
        for begin, end in itertools.pairwise(ends):
            yield self.values[begin:end]

    def first(self, rows: int) -> Data:
        """Return the first rows only."""
        if self.offsets is None:
            return Data(self.values[:rows])
        offsets = self.offsets[: rows + 1]
        labels = None if self.labels is None else self.labels[:rows]
        return Data(self.values[: offsets[-1]], offsets, labels)


def workloads(quick: bool) -> dict[str, Workload]:
    """Return all workloads by name, about 256 MB each, or 16 MB for a quick run."""
    size = (16 if quick else 256) * MB
    listed = [
        _dense("40B", "40 B rows", 10, 4096, size),
        _dense("4KB", "4 KB rows", 1024, 256, size),
        _dense("200KB", "200 KB rows", 51200, 32, size),
        _dense("256KB", "256 KB rows", 65536, 16, size),
        _ragged("tokens", "sequences of 10 to 200 int64", "tokens", (10, 200), 8, 1024, size),
        _ragged("text", "sequences of 10 to 500 int64", "tokens", (10, 500), 8, 256, size),
        _ragged("images", "images of 20 to 60 KB", "image", (20_000, 60_000), 1, 64, size),
        _ragged("short", "byte strings of 20 to 60 B", "short", (20, 60), 1, 4096, size),
    ]
    return {workload.name: workload for workload in listed}


def _dense(name: str, title: str, width: int, batch: int, size: int) -> Workload:
    rows = size // (4 * width)
    tuned, loop = _fewer(rows, size)
    return Workload(name, title, ("float", "raw"), rows, batch, 4 * width, tuned, loop, width)


def _ragged(
    name: str, title: str, form: str, lengths: tuple[int, int], item: int, batch: int, size: int
) -> Workload:
    row_bytes = item * sum(lengths) / 2
    rows = int(size / row_bytes)
    tuned, loop = _fewer(rows, size)
    return Workload(name, title, (form,), rows, batch, row_bytes, tuned, loop, lengths=lengths)


def _fewer(rows: int, size: int) -> tuple[int, int]:
    """Return the rows for tuned peers, and for those that loop in Python: about a second."""
    return min(rows, size // 512), min(-(-rows // 8), size // 8192)


def make(workload: Workload, folder: Path) -> None:
    """Draw the values of a workload and save them in ``folder``."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    if workload.width:
        np.save(folder / "values.npy", rng.random((workload.rows, workload.width), np.float32))
        return
    low, high = workload.lengths
    lengths = rng.integers(low, high + 1, workload.rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    values = (
        rng.integers(0, 50_000, offsets[-1])
        if workload.forms == ("tokens",)
        else rng.integers(0, 256, offsets[-1], np.uint8)
    )
    np.save(folder / "values.npy", values)
    np.save(folder / "offsets.npy", offsets)
    if workload.forms == ("image",):
        np.save(folder / "labels.npy", rng.integers(0, 1000, workload.rows))


@functools.lru_cache(maxsize=1)
def load(folder: str) -> Data:
    """Load the values of a workload into memory."""
    parts = [Path(folder, f"{part}.npy") for part in ("values", "offsets", "labels")]
    values, offsets, labels = (np.load(part) if part.exists() else None for part in parts)
    assert values is not None
    return Data(values, offsets, labels)
