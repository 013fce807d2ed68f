"""``shuffle``: all rows in a random order, computed position by position.

``shuffle(window=...)`` is for data that is slow to read at random: compressed files, hard disks.
The rows are divided into blocks of neighbours. The blocks come in a random order, eight of
them make a window, and the rows of a window are shuffled. So every read is a block long,
every row comes once, and one window of rows is in memory. Rows that were neighbours end up
at most a window apart: the rows are mixed as by a shuffle buffer of that size, over blocks
that were already shuffled. A compressed stream can only be read from start to end, so its
blocks keep their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from threading import Lock
from typing import Any

import numpy as np

from recmap.errors import OptionError, SlowOrderWarning
from recmap.files.block_cache import default_cache
from recmap.files.cpus import thread_share
from recmap.model.arguments import unknown_option
from recmap.model.batch import Positions, interleave, join, pick
from recmap.model.fetching import Fetching, fetching_all
from recmap.model.permutation import Permutation
from recmap.model.schema import Batch
from recmap.pipeline.lookahead import Lookahead, requests_of_shuffle
from recmap.pipeline.row_source import Rows, SourceRows
from recmap.pipeline.signature import Seed
from recmap.pipeline.transforms.base import ReorderedRows, WrappedRows
from recmap.pipeline.workers.pool import Request
from recmap.warn import warn

# Rows of this many bytes are worth a request of their own.
_SMALL_ROW = 64 << 10
# Blocks of a window.
_BLOCKS = 8
# Bytes of a window to fetch from a store before they are read.
_AHEAD = 64 << 20


class ShuffledRows(ReorderedRows):
    """All rows in a random order, which is new in every epoch if ``reshuffle``."""

    def __init__(self, rows: Rows, seed: Seed, reshuffle: bool = True) -> None:
        if rows.count is None:
            raise OptionError("endless rows cannot be shuffled; shuffle before repeat")
        super().__init__(rows, rows.count)
        self._seed, self._reshuffle, self._each = seed, reshuffle, rows.count
        self._order: tuple[tuple[int, int], Permutation] | None = None

    def numbers(self, positions: Positions, epoch: int) -> Positions:
        order, key = self._order, (self._seed.value, epoch if self._reshuffle else 0)
        if order is None or order[0] != key:
            self._order = order = (key, Permutation(self._each, key))
        return order[1].at(positions, thread_share())

    def _over(self, rows: Rows) -> Rows:
        return ShuffledRows(rows, self._seed, self._reshuffle)


class WindowShuffledRows(WrappedRows):
    """All rows, shuffled by windows; the order is new in every epoch if ``reshuffle``."""

    def __init__(self, rows: Rows, seed: Seed, window: int, reshuffle: bool = True) -> None:
        if rows.count is None:
            raise OptionError("endless rows cannot be shuffled; shuffle before repeat")
        if window < 2:
            raise OptionError(f"window={window}: a window has 2 rows or more")
        super().__init__(rows, rows.count)
        # One thread reads, so that only one window is in memory.
        self.in_order = self.keeps_blocks = True
        self._seed, self._window, self._reshuffle, self._each = seed, window, reshuffle, rows.count
        self._block = max(1, window // _BLOCKS)
        self._whole = rows.count // self._block
        self._window_rows = self._block * _BLOCKS
        self._keep_blocks = rows.keeps_blocks
        self._lock = Lock()
        self._held: tuple[tuple[int, int, int], Batch] | None = None

    def gather(self, positions: Positions, epoch: int) -> Batch:
        windows = positions // self._window_rows
        parts, places = [], []
        for window in np.unique(windows):
            mine = np.flatnonzero(windows == window)
            within = self._shuffle(int(window), epoch)[positions[mine] - window * self._window_rows]
            parts.append(pick(self._read_window(int(window), epoch), within))
            places.append(mine)
        return interleave(parts, places) if parts else self._rows.gather(positions, epoch)

    def _read_window(self, window: int, epoch: int) -> Batch:
        with self._lock:
            key = (self._seed.value, epoch, window)
            if self._held is None or self._held[0] != key:
                self._held = None  # free the window before the next one is read
                self._held = (key, self._read(window, epoch))
            return self._held[1]

    def _read(self, window: int, epoch: int) -> Batch:
        numbers = self._numbers(window, np.arange(self._size(window)), epoch)
        blocks = [
            Request(i, epoch, numbers[start : start + self._block])
            for i, start in enumerate(range(0, len(numbers), self._block))
        ]
        with closing(Lookahead(self._rows, _AHEAD)) as lookahead:
            read = lookahead.around(lambda block: self._rows.gather(block.positions, epoch))
            return join([read(block) for block in lookahead.over(blocks)])

    def fetch_ahead(self, positions: Positions, epoch: int) -> Fetching | None:
        """Begin to fetch the first rows of the windows that come next."""
        held = self._held
        windows = np.unique(positions // self._window_rows).tolist()
        count = max(1, _AHEAD // self._rows.row_bytes())
        return fetching_all(
            self._rows.fetch_ahead(
                self._numbers(window, np.arange(min(count, self._size(window))), epoch), epoch
            )
            for window in windows
            if held is None or held[0] != (self._seed.value, epoch, window)
        )

    def _size(self, window: int) -> int:
        return min(self._window_rows, self._each - window * self._window_rows)

    def _shuffle(self, window: int, epoch: int) -> Permutation:
        return Permutation(self._size(window), [*self._key(epoch), 1, window])

    def _key(self, epoch: int) -> tuple[int, int]:
        return self._seed.value, epoch if self._reshuffle else 0

    def _numbers(self, window: int, within: Positions, epoch: int) -> Positions:
        """Return the rows of a window, before they are shuffled."""
        place = within + window * self._window_rows
        blocks, offsets = np.divmod(place, self._block)
        # The rows after the last whole block stay at the end.
        whole = blocks < self._whole
        if not self._keep_blocks and self._whole:
            order = Permutation(self._whole, [*self._key(epoch), 0])
            blocks[whole] = order[blocks[whole]]
        return blocks * self._block + offsets

    def _over(self, rows: Rows) -> Rows:
        made = WindowShuffledRows(rows, self._seed, self._window, self._reshuffle)
        made._keep_blocks = self._keep_blocks
        return made

    def origin(self, position: int, epoch: int) -> str:
        window, within = divmod(position, self._window_rows)
        place = self._shuffle(window, epoch)[np.array([within])]
        return self._rows.origin(int(self._numbers(window, place, epoch)[0]), epoch)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_held": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({**state, "_lock": Lock()})


def _requests(source: SourceRows) -> int:
    """Return how many requests a shuffle of small rows takes; 0 if there is no need to warn."""
    size = source.remote_bytes
    if not size or source.in_order or source.row_bytes() >= _SMALL_ROW:
        return 0
    cache = default_cache()
    if cache is not None and cache.budget.size >= size:
        return 0
    requests = requests_of_shuffle(source.reach, source.row_bytes(), size)
    return requests if requests > source.reach // 2 else 0


def refuse_sizes(positional: Sequence[Any], unknown: Mapping[str, Any]) -> None:
    """Refuse a buffer size, which other libraries take, and unknown options."""
    for name in unknown:
        if name != "buffer_size":  # the name in tf.data
            raise unknown_option(name, ("reshuffle", "seed", "window"), "shuffle: ")
    sizes = [*positional, *unknown.values()]
    if sizes:
        raise OptionError(
            f"shuffle({', '.join(map(repr, sizes))}): recmap's shuffle is exact and needs no "
            f"buffer; write shuffle(), or shuffle(seed={sizes[0]!r}) for a repeatable "
            "order"
        )


def warn_if_slow(rows: Rows, sources: Sequence[SourceRows]) -> None:
    """Warn about an exact shuffle of rows that are fast to read only in order.

    These are rows that are compressed together, and small rows in a store if the disk cache
    does not take all of them.
    """
    requests = sum(map(_requests, sources))
    if requests:
        warn(
            f"these rows are in a store and small: a full shuffle takes about {requests:,} "
            "requests in every epoch; use shuffle(window=100_000), which reads in pieces, or "
            "give the disk cache more room with RECMAP_CACHE_SIZE",
            SlowOrderWarning,
        )
    if rows.in_order:
        warn(
            "these rows are fast to read only in order, and a full shuffle reads a lot of data "
            "for each row; use shuffle(window=100_000), or convert the file first",
            SlowOrderWarning,
        )
