"""Collect the statistics of each channel, on all cores.

Batches are divided into pieces, which threads look at and the caller merges in order, so the
result does not depend on the number of threads.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.dataset.channel_sketches import (
    ChannelSketches,
    Sample,
    thinned_sample,
    thinning_steps,
)
from recmap.dataset.channel_stats import ChannelStats
from recmap.dataset.field_stats import Numbers
from recmap.dataset.quantile_sketch import drawn_places, sampling_level, weighted_quantiles
from recmap.errors import OptionError
from recmap.machine.threads import Threads
from recmap.model.field import Field
from recmap.native import _core

# Values in a piece, unless a row has more. All columns together wait for so many.
_PIECE = 1 << 20
# A sketch of each channel takes a few hundred kilobytes.
_MOST_SKETCHES = 1024
# Pieces in flight for each thread.
_AHEAD = 2
# The dtypes that the native core takes.
_NATIVE = frozenset(map(np.dtype, ("i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")))


# What is found in a piece: counts, sums and limits of each channel, and a sample of it.
_PieceMoments: TypeAlias = tuple[
    npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[Any], Sample | None
]


class ChannelCollector:
    """Collects the statistics of the channels of a field, batch by batch.

    ``axis`` are the axes that tell channels apart, counted from the last, -1. ``rows`` is how many
    rows there are, if that is known. ``columns`` is how many are collected at the same time.
    """

    def __init__(
        self,
        name: str,
        field: Field,
        axis: tuple[int, ...],
        shares: Sequence[float],
        pool: Threads,
        rows: int | None = None,
        columns: int = 1,
    ) -> None:
        self._axis, self._shares, self._pool = axis, list(shares), pool
        self._shape = tuple(field.inner[each] for each in axis)
        self._channels = math.prod(self._shape)
        self._bytes = field.dtype.itemsize == 1 and field.dtype.kind in "biu"
        if shares and not self._bytes and self._channels > _MOST_SKETCHES:
            raise OptionError(
                f"quantiles: {name!r} is {field}, which has {self._channels:,} channels along "
                f"axis={axis}; quantiles take memory for each of them, so give axes with "
                f"{_MOST_SKETCHES:,} or fewer"
            )
        self._merged = self._merger(field)
        self._before = self._number = self._expected = 0
        if rows is not None and not field.ragged and not field.nullable:
            self._expected = rows * field.count // max(1, self._channels)
        self._piece = max(1, _PIECE // columns)
        self._waiting: list[npt.NDArray[Any]] = []
        self._waiting_rows = 0
        self._pending: deque[Future[Any]] = deque()

    def _merger(self, field: Field) -> _Merged | _Bytes:
        if self._bytes:
            return _Bytes(self._channels, field)
        sketches = ChannelSketches(self._channels, self._pool) if self._shares else None
        return _Merged(self._channels, sketches)

    def add(self, values: npt.NDArray[Any]) -> None:
        """Add items, whose axes are those of the field that are not ragged."""
        if not values.size:
            return
        # Pieces are the same wherever batches end, which depends on what was read before.
        step = max(1, self._piece // (values.size // len(values)))
        while len(values):
            rows = values[: step - self._waiting_rows]
            values = values[len(rows) :]
            self._waiting_rows += len(rows)
            if self._waiting_rows == step:
                self._waiting.append(rows)
                self._look()
            else:
                self._waiting.append(rows.copy())  # a view would keep the batch until then

    def _look(self) -> None:
        """Let a thread look at the rows that wait."""
        parts, self._waiting, self._waiting_rows = self._waiting, [], 0
        if not parts:
            return
        level = sampling_level(self._before, self._expected)
        look = self._count_bytes if self._bytes else self._find_moments
        steps = thinning_steps(self._before, level)
        self._pending.append(self._pool.submit(look, parts, level, steps, self._number))
        self._before += sum(rows.size for rows in parts) // self._channels
        self._number += 1
        while len(self._pending) > _AHEAD * self._pool._max_workers:  # noqa: SLF001  # of Python
            self._merged.merge(self._pending.popleft().result())

    def _grouped(self, parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return an array (groups, channels, inner), as the native core takes it."""
        rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
        axes = [rows.ndim + each for each in self._axis]
        if axes and axes != list(range(axes[0], axes[-1] + 1)):
            rows = np.moveaxis(rows, axes, range(rows.ndim - len(axes), rows.ndim))
            axes = list(range(rows.ndim - len(axes), rows.ndim))
        inner = math.prod(rows.shape[axes[-1] + 1 :]) if axes else rows.size
        native = np.ascontiguousarray(rows, _native(rows.dtype))
        return native.reshape(-1, self._channels, inner)

    def _count_bytes(
        self, parts: Sequence[npt.NDArray[Any]], level: int, steps: int, number: int
    ) -> Any:
        del level, steps, number
        values = self._grouped(parts)
        counts = np.zeros(256 * self._channels, np.int64)
        _core.count_bytes(values.reshape(-1).view(np.uint8), values.shape[2], counts)
        return counts

    def _find_moments(
        self, parts: Sequence[npt.NDArray[Any]], level: int, steps: int, number: int
    ) -> _PieceMoments:
        values = self._grouped(parts)
        counts = np.empty(4 * self._channels, np.int64)
        sums = np.empty(2 * self._channels)
        limits = np.empty(2 * self._channels, values.dtype)
        rng, (groups, channels, inner) = np.random.default_rng(number), values.shape
        some = bool(self._shares and level)
        places = drawn_places(groups * inner if some else 0, level, rng)
        drawn = np.empty((len(places), channels), values.dtype)
        _core.find_moments(
            values.reshape(-1), inner, counts, sums, limits, 1 << level, places, drawn.reshape(-1)
        )
        sample = None
        if self._shares:
            rest = drawn if some else values.transpose(0, 2, 1).reshape(-1, channels)
            sample = thinned_sample(rest, level, steps, rng)
        shape = -1, self._channels
        return counts.reshape(shape), sums.reshape(shape), limits.reshape(shape), sample

    def result(self) -> tuple[Numbers, ChannelStats]:
        """Return the statistics of all values, and those of each channel."""
        self._look()
        while self._pending:
            self._merged.merge(self._pending.popleft().result())
        found, shape = self._merged.found(self._shares), self._shape
        channels = ChannelStats(
            axis=self._axis,
            count=found.counts.sum(0).reshape(shape),
            nan=found.counts[1].reshape(shape),
            inf=found.counts[2:].sum(0).reshape(shape),
            min=found.low.reshape(shape),
            max=found.high.reshape(shape),
            mean=found.mean.reshape(shape),
            std=found.std.reshape(shape),
            quantiles={
                share: each.reshape(shape)
                for share, each in zip(self._shares, found.quantiles.T, strict=True)
            },
            rank_error=found.rank_error,
        )
        return _all_values(found), channels


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which the native core takes these numbers."""
    native = dtype.newbyteorder("=")
    if native in _NATIVE or (native.itemsize == 1 and native.kind in "biu"):
        return native
    # float16, and types that NumPy does not define, such as bfloat16; long doubles are rounded.
    return np.dtype(np.float32 if native.itemsize < 4 else np.float64)


@dataclass
class _ChannelMoments:
    """The moments of each channel. ``counts`` has finite, NaN, infinite and negative infinite."""

    counts: npt.NDArray[np.int64]
    mean: npt.NDArray[np.float64]
    std: npt.NDArray[np.float64]
    low: npt.NDArray[Any]
    high: npt.NDArray[Any]
    #: An array (channels, shares), and by how much the ranks may be off.
    quantiles: npt.NDArray[np.float64]
    rank_error: float


class _Merged:
    """Merges the moments of pieces, using the formulas of Chan, Golub and LeVeque."""

    def __init__(self, channels: int, sketches: ChannelSketches | None) -> None:
        self._counts = np.zeros((4, channels), np.int64)
        self._mean, self._squares = np.zeros((2, channels))
        self._low: npt.NDArray[Any] | None = None
        self._high: npt.NDArray[Any] | None = None
        self._sketches = sketches

    def merge(self, piece: _PieceMoments) -> None:
        counts, (mean, squares), (low, high), sample = piece
        before, more = self._counts[0].astype(np.float64), counts[0].astype(np.float64)
        share = more / np.maximum(before + more, 1)
        with np.errstate(over="ignore", invalid="ignore"):
            # The mean of nothing is 0, and nothing is added for it.
            apart = np.where(before == 0, 0.0, mean - self._mean)
            self._mean = np.where(before == 0, mean, self._mean + apart * share)
            self._squares = self._squares + squares + apart * apart * (before * share)
        if self._low is not None and self._high is not None:
            # A piece without numbers has no limits.
            low = _merged(self._low, low, before, more, np.minimum)
            high = _merged(self._high, high, before, more, np.maximum)
        self._low, self._high = low, high
        self._counts += counts
        if self._sketches is not None and sample is not None:
            self._sketches.add(sample)

    def found(self, shares: Sequence[float]) -> _ChannelMoments:
        finite = self._counts[0]
        low = np.zeros(len(finite)) if self._low is None else self._low
        high = low if self._high is None else self._high
        with np.errstate(invalid="ignore"):
            std = np.sqrt(self._squares / np.maximum(finite, 1))
        # Rounding must not make equal values differ.
        same = low == high
        std, mean = np.where(same, 0.0, std), np.where(same, low.astype(np.float64), self._mean)
        none = finite == 0
        if none.any():
            mean, std, low, high = (np.where(none, np.nan, each) for each in (mean, std, low, high))
        quantiles, error = np.empty((len(finite), 0)), 0.0
        if self._sketches is not None:
            quantiles, error = self._sketches.quantiles(shares), self._sketches.rank_error()
            # The sketch leaves out values, but all limits are known.
            finite_only = self._counts[2:].sum(0) == 0
            for limit, share in ((low, 0), (high, 1)):
                for place in np.flatnonzero(np.equal(shares, share)):
                    quantiles[:, place] = np.where(finite_only, limit, quantiles[:, place])
        return _ChannelMoments(self._counts, mean, std, low, high, quantiles, error)


def _merged(old: Any, new: Any, before: Any, more: Any, choose: Any) -> npt.NDArray[Any]:
    """Return the limits of both, or of the one that has numbers."""
    both = np.where(before == 0, new, choose(old, new))
    return np.asarray(np.where(more == 0, old, both))


def _byte_quantiles(
    numbers: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], shares: Sequence[float]
) -> list[float]:
    """Return the exact quantiles of bytes, from how often each occurs."""
    seen = counts > 0
    if not seen.any():
        return [math.nan] * len(shares)
    return weighted_quantiles(numbers[seen], counts[seen], shares)


class _Bytes:
    """Counts each of the 256 values of a byte: everything is exact."""

    def __init__(self, channels: int, field: Field) -> None:
        self._counts = np.zeros(256 * channels, np.int64)
        signed = field.dtype.kind == "i"
        numbers = np.arange(256, dtype=np.uint8)
        self._numbers = (numbers.view(np.int8) if signed else numbers).astype(np.int64)

    def merge(self, counts: npt.NDArray[np.int64]) -> None:
        self._counts += counts

    def found(self, shares: Sequence[float]) -> _ChannelMoments:
        order = np.argsort(self._numbers)
        counts, numbers = self._counts.reshape(-1, 256)[:, order], self._numbers[order]
        total = counts.sum(1)
        zeros = np.zeros_like(total)
        with np.errstate(invalid="ignore"):
            mean = (counts @ numbers) / total
            apart = np.square(numbers - mean[:, None])
            std = np.sqrt((counts * apart).sum(1) / total)
        seen = counts > 0
        low, high = numbers[seen.argmax(1)], numbers[255 - seen[:, ::-1].argmax(1)]
        if not total.all():
            low, high = (np.where(total == 0, np.nan, each) for each in (low, high))
        found = [_byte_quantiles(numbers, each, shares) for each in counts]
        quantiles = np.array(found).reshape(len(counts), len(shares))
        moments = np.stack([total, zeros, zeros, zeros]), mean, std, low, high
        return _ChannelMoments(*moments, quantiles, rank_error=0.0)


def _all_values(found: _ChannelMoments) -> Numbers:
    """Return the statistics of all channels together; a histogram would take another pass."""
    finite, nan, infinite, negative = (int(each) for each in found.counts.sum(1))
    count, numbers = finite + nan + infinite + negative, finite + infinite + negative
    if not numbers:
        return Numbers(count, nan, None, None, None, None, None)
    some = found.counts[0] > 0
    weights = found.counts[0][some] / max(finite, 1)
    means = found.mean[some]
    mean = math.fsum((weights * means).tolist())
    variance = weights * (np.square(found.std[some]) + np.square(means - mean))
    std = math.sqrt(math.fsum(variance.tolist()))
    low = -math.inf if negative else found.low[some].min().item() if finite else math.inf
    high = math.inf if infinite else found.high[some].max().item() if finite else -math.inf
    if infinite or negative:
        mean, std = low + high if low != -high else math.nan, math.nan
    return Numbers(count, nan, low, high, mean, std, None)
