"""Rows and columns chosen, renamed and cast on the way: sources over a source."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.conversion.wrapped import SourceOver, read_by_number
from recmap.errors import (
    FieldMismatchError,
    FieldNotFoundError,
    FieldTextError,
    Message,
    Option,
    OptionError,
)
from recmap.formats.combined import SelectedSource
from recmap.model.casting import first_lost
from recmap.model.ragged import Column, Ragged
from recmap.model.row_sizes import RowSizes
from recmap.model.schema import BYTES, Batch, Field, Schema
from recmap.model.source import Source

__all__ = ["Casting", "transformed"]

Casting: TypeAlias = Literal["same_value", "unsafe"]


def transformed(
    source: Source,
    *,
    rows: slice | None = None,
    columns: Sequence[str] | None = None,
    rename: Mapping[str, str] | None = None,
    cast: Mapping[str, npt.DTypeLike] | None = None,
    casting: Casting = "same_value",
) -> Source:
    """The source with these changes; types are those of the columns under their new names."""
    if columns is not None or rename:
        # First of all, so that the others are not read.
        source = _select(source, columns, rename or {})
    if rows is not None:
        source = _Rows(source, rows)
    return _Cast(source, cast, casting) if cast else source


def _select(source: Source, columns: Sequence[str] | None, rename: Mapping[str, str]) -> Source:
    kept = list(source.schema) if columns is None else list(columns)
    for name in [*kept, *rename]:
        if name not in source.schema:
            raise FieldNotFoundError(
                f"no column {name!r}; there are: {', '.join(source.schema) or 'none'}"
            )
    names = {rename.get(name, name): name for name in kept}
    if len(names) != len(kept):
        raise OptionError("two columns would have the same name")
    chosen = source if columns is None else source.select(kept)
    return SelectedSource(chosen, names)


class _Rows(SourceOver):
    """Every so many rows of a stretch."""

    in_order = False

    def __init__(self, source: Source, rows: slice) -> None:
        super().__init__(source)
        self._range = range(*rows.indices(len(source)))

    def __len__(self) -> int:
        return len(self._range)

    def known_rows(self) -> int | None:
        return len(self._range)

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        chosen = self._range[start:stop]
        if chosen.step == 1:
            return self._source.read(chosen.start, max(chosen.start, chosen.stop), limit)
        if 1 < chosen.step < self._source.chunk_rows and limit is not None:
            # Those between are decoded anyway.
            some = self._source.read(chosen.start, max(chosen.start, chosen.stop), limit)
            return {name: column[:: chosen.step] for name, column in some.items()}
        return read_by_number(self._source, np.array(chosen, dtype=np.int64), limit)

    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        return self._source.gather(self._numbers(rows))

    def row_sizes(self, rows: npt.NDArray[np.int64]) -> RowSizes | None:
        return self._source.row_sizes(self._numbers(rows))

    def largest_row(self, above: int) -> tuple[int, int] | None:
        largest = self._source.largest_row(above)
        if largest is None or largest[0] not in self._range:
            return None
        return self._range.index(largest[0]), largest[1]

    def _numbers(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self._range.start + self._range.step * rows


class _Cast(SourceOver):
    """Columns of other types, which must hold the same values."""

    def __init__(self, source: Source, cast: Mapping[str, npt.DTypeLike], casting: Casting) -> None:
        super().__init__(source)
        if casting not in ("same_value", "unsafe"):
            raise OptionError(f'casting={casting!r}: use "same_value" or "unsafe"')
        self._safe = casting == "same_value"
        fields = dict(source.schema)
        for name, dtype in cast.items():
            old = source.schema[name]
            if old.is_bytes:
                raise OptionError(f"cast: {name!r} holds byte strings, which are no numbers")
            fields[name] = Field(_cast_dtype(name, old, dtype), old.shape)
        self._schema = Schema(fields)
        # How many times as large values may become.
        self._growth = max(
            [
                1,
                *(
                    -(-fields[n].dtype.itemsize // max(1, source.schema[n].dtype.itemsize))
                    for n in cast
                ),
            ]
        )

    @property
    def schema(self) -> Schema:
        return self._schema

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        room = None if limit is None else limit // self._growth
        return self._cast(self._source.read(start, stop, room))

    def row_sizes(self, rows: npt.NDArray[np.int64]) -> RowSizes | None:
        sizes = self._source.row_sizes(rows)
        return None if sizes is None else sizes * self._growth

    def largest_row(self, above: int) -> tuple[int, int] | None:
        largest = self._source.largest_row(above // self._growth)
        return None if largest is None else (largest[0], largest[1] * self._growth)

    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        return self._cast(self._source.gather(rows))

    def _cast(self, batch: Batch) -> Batch:
        return {name: self._column(name, column) for name, column in batch.items()}

    def _column(self, name: str, column: Column) -> Column:
        dtype = self._schema[name].dtype
        if self._schema[name].is_bytes or column.dtype == dtype:
            return column
        if isinstance(column, Ragged):
            return Ragged(self._column(name, column.values), column.offsets)
        if self._safe and (lost := first_lost(column, dtype)) is not None:
            raise FieldMismatchError(
                Message(
                    f"column {name!r}: {column.dtype} to {dtype} would lose values, such as "
                    f"{lost[1]!r} (",
                    Option("casting", "unsafe"),
                    " allows it)",
                ),
                field=name,
            )
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an imaginary part that is 0, or may be lost
            return column.astype(dtype)


def _cast_dtype(name: str, old: Field, dtype: npt.DTypeLike) -> np.dtype[Any]:
    """The dtype that a column is cast to, if NumPy can make it of the old one."""
    try:
        new = Field(dtype).dtype
        # Mere bytes are no numbers, and a date without a unit means nothing.
        void = np.void in (new.type, old.dtype.type) and new != old.dtype
        if new in (BYTES, np.dtype("M8"), np.dtype("m8")) or void:
            raise TypeError
        if not np.can_cast(old.dtype, new, "unsafe"):
            raise TypeError
    except (FieldTextError, TypeError, ValueError):
        raise OptionError(
            f"cast: {name!r} is {old}, which cannot become {dtype!r}; give a dtype of numbers, "
            "such as 'float32', or of dates with a unit, such as 'datetime64[s]'"
        ) from None
    return new
