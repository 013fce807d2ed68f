"""Collect the statistics of values and how often each occurs, in one pass and bounded memory."""

from __future__ import annotations

import math
import sys
from collections import Counter as ValueCount
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.dataset.channel_collector import ChannelCollector
from recmap.dataset.channel_stats import AxisOption, channel_axes
from recmap.dataset.field_stats import FieldStats, Histogram, Numbers, ValueCounts
from recmap.dataset.rows import read_blocks
from recmap.dataset.stats import Stats
from recmap.machine.cpus import thread_count
from recmap.machine.threads import Threads
from recmap.model.casting import as_floats
from recmap.model.field import Field
from recmap.model.progress import Counter, ProgressOption
from recmap.model.ragged import BYTE, Column, Ragged, has_mask, null_mask
from recmap.model.row_sizes import measure
from recmap.model.source import Source

_INT64 = np.dtype(np.int64)
# Values processed at a time. They fit in the CPU cache, and large rows need no extra memory.
_STEP = 1 << 16
_MOST_BINS = 32
_LEAST_EXPONENT = -1022
# Bin numbers are integers that float64 holds exactly.
_DIGITS = 52
# Counting stops when there are more distinct values, or strings take more bytes, than this.
_MOST_DISTINCT = 10_000
_MOST_BYTES = 1 << 20
# Columns with longer strings, such as images, are not counted.
_LONGEST = 256
# Strings that become Python objects at a time.
_STRINGS = 1 << 12
# Integers within such a range are counted without sorting them.
_RANGE = 1 << 16
_TOP = 10


def collected(
    source: Source, axis: AxisOption, shares: Sequence[float], progress: ProgressOption
) -> Stats:
    """Read all rows once, and return the statistics of each column."""
    schema = source.schema
    with Threads(thread_count()) as pool, Counter(source.known_rows(), progress) as counter:
        channels: dict[str, ChannelCollector] = {}
        rows = source.known_rows()
        if axis is not None or shares:
            numbers = {name: field for name, field in schema.items() if _is_number(field)}
            axes_of = channel_axes(numbers, axis)
            for name, axes in axes_of.items():
                channels[name] = ChannelCollector(
                    name, schema[name], axes, shares, pool, rows, len(axes_of)
                )
        collectors = {
            name: FieldCollector(field, channels.get(name)) for name, field in schema.items()
        }
        for batch in read_blocks(source, 1):
            for name, column in batch.items():
                collectors[name].add(column)
            counter.add(*measure(batch))
        found = Stats({name: each.result() for name, each in collectors.items()})
        counter.finish()
    return found


def _is_number(field: Field) -> bool:
    extension = field.dtype.kind == "V" and field.dtype.type is not np.void
    return not field.is_bytes and (field.dtype.kind in "biuf" or extension)


class FieldCollector:
    """Collects the statistics of a field, batch by batch.

    ``channels`` collects those of the values, if each channel is to have its own.
    """

    def __init__(self, field: Field, channels: ChannelCollector | None = None) -> None:
        self._field, self._channels = field, channels
        self._rows = self._nulls = 0
        strings = field.is_bytes or field.dtype.type is np.void
        self._strings = ValueCounter() if strings else None
        self._values = None if strings else _collector(field.dtype, ValueCounter())
        self._sizes = _collector(_INT64) if strings else None
        self._lengths = [_collector(_INT64) for _ in range(field.ragged)]

    def add(self, column: Column) -> None:
        """Add the rows of a batch."""
        self._rows += len(column)
        column = self._valid(column)
        for lengths in self._lengths:
            assert isinstance(column, Ragged)
            lengths.add(column.lengths)
            column = self._valid(column.flat)
        while isinstance(column, Ragged) and not column.is_bytes:
            column = column.flat  # a fixed axis of byte strings
        if isinstance(column, np.ndarray) and column.dtype.type is np.void:
            column = _strings_of(column)
        if isinstance(column, Ragged):
            assert self._sizes is not None
            assert self._strings is not None
            self._sizes.add(column.lengths)
            self._strings.add_strings(column)
        elif self._channels is not None:
            self._channels.add(column)
        elif self._values is not None:
            self._values.add(column.reshape(-1))

    def _valid(self, column: Column) -> Column:
        """Count nulls, and return the other values."""
        if not has_mask(column):
            return column
        missing = null_mask(column)
        self._nulls += int(np.count_nonzero(missing))
        if isinstance(column, Ragged):
            return Ragged(column.values, column.offsets)[~missing]
        return np.asarray(column)[~missing]

    def result(self) -> FieldStats:
        """Return the statistics so far."""
        values = None if self._values is None else self._values.result()
        channels = None
        if self._channels is not None:
            values, channels = self._channels.result()
        return FieldStats(
            field=self._field,
            rows=self._rows,
            values=values,
            lengths=tuple(lengths.result() for lengths in self._lengths),
            sizes=None if self._sizes is None else self._sizes.result(),
            counts=self._counts(),
            nulls=self._nulls,
            channels=channels,
        )

    def _counts(self) -> ValueCounts | None:
        if self._channels is not None:
            return None
        if self._values is not None:
            return self._values.counts()
        return None if self._strings is None else self._strings.result()


