"""Sketch the quantiles of all channels, on all cores.

Of many rows, threads keep one of several neighbours of each channel in groups of rows, which is
fast. What is left is gathered into blocks, of which threads sort each channel, keep one of several
neighbours again, and the caller adds these to the sketches in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from recmap.dataset.quantile_sketch import (
    QuantileSketch,
    thinned,
    thinning_variance,
    valid_items,
)
from recmap.machine.threads import Threads
from recmap.native import _core

# Rows in a block. The quantiles of fewer are exact.
_BLOCK = 1 << 13
# One of so many sorted values of a block is kept, as a power of two; of the last one, only if there
# are as many rows as this. Otherwise, that would be the greatest error.
_STEPS = 3
_MANY = 8 * _BLOCK
# Rows in a group. One of two values of it is kept, and from so many rows on, one of four or eight.
_THIN_GROUP = 256
_QUARTER = 4 * _BLOCK
_EIGHTH = 32 * _BLOCK
# Channels sorted at a time, at most, and rows transposed at a time: they fit into the CPU cache.
_GROUP = 32
_TILE = 512
# Groups in flight for each thread.
_AHEAD = 2


class _SortedItems(NamedTuple):
    """The items of a group of channels that are left of a block."""

    items: npt.NDArray[Any]
    level: int
    variance: npt.NDArray[np.float64]


class Sample(NamedTuple):
    """Rows of a sample of a level, and those that are left of ``groups`` of others.

    Those without a finite number are left out, so these are fewer than the ``rows`` that were seen.
    """

    rest: npt.NDArray[Any]
    thin: npt.NDArray[Any]
    level: int
    steps: int
    rows: int
    groups: int


class _WaitingRows:
    """Rows that count ``2 ** level`` times each, left of a sample of the level ``sampled``."""

    def __init__(self) -> None:
        self.sampled = self.level = self._filled = 0
        self._parts: list[npt.NDArray[Any]] = []

    def fill(self, rows: npt.NDArray[Any]) -> Iterator[None]:
        """Add rows, and yield whenever the block has to be taken before more fit in."""
        while len(rows):
            if self._filled == _BLOCK:
                yield
            some = rows[: _BLOCK - self._filled]
            self._parts.append(some)
            self._filled += len(some)
            rows = rows[len(some) :]

    def take(self) -> list[npt.NDArray[Any]]:
        """Return the rows so far, in parts, and begin again."""
        parts, self._parts, self._filled = self._parts, [], 0
        return parts


class ChannelSketches:
    """Collects rows of channels, one block after another."""

    def __init__(self, channels: int, pool: Threads) -> None:
        self._pool = pool
        workers = pool._max_workers  # noqa: SLF001  # of Python
        group = min(_GROUP, max(1, -(-channels // workers)))
        starts = range(0, max(1, channels), group)
        self._groups = [slice(start, start + group) for start in starts]
        self._sketches = [QuantileSketch(len(range(channels)[group])) for group in self._groups]
        self._all, self._thin = _WaitingRows(), _WaitingRows()
        self._sorting: deque[tuple[QuantileSketch, Future[_SortedItems]]] = deque()
        self._ahead = _AHEAD * workers
        self._rng = np.random.default_rng((1, 0))  # not that of a sketch or of a sample
        self._rows, self._variance = 0, 0.0

    def add(self, sample: Sample) -> None:
        """Add a sample."""
        level, thinned_level = sample.level, sample.level + sample.steps
        self._rows += sample.rows
        self._variance += sample.groups * 4.0**thinned_level / 4
        self._gather(self._all, sample.rest, level, level)
        self._gather(self._thin, sample.thin, level, thinned_level)

    def _gather(
        self, block: _WaitingRows, rows: npt.NDArray[Any], sampled: int, level: int
    ) -> None:
        if not len(rows):
            return
        if (sampled, level) != (block.sampled, block.level):
            self._sort(block, _STEPS)
            block.sampled, block.level = sampled, level
        for _ in block.fill(rows):
            self._sort(block, _STEPS)

    def _sort(self, block: _WaitingRows, steps: int) -> None:
        """Begin to sort the rows of a block, and empty it."""
        parts = block.take()
        if not parts:
            return
        first = int(self._rng.integers(1 << steps))
        levels = block.sampled, block.level
        for sketch, group in zip(self._sketches, self._groups, strict=True):
            mine = [part[:, group] for part in parts]
            sorting = self._pool.submit(_sort, mine, *levels, steps, first)
            self._sorting.append((sketch, sorting))
        self._merge(self._ahead)

    def _merge(self, left: int) -> None:
        """Add what has been sorted, until only so many groups are left."""
        while len(self._sorting) > left:
            sketch, sorting = self._sorting.popleft()
            sketch.add(*sorting.result())

    def quantiles(self, shares: Sequence[float]) -> npt.NDArray[np.float64]:
        """Return the quantiles of each channel, an array (channels, shares)."""
        steps = _STEPS if self._rows >= _MANY else 0
        self._sort(self._thin, steps)
        self._sort(self._all, steps)
        self._merge(0)
        found = self._pool.map(lambda sketch: sketch.quantiles(shares), self._sketches)
        return np.concatenate(list(found))

    def rank_error(self) -> float:
        """Return how far the rank of a quantile may be off, once quantiles were computed."""
        return max(each.rank_error(self._variance) for each in self._sketches)


def thinning_steps(before: int, level: int) -> int:
    """Return how many values a sample leaves out, as a power of two, after so many values."""
    rows = before >> level
    return 0 if rows < _BLOCK else 1 if rows < _QUARTER else 2 if rows < _EIGHTH else 3


def thinned_sample(
    rows: npt.NDArray[Any], level: int, steps: int, rng: np.random.Generator
) -> Sample:
    """Keep one of ``2 ** steps`` neighbours of each channel of a sample, in groups of rows."""
    rows = np.ascontiguousarray(rows, _sortable(rows.dtype))
    count = len(rows) // _THIN_GROUP * _THIN_GROUP if steps else 0
    thin = np.empty((count >> steps, rows.shape[1]), rows.dtype)
    if count:
        # Errors of groups add up unless each begins somewhere else.
        drawn = rng.integers(1 << steps, size=count // _THIN_GROUP, dtype=np.uint8)
        first = np.repeat(drawn, rows.shape[1])
        _core.thin_lanes(rows[:count].reshape(-1), first, 1 << steps, thin.reshape(-1))
    rest = _without_empty(rows[count:])
    return Sample(rest, _without_empty(thin), level, steps, len(rows), count // _THIN_GROUP)


def _sortable(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which numbers are sorted: NumPy is slow for 16 bits."""
    return np.dtype(np.int32) if dtype.itemsize == 2 else dtype


