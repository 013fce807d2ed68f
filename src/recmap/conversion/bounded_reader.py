"""Reading a source step by step, each no larger than the budget allows."""

from __future__ import annotations

from recmap.conversion.budget import Budget
from recmap.errors import MemoryLimitError
from recmap.model.row_sizes import measure
from recmap.model.schema import Batch
from recmap.model.source import Source
from recmap.tfrecord.unknown_features import refuse_unknown_features

__all__ = ["Steps"]


class Steps:
    """The rows from ``row`` to ``stop``, or to the end of the source if that is None."""

    def __init__(self, source: Source, budget: Budget, row: int, stop: int | None) -> None:
        self._source, self._budget, self._stop = source, budget, stop
        self._rows = budget.chunk_rows
        #: The next to be read.
        self.row = row

    def next(self) -> Batch | None:
        """The rows of a step; None if there are no more."""
        asked = self._rows if self._stop is None else min(self._rows, self._stop - self.row)
        if asked <= 0:
            return None
        self._budget.tidy()
        try:
            with refuse_unknown_features():
                batch = self._source.read(self.row, self.row + asked, self._budget.limit)
        except MemoryLimitError as e:
            raise self._budget.too_little(self.row, e.size * self._budget.limit // e.limit) from e
        rows, _ = measure(batch)
        self.row += rows
        # Where only a few fit, no more than these are looked for the next time.
        self._rows = min(self._budget.chunk_rows, 2 * (rows if rows < asked else self._rows))
        return batch if rows else None
