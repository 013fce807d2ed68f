"""Nulls in formats that have none: a mask is stored next to the column.

The nulls of column ``x`` are where ``x?`` is true, an array of booleans with a value for each row.
Those of items of lists are where ``x[?]`` is true, which has the shape of ``x``. Any program can
read these arrays, and write them. What is stored under a mask is 0, an empty string or an empty
list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError, DataError
from recmap.formats.column_readers import ColumnReader, Which
from recmap.formats.sink import Sink
from recmap.local.output import OutputStream
from recmap.model.batch import RowNumbers
from recmap.model.coerce import as_columns, fit
from recmap.model.fetching import Fetching, fetching_all
from recmap.model.field import Field
from recmap.model.null_columns import without_masks
from recmap.model.ragged import Column, Ragged, masked, null_mask
from recmap.model.row_sizes import RowSizes, added_up
from recmap.model.schema import Batch, Schema

_ROWS, _ITEMS = "?", "[?]"


def mask_names(name: str) -> tuple[str, str]:
    """Return the names of the masks of a column: that of its rows, and that of their items."""
    return name + _ROWS, name + _ITEMS


def with_nulls(columns: Mapping[str, ColumnReader]) -> dict[str, ColumnReader]:
    """Join columns with the masks that are stored next to them."""
    joined, masks = dict(columns), set[str]()
    for name, column in columns.items():
        found = [columns.get(mask) for mask in mask_names(name)]
        nothing = 0 in column.field.shape  # so there is no value that could be null
        rows = found[0] if _has_field(found[0], Field(np.bool_)) and not nothing else None
        lists = column.field.ragged == 1
        items = found[1] if lists and _has_field(found[1], Field(np.bool_, (None,))) else None
        if rows is not None or items is not None:
            joined[name] = _Nullable(column, rows, items)
            masks.update(mask_names(name))
    return {name: column for name, column in joined.items() if name not in masks}


def _has_field(column: ColumnReader | None, field: Field) -> bool:
    return column is not None and column.field == field


class _Nullable(ColumnReader):
    """A column, and the masks of its rows and of their items."""

    def __init__(
        self, values: ColumnReader, rows: ColumnReader | None, items: ColumnReader | None
    ) -> None:
        self._values, self._rows, self._items = values, rows, items
        self.field = replace(values.field, nullable=rows is not None, null_items=items is not None)
        self._all = [each for each in (values, rows, items) if each is not None]
        if len({len(each) for each in self._all}) > 1:
            raise DataError("a column and its mask have different numbers of rows")
        self.chunk_rows, self.stored_rows = values.chunk_rows, values.stored_rows
        self.chunk_bytes = sum(each.chunk_bytes for each in self._all)

    def __len__(self) -> int:
        return len(self._values)

    def read(self, start: int, stop: int) -> Column:
        column = self._values.read(start, stop)
        rows = None if self._rows is None else self._rows.read(start, stop)
        items = None if self._items is None else self._items.read(start, stop)
        return _joined(column, rows, items)

    def gather(self, rows: npt.NDArray[np.int64]) -> Column:
        column = self._values.gather(rows)
        missing = None if self._rows is None else self._rows.gather(rows)
        items = None if self._items is None else self._items.gather(rows)
        return _joined(column, missing, items)

    @property
    def note(self) -> str:
        return self._values.note

    def keep(self, groups: int | None) -> None:
        for each in self._all:
            each.keep(groups)

    def sizes(self, rows: Which, limit: int) -> RowSizes | None:
        return added_up(each.sizes(rows, limit) for each in self._all)

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        return fetching_all(each.fetch_ahead(rows) for each in self._all)

    @property
    def remote(self) -> bool:
        return self._values.remote

    def row_bytes(self) -> int:
        return sum(each.row_bytes() for each in self._all)


def _joined(column: Column, rows: Any, items: Any) -> Column:
    if items is not None:
        assert isinstance(column, Ragged)
        if not np.array_equal(column.lengths, items.lengths):
            raise DataError("a column and the mask of its items have lists of different lengths")
        offsets = column.offsets - column.offsets[0]
        column = Ragged(masked(column.flat, np.asarray(items.flat)), offsets)
    return column if rows is None else masked(column, np.asarray(rows))


class MaskingSink(Sink):
    """Writes columns with nulls to a sink that has none, with their masks."""

    def __init__(self, sink: Sink, schema: Schema) -> None:
        super().__init__(sink.output, schema)
        self._sink = sink

    @property
    def records(self) -> OutputStream | None:  # type: ignore[override]  # known when it is asked for
        return self._sink.records

    def write(self, batch: Mapping[str, Any]) -> None:
        columns, _ = fit(as_columns(batch), self.schema)
        self._sink.write(_split(columns, self.schema))

    def end(self) -> None:
        self._sink.end()

    def close(self) -> None:
        self._sink.close()


def stored_schema(schema: Schema) -> Schema:
    """Return what is stored of columns with nulls: the columns and their masks."""
    stored: dict[str, Field] = {}
    for name, field in schema.items():
        stored[name] = field.without_nulls()
        rows, items = mask_names(name)
        if field.nullable:
            stored[rows] = Field(np.bool_)
        if field.null_items:
            stored[items] = Field(np.bool_, (None,))
    return Schema(stored)


def check_masks(path: str, schema: Schema) -> None:
    """Refuse columns whose masks cannot be stored, or that would be taken for masks."""
    for name, field in schema.items():
        if field.null_items and field.ragged > 1:
            raise ColumnError(
                f"{path}: {name!r} is {field}, and nulls in lists of lists can be stored only in "
                f"Parquet and Arrow files; fill them first: ds.fill_null({{{name!r}: ...}})"
            )
        rows, items = mask_names(name)
        own = (rows, field.nullable), (items, field.null_items)
        for mask, needed in own:
            if mask in schema and (needed or schema[mask].dtype == np.bool_):
                raise ColumnError(
                    f"{path}: {mask!r} would be taken for the mask of {name!r}, which says where "
                    f"it has nulls; rename it: ds.rename({{{mask!r}: ...}})"
                )


def _split(batch: Batch, schema: Schema) -> Batch:
    stored: Batch = {}
    for name, field in schema.items():
        column = batch[name]
        stored[name] = without_masks(column)
        rows, items = mask_names(name)
        if field.nullable:
            stored[rows] = null_mask(column)
        if field.null_items:
            assert isinstance(column, Ragged)
            stored[items] = Ragged(null_mask(column.flat), column.offsets - column.offsets[0])
    return stored
