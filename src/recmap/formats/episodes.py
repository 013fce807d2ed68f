"""Episodes: rows that follow each other and belong together, such as the steps of a robot.

A column says to which episode each row belongs. LeRobot and RLDS store rows by episode.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError, DataError, OptionError
from recmap.model.arguments import no_column
from recmap.model.batch import RowArray
from recmap.model.field import Field
from recmap.model.picture import encode_png
from recmap.model.ragged import Column, Ragged
from recmap.model.row_sizes import measure
from recmap.model.schema import Batch
from recmap.model.source import Source, row_name

# Bytes of a column that are looked at together.
_LOOKED_AT = 8 << 20


def find_episodes(source: Source, column: str) -> RowArray:
    """Return the first row of each episode, and the number of rows.

    ``column`` has the number or the name of the episode of each row.
    """
    if column not in source.schema:
        raise ColumnError(f"episodes={column!r}: {no_column(column, source.schema)}")
    field = source.schema[column]
    if field.shape or not (field.is_bytes or field.dtype.kind in "biu"):
        raise ColumnError(
            f"episodes={column!r}: the column is {field}; it must have the number or the name of "
            "the episode of each row"
        )
    starts: list[int] = []
    seen: set[Any] = set()
    last: Any = None
    for first, batch in looked_at(source, [column]):
        values = batch[column]
        for place in _changes(values):
            key = values[place]
            key = key.item() if isinstance(key, np.generic) else key
            if starts and key == last:
                continue
            if key in seen:
                raise DataError(
                    f"{row_name(source, first + place)}: episode {key!r} goes on here, after "
                    f"others: sort the rows by {column!r} first",
                    field=column,
                )
            seen.add(key)
            starts.append(first + place)
            last = key
    return np.array([*starts, len(source)], np.int64)


def looked_at(source: Source, names: Sequence[str]) -> Iterator[tuple[int, Batch]]:
    """Yield some columns of all rows, a few megabytes at a time, after the number of a row."""
    if source.facts.once:
        raise OptionError(
            "to divide rows into episodes, they are read twice, but these can be read only once; "
            "save them to a file first"
        )
    chosen, at = source.select(names), 0
    while at < len(source):
        batch = chosen.read(at, len(source), _LOOKED_AT)
        yield at, batch
        at += measure(batch)[0]


def _changes(values: Column) -> list[int]:
    """Return the places of values that differ from the one before, and the first."""
    if isinstance(values, Ragged):
        keys = values.tolist()
        return [i for i in range(len(keys)) if not i or keys[i] != keys[i - 1]]
    return [0, *(np.flatnonzero(values[1:] != values[:-1]) + 1).tolist()] if len(values) else []


def is_frame(field: Field) -> bool:
    """Return whether rows are decoded images: they are stored as PNG, which loses nothing.

    >>> is_frame(Field("uint8", (48, 64, 3))), is_frame(Field("uint8", (7,)))
    (True, False)
    """
    shape = field.shape
    if field.dtype != np.uint8 or len(shape) != 3 or shape[0] is None:
        return False
    return shape[2] in (1, 3) and 0 not in shape


def as_png(frames: npt.NDArray[np.uint8]) -> Ragged:
    """Return frames as PNG images."""
    return Ragged.from_bytes([encode_png(frame) for frame in frames])