def _strings_of(column: npt.NDArray[np.void]) -> Ragged:
    """Return bytes of a fixed size as byte strings."""
    size, content = column.dtype.itemsize, np.ascontiguousarray(column).reshape(-1)
    return Ragged(content.view(BYTE), np.arange(content.size + 1) * size)


def _collector(dtype: np.dtype[Any], counter: ValueCounter | None = None) -> _ByteCounts | _Moments:
    """Return a collector for values of this dtype; with ``counter``, also count each value."""
    if dtype.itemsize == 1 and dtype.kind in "biu":
        return _ByteCounts(dtype)
    return _Moments(dtype, counter if dtype.kind in "iu" else None)


class _ByteCounts:
    """Counts each of the 256 values of a byte, which is fast for images."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._is_bool = dtype.kind == "b"
        self._dtype = np.dtype(np.uint8) if self._is_bool else dtype
        self._counts = np.zeros(256, np.int64)

    def add(self, values: npt.NDArray[Any]) -> None:
        for start in range(0, len(values), _STEP):
            some = values[start : start + _STEP].view(np.uint8)
            self._counts += np.bincount(some, minlength=256)

    def result(self) -> Numbers:
        seen = np.flatnonzero(self._counts)
        if not len(seen):
            return Numbers(0, 0, None, None, None, None, None)
        numbers = seen.astype(np.uint8).view(self._dtype).astype(np.int64)
        counts = self._counts[seen]
        total = int(counts.sum())
        mean = int(counts @ numbers) / total
        std = math.sqrt(float(counts @ np.square(numbers - mean)) / total)
        bins = _Bins(whole=True)
        bins.add(numbers, counts)
        low, high = int(numbers.min()), int(numbers.max())
        return Numbers(total, 0, low, high, mean, std, bins.result())

    def counts(self) -> ValueCounts | None:
        seen = np.flatnonzero(self._counts)
        numbers = seen.astype(np.uint8).view(np.bool_ if self._is_bool else self._dtype)
        counts = ValueCount(dict(zip(numbers.tolist(), self._counts[seen].tolist(), strict=True)))
        return most_common(counts) if counts else None


class _Moments:
    """Merges moments using the formulas of Chan, Golub and LeVeque."""

    def __init__(self, dtype: np.dtype[Any], counter: ValueCounter | None = None) -> None:
        self._dtype, self._counter = dtype, counter
        self._whole = dtype.kind in "iumM"
        self._count = self._nan = self._finite = 0
        self._low: int | float | None = None
        self._high: int | float | None = None
        self._sum = 0  # of integers
        self._mean = self._squares = 0.0  # squares of the distances from the mean
        self._bins = _Bins(whole=self._whole)

    def add(self, values: npt.NDArray[Any]) -> None:
        for start in range(0, len(values), _STEP):
            some = values[start : start + _STEP]
            numbers = self._numbers(some)
            self._count += len(some)
            self._nan += len(some) - len(numbers)
            if len(numbers) and self._dtype.kind != "c":
                self._add(numbers)

    def _numbers(self, some: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the values that are not NaN or NaT, as integers or float64."""
        kind = self._dtype.kind
        if kind in "iu":
            return some
        if kind not in "cmM":
            # Floats of every width, including types that NumPy does not define, such as bfloat16.
            some = as_floats(some)
        numbers: npt.NDArray[Any] = some[~(np.isnat if kind in "mM" else np.isnan)(some)]
        return numbers.astype(np.int64) if kind in "mM" else numbers

    def _add(self, numbers: npt.NDArray[Any]) -> None:
        low, high = numbers.min().item(), numbers.max().item()
        self._low = low if self._low is None else min(self._low, low)
        self._high = high if self._high is None else max(self._high, high)
        if self._whole:
            self._sum += _exact_sum(numbers)
        if self._counter is not None:
            self._counter.add_integers(numbers, int(low), int(high))
        floats = numbers.astype(np.float64, copy=False)
        bounded = math.isfinite(low) and math.isfinite(high)
        finite = floats if bounded else floats[np.isfinite(floats)]
        if len(finite):
            self._merge(finite)
            self._bins.add(numbers if self._whole else finite)

    def _merge(self, values: npt.NDArray[np.float64]) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            count, mean = len(values), float(values.mean())
            squares = float(np.square(values - mean).sum())
        total = self._finite + count
        apart = mean - self._mean
        self._mean += apart * (count / total)
        self._squares += squares + apart * apart * (self._finite * count / total)
        self._finite = total

    def result(self) -> Numbers:
        low, high, dates = self._low, self._high, self._dtype.kind in "mM"
        mean, std = (None, None) if dates or low is None else self._moments()
        return Numbers(
            count=self._count,
            nan=self._nan,
            min=low if low is None or not dates else self._date(low),
            max=high if high is None or not dates else self._date(high),
            mean=mean,
            std=std,
            histogram=None if dates else self._bins.result(),
        )

    def counts(self) -> ValueCounts | None:
        return None if self._counter is None else self._counter.result()

    def _moments(self) -> tuple[float, float]:
        assert self._low is not None
        assert self._high is not None
        if self._whole:
            mean = self._sum / self._finite
        elif math.isinf(self._low) or math.isinf(self._high):
            return self._low + self._high if self._low != -self._high else math.nan, math.nan
        else:
            mean = self._mean
        return mean, math.sqrt(self._squares / self._finite)

    def _date(self, number: float) -> str:
        return str(np.int64(number).astype(self._dtype.newbyteorder("=")))


