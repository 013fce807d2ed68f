"""Select, reorder, rename and cast rows and columns while they are read."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import (
    FieldMismatchError,
    FieldNotFoundError,
    FieldTextError,
    Message,
    Option,
    OptionError,
)
from recmap.formats.string_types import is_string_type, with_string_types
from recmap.model.batch import Allocate, PaddedColumn, PaddedRows, PadSpec, RowNumbers
from recmap.model.casting import first_lost
from recmap.model.field import Field
from recmap.model.nulls import NULL_SUFFIX, with_masks
from recmap.model.order import sliced
from recmap.model.ragged import Column, Ragged
from recmap.model.row_sizes import RowSizes
from recmap.model.schema import Batch, Schema
from recmap.model.source import SelectedSource, Source, WrappedSource

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
    """Return the source with these changes. ``cast`` uses the new column names."""
    if columns is not None or rename:
        # Select columns first, so that the others are not read.
        source = _select(source, columns, rename or {})
    if rows is not None:
        source = sliced(source, rows)
    strings, numbers = _divided(source.schema, cast or {})
    source = with_string_types(source, strings) if strings else source
    return _CastSource(source, numbers, casting) if numbers else source


def _divided(
    schema: Schema, cast: Mapping[str, npt.DTypeLike]
) -> tuple[dict[str, Field], dict[str, npt.DTypeLike]]:
    """Tell casts between bytes and text from those of numbers."""
    strings: dict[str, Field] = {}
    numbers: dict[str, npt.DTypeLike] = {}
    for name, dtype in cast.items():
        old = schema[name]
        new = _string_field(old, dtype) if old.is_bytes else None
        if new is None:
            numbers[name] = dtype
        elif is_string_type(old, new):
            strings[name] = new
    return strings, numbers


def _string_field(old: Field, dtype: npt.DTypeLike) -> Field | None:
    try:
        new = Field(dtype, old.shape)
    except FieldTextError:
        return None
    return new if new.is_bytes else None


def _select(source: Source, columns: Sequence[str] | None, rename: Mapping[str, str]) -> Source:
    kept = list(source.schema) if columns is None else with_masks(columns, source.schema)
    for name in [*kept, *rename]:
        if name not in source.schema:
            raise FieldNotFoundError(
                f"no column {name!r}; there are: {', '.join(source.schema) or 'none'}"
            )
    # A mask keeps the name of its column, unless it is given a name of its own.
    masks = {old + NULL_SUFFIX: new + NULL_SUFFIX for old, new in rename.items()}
    rename = {**masks, **rename}
    names = {rename.get(name, name): name for name in kept}
    if len(names) != len(kept):
        raise OptionError("two columns would have the same name")
    chosen = source if columns is None else source.select(kept)
    return SelectedSource(chosen, names)


class _CastSource(WrappedSource):
    """Columns cast to other types."""

    def __init__(self, source: Source, cast: Mapping[str, npt.DTypeLike], casting: Casting) -> None:
        super().__init__(source)
        self._cast, self._casting = dict(cast), casting
        fields = dict(source.schema)
        for name, dtype in cast.items():
            old = source.schema[name]
            if old.is_bytes:
                raise OptionError(
                    f"cast: {name!r} is {old}, which can be cast only to "
                    f"{'bytes' if old.is_text else 'text'}"
                )
            fields[name] = Field(_cast_dtype(name, old, dtype), old.shape)
        self._schema = Schema(fields)
        # The factor by which a cast may enlarge values.
        growth = (
            -(-fields[n].dtype.itemsize // max(1, source.schema[n].dtype.itemsize)) for n in cast
        )
        self._growth = max([1, *growth])

    @property
    def schema(self) -> Schema:
        return self._schema

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        room = None if limit is None else limit // self._growth
        return self._converted(self._source.read(start, stop, room))

    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        return self._converted(self._source.gather(rows))

    def column(self, name: str) -> npt.NDArray[Any] | None:
        same = self._schema[name] == self._source.schema[name]
        return self._source.column(name) if same else None

    def row_sizes(self, rows: npt.NDArray[np.int64]) -> RowSizes | None:
        sizes = self._source.row_sizes(rows)
        return None if sizes is None else sizes * self._growth

    def largest_row(self, above: int) -> tuple[int, int] | None:
        largest = self._source.largest_row(above // self._growth)
        return None if largest is None else (largest[0], largest[1] * self._growth)

    def select(self, names: Sequence[str]) -> Source:
        cast = {name: dtype for name, dtype in self._cast.items() if name in names}
        chosen = self._source.select(names)
        return _CastSource(chosen, cast, self._casting) if cast else chosen

    def read_padded(
        self, rows: RowNumbers, pads: Mapping[str, PadSpec], size: int, allocate: Allocate
    ) -> PaddedRows | None:
        before: dict[str, PadSpec] = {}
        for name, pad in pads.items():
            fill = _fill_before(pad.fill, self._source.schema[name], self._schema[name])
            if fill is None:
                return None
            before[name] = pad._replace(fill=fill)
        read = self._source.read_padded(rows, before, size, allocate)
        if read is None:
            return None
        padded = {
            name: PaddedColumn(
                [self._array(name, array) for array in column.arrays], column.lengths
            )
            for name, column in read.padded.items()
        }
        return PaddedRows(padded, self._converted(read.others))

    def _converted(self, batch: Batch) -> Batch:
        return {name: self._column(name, column) for name, column in batch.items()}

    def _column(self, name: str, column: Column) -> Column:
        if isinstance(column, Ragged):
            field = self._schema[name]
            if field.is_bytes or column.dtype == field.dtype:
                return column
            return Ragged(self._column(name, column.values), column.offsets)
        return self._array(name, column)

    def _array(self, name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        dtype = self._schema[name].dtype
        if self._schema[name].is_bytes or array.dtype == dtype:
            return array
        if self._casting == "same_value" and (lost := first_lost(array, dtype)) is not None:
            raise FieldMismatchError(
                Message(
                    f"column {name!r}: {array.dtype} to {dtype} would lose values, such as "
                    f"{lost[1]!r} (",
                    Option("casting", "unsafe"),
                    " allows it)",
                ),
                field=name,
            )
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about imaginary parts, which are 0 or may be lost
            return array.astype(dtype)


def _fill_before(fill: bytes, old: Field, new: Field) -> bytes | None:
    """Return the bytes that the cast turns into ``fill``, or None if there are none."""
    if old.dtype == new.dtype:
        return fill
    wanted = np.frombuffer(fill, new.dtype)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = wanted.astype(old.dtype)
        exact = found.astype(new.dtype).tobytes() == fill
    return found.tobytes() if exact and first_lost(found, new.dtype) is None else None


def _cast_dtype(name: str, old: Field, dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return the dtype to cast a column to, or raise if NumPy cannot cast it."""
    try:
        new = Field(dtype).dtype
        # Raw bytes are not numbers, and a date without a unit means nothing.
        void = np.void in (new.type, old.dtype.type) and new != old.dtype
        if new.kind in "SU" or new in (np.dtype("M8"), np.dtype("m8")) or void:
            raise TypeError
        if not np.can_cast(old.dtype, new, "unsafe"):
            raise TypeError
    except (FieldTextError, TypeError, ValueError):
        raise OptionError(
            f"cast: {name!r} is {old}, which cannot be cast to {dtype!r}; give a dtype of numbers, "
            "such as 'float32', or of dates with a unit, such as 'datetime64[s]'"
        ) from None
    return new
