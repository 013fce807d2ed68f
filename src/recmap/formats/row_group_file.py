"""A file of row groups, of one format, and how one of its row groups is decoded in pieces.

Row groups are divided into pieces that fit into the memory before they are decoded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError
from recmap.machine.mapped import MappedFile
from recmap.machine.spans import Places
from recmap.model.batch import RowArray, join
from recmap.model.facts import Alternative, TableType
from recmap.model.ragged import owned
from recmap.model.row_sizes import measure
from recmap.model.schema import Batch, Schema
from recmap.model.table_notes import index_columns
from recmap.model.value_test import ValueRange

Names: TypeAlias = tuple[str, ...]
# A damaged file may claim any number of rows. It is divided into this many pieces at most, and the
# last one, which has all other rows, is never reached.
_MOST_PIECES = 1 << 17
# Pieces of equally many rows are preferred, even if some have a quarter more than they should.
_MORE = 4


class RowGroupFile(ABC):
    """A file of row groups, of one format."""

    format: str
    #: The number of rows in each row group.
    group_rows: npt.NDArray[np.int64]
    #: Whether rows have to be decoded, from the beginning of their row group.
    packed = True
    #: Whether rows are views of the file, and nothing has to be decoded.
    in_place = False

    def __init__(self, path: str, mapped: MappedFile) -> None:
        self.path, self.mapped = path, mapped
        #: What columns were in the table that was saved.
        self.table_types: Mapping[str, TableType] = {}
        #: What else columns may be read as.
        self.alternatives: Mapping[str, Alternative] = {}

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """All columns that can be read."""

    @property
    def index_names(self) -> list[str]:
        """The columns that are the index of the table that was saved, if all are there."""
        return index_columns(self.table_types, self.schema)

    @property
    def note(self) -> str:
        """How rows are stored, for display."""
        groups = len(self.group_rows)
        return "1 row group" if groups == 1 else f"{groups:,} row groups"

    def can_take(self, names: Sequence[str]) -> bool:
        """Return whether rows of these columns can be read without the others around them."""
        del names
        return False

    def take(self, group: int, names: Sequence[str], rows: RowArray) -> Batch | None:
        """Read rows of a row group, if ``can_take``; None if they have to be read by pieces."""
        raise NotImplementedError

    def take_few(self, group: int, names: Sequence[str], rows: RowArray) -> Batch | None:
        """Read rows of a row group by decoding little more than these.

        Return None if that is not possible, or takes as long as decoding all of them.
        """
        del group, names, rows
        return None

    def value_ranges(self, name: str) -> Sequence[ValueRange] | None:
        """Return the ranges of the values of a column, one for each row group; None if unknown."""
        del name
        return None

    @abstractmethod
    def row_bytes(self, name: str) -> int:
        """Return roughly how many bytes a row of a column takes in memory."""

    def decoding_bytes(self, name: str, row_bytes: int) -> int:
        """Return how many bytes decoding a row of a column takes, if it has ``row_bytes``."""
        del name
        return row_bytes

    def cuts(
        self, group: int, row_bytes: Mapping[str, int], size: int, whole: int | None = None
    ) -> Cuts:
        """Divide a row group into pieces of about ``size`` bytes.

        ``row_bytes`` has what a row of each column is known to take. Unless all rows take at most
        ``whole`` bytes, look for those that take more.
        """
        del whole
        each = sum(self.decoding_bytes(*column) for column in row_bytes.items())
        return even_cuts(int(self.group_rows[group]), each, size)

    @abstractmethod
    def largest_unit(self, names: Sequence[str]) -> tuple[int, int]:
        """Return the bytes of these columns that can only be decoded together, and their row group.

        They are the most of any row group.
        """

    def spans(self, group: int, names: Sequence[str]) -> tuple[Places, Places] | None:
        """Return where the columns of a row group are in the file, to be held while it is decoded.

        Return None if ``batches`` holds what it reads.
        """
        del group, names
        return None

    @abstractmethod
    def batches(self, group: int, names: Sequence[str], cuts: Cuts) -> Iterator[Batch]:
        """Decode the pieces of a row group, each in one or more batches."""

    @abstractmethod
    def check(self, group: int) -> None:
        """Decode all of a row group, also what recmap cannot read; raise if it is damaged."""

    def first_row(self, group: int) -> int:
        """Return the number of the first row of a row group."""
        return int(self.group_rows[:group].sum())

    def damaged(self, group: int, why: object) -> DataError:
        """Return the error for a row group that cannot be decoded."""
        return DataError(
            f"{self.path}: row group {group:,} cannot be decoded: {why}", file=self.path
        )


def check_groups(file: RowGroupFile) -> Iterator[tuple[int, DataError | None]]:
    """Decode all row groups, and yield the rows of each and what is wrong with it."""
    for group, rows in enumerate(file.group_rows.tolist()):
        try:
            file.check(group)
        except DataError as e:
            yield rows, e
        else:
            yield rows, None


class GroupDecoding:
    """A row group that is being decoded from its beginning, piece by piece."""

    def __init__(self, file: RowGroupFile, group: int, cuts: Cuts, names: Names) -> None:
        self._file, self._group, self._names = file, group, names
        self._starts = cuts.starts
        self._batches = file.batches(group, names, cuts)
        #: The number of the next piece.
        self.number = 0

    def piece(self, number: int) -> Batch:
        """Decode up to and including a piece, and return it."""
        spans = self._file.spans(self._group, self._names)
        with nullcontext() if spans is None else self._file.mapped.hold(*spans):
            while True:
                batch = self._next()
                self.number += 1
                if self.number > number:
                    break
            if not self._file.mapped.whole:
                batch = {name: owned(column) for name, column in batch.items()}
        return batch

    def _next(self) -> Batch:
        first = int(self._starts[self.number])
        wanted = int(self._starts[self.number + 1]) - first
        parts: list[Batch] = []
        found = 0
        # Strings of more than 2 GB come in several batches.
        while found < wanted and (batch := next(self._batches, None)) is not None:
            parts.append(batch)
            found += measure(batch)[0]
        if found != wanted:
            raise self._file.damaged(
                self._group,
                f"{first + found:,} rows were found, not {int(self._starts[-1]):,} as the file "
                "says",
            )
        return join(parts)

    @property
    def ended(self) -> bool:
        return self.number >= len(self._starts) - 1


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
    """Divide rows that are equally large, unless all of them fit."""
    # A power of two, so that it stays the same when a few rows turn out larger, and that batches
    # of usual sizes end with a piece.
    step = 1 << (max(1, size // max(1, row_bytes)).bit_length() - 1)
    if rows * max(1, row_bytes) <= size:
        step = max(1, rows)  # a batch over the end of a piece is a copy
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
