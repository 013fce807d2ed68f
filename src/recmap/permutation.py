"""A random order of any number of rows that needs no memory.

A keyed bijection of [0, n): the position of a row in the shuffled order is computed,
not looked up. It is a Feistel network over the next even power of two; values that
fall outside are sent through again until they fall inside, which keeps it a bijection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError, RowNotFoundError

__all__ = ["Permutation"]

_ROUNDS = 8
_U64 = np.uint64
_Words: TypeAlias = npt.NDArray[np.uint64]


class Permutation:
    """The order of ``n`` rows that ``seed`` gives.

    >>> order = Permutation(5, seed=1)[np.arange(5)]
    >>> sorted(order.tolist())
    [0, 1, 2, 3, 4]
    """

    def __init__(self, n: int, seed: int) -> None:
        if n < 0:
            raise OptionError(f"a permutation of {n} rows")
        self.n = n
        half = ((max(n, 2) - 1).bit_length() + 1) // 2
        self._half, self._mask = _U64(half), _U64((1 << half) - 1)
        keys = np.random.SeedSequence(seed).generate_state(_ROUNDS, np.uint64)
        self._keys = [_U64(key) for key in keys]

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, positions: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """The rows at these positions of the shuffled order."""
        return self._walk(positions, self._forth)

    def positions_of(self, rows: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Where these rows are in the shuffled order."""
        return self._walk(rows, self._back)

    def _walk(
        self, numbers: npt.ArrayLike, step: Callable[[_Words], _Words]
    ) -> npt.NDArray[np.int64]:
        x = np.asarray(numbers, dtype=np.int64)
        if x.size and (int(x.min()) < 0 or int(x.max()) >= self.n):
            raise RowNotFoundError(f"a number outside of {self.n:,} rows")
        values = step(x.ravel().astype(np.uint64))
        outside = np.flatnonzero(values >= _U64(self.n))
        while outside.size:
            values[outside] = step(values[outside])
            outside = outside[values[outside] >= _U64(self.n)]
        return values.astype(np.int64).reshape(x.shape)

    def _forth(self, x: _Words) -> _Words:
        left, right = x >> self._half, x & self._mask
        for key in self._keys:
            left, right = right, left ^ (_mix(right ^ key) & self._mask)
        return (left << self._half) | right

    def _back(self, x: _Words) -> _Words:
        left, right = x >> self._half, x & self._mask
        for key in reversed(self._keys):
            left, right = right ^ (_mix(left ^ key) & self._mask), left
        return (left << self._half) | right


def _mix(x: _Words) -> _Words:
    # The finalizer of splitmix64; the products wrap around, as they must.
    x = (x ^ (x >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> _U64(27))) * _U64(0x94D049BB133111EB)
    return x ^ (x >> _U64(31))
