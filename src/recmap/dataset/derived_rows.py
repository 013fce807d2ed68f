"""DerivedRows: rows that are made of the rows of a source, such as one for every item of a list."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

import numpy as np

from recmap.model.batch import RowArray, RowNumbers
from recmap.model.facts import SourceFacts, unknown_row, with_facts
from recmap.model.fetching import Coming, Fetching
from recmap.model.remembered import Remembered
from recmap.model.source import Source, WrappedSource


class Layout(Protocol):
    """Says which rows of the source each row is made of."""

    @property
    def count(self) -> int:
        """The number of rows that are made."""


_L = TypeVar("_L", bound=Layout)


class DerivedRows(WrappedSource, Generic[_L]):
    """Rows that are made of those of a source, and are more or fewer than these.

    A subclass tells which rows of ``_base`` it needs: by number, and from the first to the last
    one. ``layout`` is computed when it is first needed, of all rows of the source.
    """

    def __init__(self, source: Source, layout: Remembered[int, _L]) -> None:
        super().__init__(source)
        self._found = layout

    @abstractmethod
    def _needed(self, rows: RowArray) -> RowArray:
        """Return the rows that these are made of, in ascending order."""

    @abstractmethod
    def _span(self, start: int, stop: int) -> range | None:
        """Return the rows that consecutive ones are made of; None if those are not consecutive."""

    def _base(self) -> Source:
        """Return the rows that ``_needed`` and ``_span`` number."""
        return self._source

    @property
    def _layout(self) -> _L:
        return self._found.at(0)

    @property
    def facts(self) -> SourceFacts:
        facts = self._source.facts
        return with_facts(
            facts,
            in_order=False,
            searched=facts.searched and self.known_rows() is not None,
            open_ended=False,
            table_index=None,
            owns_rows=True,
            can_pad=False,
            rows_before_damage=None,
            sound_rows=None,
            largest_row=unknown_row,
        )

    def __len__(self) -> int:
        return self._layout.count

    def known_rows(self) -> int | None:
        known = self._found.known(0)
        return None if known is None else known.count

    def prepare(self) -> None:
        super().prepare()
        self._found.at(0)

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        if not len(rows):
            return None
        span = self._span(rows[0], rows[-1] + 1) if isinstance(rows, range) else None
        needed = self._needed(np.asarray(rows, np.int64)) if span is None else span
        return self._base().fetch_ahead(needed)

    def coming(self, start: int, stop: int | None = None) -> Iterator[Coming]:
        first, end = max(start, 0), len(self) if stop is None else min(stop, len(self))
        span = self._span(first, end) if first < end else None
        if span is None:
            return iter(())
        return self._base().coming(span.start if start >= 0 else start, span.stop)

    # Rows are others than those of the source.
    column, read_padded = Source.column, Source.read_padded