def _exact_sum(numbers: npt.NDArray[Any]) -> int:
    """Return the exact sum of integers.

    It may overflow int64, so the upper and lower halves are added separately.
    """
    if numbers.itemsize < 8:
        return int(numbers.sum(dtype=np.int64))
    return (int((numbers >> 32).sum()) << 32) + int((numbers & 0xFFFFFFFF).sum())


class _Bins:
    """At most 32 bins. Their width is the smallest power of two that covers all values.

    Bins begin at multiples of their width, so two of them merge exactly into one of twice the
    width, and the result does not depend on the order of the values.
    """

    def __init__(self, *, whole: bool) -> None:
        # A bin of integers is never narrower than 1.
        self._whole = whole
        self._exponent = 0 if whole else _LEAST_EXPONENT
        self._first = 0
        self._counts: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._range: tuple[Any, Any] | None = None

    def add(self, values: npt.NDArray[Any], counts: npt.NDArray[np.int64] | None = None) -> None:
        """Count one or more values: integers if the bins are ``whole``, otherwise finite float64.

        ``counts`` says how often each value occurs; by default, once.
        """
        low, high = values.min().item(), values.max().item()
        if self._range is not None:
            low, high = min(self._range[0], low), max(self._range[1], high)
        self._range = low, high
        self._widen(low, high)
        if self._whole:
            numbers = (values >> values.dtype.type(self._exponent)).astype(np.int64)
        else:
            numbers = np.floor(np.ldexp(values, -self._exponent)).astype(np.int64)
            if low < 0:
                # A value just below 0 may have been scaled to 0.
                np.minimum(numbers, -1, out=numbers, where=values < 0)
        first = int(numbers.min())
        self._merge(first, np.bincount(numbers - first, counts).astype(np.int64))

    def result(self) -> Histogram | None:
        """Return the bins from the first to the last nonempty one; None if there are no values."""
        if not len(self._counts):
            return None
        width = math.ldexp(1.0, self._exponent)
        # The bin of the least float64 begins below it.
        start = max(self._first * width, -sys.float_info.max)
        return Histogram(start, width, self._counts.tolist())

    def _widen(self, low: Any, high: Any) -> None:
        # Use half of the range, because the full range of float64 overflows.
        half = high // 2 - low // 2 if self._whole else high / 2 - low / 2
        exponent = max(
            self._exponent,
            _exponent(max(abs(low), abs(high))) - _DIGITS,
            _exponent(half) + 1 - _exponent(_MOST_BINS),
        )
        while _bin(high, exponent) - _bin(low, exponent) >= _MOST_BINS:
            exponent += 1
        if len(self._counts) and exponent > self._exponent:
            # A shift of 62 leaves only the sign, and NumPy allows no more.
            shift = min(exponent - self._exponent, 62)
            numbers = (self._first + np.arange(len(self._counts))) >> shift
            counts, self._counts = self._counts, np.zeros(0, np.int64)
            first = int(numbers[0])
            merged = np.zeros(int(numbers[-1]) - first + 1, np.int64)
            np.add.at(merged, numbers - first, counts)
            self._merge(first, merged)
        self._exponent = exponent

    def _merge(self, first: int, counts: npt.NDArray[np.int64]) -> None:
        if not len(self._counts):
            self._first, self._counts = first, counts
            return
        begin = min(first, self._first)
        end = max(first + len(counts), self._first + len(self._counts))
        merged = np.zeros(end - begin, np.int64)
        merged[self._first - begin :][: len(self._counts)] += self._counts
        merged[first - begin :][: len(counts)] += counts
        self._first, self._counts = begin, merged


