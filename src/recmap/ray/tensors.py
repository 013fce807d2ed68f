"""Rows of different shapes, as Ray's tensors have them, as columns of a field."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError
from recmap.model.ragged import Column, Ragged
from recmap.model.schema import Field

__all__ = ["shaped_rows"]


def shaped_rows(
    name: str, values: npt.NDArray[Any], shapes: npt.NDArray[np.int64], field: Field
) -> Column:
    """Rows of these shapes, one each, whose values lie end to end."""
    ragged = field.ragged
    same_axes = shapes.shape[1] == len(field.shape)
    wrong = (shapes[:, ragged:] != np.array(field.inner)).any(axis=1) if same_axes else [True]
    if np.any(wrong):
        found = ",".join(map(str, shapes[int(np.argmax(wrong))]))
        raise ColumnError(
            f"field {name!r} is {field}, but a row has the shape [{found}] "
            f'(fields={{"{name}": ...}} says which axes differ)'
        )
    if not ragged:
        return values.reshape(len(shapes), *field.inner)
    column: Column = values.reshape(-1, *field.inner)
    for axis in reversed(range(ragged)):
        lengths = np.repeat(shapes[:, axis], shapes[:, :axis].prod(axis=1))
        column = Ragged(column, np.concatenate([[0], np.cumsum(lengths)]))
    return column
