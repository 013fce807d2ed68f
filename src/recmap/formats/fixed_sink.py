"""Sinks for .npy and raw files: rows of equal size, end to end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError
from recmap.files.array_sidecar import remove_description, save_description
from recmap.files.output_file import OutputFile, Spooler
from recmap.formats.npy import DEFAULT_NAME
from recmap.formats.npy_header import header_bytes, header_keeps
from recmap.formats.raw import packed_dtype
from recmap.model.arguments import size_text
from recmap.model.coerce import as_columns, fit
from recmap.model.ragged import Ragged
from recmap.model.schema import Batch, Schema
from recmap.model.sink import Sink

__all__ = ["NpySink", "RawSink", "StringsSink", "create_npy"]

# Bytes of strings padded at a time.
_BLOCK = 4 << 20
# A file of strings may have this many times the size of the strings, or this size.
_MAX_GROWTH = 16
_MAX_SIZE = 256 << 20


def create_npy(path: str, schema: Schema, *, durable: bool = True) -> Sink:
    """Create a .npy file of numbers or of strings."""
    fields = list(schema.values())
    strings = len(fields) == 1 and fields[0].is_bytes and not fields[0].ragged
    return (StringsSink if strings else NpySink)(path, schema, durable=durable)


class RawSink(Sink):
    """Writes the bytes of the rows, and a sidecar that describes them."""

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
        self._path, self._schema, self._rows = path, schema, 0
        self._durable, self._finished = durable, False
        only = len(schema) == 1
        self._dtype = next(iter(schema.values())).dtype if only else packed_dtype(schema)
        self._spooler = Spooler()
        try:
            self._file = OutputFile(path, None, self._spooler)
        except BaseException:
            self._spooler.close()
            raise
        header = self._header(None)
        if header:
            self._file.write(header)

    def _check(self, path: str, schema: Schema) -> None:
        """Refuse columns that the format cannot hold."""
        if not any(field.row_bytes for field in schema.values()):
            raise ColumnError(
                f"{path}: rows of {schema} have no bytes, so that nothing would tell how many "
                "there are; write .npy"
            )

    def _header(self, rows: int | None) -> bytes:
        """Return the header. Its size does not depend on ``rows``, which is None until known."""
        del rows
        return b""

    def write(self, batch: Mapping[str, Any]) -> None:
        columns, rows = fit(as_columns(batch), self._schema)
        if rows:
            packed = np.ascontiguousarray(self._packed(columns, rows))
            self._file.write(packed.view(np.uint8).ravel())
        self._rows += rows

    def _packed(self, columns: Batch, rows: int) -> npt.NDArray[Any]:
        if self._dtype.names is None:
            (column,) = columns.values()
            return np.asarray(column).astype(self._dtype, copy=False).reshape(rows, -1)
        packed = np.empty(rows, self._dtype)
        for name, column in columns.items():
            packed[name] = column
        return packed.reshape(rows, 1)

    def finish(self) -> str:
        if not self._finished:
            self._file.flush()
            self._spooler.close()
            header = self._header(self._rows)
            if header:
                self._file.write_at(0, header)
            self._file.finish(self._durable)
            self._finished = True
        return self._file.temporary

    def commit(self) -> None:
        self.finish()
        self._describe()
        self._file.commit(self._durable)

    def _describe(self) -> None:
        save_description(self._path, self._schema, self._file.temporary)

    def abort(self) -> None:
        self._spooler.stop()
        self._file.abort()


class NpySink(RawSink):
    """Writes an array as NumPy saves it; several columns become a structured array."""

    def _check(self, path: str, schema: Schema) -> None:
        lost = [name for name, field in schema.items() if not header_keeps(field.dtype)]
        if lost and len(schema) > 1:
            raise ColumnError(
                f"field {lost[0]!r} is {schema[lost[0]]}, which numpy's header cannot tell among "
                f"other columns; write it to a .npy file of its own, or write {path} as .npz, "
                ".h5, .zarr or .tfrecord"
            )

    def _header(self, rows: int | None) -> bytes:
        plain = self._dtype.names is None
        inner = next(iter(self._schema.values())).inner if plain else ()
        return header_bytes(self._dtype, inner, rows)

    def _describe(self) -> None:
        # Without a sidecar, a plain array is named DEFAULT_NAME, and bfloat16 becomes bytes.
        plain = self._dtype.names is None
        if plain and (list(self._schema) != [DEFAULT_NAME] or not header_keeps(self._dtype)):
            super()._describe()
        else:
            remove_description(self._path)


class StringsSink(Sink):
    """Writes an array of strings as NumPy saves it: each takes as many bytes as the longest.

    That width is only known at the end. Until then, the strings wait in unnamed files.
    """

    def __init__(self, path: str, schema: Schema, *, durable: bool = True) -> None:
        self._path, self._schema, self._rows = path, schema, 0
        ((self._name, self._field),) = schema.items()
        self._durable, self._finished = durable, False
        self._longest = self._size = 0
        # One writes the output, the other the waiting strings and their lengths.
        self._spoolers = Spooler(), Spooler()
        self._files: list[OutputFile] = []
        try:
            for i in (0, 1, 1):
                self._files.append(OutputFile(path, None, self._spoolers[i], unnamed=i == 1))
        except BaseException:
            self.abort()
            raise

    def write(self, batch: Mapping[str, Any]) -> None:
        columns, rows = fit(as_columns(batch), self._schema)
        if not rows:
            return
        column = columns[self._name]
        assert isinstance(column, Ragged)
        strings = column.values if isinstance(column.values, Ragged) else column
        values = strings.values[strings.offsets[0] : strings.offsets[-1]]
        assert isinstance(values, np.ndarray)
        content, lengths = np.ascontiguousarray(values).view(np.uint8), strings.lengths
        self._check_ends(content, lengths)
        self._files[1].write(content)
        self._files[2].write(np.ascontiguousarray(lengths).view(np.uint8))
        self._longest = max(self._longest, int(lengths.max(initial=0)))
        self._size += len(content)
        self._rows += rows

    def _check_ends(self, content: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int64]) -> None:
        """Refuse strings that end with zero bytes, which NumPy would drop as padding."""
        filled = np.flatnonzero(lengths)
        lost = filled[content[np.cumsum(lengths)[filled] - 1] == 0]
        if len(lost):
            row = self._rows + int(lost[0]) // max(self._field.count, 1)
            raise ColumnError(
                f"field {self._name!r}: row {row:,} ends with a zero byte, which a .npy file of "
                "strings does not keep; write .npz, .h5, .zarr or .tfrecord"
            )

    def finish(self) -> str:
        output, *waiting = self._files
        if not self._finished:
            for file in waiting:
                file.flush()
            width, count = max(self._longest, 1), self._rows * self._field.count
            self._check_growth(width, count)
            self._spoolers[1].close()
            output.write(header_bytes(np.dtype(f"S{width}"), self._field.inner, self._rows))
            _write_padded(output, waiting[0].reader(), waiting[1].reader(), width, count)
            output.flush()
            self._spoolers[0].close()
            output.finish(self._durable)
            for file in waiting:
                file.abort()
            self._finished = True
        return output.temporary

    def _check_growth(self, width: int, count: int) -> None:
        """Refuse to write if one long string makes the file much larger than the strings."""
        if width * count > max(_MAX_GROWTH * self._size, _MAX_SIZE):
            raise ColumnError(
                f"field {self._name!r}: the longest string has {width:,} bytes, so that "
                f"{count:,} of them would take {size_text(width * count)} in {self._path}, and "
                f"all together have {size_text(self._size)}; write .npz, .h5, .zarr or "
                ".tfrecord"
            )

    def commit(self) -> None:
        self.finish()
        # Without a sidecar, the column is named DEFAULT_NAME.
        if self._name == DEFAULT_NAME:
            remove_description(self._path)
        else:
            save_description(self._path, self._schema, self._files[0].temporary)
        self._files[0].commit(self._durable)

    def abort(self) -> None:
        for spooler in self._spoolers:
            spooler.stop()
        for file in self._files:
            file.abort()


def _write_padded(
    output: OutputFile, contents: IO[bytes], lengths: IO[bytes], width: int, count: int
) -> None:
    step = max(1, _BLOCK // width)
    for start in range(0, count, step):
        some = np.frombuffer(lengths.read(8 * min(step, count - start)), np.int64)
        padded = np.zeros((len(some), width), np.uint8)
        within = np.arange(width) < some[:, None]
        padded[within] = np.frombuffer(contents.read(int(some.sum())), np.uint8)
        output.write(padded.reshape(-1))
