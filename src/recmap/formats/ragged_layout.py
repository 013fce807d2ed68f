"""Ragged columns as plain arrays, for formats that hold nothing else.

``x`` is ``x/values``, all values end to end, and ``x/offsets``, int64, one more than
there are rows: row ``i`` is ``values[offsets[i]:offsets[i + 1]]``. Where the items of a
row are ragged themselves, as those of a list of strings, the offsets are those of the
items, and ``x/steps`` are the offsets of their values; one level deeper there is
``x/steps2``, then ``x/steps3``.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError, DataError
from recmap.formats.column_readers import ColumnReader, RaggedColumn
from recmap.model.ragged import BYTE, Column, Ragged
from recmap.model.schema import Field, Schema

__all__ = ["OFFSETS", "VALUES", "Part", "Splitter", "check_names", "join", "levels", "levels_of"]

VALUES, OFFSETS = "values", "offsets"
# As deep as numpy's arrays once could be; a file may claim any depth.
_LEVELS = (OFFSETS, "steps", *(f"steps{level}" for level in range(2, 32)))
# Offsets kept by a thread, at most.
_KEPT = 1 << 18
_NOTHING = np.empty(0, np.int64)


def levels_of(field: Field) -> tuple[str, ...]:
    """The keys of the offsets that a field needs, the outermost first."""
    return _LEVELS[: _depth(field)]


def levels(stem: str, there: Container[str]) -> tuple[str, ...]:
    """The keys of the offsets that are there, of a column of which the depth is not known."""
    return tuple(takewhile(lambda key: f"{stem}/{key}" in there, _LEVELS))


def _axes(field: Field) -> tuple[int | None, ...]:
    return field.shape if field.is_bytes else field.shape[: field.ragged]


def _depth(field: Field) -> int:
    return len(_axes(field)) + field.is_bytes


@dataclass(frozen=True)
class Part:
    """One of the arrays of a column; ``key`` is "" if there is no other."""

    key: str
    dtype: np.dtype[Any]
    inner: tuple[int, ...]


class Splitter:
    """Cuts a column into its parts, batch after batch."""

    def __init__(self, name: str, field: Field) -> None:
        depth = _depth(field)
        if depth > len(_LEVELS):
            raise ColumnError(
                f"field {name!r} is {field}: more than {len(_LEVELS)} axes of different lengths "
                "do not fit; join the inner ones"
            )
        self._name, self._field, self._axes = name, field, _axes(field)
        self._ends = dict.fromkeys(levels_of(field), 0)
        values = (
            Part(VALUES, BYTE, ())
            if field.is_bytes
            else Part(VALUES if depth else "", field.dtype, field.inner)
        )
        self.parts = [values, *(Part(key, np.dtype(np.int64), ()) for key in self._ends)]

    def head(self) -> dict[str, npt.NDArray[Any]]:
        """What comes before all rows."""
        return {key: np.zeros(1, np.int64) for key in self._ends}

    def split(self, column: Column) -> dict[str, npt.NDArray[Any]]:
        """The rows to be appended to each part."""
        pieces: dict[str, npt.NDArray[Any]] = {}
        for level, key in enumerate(self._ends):
            assert isinstance(column, Ragged)
            self._check_lengths(level, column)
            pieces[key] = column.offsets[1:] - column.offsets[0] + self._ends[key]
            column = column.flat
            self._ends[key] += len(column)
        assert isinstance(column, np.ndarray)
        values = self.parts[0]
        pieces[values.key] = np.ascontiguousarray(column, values.dtype)
        return pieces

    def _check_lengths(self, level: int, column: Ragged) -> None:
        axis = self._axes[level] if level < len(self._axes) else None
        if axis is not None and bool((column.lengths != axis).any()):
            raise ColumnError(f"field {self._name!r} is {self._field}, but a row has another shape")


def check_names(schema: Schema) -> None:
    """Refuses columns whose parts would have the names of other columns, or would be
    taken for a ragged one.
    """
    for name in schema:
        keys = levels_of(schema[name])
        # One level more: a column of that name would make this one deeper.
        parts = [f"{name}/{key}" for key in (VALUES, *_LEVELS[: len(keys) + 1]) if keys]
        stem, _, end = name.rpartition("/")
        if not parts and end == VALUES and f"{stem}/{OFFSETS}" in schema:
            parts, name = [f"{stem}/{OFFSETS}"], stem  # noqa: PLW2901
        for taken in parts:
            if taken in schema:
                raise ColumnError(
                    f"the column {taken!r} would be taken for a part of {name!r}; rename one of "
                    f'them, as in rename={{"{taken}": "{taken.replace("/", "_")}"}}'
                )


def join(
    path: str,
    name: str,
    values: ColumnReader,
    offsets: Mapping[str, ColumnReader],
    strings: bool,
    told: Field | None,
) -> ColumnReader:
    """The column of which these are the parts, the outermost offsets first: of
    ``strings`` if the values are their bytes, with the fixed axes of the field that was
    ``told``.
    """
    column: RaggedColumn | None = None
    for read in reversed(list(offsets.values())):
        inner = values if column is None else column
        ends = _ReadOffsets(path, name, read)
        column = RaggedColumn(path, name, inner, ends, strings and column is None)
    assert column is not None
    if strings and told is not None and told.is_bytes:
        if len(told.shape) != len(column.field.shape):
            raise DataError(
                f"{path}: {name!r} is {column.field}, not {told} as it says", file=path, field=name
            )
        column.field = told
    return column


class _ReadOffsets:
    """Offsets that are read when they are indexed: there may be many. A thread keeps those
    it read last: it asks for them again when it reads the rows whose sizes it has seen.
    """

    def __init__(self, path: str, name: str, column: ColumnReader) -> None:
        if column.field.dtype.kind not in "iu" or column.field.shape:
            raise DataError(
                f"{path}: {name!r} has offsets that are {column.field}, not int64",
                file=path,
                field=name,
            )
        self._column = column
        self._last = threading.local()

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            start, stop, _ = key.indices(len(self))
            return self._stretch(start, max(start, stop))
        if isinstance(key, int):
            at = key % len(self)
            read = self._column.read(at, at + 1)
        else:
            read = self._column.gather(key)
        wide = _wide(read)
        return int(wide[0]) if isinstance(key, int) else wide

    def _stretch(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        first, held = getattr(self._last, "stretch", (0, _NOTHING))
        end = first + len(held)
        if first <= start < end:
            held = held[start - first :]
            if stop > end:
                held = np.concatenate([held, _wide(self._column.read(end, stop))])
        else:
            held = _wide(self._column.read(start, stop))
        self._last.stretch = (start, held if len(held) <= _KEPT else _NOTHING)
        return held[: stop - start]


def _wide(offsets: Column) -> npt.NDArray[np.int64]:
    assert isinstance(offsets, np.ndarray)
    return offsets.astype(np.int64, copy=False)
