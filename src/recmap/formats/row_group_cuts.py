"""Divide row groups into pieces that fit into the memory, before they are decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

# A damaged file may claim any number of rows. It is divided into this many pieces at most, and the
# last one, which has all other rows, is never reached.
_MOST_PIECES = 1 << 17
# Pieces of equally many rows are preferred, even if some have a quarter more than they should.
_MORE = 4


class Cells(NamedTuple):
    """The rows of a column by cells, such as pages: where each ends, and how many bytes it has.

    One row of a cell may have all of its bytes. A row may go on in the next cell, so that several
    have the same end.
    """

    ends: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]


class Cuts(NamedTuple):
    """Where pieces begin and the last one ends, and about how many bytes each of them takes."""

    starts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]


def even_cuts(rows: int, row_bytes: int, size: int) -> Cuts:
    """Divide rows that are equally large."""
    # A power of two, so that it stays the same when a few rows turn out larger, and that batches
    # of usual sizes end with a piece.
    step = 1 << (max(1, size // max(1, row_bytes)).bit_length() - 1)
    starts = np.append(_starts(0, rows, step), rows)
    return Cuts(starts, np.diff(starts) * row_bytes)


def _starts(begin: int, end: int, step: int) -> npt.NDArray[np.int64]:
    return np.arange(begin, min(end, begin + step * _MOST_PIECES), step, dtype=np.int64)


def cut(columns: Sequence[Cells], rows: int, row_bytes: int, size: int) -> Cuts:
    """Divide rows into pieces of at most ``size`` bytes, as far as cells allow.

    ``row_bytes`` is what a row takes in the other columns. If the largest cells of all columns do
    not fit together, their rows are taken to be equally large, so a piece may have as many bytes
    more as two cells of each column.
    """
    whole = sum(int(cells.sizes.sum()) for cells in columns)
    even = even_cuts(rows, row_bytes + whole // max(1, rows), size)
    begun, ended = _bounds(columns, even.starts, row_bytes)
    most = ended[1:] - begun[:-1]
    if most.max(initial=0) <= size + size // _MORE:
        return Cuts(even.starts, most)
    return _uneven_cuts(columns, rows, row_bytes, size)


def _bounds(
    columns: Sequence[Cells], grid: npt.NDArray[np.int64], row_bytes: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the bytes of the cells that end before each place, and of those that begin before."""
    begun, ended = row_bytes * grid, row_bytes * grid
    for cells in columns:
        sums = np.append(0, np.cumsum(cells.sizes))
        before = np.searchsorted(cells.ends, grid, side="right")
        within = np.searchsorted(cells.ends, grid, side="left") + (grid > 0)
        begun += sums[before]
        ended += sums[np.maximum(before, within)]
    return begun, ended


def _uneven_cuts(columns: Sequence[Cells], rows: int, row_bytes: int, size: int) -> Cuts:
    grid = np.unique(np.concatenate([[0, rows], *(cells.ends for cells in columns)]))
    begun, ended = _bounds(columns, grid, row_bytes)
    even = row_bytes * grid
    for cells in columns:
        sums = np.append(0, np.cumsum(cells.sizes))
        even += np.interp(grid, np.append(0, cells.ends), sums).astype(np.int64)
    if sum(int(cells.sizes.max(initial=0)) for cells in columns) > size:
        begun = ended = even
    starts: list[npt.NDArray[np.int64]] = []
    sizes: list[npt.NDArray[np.int64]] = []
    at = 0
    while at < len(grid) - 1:
        fits = int(np.searchsorted(ended, begun[at] + size, side="right")) - 1
        after = max(at + 1, min(fits, len(grid) - 1))
        taken = int(ended[after] - begun[at])
        parts = min(int(grid[after] - grid[at]), -(-int(even[after] - even[at]) // max(1, size)))
        begin, end = int(grid[at]), int(grid[after])
        starts.append(_starts(begin, end, -(-(end - begin) // max(1, parts))))
        sizes.append(np.full(len(starts[-1]), taken if parts < 2 else size))
        at = after
    return Cuts(np.concatenate([*starts, [rows]]), np.concatenate([*sizes, np.empty(0, np.int64)]))
