"""Sources whose byte strings are read as text, or text as bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.formats.column_source import ColumnsSource
from recmap.formats.text_column import checked_text
from recmap.model.batch import Allocate, PaddedRows, PadSpec, RowNumbers
from recmap.model.field import Field
from recmap.model.ragged import Column, Ragged
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source, WrappedSource
from recmap.model.text import as_strings_of


def is_string_type(old: Field, new: Field) -> bool:
    """Return whether two fields differ only in that one is text and the other bytes."""
    strings = old.is_bytes and new.is_bytes and old.is_text != new.is_text
    return strings and old.shape == new.shape and new.fill is None


def with_string_types(source: Source, fields: Mapping[str, Field]) -> Source:
    """Return a source whose columns in ``fields`` are text or bytes, as these say."""
    if isinstance(source, ColumnsSource):
        return source.with_string_types(fields)
    return _RetypedStrings(source, fields)


class _RetypedStrings(WrappedSource):
    def __init__(self, source: Source, fields: Mapping[str, Field]) -> None:
        super().__init__(source)
        self._fields = dict(fields)
        self._schema = Schema({**source.schema, **fields})

    @property
    def schema(self) -> Schema:
        return self._schema

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        return self._retyped(self._source.read(start, stop, limit), lambda row: start + row)

    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        return self._retyped(self._source.gather(rows), lambda row: int(rows[row]))

    def read_padded(
        self, rows: RowNumbers, pads: Mapping[str, PadSpec], size: int, allocate: Allocate
    ) -> PaddedRows | None:
        read = self._source.read_padded(rows, pads, size, allocate)
        if read is None:
            return None
        return read._replace(others=self._retyped(read.others, lambda row: int(rows[row])))

    def column(self, name: str) -> npt.NDArray[Any] | None:
        return None if name in self._fields else self._source.column(name)

    def select(self, names: Sequence[str]) -> Source:
        chosen = self._source.select(names)
        fields = {name: field for name, field in self._fields.items() if name in names}
        return _RetypedStrings(chosen, fields) if fields else chosen

    def _retyped(self, batch: Batch, row_number: Callable[[int], int]) -> Batch:
        def retyped(name: str, column: Column) -> Column:
            field = self._fields.get(name)
            if field is None or not isinstance(column, Ragged):
                return column
            if not field.is_text:
                return as_strings_of(field, column)
            files = self._source.facts.files
            path = files[0] if len(files) == 1 else ""
            return checked_text(path, name, field, column, row_number)

        return {name: retyped(name, column) for name, column in batch.items()}
