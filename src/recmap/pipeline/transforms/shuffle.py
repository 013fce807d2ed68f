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

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from threading import Lock
from typing import Any

import numpy as np

from recmap.cache.block_cache import default_cache
from recmap.errors import OptionError, SlowOrderWarning
from recmap.machine.cpus import thread_share
from recmap.model.batch import Positions, RowArray, RowNumbers, interleave, join, pick
from recmap.model.facts import SourceFacts, with_facts
from recmap.model.fetching import Fetching, fetching_all
from recmap.model.order import Late, Order, counted_order
from recmap.model.ordered_rows import OrderedRows
from recmap.model.permutation import Permutation
from recmap.model.schema import Batch
from recmap.model.source import Source, at_epoch
from recmap.pipeline.row_source import SourceRows
from recmap.pipeline.signature import Seed
from recmap.pipeline.workers.lookahead import Lookahead, requests_of_shuffle
from recmap.pipeline.workers.pool import Request
from recmap.warn import warn

# Rows of this many bytes are worth a request of their own.
_SMALL_ROW = 64 << 10
# Blocks of a window.
_BLOCKS = 8
# Bytes of a window to fetch from a store before they are read.
_AHEAD = 64 << 20


def shuffled(rows: Source, seed: Seed, window: int | None, reshuffle: bool) -> OrderedRows:
    """Return all rows in a random order, by windows if ``window`` is given."""
    if rows.facts.endless:
        raise OptionError("endless rows cannot be shuffled; shuffle before repeat")
    if window is None:
        make = partial(Shuffle, seed=seed, reshuffle=reshuffle)
        return OrderedRows(rows, counted_order(rows, make, varies=reshuffle, permutes=True))
    if window < 2:
        raise OptionError(f"window={window}: a window has 2 rows or more")
    keep = rows.facts.stored_in_order
    windows = partial(
        WindowShuffle, seed=seed, window=window, reshuffle=reshuffle, keep_blocks=keep
    )
    return WindowedRows(rows, counted_order(rows, windows, varies=reshuffle), window)


class Shuffle(Order):
    """A random order, which is new in every epoch if ``reshuffle``."""

    def __init__(self, count: int, seed: Seed, reshuffle: bool = True) -> None:
        self._count, self._seed, self._reshuffle = count, seed, reshuffle
        self._last: tuple[tuple[int, int], Permutation] | None = None

    @property
    def count(self) -> int:
        return self._count

    @property
    def varies(self) -> bool:
        return self._reshuffle

    def numbers(self, positions: Positions, epoch: int = 0) -> RowArray:
        return self.permutation(epoch).at(positions, thread_share())

    def permutation(self, epoch: int) -> Permutation:
        last, key = self._last, (self._seed.value, epoch if self._reshuffle else 0)
        if last is None or last[0] != key:
            self._last = last = (key, Permutation(self._count, key))
        return last[1]


class WindowShuffle(Order):
    """A random order of blocks, and of the rows in each window of several blocks."""

    def __init__(
        self, count: int, seed: Seed, window: int, reshuffle: bool, *, keep_blocks: bool
    ) -> None:
        self._count, self._seed, self._reshuffle = count, seed, reshuffle
        self._keep_blocks = keep_blocks
        self.block, self.window = _block_rows(window), _block_rows(window) * _BLOCKS
        self._whole = count // self.block

    @property
    def count(self) -> int:
        return self._count

    @property
    def varies(self) -> bool:
        return self._reshuffle

    def numbers(self, positions: Positions, epoch: int = 0) -> RowArray:
        numbers = np.empty_like(positions)
        for window, mine, within in self.by_window(positions, epoch):
            numbers[mine] = self.window_rows(window, within, epoch)
        return numbers

    def by_window(
        self, positions: Positions, epoch: int
    ) -> Iterator[tuple[int, Positions, Positions]]:
        """Yield each window, the places of its positions, and its rows there, as it is read."""
        windows = positions // self.window
        for window in np.unique(windows).tolist():
            mine = np.flatnonzero(windows == window)
            order = Permutation(self.size(window), [*self.key(epoch), 1, window])
            yield window, mine, order[positions[mine] - window * self.window]

    def window_rows(self, window: int, within: Positions, epoch: int) -> RowArray:
        """Return the numbers of rows of a window, in the order in which it is read."""
        blocks, offsets = np.divmod(within + window * self.window, self.block)
        # The rows after the last whole block stay at the end.
        whole = blocks < self._whole
        if not self._keep_blocks and self._whole:
            order = Permutation(self._whole, [*self.key(epoch), 0])
            blocks[whole] = order[blocks[whole]]
        return blocks * self.block + offsets

    def size(self, window: int) -> int:
        """Return the number of rows of a window; the last may have fewer."""
        return min(self.window, self._count - window * self.window)

    def key(self, epoch: int) -> tuple[int, int]:
        """Return what the order of an epoch is drawn from."""
        return self._seed.value, epoch if self._reshuffle else 0