def _without_empty(rows: npt.NDArray[Any]) -> Any:
    """Return the rows that have a finite number."""
    if rows.dtype.kind != "f" or np.isfinite(rows[:, 0]).all():
        return rows
    return rows[np.isfinite(rows).any(axis=1)]


def _sort(
    parts: Sequence[npt.NDArray[Any]], sampled: int, level: int, steps: int, first: int
) -> _SortedItems:
    """Return the finite values of each channel in order, and one of ``2 ** steps`` of them.

    The rows, which come in parts, are what is left of a sample of this level.
    """
    count, at = sum(map(len, parts)), 0
    items = np.empty((parts[0].shape[1], count), parts[0].dtype)
    for part in parts:
        for start in range(0, len(part), _TILE):
            tile = part[start : start + _TILE]
            items[:, at : at + len(tile)] = tile.T
            at += len(tile)
    items.sort(axis=1)
    if items.dtype.kind == "f" and not np.isfinite(items[:, [0, -1]]).all():
        items[~np.isfinite(items)] = np.nan
        items.sort(axis=1)
    variance = np.zeros(len(items))
    if sampled:
        variance += valid_items(items) * 2.0 ** (level - sampled) * 4.0**sampled / 4
    if steps:
        variance += thinning_variance(items, level + steps)
        items = thinned(items, steps, first)
    return _SortedItems(items, level + steps, variance)
