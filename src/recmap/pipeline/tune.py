"""``recmap tune``: measure which order, batch size and number of threads are fastest."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from recmap.local.local_path import located
from recmap.pipeline.stream import Stream

_SEED = 1
_WINDOWS = (1 << 10, 1 << 14, 1 << 18)
_BATCHES = (32, 256, 1024)
_THREADS = (1, 2, 4, 8)
# Bytes that a batch and a shuffle window may take.
_BATCH_BYTES = 64 << 20
_WINDOW_BYTES = 256 << 20
# How much faster a weaker shuffle (first), or more rows or threads (second), must be to win.
_MUCH, _CLEARLY = 1.5, 1.1
_SHORTEST = 0.2


@dataclass(frozen=True)
class Choice:
    """A way to read rows: ``window`` is None for an exact shuffle, 0 for none."""

    batch: int
    window: int | None = None
    threads: int | None = None

    def of(self, rows: Stream) -> Stream:
        """Return the pipeline that reads this way."""
        pipeline = rows.pipeline()
        if self.window != 0:
            pipeline = pipeline.shuffle(seed=_SEED, window=self.window)
        pipeline = pipeline.batch(self.batch)
        return pipeline if self.threads is None else pipeline.prefetch(threads=self.threads)

    def __str__(self) -> str:
        """Write the choice as the code that follows ``rm.open(...)``."""
        window = "" if self.window is None else f", window={self.window:_}"
        shuffle = "" if self.window == 0 else f".shuffle(seed={_SEED}{window})"
        threads = "" if self.threads is None else f".prefetch(threads={self.threads})"
        return f"{shuffle}.batch({self.batch}){threads}"


@dataclass(frozen=True)
class Measurement:
    """The speed of a choice, in one trial; ``chosen`` if it is the best of its stage."""

    stage: str
    choice: Choice
    rows_per_second: float
    bytes_per_second: float
    chosen: bool = False


def fits_memory(paths: list[str]) -> bool:
    """Return whether files stay in memory after the first epoch: they fill at most half of it."""
    total = sum(located(path).size_below() for path in paths)
    return total <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def tune(
    opened: Callable[[], Stream],
    count: int,
    row_bytes: int,
    *,
    batch: int | None,
    shuffle: bool,
    seconds: float,
    forget: Callable[[], None],
) -> Iterator[Measurement]:
    """Try one setting after another, and continue with the best of each.

    The last chosen trial is the answer. Each trial opens the rows again, after ``forget()``.
    """
    most = max(1, min(count, _BATCH_BYTES // row_bytes))
    in_order = opened()._feed().in_turn  # noqa: SLF001  # hidden from users only
    orders: list[int | None] = [None]
    orders += [w for w in _WINDOWS if w < count and w * row_bytes <= _WINDOW_BYTES]
    if in_order and len(orders) > 1:
        del orders[0]  # an exact shuffle would be slow
    stages: list[tuple[str, list[dict[str, Any]], float]] = []
    if shuffle:
        stages.append(("order", [{"window": window} for window in orders], _MUCH))
    if batch is None:
        sizes = [size for size in _BATCHES if size <= most] or [most]
        stages.append(("batch", [{"batch": size} for size in sizes], _CLEARLY))
    if not in_order:
        stages.append(("threads", [{"threads": n} for n in _THREADS], _CLEARLY))
    best = Choice(batch or min(256, most), orders[0] if shuffle else 0)
    if not stages:
        stages.append(("batch", [{}], _CLEARLY))  # there is only one way
    each = max(_SHORTEST, seconds / sum(len(changes) for _, changes, _ in stages))
    for stage, changes, margin in stages:
        if stage == "threads" and best.window:
            return  # a window has one reader
        tried = []
        for change in changes:
            forget()
            tried.append(_tried(stage, replace(best, **change), opened(), each))
        chosen = _choose(tried, margin)
        best = chosen.choice
        yield from (replace(trial, chosen=trial is chosen) for trial in tried)


def _choose(tried: list[Measurement], margin: float) -> Measurement:
    """Choose the first trial, unless a later one is faster by the margin."""
    chosen = tried[0]
    for trial in tried[1:]:
        if trial.rows_per_second > margin * chosen.rows_per_second:
            chosen = trial
    return chosen


def _tried(stage: str, choice: Choice, rows: Stream, seconds: float) -> Measurement:
    pipeline = choice.of(rows).repeat()
    end = time.monotonic() + seconds
    for _ in pipeline:
        if time.monotonic() >= end:
            break
    timings = pipeline.timings()
    return Measurement(stage, choice, timings.rows_per_second, timings.bytes_per_second)
