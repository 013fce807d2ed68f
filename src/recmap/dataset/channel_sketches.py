"""Sketch the quantiles of all channels, on all cores.

Rows are gathered into blocks. Threads sort each channel of a block and keep one of several
neighbours, which the caller adds to the sketches in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
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

# Rows in a block. The quantiles of fewer are exact.
_BLOCK = 1 << 13
# One of so many sorted values is kept, as a power of two, and in the last block if there are more
# rows than this; otherwise, that would be the greatest error.
_STEPS = 3
_MANY = 4 * _BLOCK
# Channels sorted at a time, and rows transposed at a time: they fit into the CPU cache.
_GROUP = 32
_TILE = 512
# Groups in flight for each thread.
_AHEAD = 2


class _Sorted(NamedTuple):
    """The items of a group of channels that are left of a block."""

    items: npt.NDArray[Any]
    level: int
    variance: npt.NDArray[np.float64]


class ChannelSketches:
    """Collects rows of channels, one block after another."""

    def __init__(self, channels: int, pool: Threads) -> None:
        self._channels, self._pool = channels, pool
        starts = range(0, max(1, channels), _GROUP)
        self._groups = [range(channels)[start : start + _GROUP] for start in starts]
        self._sketches = [QuantileSketch(len(group)) for group in self._groups]
        self._block: npt.NDArray[Any] | None = None
        self._filled = self._level = self._rows = 0
        self._pending: deque[tuple[QuantileSketch, Future[_Sorted]]] = deque()
        self._rng = np.random.default_rng(0)

    def add(self, rows: npt.NDArray[Any], level: int) -> None:
        """Add rows that count ``2 ** level`` times each."""
        rows = _without_empty(rows)
        if level != self._level:
            self._sort_block(_STEPS)
            self._level = level
        self._rows += len(rows)
        while len(rows):
            if self._filled == _BLOCK:
                self._sort_block(_STEPS)
            if self._block is None:
                self._block = np.empty((_BLOCK, self._channels), _sortable(rows.dtype))
            some = rows[: _BLOCK - self._filled]
            self._block[self._filled : self._filled + len(some)] = some
            self._filled += len(some)
            rows = rows[len(some) :]

    def _sort_block(self, steps: int) -> None:
        """Begin to sort the rows of the block, and start another."""
        if self._block is None:
            return
        rows, first = self._block[: self._filled], int(self._rng.integers(1 << steps))
        for sketch, group in zip(self._sketches, self._groups, strict=True):
            channels = rows[:, group.start : group.stop]
            sorting = self._pool.submit(_sort, channels, self._level, steps, first)
            self._pending.append((sketch, sorting))
        self._block, self._filled = None, 0
        self._merge(_AHEAD * self._pool._max_workers)  # noqa: SLF001  # of Python

    def _merge(self, left: int) -> None:
        """Add what has been sorted, until only so many groups are left."""
        while len(self._pending) > left:
            sketch, sorting = self._pending.popleft()
            sketch.add(*sorting.result())

    def quantiles(self, shares: Sequence[float]) -> npt.NDArray[np.float64]:
        """Return the quantiles of each channel, an array (channels, shares)."""
        self._sort_block(_STEPS if self._rows > _MANY else 0)
        self._merge(0)
        found = self._pool.map(lambda sketch: sketch.quantiles(shares), self._sketches)
        return np.concatenate(list(found))

    @property
    def rank_error(self) -> float:
        """How far the rank of a quantile may be off, once quantiles were computed."""
        return max(each.rank_error for each in self._sketches)


def _sortable(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which numbers are sorted: NumPy is slow for 16 bits."""
    return np.dtype(np.int32) if dtype.itemsize == 2 else dtype


def _without_empty(rows: npt.NDArray[Any]) -> Any:
    """Return the rows that have a finite number."""
    if rows.dtype.kind != "f" or np.isfinite(rows[:, 0]).all():
        return rows
    return rows[np.isfinite(rows).any(axis=1)]


def _sort(rows: npt.NDArray[Any], level: int, steps: int, first: int) -> _Sorted:
    """Return the finite values of each channel in order, and one of ``2 ** steps`` of them."""
    items = np.empty(rows.shape[::-1], rows.dtype)
    for start in range(0, len(rows), _TILE):
        items[:, start : start + _TILE] = rows[start : start + _TILE].T
    items.sort(axis=1)
    if rows.dtype.kind == "f" and not np.isfinite(items[:, [0, -1]]).all():
        items[~np.isfinite(items)] = np.nan
        items.sort(axis=1)
    variance = np.zeros(len(items))
    if level:
        variance += valid_items(items) * 4.0**level / 4
    if steps:
        variance += thinning_variance(items, level + steps)
        items = thinned(items, steps, first)
    return _Sorted(items, level + steps, variance)
