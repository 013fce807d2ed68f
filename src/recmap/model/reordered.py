"""Rows of a source in another order, or only some of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.model.batch import Allocate, PaddedRows, PadSpec, RowNumbers
from recmap.model.facts import SourceFacts
from recmap.model.fetching import Coming, Fetching
from recmap.model.row_sizes import RowSizes, fitting
from recmap.model.schema import Batch
from recmap.model.source import Source, WrappedSource


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
    def facts(self) -> SourceFacts:
        return replace(self._source.facts, in_order=False, rows_before_damage=None)

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

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        return self._source.fetch_ahead(self.row_numbers(np.asarray(rows, np.int64)))

    def coming(self, start: int, stop: int | None = None) -> Iterator[Coming]:
        del start, stop  # rows of any file may be next
        return iter(())

    def row_sizes(self, rows: npt.NDArray[np.int64]) -> RowSizes | None:
        return self._source.row_sizes(self.row_numbers(rows))

    def largest_row(self, above: int) -> tuple[int, int] | None:
        del above  # the largest row of the source may not be one of these
        return None

    def column(self, name: str) -> npt.NDArray[Any] | None:
        del name
        return None


class SlicedSource(ReorderedSource):
    """The rows of a slice."""

    def __init__(self, source: Source, rows: slice) -> None:
        super().__init__(source)
        self._range = range(*rows.indices(len(source)))

    def __len__(self) -> int:
        return len(self._range)

    def row_numbers(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self._range.start + self._range.step * positions

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        chosen = self._range[start:stop]
        if chosen.step == 1:
            return self._source.read(chosen.start, max(chosen.start, chosen.stop), limit)
        if 1 < chosen.step < self._source.facts.chunk_rows() and limit is not None:
            # Read the whole span: the rows in between have to be decoded anyway.
            some = self._source.read(chosen.start, max(chosen.start, chosen.stop), limit)
            return {name: column[:: chosen.step] for name, column in some.items()}
        return gather_within(self._source, np.array(chosen, dtype=np.int64), limit)

    def read_padded(
        self, rows: RowNumbers, pads: Mapping[str, PadSpec], size: int, allocate: Allocate
    ) -> PaddedRows | None:
        if isinstance(rows, range) and self._range.step == 1:
            start = self._range.start
            span = range(start + rows.start, start + rows.stop)
            return self._source.read_padded(span, pads, size, allocate)
        return super().read_padded(rows, pads, size, allocate)

    def coming(self, start: int, stop: int | None = None) -> Iterator[Coming]:
        chosen = self._range[start:stop]
        if chosen.step != 1 or not chosen:
            return iter(())
        return self._source.coming(chosen.start, chosen.stop)

    def largest_row(self, above: int) -> tuple[int, int] | None:
        largest = self._source.largest_row(above)
        if largest is None or largest[0] not in self._range:
            return None
        return self._range.index(largest[0]), largest[1]
