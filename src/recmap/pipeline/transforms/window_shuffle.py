"""``shuffle(window=...)``, for data that is slow to read at random: compressed files, hard disks.

The rows are divided into blocks of neighbours. The blocks come in a random order, eight of
them make a window, and the rows of a window are shuffled. So every read is a block long,
every row comes once, and one window of rows is in memory. Rows that were neighbours end up
at most a window apart: the rows are mixed as by a shuffle buffer of that size, over blocks
that were already shuffled. A compressed stream can only be read from start to end, so its
blocks keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np

from recmap.errors import OptionError
from recmap.model.batch import Positions, interleave, join, pick
from recmap.model.permutation import Permutation
from recmap.model.schema import Batch, Schema
from recmap.pipeline.row_source import Rows
from recmap.pipeline.signature import Seed

__all__ = ["WindowShuffledRows"]

_BLOCKS = 8


class WindowShuffledRows:
    """All rows, shuffled by windows; the order is new in every epoch if ``reshuffle``."""

    #: One thread reads, so that only one window is in memory.
    in_order = True

    def __init__(self, rows: Rows, seed: Seed, window: int, reshuffle: bool = True) -> None:
        if rows.count is None:
            raise OptionError("rows without end cannot be shuffled; shuffle before repeat")
        if window < 2:
            raise OptionError(f"window={window}: a window has 2 rows or more")
        self._rows, self._seed, self._window = rows, seed, window
        self._reshuffle = reshuffle
        self.count, self.calls_user_code = rows.count, rows.calls_user_code
        self._block = max(1, window // _BLOCKS)
        self._whole = rows.count // self._block
        self._group = self._block * _BLOCKS
        self._keep_blocks = rows.in_order
        self._lock = Lock()
        self._held: tuple[tuple[int, int, int], Batch] | None = None

    @property
    def schema(self) -> Schema:
        return self._rows.schema

    def gather(self, positions: Positions, epoch: int) -> Batch:
        groups = positions // self._group
        parts, places = [], []
        for group in np.unique(groups):
            mine = np.flatnonzero(groups == group)
            within = self._shuffle(int(group), epoch)[positions[mine] - group * self._group]
            parts.append(pick(self._window_rows(int(group), epoch), within))
            places.append(mine)
        return interleave(parts, places) if parts else self._rows.gather(positions, epoch)

    def _window_rows(self, group: int, epoch: int) -> Batch:
        with self._lock:
            key = (self._seed.value, epoch, group)
            if self._held is None or self._held[0] != key:
                self._held = None  # free the window before the next one is read
                self._held = (key, self._read(group, epoch))
            return self._held[1]

    def _read(self, group: int, epoch: int) -> Batch:
        numbers = self._numbers(group, np.arange(self._size(group)), epoch)
        blocks = [numbers[i : i + self._block] for i in range(0, len(numbers), self._block)]
        return join([self._rows.gather(block, epoch) for block in blocks])

    def _size(self, group: int) -> int:
        assert self.count is not None
        return min(self._group, self.count - group * self._group)

    def _shuffle(self, group: int, epoch: int) -> Permutation:
        return Permutation(self._size(group), [*self._key(epoch), 1, group])

    def _key(self, epoch: int) -> tuple[int, int]:
        return self._seed.value, epoch if self._reshuffle else 0

    def _numbers(self, group: int, within: Positions, epoch: int) -> Positions:
        """Return the rows of a window, before they are shuffled."""
        place = within + group * self._group
        blocks, offsets = np.divmod(place, self._block)
        # The rows after the last whole block stay at the end.
        whole = blocks < self._whole
        if not self._keep_blocks and self._whole:
            order = Permutation(self._whole, [*self._key(epoch), 0])
            blocks[whole] = order[blocks[whole]]
        return blocks * self._block + offsets

    def select(self, columns: Sequence[str]) -> WindowShuffledRows:
        return self._over(self._rows.select(columns))

    def reseeded(self, by: int) -> WindowShuffledRows:
        return self._over(self._rows.reseeded(by))

    def _over(self, rows: Rows) -> WindowShuffledRows:
        """Return other rows in the same order."""
        made = WindowShuffledRows(rows, self._seed, self._window, self._reshuffle)
        made._keep_blocks = self._keep_blocks
        return made

    def row_bytes(self) -> int:
        return self._rows.row_bytes()

    def origin(self, position: int, epoch: int) -> str:
        group, within = divmod(position, self._group)
        place = self._shuffle(group, epoch)[np.array([within])]
        return self._rows.origin(int(self._numbers(group, place, epoch)[0]), epoch)

    def describe(self) -> list[Any]:
        return ["windowed", self._rows.describe(), self._seed.value, self._window]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_held": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({**state, "_lock": Lock()})
