"""Random draws that are computed: a pure function of a key and a position.

The draw at any position takes the same time, needs no draw before it, and is the same on every
machine: only integers and the exactly rounded operations of IEEE 754 are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.model.batch import Positions, RowArray
from recmap.model.permutation import Permutation
from recmap.native import _core

Floats: TypeAlias = npt.NDArray[np.float64]
# The step of SplitMix64.
_STEP, _ALL_BITS = 0x9E3779B97F4A7C15, (1 << 64) - 1
_LN2 = 0.6931471805599453
# log(m) = 2 atanh((m - 1) / (m + 1)) is a series of odd powers. These are enough for 53 bits.
_TERMS = range(21, 0, -2)
# Rows to compute with at a time.
_PART = 1 << 13


def key_of(seed: Sequence[int]) -> np.uint64:
    """Return the key of a stream of random numbers."""
    return np.uint64(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])


def hashed(numbers: npt.NDArray[np.uint64], key: np.uint64) -> npt.NDArray[np.uint64]:
    """Hash numbers with SplitMix64."""
    mixed = numbers * np.uint64(_STEP)
    mixed += np.uint64((int(key) + _STEP) & _ALL_BITS)
    shifted = mixed >> np.uint64(30)
    mixed ^= shifted
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= np.right_shift(mixed, np.uint64(27), out=shifted)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= np.right_shift(mixed, np.uint64(31), out=shifted)
    return mixed


def below(count: int, positions: Positions, key: np.uint64) -> RowArray:
    """Return a whole number below ``count`` for each position."""
    return _below(count, positions, key)[0]


def _below(count: int, positions: Positions, key: np.uint64) -> tuple[RowArray, Floats]:
    """Return a number below ``count`` for each position, and one from 0 to 1 for the next draw.

    Both are parts of one random number of 53 bits, so for a billion rows a chance is off by
    a ten-millionth of itself.
    """
    # The largest random number times any count is rounded to less than the count.
    drawn = hashed(positions.view(np.uint64), key)
    drawn >>= np.uint64(11)
    # Signed integers become floats faster than unsigned ones.
    chances = drawn.view(np.int64).astype(np.float64)
    chances *= count * 2.0**-53
    whole = chances.astype(np.int64)
    chances -= whole
    return whole, chances


def logarithm(numbers: Floats) -> Floats:
    """Return natural logarithms. Those of NumPy differ in the last bit from CPU to CPU.

    >>> bool(np.allclose(logarithm(np.array([1e-300, 0.3, 7.0])), np.log([1e-300, 0.3, 7.0])))
    True
    """
    mantissa, exponent = np.frexp(numbers)
    low = mantissa < 0.7071067811865476
    mantissa, exponent = np.where(low, mantissa * 2, mantissa), exponent - low
    ratio = (mantissa - 1) / (mantissa + 1)
    square, series = ratio * ratio, np.zeros_like(ratio)
    for power in _TERMS:
        series = series * square + 1 / power
    found: Floats = 2 * ratio * series + exponent * _LN2
    return found


class AliasTable:
    """Draws rows in proportion to their weights, each in constant time.

    Each row has a slot. A slot gives its own row with a chance of ``keep``, and another row
    otherwise. Slots of light rows take what they lack from one heavy row after another; a heavy
    row that has given too much takes the rest from the next heavy one.

    A slot is one integer, so that a draw looks up one place in memory: the chance in the upper
    32 bits, and the other row in the lower ones.
    """

    MOST_ROWS = 1 << 32

    def __init__(self, weights: Floats) -> None:
        count = len(weights)
        scaled = weights / weights.max()  # no sum is too large
        shares = scaled * (count / np.cumsum(scaled)[-1])
        is_heavy = shares >= 1
        is_heavy[np.argmax(scaled)] = True  # even if all shares were rounded down
        del scaled
        heavy, light = np.flatnonzero(is_heavy), np.flatnonzero(~is_heavy)
        given = np.cumsum(np.maximum(shares[heavy] - 1, 0))
        lacking = 1 - shares[light]
        taken = np.cumsum(lacking)
        keep, other = shares, np.arange(count, dtype=np.uint64)
        first = np.searchsorted(given, taken - lacking, side="left")
        other[light] = heavy[np.minimum(first, len(heavy) - 1)]
        past = np.searchsorted(taken, given, side="right")
        over = np.flatnonzero(past[:-1] < len(light))  # the last heavy row keeps what is left
        keep[heavy] = 1.0
        keep[heavy[over]] = np.clip(1 + given[over] - taken[past[over]], 0, 1)
        other[heavy[over]] = heavy[over + 1]
        chances = np.minimum(np.rint(keep * 2.0**32), 2.0**32 - 1).astype(np.uint64)
        self._slots = (chances << np.uint64(32)) | other

    def at(self, positions: Positions, key: np.uint64, threads: int = 1) -> RowArray:
        """Return the row that is drawn at each position, computed on ``threads`` threads."""
        rows = np.array(positions, np.int64, order="C")
        _core.draw_by_slots(self._slots, int(key), rows, threads)
        return rows


class Classes:
    """The rows of each class, to draw a class evenly and then a row of it.

    ``codes`` has the number of the class of each row; every class has rows.
    """

    def __init__(self, codes: npt.NDArray[Any], count: int) -> None:
        self.sizes = np.bincount(codes, minlength=count).astype(np.int64)
        self._starts = np.cumsum(self.sizes) - self.sizes
        # NumPy sorts small integers in linear time.
        small = codes.astype(np.min_scalar_type(max(0, count - 1)))
        self._members = np.argsort(small, kind="stable").astype(_index_type(len(codes)))

    def at(self, positions: Positions, key: np.uint64) -> RowArray:
        """Return the row that is drawn at each position."""
        classes, chances = _below(len(self.sizes), positions, key)
        chances *= self.sizes.take(classes)
        return self.members(classes, chances.astype(np.int64))

    def members(self, classes: RowArray, places: Positions) -> RowArray:
        """Return the row at a place in each of these classes."""
        return self._members.take(self._starts.take(classes) + places).astype(np.int64)

    def evenly(self, count: int, seed: Sequence[int]) -> RowArray:
        """Return ``count`` different rows in random order, equally many of each class.

        If that does not come out even, some classes, chosen at random, have one more.
        """
        classes = len(self.sizes)
        dealt = Permutation(classes, [*seed, 1])[np.arange(classes)]
        shares = np.full(classes, count // classes)
        shares[dealt[: count % classes]] += 1
        rows = [
            self.members(
                np.full(share, number),
                Permutation(int(self.sizes[number]), [*seed, 2, number])[np.arange(share)],
            )
            for number, share in enumerate(shares.tolist())
        ]
        return np.concatenate(rows)[Permutation(count, [*seed, 3])[np.arange(count)]]


class Arrivals:
    """Draws different rows, as if each were drawn by weight from those not drawn yet.

    Rows come in the order of exponential arrival times, at rates that are their weights
    (Efraimidis and Spirakis). Their logarithms are compared, which cannot overflow.
    """

    def __init__(self, weights: Floats) -> None:
        self._rows: npt.NDArray[Any] = np.flatnonzero(weights).astype(_index_type(len(weights)))
        self._rates = np.empty(len(self._rows))
        for some in self._parts():
            self._rates[some] = logarithm(weights[self._rows[some]])

    def _parts(self) -> Iterator[slice]:
        """Yield slices of all rows that are small enough for the cache of a CPU."""
        for start in range(0, len(self._rows), _PART):
            yield slice(start, start + _PART)

    def first(self, count: int, key: np.uint64) -> RowArray:
        """Return the rows that come first, in order."""
        rows, times = self._rows, np.empty(len(self._rows))
        for some in self._parts():
            drawn = hashed(rows[some].astype(np.uint64), key) >> np.uint64(12)
            chances = (drawn.astype(np.float64) + 0.5) * 2.0**-52  # neither 0 nor 1
            times[some] = logarithm(-logarithm(chances)) - self._rates[some]
        if count < len(rows):
            last = np.partition(times, max(0, count - 1))[max(0, count - 1)]
            soon = np.flatnonzero(times <= last)
            rows, times = rows[soon], times[soon]
        return rows[np.argsort(times, kind="stable")[:count]]


def _index_type(count: int) -> type[np.int32 | np.int64]:
    """Return a type for row numbers below ``count``, in half the memory if that is possible."""
    return np.int32 if count <= np.iinfo(np.int32).max else np.int64
