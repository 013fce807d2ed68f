"""Divide row groups into pieces that fit into the memory, before they are decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Cells", "Cuts", "cut", "even_cuts"]


class Cells(NamedTuple):
    """The rows of a column by cells, such as pages: where each ends, and how many bytes it has.

    One row of a cell may have all of its bytes.
    """

    ends: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]


class Cuts(NamedTuple):
    """Where pieces begin and the last one ends, and about how many bytes each of them takes."""

    starts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]


def even_cuts(rows: int, row_bytes: int, size: int) -> Cuts:
    """Divide rows that are equally large."""
    # A power of two, so that it stays the same when a few rows turn out larger.
    step = 1 << (max(1, size // max(1, row_bytes)).bit_length() - 1)
    starts = np.append(np.arange(0, rows, step), rows)
    return Cuts(starts, np.diff(starts) * row_bytes)


def cut(columns: Sequence[Cells], rows: int, row_bytes: int, size: int) -> Cuts:
    """Divide rows into pieces of at most ``size`` bytes, as far as cells allow.

    ``row_bytes`` is what a row takes in the other columns. If the largest cells of all columns do
    not fit together, their rows are taken to be equally large, so a piece may have as many bytes
    more as two cells of each column.
    """
    grid = np.unique(np.concatenate([[0, rows], *(cells.ends for cells in columns)]))
    begun, ended, even = (row_bytes * grid for _ in range(3))
    for cells in columns:
        sums = np.concatenate([[0], np.cumsum(cells.sizes)])
        begun += sums[np.searchsorted(cells.ends, grid, side="right")]
        ended += sums[np.searchsorted(cells.ends, grid, side="left") + (grid > 0)]
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
        edges = np.linspace(grid[at], grid[after], max(1, parts) + 1).astype(np.int64)
        starts.append(edges[:-1])
        sizes.append(np.full(len(edges) - 1, taken if parts < 2 else size))
        at = after
    return Cuts(np.concatenate([*starts, [rows]]), np.concatenate([*sizes, np.empty(0, np.int64)]))
