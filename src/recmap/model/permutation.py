"""A random order of any number of rows, in constant memory.

The order is a keyed bijection of [0, n): the position of a row is computed, not looked up.
Orders of few rows are stored instead, because in a small range the computed orders are not all
equally likely.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError, RowNotFoundError
from recmap.model.batch import Positions, RowArray
from recmap.model.order import Order
from recmap.native import _core

_ROUNDS = 8
_FEW = 1 << 10


class Permutation(Order):
    """A shuffled order of ``n`` rows. ``seed`` is one number or a sequence of numbers.

    >>> order = Permutation(5, seed=1)[np.arange(5)]
    >>> sorted(order.tolist())
    [0, 1, 2, 3, 4]
    """

    def __init__(self, n: int, seed: int | Sequence[int]) -> None:
        if n < 0:
            raise OptionError(f"cannot permute {n} rows")
        self.n = n
        entropy = np.random.SeedSequence(seed)
        self._keys = entropy.generate_state(_ROUNDS, np.uint32).astype(np.uint32)
        # Avoid np.random.Generator: its numbers may change between NumPy releases.
        self._order = (
            np.argsort(entropy.generate_state(n, np.uint64), kind="stable") if n <= _FEW else None
        )

    @property
    def count(self) -> int:
        return self.n

    def numbers(self, positions: Positions, epoch: int = 0) -> RowArray:
        del epoch
        return self.at(positions)

    def __getitem__(self, positions: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the row numbers at these positions of the shuffled order."""
        return self.at(positions)

    def at(self, positions: npt.ArrayLike, threads: int = 1) -> npt.NDArray[np.int64]:
        """Return the row numbers at these positions, computed on ``threads`` threads."""
        return self._permuted(positions, threads=threads)

    def positions_of(self, rows: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the positions of these rows in the shuffled order."""
        return self._permuted(rows, back=True)

    def _permuted(
        self, numbers: npt.ArrayLike, *, back: bool = False, threads: int = 1
    ) -> npt.NDArray[np.int64]:
        permuted = np.array(numbers, dtype=np.int64, order="C")
        if self._order is not None:
            if permuted.size and (int(permuted.min()) < 0 or int(permuted.max()) >= self.n):
                raise RowNotFoundError(f"a row number outside of {self.n:,} rows")
            return (np.argsort(self._order) if back else self._order)[permuted]
        try:
            _core.permute(self.n, self._keys, back, permuted.reshape(-1), threads)
        except IndexError:
            raise RowNotFoundError(f"a row number outside of {self.n:,} rows") from None
        return permuted
