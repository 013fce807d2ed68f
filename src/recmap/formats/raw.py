"""The source for raw files: numbers end to end, without a header."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError, IndexFileError, Message, Option, OptionError
from recmap.files.array_sidecar import Description, load_description
from recmap.files.mapped import MappedFile
from recmap.files.sniff import RAW_EXAMPLE, size_hint
from recmap.formats.column_readers import ColumnReader, array_columns
from recmap.formats.column_source import ColumnsSource
from recmap.formats.npy import DEFAULT_NAME
from recmap.model.schema import Schema

__all__ = ["open_raw", "packed_dtype"]


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
    file = MappedFile(path)
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


def _described(path: str, described: Description, size: int) -> np.dtype[Any]:
    """Return the dtype of the rows; refuse a sidecar that does not match the file."""

    def stale(why: str) -> IndexFileError:
        return IndexFileError(
            f"{described.path}: not the description of this file: {why}; give dtype and shape, "
            "and remove the description, or write the file again",
            file=described.path,
        )

    why = described.mismatch(path)
    if why:
        raise stale(why)
    loose = [name for name, field in described.schema.items() if field.row_bytes is None]
    if loose:
        raise stale(f"field {loose[0]!r} is {described.schema[loose[0]]}, but rows have one size")
    row = sum(field.row_bytes or 0 for field in described.schema.values())
    if row == 0 or row > 2**31 - 1:
        raise stale(f"its rows have {row:,} bytes")
    if size % row:
        raise stale(f"its rows have {row:,} bytes, and {size:,} bytes are no multiple of that")
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
                f"more; is the dtype or shape another one, or is there a header of {rest:,} bytes "
                "(",
                Option("offset", rest),
                ")?",
            ),
            file=file.path,
            byte=offset + rows * row_size,
        )
    return rows
