"""Columns made value by value, of what a function returns for each row."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from recmap.errors import MapError
from recmap.model.casting import exact_array, first_lost
from recmap.model.coerce import Given, as_columns, empty_column, fit
from recmap.model.ragged import Column, Ragged
from recmap.model.schema import Field, Schema

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
        self._name, self._field, self._inner = name, field, field.inner
        self._out: npt.NDArray[Any] = np.empty((rows, *field.inner), field.dtype)

    def put(self, row: int, value: Any) -> None:
        array = _exact(self._name, value)
        if array.shape != self._inner:
            field = self._field
            ragged = Field(field.dtype, (None, *field.inner[1:]))
            raise MapError(
                f"{self._name!r} has shape {list(array.shape)}, not {list(field.inner)}; if its "
                f'length differs from row to row, say so: fields={{"{self._name}": "{ragged}"}}'
            )
        _check(self._name, array, self._out.dtype)
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
            array = _exact(self._name, value)
            if array.size:
                _check(self._name, array, self._field.dtype)
            value = array.astype(self._field.dtype)
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


def _check(name: str, array: npt.NDArray[Any], dtype: np.dtype[Any]) -> None:
    """Refuses values that a column cannot hold, but for digits of floats."""
    if array.dtype == dtype:
        return
    lost = first_lost(array, dtype, rounds=True)
    if lost is None and array.dtype.kind == "c" and dtype.kind != "c":
        lost = 0, array.reshape(-1)[0]
    if lost is not None:
        raise MapError(
            f"{name!r} is {array.dtype}, which does not fit {dtype}: {lost[1]!r}; cast it in the "
            "function, or say what it is: fields={...}"
        )


def _exact(name: str, value: Any) -> npt.NDArray[Any]:
    try:
        return exact_array(value)
    except (TypeError, ValueError) as e:
        raise MapError(f"{name!r}: {e}") from None
