"""A column of a dataset that does not lie in its file as an array."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError
from recmap.ragged import Column, Ragged
from recmap.types import Field

if TYPE_CHECKING:
    from recmap.dataset import Dataset

__all__ = ["ColumnView"]


class ColumnView:
    """One column of a dataset, read when it is indexed. ``np.asarray`` reads it all."""

    def __init__(self, dataset: Dataset, name: str, field: Field) -> None:
        self._dataset = dataset
        self.name = name
        self.field = field

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values."""
        return self.field.dtype

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Rows first; None is a ragged axis."""
        return (len(self), *self.field.shape)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, key: Any) -> Any:
        picked = self._dataset[key]
        return picked[self.name]

    def __iter__(self) -> Iterator[Any]:
        return (row[self.name] for row in self._dataset)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        column: Column = self._dataset[:][self.name]
        if isinstance(column, Ragged):
            raise OptionError(
                f"column {self.name!r} is {self.field}: rows of different lengths are no array; "
                f"use ds[:][{self.name!r}].pad()"
            )
        if copy is False:
            raise OptionError(f"column {self.name!r} has to be read: copy=False cannot be had")
        return column if dtype is None else column.astype(dtype)

    def __repr__(self) -> str:
        return f"ColumnView({self.name!r}: {self.field} of {self._dataset.files[0]})"
