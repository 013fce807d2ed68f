"""A file of row groups, of one format, and how one of its row groups is decoded in pieces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError
from recmap.files.mapped import MappedFile
from recmap.files.spans import Places
from recmap.formats.row_group_cuts import Cuts, even_cuts
from recmap.model.batch import RowArray, join
from recmap.model.ragged import owned
from recmap.model.row_sizes import measure
from recmap.model.schema import Batch, Schema

Names: TypeAlias = tuple[str, ...]


class RowGroupFile(ABC):
    """A file of row groups, of one format."""

    def __init__(self, path: str, mapped: MappedFile) -> None:
        self.path, self.mapped = path, mapped

    @property
    @abstractmethod
    def format(self) -> str: ...

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """All columns that can be read."""

    @property
    @abstractmethod
    def group_rows(self) -> npt.NDArray[np.int64]:
        """The number of rows in each row group."""

    @property
    def note(self) -> str:
        """How rows are stored, for display."""
        groups = len(self.group_rows)
        return "1 row group" if groups == 1 else f"{groups:,} row groups"

    @property
    def packed(self) -> bool:
        """Whether rows have to be decoded, from the beginning of their row group."""
        return True

    @property
    def in_place(self) -> bool:
        """Whether rows are views of the file, and nothing has to be decoded."""
        return False

    def can_take(self, names: Sequence[str]) -> bool:
        """Return whether rows of these columns can be read without the others around them."""
        del names
        return False

    def take(self, group: int, names: Sequence[str], rows: RowArray) -> Batch | None:
        """Read rows of a row group, if ``can_take``; None if they are to be read by pieces."""
        raise NotImplementedError

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
