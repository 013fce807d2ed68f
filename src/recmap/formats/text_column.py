"""Columns of byte strings as text, and text as the bytes it is stored as."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import FieldMismatchError, Message, Option
from recmap.formats.column_readers import ColumnReader, Which
from recmap.model.batch import RowNumbers
from recmap.model.fetching import Fetching
from recmap.model.field import BYTES, TEXT, Field
from recmap.model.ragged import Column, Ragged
from recmap.model.row_sizes import RowSizes
from recmap.model.text import as_strings_of, first_not_text


def checked_text(
    path: str, name: str, field: Field, column: Column, row_number: Callable[[int], int]
) -> Ragged:
    """View byte strings as text; raise if a row is not UTF-8.

    ``row_number`` returns the number that a row of the column has in the file.
    """
    assert isinstance(column, Ragged)
    row = first_not_text(column)
    if row is not None:
        file = f"{path}: " if path else ""
        as_bytes = Option("fields", {name: str(field.as_bytes()), ...: None})
        raise FieldMismatchError(
            Message(
                f"{file}row {row_number(row):,}: column {name!r} is {field}, but the row is not "
                "UTF-8",
                hint=("read the bytes as they are, ", as_bytes),
            ),
            file=path or None,
            record=row_number(row),
            field=name,
        )
    return as_strings_of(field, column)


def of_string_type(path: str, name: str, column: ColumnReader, field: Field) -> ColumnReader:
    """Return a column of strings as the text or the bytes that a field says they are."""
    if column.field.is_text == field.is_text:
        return column
    if isinstance(column, _RetypedColumn):
        return column.strings
    return _RetypedColumn(path, name, column)


class _RetypedColumn(ColumnReader):
    """Another column of strings: its bytes as text, or its text as bytes."""

    def __init__(self, path: str, name: str, strings: ColumnReader) -> None:
        self._path, self._name = path, name
        #: The strings as they are stored.
        self.strings = strings
        self.field = Field(BYTES if strings.field.is_text else TEXT, strings.field.shape)

    def __len__(self) -> int:
        return len(self.strings)

    def read(self, start: int, stop: int) -> Column:
        return self._retyped(self.strings.read(start, stop), lambda row: start + row)

    def gather(self, rows: npt.NDArray[np.int64]) -> Column:
        return self._retyped(self.strings.gather(rows), lambda row: int(rows[row]))

    def _retyped(self, column: Column, row_number: Callable[[int], int]) -> Ragged:
        if self.field.is_text:
            return checked_text(self._path, self._name, self.field, column, row_number)
        assert isinstance(column, Ragged)
        return as_strings_of(self.field, column)

    @property
    def chunk_rows(self) -> int:
        return self.strings.chunk_rows

    @property
    def chunk_bytes(self) -> int:
        return self.strings.chunk_bytes

    @property
    def note(self) -> str:
        return self.strings.note

    def keep(self, groups: int | None) -> None:
        self.strings.keep(groups)

    def sizes(self, rows: Which, limit: int) -> RowSizes | None:
        return self.strings.sizes(rows, limit)

    def view(self) -> npt.NDArray[Any] | None:
        return None

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        return self.strings.fetch_ahead(rows)

    @property
    def remote(self) -> bool:
        return self.strings.remote

    def row_bytes(self) -> int:
        return self.strings.row_bytes()
