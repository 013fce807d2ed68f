"""Labels in a table, such as CSV, JSON Lines or Parquet: one column names files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recmap.errors import DataError
from recmap.formats.files.names import FileNames, LabelRows, join_labels
from recmap.formats.open_spec import OpenOptions, open_source
from recmap.local.location import Location
from recmap.model.batch import RowArray
from recmap.model.order import Picked
from recmap.model.ordered_rows import OrderedRows
from recmap.model.preview import listed
from recmap.model.ragged import Column
from recmap.model.schema import Batch, FieldsLike
from recmap.model.source import Source, WrappedSource

# Rows that tell which column names files, and rows that are read at once.
_SAMPLE, _ROWS = 1000, 1 << 16


def open_table(
    folder: str,
    names: Sequence[str],
    labels: Location,
    fields: FieldsLike | None,
    *,
    skip: bool,
) -> tuple[RowArray, Source]:
    """Return the numbers of the files that have labels, and the other columns of their rows."""
    table = open_source([labels], None, OpenOptions())
    column, files = _naming_column(table, labels, folder, names)
    texts: list[str] = []
    named = table.select([column])
    while len(texts) < len(table):
        values = named.read(len(texts), len(texts) + _ROWS)[column]
        texts += _texts(values, labels, column, len(texts))
    keep, rows = join_labels(files, LabelRows(labels, "row", texts), skip=skip)
    others = [name for name in table.schema if name != column]
    if not others:
        raise DataError(
            f"{labels}: no labels: its only column, {column!r}, names the files", file=labels
        )
    source = _typed(table, labels, fields).select(others)
    if len(rows) < len(source) or bool((rows != np.arange(len(rows))).any()):
        source = OrderedRows(source, Picked(rows))
    return keep, LabelTable(source, labels)


class LabelTable(WrappedSource):
    """Rows of a table, which must stay as it was when its names were read."""

    keeps_rows = True

    def __init__(self, source: Source, labels: Location) -> None:
        super().__init__(source)
        self._labels = labels

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        self._labels.check_unchanged()
        return super().read(start, stop, limit)

    def gather(self, rows: RowArray) -> Batch:
        self._labels.check_unchanged()
        return super().gather(rows)


def _typed(table: Source, labels: Location, fields: FieldsLike | None) -> Source:
    """Return the table with the types that the user gives for some of its columns."""
    given = fields if isinstance(fields, Mapping) else {}
    types: dict[Any, Any] = {
        name: kind for name, kind in given.items() if kind is not None and name in table.schema
    }
    if not types:
        return table
    return open_source([labels], {**types, ...: None}, OpenOptions())


def _naming_column(
    table: Source, labels: str, folder: str, names: Sequence[str]
) -> tuple[str, FileNames]:
    """Return the column that names most files, with or without their extensions."""
    able = [
        name
        for name, field in table.schema.items()
        if not field.shape and (field.is_bytes or field.dtype.kind in "iu")
    ]
    count = len(table)
    rows = np.unique(np.linspace(0, count - 1, min(count, _SAMPLE)).astype(np.int64))
    batch = table.select(able).gather(rows) if able else {}
    values = {name: {str(each) for each in _values(column)} for name, column in batch.items()}
    for extensions in (True, False):
        files = FileNames(folder, names, extensions=extensions)
        found = {n: sum(bool(files.find(text)) for text in texts) for n, texts in values.items()}
        best = max(found, key=found.__getitem__, default="")
        if best and found[best]:
            return best, files
    have = listed([f"{name!r} has {min(texts)[:40]!r}" for name, texts in values.items() if texts])
    raise DataError(
        f"{labels}: no column names the files of {folder}, which are called {names[0]!r} and so "
        f"on ({have or 'it has no rows of text or whole numbers'})",
        file=labels,
    )


def _values(column: Column) -> list[Any]:
    """Return values as text or numbers; None if they are null."""
    found: list[Any] = column.tolist()
    return [each.decode("utf-8", "replace") if isinstance(each, bytes) else each for each in found]


def _texts(values: Column, labels: str, column: str, start: int) -> list[str]:
    found = _values(values)
    if None in found:
        row = start + found.index(None)
        raise DataError(
            f"{labels}: row {row:,}: column {column!r} is empty, but should name a file",
            file=labels,
            record=row,
            field=column,
        )
    return [str(each) for each in found]
