"""Write CSV, TSV and JSON Lines."""

from __future__ import annotations

import json
import os
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError
from recmap.formats.array_sidecar import description_path, save_description
from recmap.formats.sink import Sink, SinkKind
from recmap.formats.text.columns import is_known
from recmap.formats.text.text_file import zstd_compressor
from recmap.local.output import Output
from recmap.model.arguments import check_choice
from recmap.model.coerce import as_columns, fit
from recmap.model.field import Field
from recmap.model.ragged import Column, Ragged, with_values
from recmap.model.schema import Schema
from recmap.model.text import as_strings_of, first_not_text

TextCompression: TypeAlias = Literal["gzip", "zstd"] | None

# Rows that are turned into text at once, and bytes of text compressed together.
_ROWS, _FRAME = 4096, 1 << 20


class TextSink(Sink):
    """Writes rows as lines, and a description of their types next to the file."""

    def __init__(
        self, output: Output, schema: Schema, *, compression: TextCompression = None
    ) -> None:
        path = output.target
        if not schema:
            raise ColumnError(f"{path}: there are no columns to write")
        check_choice("compression", compression, ("gzip", "zstd", None))
        super().__init__(output, schema)
        for name, field in schema.items():
            self.check(path, name, field)
        end = os.path.splitext(path)[1].lower()
        packing = compression or {".gz": "gzip", ".zst": "zstd"}.get(end)
        self._stream = output.stream("gzip" if packing == "gzip" else None)
        self._frame = zstd_compressor(path) if packing == "zstd" else None
        self._waiting: list[bytes] = []
        self._size = 0
        self._row = 0
        self._write(self.head())

    @abstractmethod
    def check(self, path: str, name: str, field: Field) -> None:
        """Refuse a column that the format cannot hold."""

    def head(self) -> bytes:
        """Return what comes before the first row."""
        return b""

    @abstractmethod
    def lines(self, columns: Sequence[list[Any]]) -> Iterator[str]:
        """Return rows as text, of columns of Python values."""

    def write(self, batch: Mapping[str, Any]) -> None:
        columns, rows = fit(as_columns(batch), self.schema)
        for start in range(0, rows, _ROWS):
            some = slice(start, start + _ROWS)
            plain = [
                self.plain(name, field, columns[name][some]) for name, field in self.schema.items()
            ]
            self._write("".join(f"{line}\n" for line in self.lines(plain)).encode())
            self._row += min(_ROWS, rows - start)

    def plain(self, name: str, field: Field, column: Column) -> list[Any]:
        """Return the values of a column as Python values; None if they are null."""
        if field.dtype == np.float32:
            column = with_values(column, _shortest)
        if field.is_bytes and not field.is_text:
            assert isinstance(column, Ragged)
            if (row := first_not_text(column)) is not None:
                raise ColumnError(
                    f"{self.output.target}: column {name!r}, row {self._row + row:,}: bytes that "
                    "are not UTF-8 cannot be text; leave the column out, or turn it into base64 "
                    "with map"
                )
            column = as_strings_of(Field("text"), column)
        return list(column.tolist())

    def _write(self, text: bytes) -> None:
        if self._frame is None:
            if text:
                self._stream.write(text)
            return
        self._waiting.append(text)
        self._size += len(text)
        if self._size >= _FRAME:
            joined = b"".join(self._waiting)
            # Frames end at fixed places, so that the bytes do not depend on the batches.
            whole = len(joined) // _FRAME * _FRAME
            for at in range(0, whole, _FRAME):
                self._stream.write(self._frame(joined[at : at + _FRAME]))
            self._waiting, self._size = [joined[whole:]], len(joined) - whole

    def end(self) -> None:
        rest = b"".join(self._waiting)
        if self._frame is not None:
            self._stream.write(self._frame(rest))
        self.output.accompany(description_path, self._describe)

    def _describe(self, data: str, path: str) -> None:
        """Write the description of ``path``. ``data`` is where the file is now."""
        save_description(path, self.schema, data)


class CsvSink(TextSink):
    """Writes CSV. Text is quoted, so that an empty field is null, and ``""`` an empty string."""

    delimiter = ","

    def check(self, path: str, name: str, field: Field) -> None:
        if not name:
            raise ColumnError(
                f"{path}: a column without a name would be read as one named by its number; "
                "rename it"
            )
        if field.shape:
            raise ColumnError(
                f"{path}: column {name!r} is {field}, and a field of CSV is one value; write "
                ".jsonl or .parquet, or make columns of it with map"
            )
        if field.nullable and len(self.schema) == 1:
            raise ColumnError(
                f"{path}: the only column, {name!r}, is {field}: a row that is null would be a "
                "blank line; write .jsonl"
            )
        _check_dtype(path, name, field)

    def head(self) -> bytes:
        special = re.compile(r'[",;|\t\r\n\ufeff]')
        names = [_quoted(n) if special.search(n) else n for n in self.schema]
        return f"{self.delimiter.join(names)}\n".encode()

    def lines(self, columns: Sequence[list[Any]]) -> Iterator[str]:
        formats = [_format(field) for field in self.schema.values()]
        texts = [
            ["" if value is None else format(value) for value in column]
            for format, column in zip(formats, columns, strict=True)
        ]
        return map(self.delimiter.join, zip(*texts, strict=True))


class TsvSink(CsvSink):
    """Writes CSV with tabs."""

    delimiter = "\t"


class JsonlSink(TextSink):
    """Writes an object for each row."""

    def check(self, path: str, name: str, field: Field) -> None:
        _check_dtype(path, name, field)

    def lines(self, columns: Sequence[list[Any]]) -> Iterator[str]:
        names = list(self.schema)
        encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
        for row in zip(*columns, strict=True):
            yield encode(dict(zip(names, row, strict=True)))


def _check_dtype(path: str, name: str, field: Field) -> None:
    if not is_known(field):
        raise ColumnError(
            f"{path}: column {name!r} is {field}, which text cannot hold; cast it to numbers that "
            "it can, or write .parquet or .npz"
        )


def _shortest(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return float64 that are written with as few digits as float32 need."""
    return values.astype("U").astype(np.float64)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _decimal(value: float) -> str:
    """Return a float with a decimal point, which tells it from an integer, and from text."""
    text = repr(value)
    return text if "." in text or "e" not in text else text.replace("e", ".0e")


def _format(field: Field) -> Callable[[Any], str]:
    if field.is_bytes:
        return _quoted
    if field.dtype.kind == "f":
        return _decimal
    return _boolean if field.dtype.kind == "b" else str


def _boolean(value: bool) -> str:  # a value
    return "true" if value else "false"


CSV = SinkKind(CsvSink, streams=True, untyped=True, describes=True, nulls="values")
TSV = SinkKind(TsvSink, streams=True, untyped=True, describes=True, nulls="values")
JSONL = SinkKind(JsonlSink, streams=True, untyped=True, describes=True, nulls="values")
