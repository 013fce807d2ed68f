"""Raw files: numbers end to end, without a header."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import (
    ColumnError,
    DataError,
    IndexFileError,
    Message,
    Option,
    OptionError,
    OutputError,
)
from recmap.formats.array_sidecar import (
    ArraySidecar,
    description_path,
    load_description,
    remove_description,
    save_description,
)
from recmap.formats.column_readers import DEFAULT_NAME, ColumnReader, array_columns
from recmap.formats.column_source import ColumnsSource
from recmap.formats.sink import Sink, SinkKind
from recmap.local.local_path import located
from recmap.local.output import Output
from recmap.machine.mapped import MappedFile
from recmap.model.coerce import as_columns, fit
from recmap.model.schema import Batch, Schema
from recmap.recognise.sniff import RAW_EXAMPLE, size_hint


def open_raw(
    path: str,
    dtype: npt.DTypeLike | None = None,
    shape: tuple[int, ...] | None = None,
    offset: int = 0,
) -> ColumnsSource:
    """Map a file of numbers.

    ``shape`` is the shape of the whole array. If its first axis is -1, the size of the file
    determines the number of rows. Without ``dtype``, the sidecar describes the file.
    """
    file = located(path).map()
    if offset < 0 or offset > file.size:
        raise OptionError(f"{path}: offset={offset:,}, but the file has {file.size:,} bytes")
    inner: tuple[int, ...] = ()
    if dtype is None:
        described = load_description(path)
        if described is None:
            raise OptionError(
                Message(
                    f"{path}: a file without a header: say what it holds, as in ",
                    *RAW_EXAMPLE,
                    f"; {size_hint(file.size)}",
                )
            )
        if shape is not None or offset:
            raise OptionError(
                f"{path}: shape and offset need dtype, too: without it {described.path} tells "
                "what the file holds"
            )
        kind, rows = _described(path, described, file.size), -1
    else:
        kind = np.dtype(dtype)
        rows, inner = _rows_and_inner(shape)
    if kind.hasobject or kind.itemsize == 0:
        raise OptionError(f"dtype {kind} has no bytes of a known size")
    row_size = kind.itemsize * math.prod(inner)
    if rows < 0:
        rows = _count(file, offset, row_size, kind, inner)
    array = file.array(offset, (rows, *inner), kind)
    single = dtype is None and kind.names is not None and len(kind.names) == 1
    columns = _columns(array, single, file)
    origin = "from the description" if dtype is None else "given"
    again = partial(open_raw, path, dtype, shape, offset)
    other = partial(_open_with_numpy, path, kind, (rows, *inner), offset, single)
    if located(path).remote:
        other = again  # NumPy maps only local files
    return ColumnsSource("raw", [path], columns, origin, again, file, other)


def _columns(
    array: npt.NDArray[Any], single: bool, file: MappedFile | None
) -> dict[str, ColumnReader]:
    if single and array.dtype.names is not None:
        (name,) = array.dtype.names
        return array_columns(name, array[name], file)
    return array_columns(DEFAULT_NAME, array, file)


def _open_with_numpy(
    path: str, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int, single: bool
) -> ColumnsSource:
    """Open the same rows with NumPy's own memory map."""
    empty = 0 in shape  # NumPy cannot map empty arrays
    array = np.empty(shape, dtype) if empty else np.memmap(path, dtype, "r", offset, shape)
    return ColumnsSource("raw", [path], _columns(np.asarray(array), single, None))


def packed_dtype(schema: Schema) -> np.dtype[Any]:
    """Return the dtype of rows with their fields end to end."""
    return np.dtype([(name, field.dtype, field.inner) for name, field in schema.items()])


def row_dtype(schema: Schema) -> np.dtype[Any]:
    """Return the dtype of rows as a file has them: that of the only column, or packed."""
    return next(iter(schema.values())).dtype if len(schema) == 1 else packed_dtype(schema)


def _described(path: str, described: ArraySidecar, size: int) -> np.dtype[Any]:
    """Return the dtype of the rows; refuse a sidecar that does not match the file."""

    def stale(why: str) -> IndexFileError:
        return IndexFileError(
            f"{described.path}: not the description of this file: {why}; if a conversion writes "
            "it, wait, or run it again; otherwise give dtype and shape, and remove the "
            "description, or write the file again",
            file=described.path,
        )

    why = described.mismatch(path)
    if why:
        raise stale(why)
    loose = [name for name, field in described.schema.items() if field.row_bytes is None]
    if loose:
        raise stale(f"column {loose[0]!r} is {described.schema[loose[0]]}, but rows have one size")
    row = sum(field.row_bytes or 0 for field in described.schema.values())
    if row == 0 or row > 2**31 - 1:
        raise stale(f"its rows have {row:,} bytes")
    if size % row:
        raise stale(f"its rows have {row:,} bytes, and {size:,} bytes are not a multiple of that")
    try:
        return packed_dtype(described.schema)
    except ValueError as e:
        raise stale(str(e)) from e


