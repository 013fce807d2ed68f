"""What the values of a dataset are like, found in one pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recmap.dataset.moments import Numbers, collector
from recmap.model.ragged import Column, Ragged
from recmap.model.schema import Field

__all__ = ["FieldCollector", "FieldStats"]

_INT64 = np.dtype(np.int64)


@dataclass(frozen=True)
class FieldStats:
    """One field over all rows: its values, the ``lengths`` of its rows along each
    ragged axis, and the ``sizes`` of its byte strings.
    """

    field: Field
    rows: int
    values: Numbers | None
    lengths: tuple[Numbers, ...]
    sizes: Numbers | None


class FieldCollector:
    """Takes the columns of a field, batch by batch."""

    def __init__(self, field: Field) -> None:
        self._field = field
        self._rows = 0
        self._values = None if field.is_bytes else collector(field.dtype)
        self._sizes = collector(_INT64) if field.is_bytes else None
        self._lengths = [collector(_INT64) for _ in range(field.ragged)]

    def add(self, column: Column) -> None:
        """Counts the rows of a batch."""
        self._rows += len(column)
        for lengths in self._lengths:
            assert isinstance(column, Ragged)
            lengths.add(column.lengths)
            column = column.flat
        while isinstance(column, Ragged) and not column.is_bytes:
            column = column.flat  # a fixed axis of byte strings
        if isinstance(column, Ragged):
            assert self._sizes is not None
            self._sizes.add(column.lengths)
        elif self._values is not None:
            self._values.add(column.reshape(-1))

    def result(self) -> FieldStats:
        """What has been found."""
        return FieldStats(
            field=self._field,
            rows=self._rows,
            values=None if self._values is None else self._values.result(),
            lengths=tuple(lengths.result() for lengths in self._lengths),
            sizes=None if self._sizes is None else self._sizes.result(),
        )