def _block_rows(window: int) -> int:
    return max(1, window // _BLOCKS)


class _HeldWindow:
    """The window that was read last. Another process reads its own."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.key: tuple[int, ...] = ()
        self.batch: Batch = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return _HeldWindow, ()


class WindowedRows(OrderedRows):
    """Rows that are shuffled by windows. A window is read as a whole, and held."""

    def __init__(self, source: Source, order: Order, window: int) -> None:
        super().__init__(source, order)
        self._window_rows, self._held = window, _HeldWindow()

    def _over(self, source: Source) -> WindowedRows:
        return WindowedRows(source, self._order, self._window_rows)

    @property
    def _windows(self) -> WindowShuffle:
        order = self._order.made if isinstance(self._order, Late) else self._order
        assert isinstance(order, WindowShuffle)
        return order

    # One thread reads, so that only one window is in memory.

    @property
    def facts(self) -> SourceFacts:
        return with_facts(
            super().facts,
            chunk_rows=partial(int, _block_rows(self._window_rows) * _BLOCKS),
            stored_in_order=True,
            can_pad=False,
        )

    def gather(self, rows: RowArray) -> Batch:
        parts, places = [], []
        for window, mine, within in self._windows.by_window(rows, self._epoch):
            parts.append(pick(self._window(window), within))
            places.append(mine)
        return interleave(parts, places) if parts else self._source.gather(rows)

    def _window(self, window: int) -> Batch:
        held = self._held
        with held.lock:
            key = (*self._windows.key(self._epoch), self._epoch, window)
            if held.key != key:
                held.batch, held.key = {}, ()  # free the window before the next one is read
                held.batch, held.key = self._read_window(window), key
            return held.batch

    def _read_window(self, window: int) -> Batch:
        order, epoch = self._windows, self._epoch
        numbers = order.window_rows(window, np.arange(order.size(window)), epoch)
        if not self._source.facts.remote:
            return at_epoch(self._source, epoch).gather(numbers)
        blocks = [
            Request(i, epoch, numbers[start : start + order.block])
            for i, start in enumerate(range(0, len(numbers), order.block))
        ]
        source = at_epoch(self._source, epoch)
        with closing(Lookahead(source, _AHEAD)) as lookahead:
            read = lookahead.around(lambda block: source.gather(block.positions))
            return join([read(block) for block in lookahead.over(blocks)])

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        """Begin to fetch the first rows of the windows that come next."""
        order, epoch, held = self._windows, self._epoch, self._held.key
        source, count = at_epoch(self._source, epoch), max(1, _AHEAD // self._source.row_bytes())
        return fetching_all(
            source.fetch_ahead(
                order.window_rows(window, np.arange(min(count, order.size(window))), epoch)
            )
            for window in np.unique(np.asarray(rows, np.int64) // order.window).tolist()
            if held != (*order.key(epoch), epoch, window)
        )


def _requests(source: SourceRows) -> int:
    """Return how many requests a shuffle of small rows takes; 0 if there is no need to warn."""
    size = source.remote_bytes
    if not size or source.facts.chunk_rows() > 1 or source.row_bytes() >= _SMALL_ROW:
        return 0
    cache = default_cache()
    if cache is not None and cache.budget.size >= size:
        return 0
    rows = source.known_rows()
    if rows is None:  # a warning is not worth counting them
        rows = size // source.row_bytes()
    requests = requests_of_shuffle(rows, source.row_bytes(), size)
    return requests if requests > rows // 2 else 0


def refuse_sizes(sizes: Sequence[Any]) -> None:
    """Refuse a buffer size, which other libraries take."""
    if sizes:
        raise OptionError(
            f"shuffle({', '.join(map(repr, sizes))}): recmap's shuffle is exact and needs no "
            f"buffer; write shuffle(), or shuffle(seed={sizes[0]!r}) for a repeatable "
            "order"
        )


def warn_if_slow(rows: Source, sources: Sequence[SourceRows], verb: str = "shuffle") -> None:
    """Warn about a random order of rows that are fast to read only in order.

    These are rows that are compressed together, and small rows in a store if the disk cache
    does not take all of them.
    """
    what = "a full shuffle" if verb == "shuffle" else verb
    window = "use shuffle(window=100_000)" if verb == "shuffle" else ""
    requests = sum(map(_requests, sources)) if rows.facts.remote else 0
    if requests:
        instead = f"{window}, which reads in pieces, or " if window else ""
        warn(
            f"these rows are in a store and small: {what} takes about {requests:,} requests in "
            f"every epoch; add .cache() before {verb}, {instead}give the disk cache more room "
            "with RECMAP_CACHE_SIZE",
            SlowOrderWarning,
        )
    if rows.facts.chunk_rows() > 1:
        instead = f", or {window}" if window else ""
        warn(
            f"these rows are fast to read only in order, and {what} reads a lot of data for each "
            f"row; add .cache() before {verb}{instead}",
            SlowOrderWarning,
        )