def _exponent(value: float) -> int:
    """Return the exponent of the power of two above a value; the least one for 0."""
    if isinstance(value, int):
        return value.bit_length()
    return math.frexp(value)[1] if value else _LEAST_EXPONENT


def _bin(value: float, exponent: int) -> int:
    if isinstance(value, int):
        return value >> exponent
    number = math.floor(math.ldexp(value, -exponent))
    return min(number, -1) if value < 0 else number


class ValueCounter:
    """Counts values until there are too many different ones."""

    def __init__(self) -> None:
        self._counts: ValueCount[Any] | None = ValueCount()
        self._bytes = 0
        self._full = False

    @property
    def done(self) -> bool:
        """Whether more values would not be counted."""
        return self._full or self._counts is None

    def add_strings(self, strings: Ragged) -> None:
        """Count byte strings or text."""
        for start in range(0, len(strings), _STRINGS):
            if self.done:
                return
            assert self._counts is not None
            some = strings[start : start + _STRINGS]
            if int(some.lengths.max(initial=0)) > _LONGEST:
                self._counts = None
                return
            before = len(self._counts)
            self._counts.update(some.tolist())
            self._bytes += (len(self._counts) - before) * (int(some.lengths.mean()) + 1)
            self._full = len(self._counts) > _MOST_DISTINCT or self._bytes > _MOST_BYTES

    def add_integers(self, numbers: npt.NDArray[Any], low: int, high: int) -> None:
        """Count integers, of which ``low`` is the least and ``high`` is the greatest."""
        if self.done:
            return
        assert self._counts is not None
        if high - low >= _RANGE:
            self.add_numbers(numbers)
            return
        counts = np.bincount((numbers - numbers.dtype.type(low)).astype(np.uint16))
        places = np.flatnonzero(counts)
        for place, count in zip(places.tolist(), counts[places].tolist(), strict=True):
            self._counts[place + low] += count
        self._full = len(self._counts) > _MOST_DISTINCT

    def add_numbers(self, numbers: npt.NDArray[Any]) -> None:
        """Count numbers or dates. NaN and NaT are not counted."""
        if self.done:
            return
        assert self._counts is not None
        with np.errstate(invalid="ignore"):  # NumPy warns of NaN that is meant to be signalling
            values, counts = np.unique(numbers, return_counts=True)
            known = values == values  # noqa: PLR0124
        values, counts = values[known], counts[known]
        # As Python objects, dates would have other types for other units. Without a unit they have
        # no hash, and are numbers.
        if values.dtype.kind not in "mM":
            keys = values.tolist()
        elif np.datetime_data(values.dtype)[0] == "generic":
            keys = values.view(np.int64).tolist()
        else:
            keys = list(values)
        for value, count in zip(keys, counts.tolist(), strict=True):
            self._counts[value] += count
        self._full = len(self._counts) > _MOST_DISTINCT

    def result(self) -> ValueCounts | None:
        """Return the counts so far; None if there are no values, or they are too long."""
        if not self._counts:
            return None
        return most_common(self._counts, complete=not self._full)


def most_common(counts: ValueCount[Any], *, complete: bool = True) -> ValueCounts:
    """Return the values that occur most often; of equally frequent ones, the least first."""

    def order(pair: tuple[Any, int]) -> tuple[int, Any]:
        value, count = pair
        return -count, (value.real, value.imag) if isinstance(value, complex) else value

    top = sorted(counts.items(), key=order)[:_TOP]
    return ValueCounts(len(counts), complete, sum(counts.values()), top)
