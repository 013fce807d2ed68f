"""Rows of one size, end to end: .npy and raw files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError
from recmap.files.array_sidecar import remove_description, save_description
from recmap.files.output_file import OutputFile, Spooler
from recmap.formats.npy import DEFAULT_NAME
from recmap.formats.npy_header import header_bytes, header_keeps
from recmap.formats.npy_strings_sink import StringsSink
from recmap.formats.raw import packed_dtype
from recmap.model.coerce import as_columns, fit
from recmap.model.schema import Batch, Field, Schema
from recmap.model.sink import Sink

__all__ = ["NpySink", "RawSink", "create_npy"]


def create_npy(path: str, schema: Schema, *, durable: bool = True) -> Sink:
    """Begins a .npy file: of numbers, or of strings."""
    fields = list(schema.values())
    strings = len(fields) == 1 and fields[0].is_bytes and not fields[0].ragged
    return (StringsSink if strings else NpySink)(path, schema, durable=durable)


class RawSink(Sink):
    """The bytes of the rows, and a description of them beside the file."""

    def __init__(self, path: str, schema: Schema, *, durable: bool = True) -> None:
        loose = [name for name, field in schema.items() if field.row_bytes is None]
        if loose:
            raise ColumnError(
                f"field {loose[0]!r} is {schema[loose[0]]}: rows of different sizes do not fit "
                f"into {path}; write .npz, .h5, .zarr or .tfrecord"
            )
        if not schema:
            raise ColumnError(f"{path}: there are no columns to write")
        self._check(path, schema)
        self.path, self.schema, self.rows = path, schema, 0
        self._durable = durable
        self._finished = False
        self._dtype = _array_dtype(schema)
        self._spooler = Spooler()
        try:
            self._file = OutputFile(path, None, self._spooler)
        except BaseException:
            self._spooler.close()
            raise
        head = self._header()
        if head:
            self._file.write(head)

    def _check(self, path: str, schema: Schema) -> None:
        if not any(field.row_bytes for field in schema.values()):
            raise ColumnError(
                f"{path}: rows of {schema} have no bytes, so that nothing would tell how many "
                "there are; write .npy"
            )

    def _header(self) -> bytes:
        return b""

    def write(self, batch: Mapping[str, Any]) -> None:
        """Appends rows."""
        columns, rows = fit(as_columns(batch), self.schema)
        if rows:
            self._file.write(
                np.ascontiguousarray(self._packed(columns, rows)).view(np.uint8).ravel()
            )
        self.rows += rows

    def _packed(self, columns: Batch, rows: int) -> npt.NDArray[Any]:
        if self._dtype.names is None:
            (column,) = columns.values()
            return np.asarray(column).astype(self._dtype, copy=False).reshape(rows, -1)
        packed = np.empty(rows, self._dtype)
        for name, column in columns.items():
            packed[name] = column
        return packed.reshape(rows, 1)

    def finish(self) -> str:
        """Writes what is left; the temporary name."""
        if not self._finished:
            self._file.flush()
            self._spooler.close()
            self._finish()
            self._file.finish(self._durable)
            self._finished = True
        return self._file.temporary

    def commit(self) -> None:
        """Finishes the file and gives it its name."""
        self.finish()
        self._describe()
        self._file.commit(self._durable)

    def _finish(self) -> None:
        pass

    def _describe(self) -> None:
        save_description(self.path, self.schema, self._file.temporary)

    def abort(self) -> None:
        """Leaves nothing behind."""
        self._spooler.stop()
        self._file.abort()


class NpySink(RawSink):
    """An array as numpy saves it; several columns as a structured one."""

    def _check(self, path: str, schema: Schema) -> None:
        lost = [name for name, field in schema.items() if not header_keeps(field.dtype)]
        if lost and len(schema) > 1:
            raise ColumnError(
                f"field {lost[0]!r} is {schema[lost[0]]}, which numpy's header cannot tell among "
                f"other columns; write it to a .npy file of its own, or write {path} as .npz, "
                ".h5, .zarr or .tfrecord"
            )

    def _header(self) -> bytes:
        return self._header_of(None)

    def _header_of(self, rows: int | None) -> bytes:
        plain = self._dtype.names is None
        return header_bytes(self._dtype, self._only_field.inner if plain else (), rows)

    @property
    def _only_field(self) -> Field:
        return next(iter(self.schema.values()))

    def _finish(self) -> None:
        self._file.write_at(0, self._header_of(self.rows))

    def _describe(self) -> None:
        # Without one, a plain array is read as DEFAULT_NAME, and bfloat16 as bytes.
        plain = self._dtype.names is None
        if plain and (list(self.schema) != [DEFAULT_NAME] or not header_keeps(self._dtype)):
            save_description(self.path, self.schema, self._file.temporary)
        else:
            remove_description(self.path)


def _array_dtype(schema: Schema) -> np.dtype[Any]:
    return next(iter(schema.values())).dtype if len(schema) == 1 else packed_dtype(schema)
