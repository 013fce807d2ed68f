"""Sources that select rows of another source or change their order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.model.batch import Allocate, PaddedRows, PadSpec, RowNumbers
from recmap.model.row_sizes import RowSizes, fitting
from recmap.model.schema import Batch
from recmap.model.source import Source, WrappedSource

__all__ = ["ReorderedSource", "gather_within"]


def gather_within(source: Source, rows: npt.NDArray[np.int64], limit: int | None) -> Batch:
    """Return the first of these rows, as many as fit into ``limit`` bytes."""
    if limit is not None and len(rows):
        sizes = source.row_sizes(rows)
        rows = rows[: 1 if sizes is None else fitting(sizes, len(rows), limit)]
    return source.gather(rows)


class ReorderedSource(WrappedSource):
    """Rows of another source, in the order given by ``row_numbers``."""

    @abstractmethod
    def row_numbers(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the row numbers in the wrapped source for positions in this one."""

    @property
    def in_order(self) -> bool:
        return False

    def known_rows(self) -> int | None:
        return len(self)

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        stop = max(start, min(stop, len(self)))
        rows = self.row_numbers(np.arange(start, stop, dtype=np.int64))
        return gather_within(self._source, rows, limit)

    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        return self._source.gather(self.row_numbers(rows))

    def read_padded(
        self, rows: RowNumbers, pads: Mapping[str, PadSpec], size: int, allocate: Allocate
    ) -> PaddedRows | None:
        numbers = self.row_numbers(np.asarray(rows, np.int64))
        return self._source.read_padded(numbers, pads, size, allocate)

    def row_sizes(self, rows: npt.NDArray[np.int64]) -> RowSizes | None:
        return self._source.row_sizes(self.row_numbers(rows))

    def largest_row(self, above: int) -> tuple[int, int] | None:
        del above  # the largest row of the source may not be one of these
        return None

    def rows_before_damage(self) -> int | None:
        return None

    def column(self, name: str) -> npt.NDArray[Any] | None:
        del name
        return None
