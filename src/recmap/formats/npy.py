"""NumPy's .npy files."""

from __future__ import annotations

import ast
import re
import struct
from typing import Any

import numpy as np

from recmap.errors import DataError
from recmap.files.description import load_description
from recmap.files.mapped import MappedFile
from recmap.formats.columns import ColumnReader, ColumnsSource, array_columns

__all__ = ["DEFAULT_NAME", "NpyHeader", "open_npy", "parse_header"]

MAGIC = b"\x93NUMPY"
# The column of an array that has no name of its own.
DEFAULT_NAME = "data"
# numpy refuses more than 10,000 by default; structured arrays of many fields need more.
_MAX_HEADER = 1 << 16


class NpyHeader:
    """What the header of an array says."""

    def __init__(
        self, dtype: np.dtype[Any], shape: tuple[int, ...], fortran: bool, size: int
    ) -> None:
        self.dtype, self.shape, self.fortran = dtype, shape, fortran
        # Bytes of the header, after which the data follows.
        self.size = size


def parse_header(data: bytes, name: str) -> NpyHeader:
    """The header at the beginning of ``data``, versions 1 to 3. Nothing is unpickled."""

    def fail(why: str) -> DataError:
        return DataError(f"{name}: not a sound .npy header: {why}", file=name, byte=0)

    if len(data) < 10 or not data.startswith(MAGIC):
        raise fail("it does not begin with \\x93NUMPY")
    version = data[6]
    if version not in (1, 2, 3):
        raise fail(f"version {version}.{data[7]} is not known")
    start = 10 if version == 1 else 12
    if len(data) < start:
        raise fail("it is cut")
    (length,) = struct.unpack_from("<H" if version == 1 else "<I", data, 8)
    if length > _MAX_HEADER:
        raise fail(f"it is {length:,} bytes long")
    text = data[start : start + length]
    if len(text) < length:
        raise fail("it is cut")
    try:
        return _parse(text.decode("utf-8" if version == 3 else "latin1"), start + length)
    except _RefusedError as e:
        raise DataError(f"{name}: {e}", file=name) from None
    except (MemoryError, RecursionError, SyntaxError, TypeError, ValueError) as e:
        raise fail(str(e)) from e


class _RefusedError(Exception):
    pass


def _parse(text: str, size: int) -> NpyHeader:
    # Python 2 wrote the numbers of a shape as 10L.
    content = ast.literal_eval(re.sub(r"(?<=\d)L(?=[,)])", "", text.strip()))
    if not isinstance(content, dict) or set(content) != {"descr", "fortran_order", "shape"}:
        raise ValueError("it needs descr, fortran_order and shape")
    shape, fortran = content["shape"], content["fortran_order"]
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"the shape is {shape!r}")
    if fortran not in (True, False):
        raise ValueError(f"fortran_order is {fortran!r}")
    dtype = np.lib.format.descr_to_dtype(content["descr"])
    if dtype.hasobject:
        raise _RefusedError(
            "holds Python objects, which only pickle could read, and a pickle can run any code; "
            "save it again as numbers, or load it with np.load(allow_pickle=True) if you trust it"
        )
    if not shape:
        raise _RefusedError("holds a single value, which has no rows; reshape it to (1,)")
    return NpyHeader(dtype, shape, bool(fortran), size)


def open_npy(path: str) -> ColumnsSource:
    """The array of a .npy file, mapped; a structured array as a column per field."""
    file = MappedFile(path)
    header = parse_header(file.bytes[: _MAX_HEADER + 12].tobytes(), path)
    array = file.array(header.size, header.shape, header.dtype, "F" if header.fortran else "C")
    return ColumnsSource("npy", [path], _named(path, array_columns(DEFAULT_NAME, array, file)))


def _named(path: str, columns: dict[str, ColumnReader]) -> dict[str, ColumnReader]:
    """The column under the name that a description gives it."""
    described = load_description(path) if list(columns) == [DEFAULT_NAME] else None
    if described is None or list(described.values()) != [columns[DEFAULT_NAME].field]:
        return columns
    return {next(iter(described)): columns[DEFAULT_NAME]}
