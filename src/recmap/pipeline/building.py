"""Columns made value by value, of what a function returns for each row."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from recmap.columns import Given, as_columns, empty_column, fit
from recmap.errors import MapError
from recmap.ragged import Column, Ragged
from recmap.types import Field, Schema

__all__ = ["Building", "new_column"]


class Building(Protocol):
    """A column of a field."""

    def put(self, row: int, value: Any) -> None:
        """The value of the next row, copied."""
        ...

    def finish(self) -> Column:
        """The column, when all rows were put."""
        ...


def new_column(name: str, field: Field, rows: int) -> Building:
    """An empty column for so many rows."""
    if field.ragged or field.is_bytes:
        return _Listed(name, field)
    return _Dense(name, field, rows)


class _Dense:
    """Values of one shape."""

    def __init__(self, name: str, field: Field, rows: int) -> None:
        self._name, self._field = name, field
        self._out: npt.NDArray[Any] = np.empty((rows, *field.inner), field.dtype)

    def put(self, row: int, value: Any) -> None:
        array = np.asarray(value)
        field = self._field
        if array.shape != field.inner:
            ragged = Field(field.dtype, (None, *field.inner[1:]))
            raise MapError(
                f"{self._name!r} has shape {list(array.shape)}, not {list(field.inner)}; if its "
                f'length differs from row to row, say so: fields={{"{self._name}": "{ragged}"}}'
            )
        if array.dtype != field.dtype and not _fits(array, field.dtype):
            raise MapError(
                f"{self._name!r} is {array.dtype}, which does not fit {field.dtype}; cast it in "
                "the function, or say what it is: fields={...}"
            )
        self._out[row] = array

    def finish(self) -> Column:
        return self._out


class _Listed:
    """Values of different lengths, or strings."""

    def __init__(self, name: str, field: Field) -> None:
        self._name, self._field = name, field
        self._values: list[Any] = []
        # The common case, which needs no looking at nested lists.
        self._simple = field.ragged == 1 and len(field.shape) == 1 and not field.is_bytes

    def put(self, row: int, value: Any) -> None:
        del row  # they come in order
        if self._simple:
            value = np.array(value, self._field.dtype if np.size(value) == 0 else None)
        elif isinstance(value, np.ndarray):
            value = np.array(value)
        self._values.append(value)

    def finish(self) -> Column:
        if not self._values:
            return empty_column(self._field)
        if self._simple:
            given = Given(Ragged.from_rows(self._values), exact=False)
        else:
            given = as_columns({self._name: self._values})[self._name]
        column, _ = fit({self._name: given}, Schema({self._name: self._field}))
        return column[self._name]


def _fits(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Whether a cast loses nothing but digits of floats."""
    if np.can_cast(array.dtype, dtype, "safe") or array.dtype.kind == dtype.kind == "f":
        return True
    if array.dtype.kind not in "biufc" or dtype.kind not in "biufc":
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        cast = array.astype(dtype)
    same = np.array_equal(cast, array) and bool(((cast < 0) == (array < 0)).all())
    return same if array.dtype.kind != "c" else False
