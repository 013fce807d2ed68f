"""A random order of any number of rows that needs no memory.

A keyed bijection of [0, n): the position of a row in the shuffled order is computed,
not looked up. Only of a few rows the order is kept, for in so small a range the
computed ones are not all equally likely.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError, RowNotFoundError
from recmap.native import _core

__all__ = ["Permutation"]

_ROUNDS = 8
_FEW = 1 << 10


class Permutation:
    """The order of ``n`` rows that ``seed`` gives: a number, or several.

    >>> order = Permutation(5, seed=1)[np.arange(5)]
    >>> sorted(order.tolist())
    [0, 1, 2, 3, 4]
    """

    def __init__(self, n: int, seed: int | Sequence[int]) -> None:
        if n < 0:
            raise OptionError(f"a permutation of {n} rows")
        self.n = n
        chance = np.random.SeedSequence(seed)
        self._keys = chance.generate_state(_ROUNDS, np.uint32).astype(np.uint32)
        # Not of a Generator, whose numbers may change from one release to the next.
        self._order = (
            np.argsort(chance.generate_state(n, np.uint64), kind="stable") if n <= _FEW else None
        )

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, positions: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """The rows at these positions of the shuffled order."""
        return self._permuted(positions, back=False)

    def positions_of(self, rows: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Where these rows are in the shuffled order."""
        return self._permuted(rows, back=True)

    def _permuted(self, numbers: npt.ArrayLike, *, back: bool) -> npt.NDArray[np.int64]:
        permuted = np.array(numbers, dtype=np.int64, order="C")
        if self._order is not None:
            if permuted.size and (int(permuted.min()) < 0 or int(permuted.max()) >= self.n):
                raise RowNotFoundError(f"a number outside of {self.n:,} rows")
            return (np.argsort(self._order) if back else self._order)[permuted]
        try:
            _core.permute(self.n, self._keys, back, permuted.reshape(-1))
        except IndexError:
            raise RowNotFoundError(f"a number outside of {self.n:,} rows") from None
        return permuted
