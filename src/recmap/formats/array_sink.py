"""Rows of one size, end to end: .npy and raw files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.columns import as_columns, fit
from recmap.errors import ColumnError
from recmap.files.description import description_path, save_description
from recmap.files.output import OutputFile, Spooler
from recmap.formats.npy import DEFAULT_NAME
from recmap.formats.raw import packed_dtype
from recmap.types import Batch, Schema

__all__ = ["NpySink", "RawSink"]

# Enough for the header of any number of rows: it is written last, when they are known.
_MAX_ROWS = 10**19


class RawSink:
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
        save_description(self.path, self.schema)

    def abort(self) -> None:
        """Leaves nothing behind."""
        self._spooler.stop()
        self._file.abort()


class NpySink(RawSink):
    """An array as numpy saves it; several columns as a structured one."""

    def _header(self) -> bytes:
        return self._header_of(_MAX_ROWS)

    def _header_of(self, rows: int) -> bytes:
        names = self._dtype.names
        inner = next(iter(self.schema.values())).inner if names is None else ()
        descr = np.lib.format.dtype_to_descr(self._dtype)
        text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {(rows, *inner)!r}, }}"
        version, length_size = (1, 2) if len(text) < 60000 else (2, 4)
        if not text.isascii():
            version, length_size = 3, 4
        body = text.encode()
        start = 8 + length_size
        size = -(-(start + len(body) + 1) // 64) * 64
        if rows != _MAX_ROWS:
            size = len(self._header_of(_MAX_ROWS))
        length = (size - start).to_bytes(length_size, "little")
        return b"\x93NUMPY" + bytes([version, 0]) + length + body.ljust(size - start - 1) + b"\n"

    def _finish(self) -> None:
        self._file.write_at(0, self._header_of(self.rows))

    def _describe(self) -> None:
        # Without one, a plain array is read as DEFAULT_NAME.
        if self._dtype.names is None and list(self.schema) != [DEFAULT_NAME]:
            save_description(self.path, self.schema)
        elif os.path.exists(description_path(self.path)):
            os.unlink(description_path(self.path))


def _array_dtype(schema: Schema) -> np.dtype[Any]:
    return next(iter(schema.values())).dtype if len(schema) == 1 else packed_dtype(schema)
