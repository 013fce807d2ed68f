"""``shuffle``: all rows in a random order, computed position by position."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from recmap.errors import OptionError, SlowOrderWarning
from recmap.model.arguments import unknown_option
from recmap.model.batch import Positions
from recmap.model.permutation import Permutation
from recmap.pipeline.row_source import Rows
from recmap.pipeline.signature import Seed
from recmap.pipeline.transforms.base import ReorderedRows

__all__ = ["ShuffledRows", "refuse_sizes", "warn_if_slow"]


class ShuffledRows(ReorderedRows):
    """All rows in a random order, which is new in every epoch unless ``reshuffle`` is false."""

    def __init__(self, rows: Rows, seed: Seed, reshuffle: bool = True) -> None:
        if rows.count is None:
            raise OptionError("rows without end cannot be shuffled; shuffle before repeat")
        super().__init__(rows, rows.count)
        self._seed, self._reshuffle, self._each = seed, reshuffle, rows.count
        self._order: tuple[tuple[int, int], Permutation] | None = None

    def numbers(self, positions: Positions, epoch: int) -> Positions:
        order, key = self._order, (self._seed.value, epoch if self._reshuffle else 0)
        if order is None or order[0] != key:
            self._order = order = (key, Permutation(self._each, key))
        return order[1][positions]

    def _over(self, rows: Rows) -> Rows:
        return ShuffledRows(rows, self._seed, self._reshuffle)

    def describe(self) -> list[Any]:
        return ["shuffled", self._rows.describe(), self._seed.value]


def refuse_sizes(positional: Sequence[Any], unknown: Mapping[str, Any]) -> None:
    """Refuse a buffer size, which other libraries take, and unknown options."""
    for name in unknown:
        if name != "buffer_size":  # the name in tf.data
            raise unknown_option(name, ("reshuffle", "seed", "window"), "shuffle: ")
    sizes = [*positional, *unknown.values()]
    if sizes:
        raise OptionError(
            f"shuffle({', '.join(map(repr, sizes))}): recmap's shuffle is exact and needs no "
            f"buffer; write shuffle(), or shuffle(seed={sizes[0]!r}) for an order that can be had "
            "again"
        )


def warn_if_slow(rows: Rows) -> None:
    """Warn about an exact shuffle of rows that are fast to read only in order."""
    if rows.in_order:
        warnings.warn(
            "these rows are read well only in order, and a shuffle of all of them reads much "
            "for each; use shuffle(window=100_000), or convert the file first",
            SlowOrderWarning,
            stacklevel=3,
        )