def _rows_and_inner(shape: tuple[int, ...] | None) -> tuple[int, tuple[int, ...]]:
    if shape is None:
        return -1, ()
    if not shape or any(axis < 0 for axis in shape[1:]) or shape[0] < -1:
        raise OptionError(f"shape={shape}: only the first axis, that of the rows, may be -1")
    if 0 in shape[1:]:
        raise OptionError(f"shape={shape}: a row without values has no size")
    return shape[0], tuple(shape[1:])


def _count(
    file: MappedFile, offset: int, row_size: int, dtype: np.dtype[Any], inner: tuple[int, ...]
) -> int:
    rows, rest = divmod(file.size - offset, row_size)
    if rest:
        raise DataError(
            Message(
                f"{file.path}: {file.size - offset:,} bytes are {rows:,} rows of {dtype}"
                f"{list(inner) if inner else ''} ({row_size:,} bytes each) and {rest:,} bytes "
                f"more; is the dtype or shape wrong, or is there a header of {rest:,} bytes "
                "(",
                Option("offset", rest),
                ")?",
            ),
            file=file.path,
            byte=offset + rows * row_size,
        )
    return rows


class RawSink(Sink):
    """Writes the bytes of rows, perhaps after a header, and a sidecar that describes them."""

    def __init__(
        self,
        output: Output,
        schema: Schema,
        expected: int | None,
        header: Callable[[int | None], bytes] = lambda _: b"",
        *,
        describe: bool = True,
    ) -> None:
        """``header`` returns the header for a number of rows, which is None until it is known. The
        size of a header does not depend on it.
        """
        super().__init__(output, schema)
        self._dtype, self._rows = row_dtype(schema), 0
        self._new_header, self._describes = header, describe
        # What has been sent cannot be changed, so the number of rows must be known.
        self._expected = None if output.path else expected
        self._stream = output.stream()
        begin = header(self._expected)
        if begin:
            self._stream.write(begin)

    def write(self, batch: Mapping[str, Any]) -> None:
        columns, rows = fit(as_columns(batch), self.schema)
        if rows:
            packed = np.ascontiguousarray(self._packed(columns, rows))
            self._stream.write(packed.view(np.uint8).ravel())
        self._rows += rows

    def _packed(self, columns: Batch, rows: int) -> npt.NDArray[Any]:
        if self._dtype.names is None:
            (column,) = columns.values()
            return np.asarray(column).astype(self._dtype, copy=False).reshape(rows, -1)
        packed = np.empty(rows, self._dtype)
        for name, column in columns.items():
            packed[name] = column
        return packed.reshape(rows, 1)

    def end(self) -> None:
        header = self._new_header(self._rows)
        if self._expected is None and header:
            self._stream.finish()
            self._stream.write_at(0, header)
        elif self._expected not in (None, self._rows):
            raise OutputError(
                f"{self.output.target}: {self._expected:,} rows were announced, {self._rows:,} "
                "written"
            )
        self.output.accompany(description_path, self._describe)

    def _describe(self, data: str, path: str) -> None:
        """Write the description of ``path``. ``data`` is where the file is now."""
        if self._describes:
            save_description(path, self.schema, data)
        else:
            remove_description(path)


def check_rows(path: str, schema: Schema) -> None:
    """Refuse rows of different sizes."""
    loose = [name for name, field in schema.items() if field.row_bytes is None]
    if loose:
        raise ColumnError(
            f"column {loose[0]!r} is {schema[loose[0]]}: rows of different sizes do not fit "
            f"into {path}; write .npz, .h5, .zarr or .tfrecord"
        )
    if not schema:
        raise ColumnError(f"{path}: there are no columns to write")


def create_raw(output: Output, schema: Schema, *, expected: int | None = None) -> RawSink:
    """Create a file of numbers without a header."""
    check_rows(output.target, schema)
    if not any(field.row_bytes for field in schema.values()):
        raise ColumnError(
            f"{output.target}: rows of {schema} have no bytes, so nothing would show how many "
            "there are; write .npy"
        )
    return RawSink(output, schema, expected)


SINK = SinkKind(create_raw, streams=True, untyped=True, describes=True)
