"""Sequences: the columns of a batch that are packed together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError, DataError, OptionError
from recmap.model.ragged import Column, Ragged
from recmap.model.schema import Batch, Field
from recmap.pipeline.transforms.padding import as_ragged

__all__ = ["Sequences"]


@dataclass(frozen=True)
class Sequences:
    """Sequence ``i`` is ``values[starts[i] : starts[i] + lengths[i]]`` of every column."""

    values: dict[str, npt.NDArray[Any]]
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]

    @classmethod
    def of(
        cls, batch: Batch, positions: npt.NDArray[np.int64], names: Sequence[str] | None
    ) -> Sequences:
        """Of the columns named, or of all that are sequences of numbers. Refuses such
        as are not equally long, by the position of the row.
        """
        if names is None:
            names = [name for name, column in batch.items() if _is_sequences(column)]
        if missing := [name for name in names if name not in batch]:
            raise ColumnError(f"the batch lacks {missing[0]!r}, which is to be packed")
        if not names:
            raise OptionError("no column to pack: none holds sequences of numbers")
        columns = {name: as_ragged(batch[name], 1, name) for name in names}
        (first, leader), *others = columns.items()
        lengths = leader.lengths
        if len(positions) != len(lengths):
            raise ColumnError(f"{len(positions):,} positions of {len(lengths):,} rows of {first!r}")
        for name, column in others:
            if len(column) != len(leader):
                raise ColumnError(
                    f"{first!r} has {len(leader):,} rows, but {name!r} {len(column):,}"
                )
            differ = np.flatnonzero(lengths != column.lengths)
            if differ.size:
                row = int(differ[0])
                raise DataError(
                    f"row {int(positions[row]):,}: {int(lengths[row]):,} items in {first!r}, but "
                    f"{int(column.lengths[row]):,} in {name!r}; columns that are packed together "
                    "must be equally long",
                    field=name,
                )
        values = {name: _numbers(name, column) for name, column in columns.items()}
        return cls(values, leader.offsets[:-1] - leader.offsets[0], lengths)

    @property
    def fields(self) -> dict[str, Field]:
        """Of one item of each column."""
        return {name: Field(array.dtype, array.shape[1:]) for name, array in self.values.items()}


def _is_sequences(column: Column) -> bool:
    return (
        isinstance(column, Ragged) and isinstance(column.values, np.ndarray) and not column.is_bytes
    )


def _numbers(name: str, column: Ragged) -> npt.NDArray[Any]:
    values = column.flat
    if not isinstance(values, np.ndarray) or column.is_bytes:
        raise ColumnError(f"cannot pack {name!r}: it holds no sequences of numbers")
    return values
