"""NumPy .npy files: the source, the sinks, and their header."""

from __future__ import annotations

import ast
import math
import os
import re
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError, DataError, LeftOut, StaleIndexWarning
from recmap.formats.array_sidecar import (
    description_path,
    load_description,
    remove_description,
    save_description,
)
from recmap.formats.column_readers import (
    DEFAULT_NAME,
    ColumnReader,
    array_columns,
    array_refusal,
)
from recmap.formats.column_source import ColumnsSource
from recmap.formats.raw import RawSink, check_rows, row_dtype
from recmap.formats.sink import Sink, SinkKind
from recmap.local.local_path import located
from recmap.local.output import Output, Spooler
from recmap.machine.mapped import MappedFile
from recmap.model.arguments import size_text
from recmap.model.coerce import as_columns, fit
from recmap.model.description import misfit, warn_of_notes
from recmap.model.field import Field
from recmap.model.ragged import Ragged
from recmap.model.schema import Schema
from recmap.warn import warn

_MAGIC = b"\x93NUMPY"
# NumPy refuses more than 10,000 bytes by default; structured arrays with many fields need more.
_MAX_TEXT = 1 << 16
# Enough for almost all headers.
SHORT_HEADER = 1 << 12
# The most bytes a header may have.
MAX_HEADER = _MAX_TEXT + 12
_MAX_BYTES = 2**63 - 1
# Why an array in Fortran order is not read from an object.
SCATTERED = (
    "is stored column by column (Fortran order), so that every row is spread over the whole "
    "object; download it, or save it in C order"
)
# Headers leave room for this many rows, because they are rewritten once rows are counted.
_MAX_ROWS = 10**19
_T = TypeVar("_T")
_EVALUATING = threading.Lock()
_TRIES = 9
# Bytes of strings padded at a time.
_PADDED_SIZE = 4 << 20
# A file of strings may have this many times the size of the strings, or this size.
_MAX_GROWTH = 16
_MAX_PADDED = 256 << 20


def open_npy(path: str) -> ColumnsSource:
    """Map the array of a .npy file; a structured array gives one column per field."""
    file = located(path).map()
    with located(path).open() as opened:
        header = parse_header(read_head(lambda count: opened.pread(count, 0)), path)
    if header.refusal:
        what = LeftOut(header.refusal, f"{header.dtype} {header.shape}")
        raise DataError(f"{path}: {header.refusal}", file=path, left_out={DEFAULT_NAME: what})
    if header.fortran and len(header.shape) > 1 and not file.whole:
        raise DataError(f"{path}: {SCATTERED}", file=path)
    array = file.array(header.size, header.shape, header.dtype, "F" if header.fortran else "C")
    columns = _columns(path, array, file)
    return ColumnsSource(
        "npy",
        [path],
        columns,
        reopen=partial(open_npy, path),
        mapped=file,
        reference=partial(_open_with_numpy, path),
    )


def read_head(read: Callable[[int], bytes]) -> bytes:
    """Return the beginning of a file, which holds the header.

    ``read`` returns as many of the first bytes as it is asked for.
    """
    head = read(SHORT_HEADER)
    length = int.from_bytes(head[8 : 10 if head[6:7] == b"\1" else 12], "little")
    return head if 12 + length <= len(head) else read(MAX_HEADER)


def _open_with_numpy(path: str) -> ColumnsSource:
    """Open the same array with NumPy's own memory map."""
    if located(path).remote:
        return open_npy(path)  # NumPy maps only local files
    load = partial(np.load, mmap_mode="r", allow_pickle=False, max_header_size=MAX_HEADER)
    array = parsed(partial(load, path)) if os.path.getsize(path) else None
    if array is None or not array.size:
        return open_npy(path)  # NumPy cannot map empty arrays
    return ColumnsSource("npy", [path], _columns(path, np.asarray(array)))


def _columns(
    path: str, array: npt.NDArray[Any], file: MappedFile | None = None
) -> dict[str, ColumnReader]:
    """Return the columns of an array, as the sidecar describes them if there is one.

    NumPy's header has no name, stores bfloat16 and similar types only as opaque bytes, and does
    not tell text from bytes.
    """
    described = _described(path) if array.dtype.names is None else None
    if described is None:
        return array_columns(DEFAULT_NAME, array, file)
    name, field = described
    if array.dtype.kind == "V" and array.dtype.itemsize == field.dtype.itemsize:
        array = array.view(field.dtype)
    same = field.is_bytes if array.dtype.kind in "SU" else field.dtype == array.dtype
    if not same or field.shape != array.shape[1:]:
        warn_of_notes(path, [misfit(name, field, f"{array.dtype} of shape {array.shape}")])
        return array_columns(DEFAULT_NAME, array, file)
    columns = array_columns(name, array, file)
    if field.is_bytes:
        columns[name].field = field
    return columns


def _described(path: str) -> tuple[str, Field] | None:
    """Return the name and the field in the sidecar, if it has one and belongs to the file."""
    described = load_description(path)
    if described is None or len(described.schema) != 1:
        return None
    why = described.mismatch(path)
    if why:
        warn(
            f"{described.path} was not used: {why}; remove it if it belongs to an older file",
            StaleIndexWarning,
        )
        return None
    return next(iter(described.schema.items()))


@dataclass(frozen=True)
class NpyHeader:
    """The contents of an array's header; the data begins after its ``size`` bytes."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    size: int

    @property
    def refusal(self) -> str:
        """Why the rows of this array cannot be read; "" if they can."""
        return array_refusal(self.dtype, self.shape)


def parse_header(data: bytes, name: str) -> NpyHeader:
    """Parse the header at the start of ``data``, version 1 to 3, without unpickling anything."""

    def fail(why: str) -> DataError:
        return DataError(f"{name}: not a valid .npy header: {why}", file=name, byte=0)

    if len(data) < 10 or not data.startswith(_MAGIC):
        raise fail("it does not begin with \\x93NUMPY")
    version = data[6]
    if version not in (1, 2, 3) or data[7] != 0:
        raise fail(f"version {version}.{data[7]} is not known")
    start = 10 if version == 1 else 12
    if len(data) < start:
        raise fail("it is cut")
    (length,) = struct.unpack_from("<H" if version == 1 else "<I", data, 8)
    if length > _MAX_TEXT:
        raise fail(f"it is {length:,} bytes long")
    text = data[start : start + length]
    if len(text) < length:
        raise fail("it is cut")
    try:
        content = _literal(text.decode("utf-8" if version == 3 else "latin1"), version)
        return _header(content, start + length)
    # NumPy raises many kinds of errors for an invalid descr.
    except (ArithmeticError, LookupError, MemoryError, RecursionError, SyntaxError) as e:
        raise fail(str(e)) from e
    except (TypeError, ValueError) as e:
        raise fail(str(e)) from e


def _header(content: Any, size: int) -> NpyHeader:
    if not isinstance(content, dict) or set(content) != {"descr", "fortran_order", "shape"}:
        raise ValueError("it needs descr, fortran_order and shape")
    shape, fortran = content["shape"], content["fortran_order"]
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"the shape is {shape!r}")
    if fortran is not True and fortran is not False:
        raise ValueError(f"fortran_order is {fortran!r}")
    dtype = np.lib.format.descr_to_dtype(content["descr"])
    dtype, shape = dtype.base, (*shape, *dtype.shape)
    # Count axes of 0 as 1: such an array takes no bytes to compare with the size of the file.
    if math.prod(max(n, 1) for n in shape) * max(dtype.itemsize, 1) > _MAX_BYTES:
        raise ValueError(f"no memory is as large as the shape {shape}")
    np.empty((1,) * len(shape), np.bool_)  # raises ValueError for more axes than NumPy supports
    return NpyHeader(dtype, shape, bool(fortran), size)


def _literal(text: str, version: int) -> Any:
    try:
        return _evaluated(text)
    except SyntaxError:
        if version == 3:
            raise
        # Python 2 wrote the numbers of a shape like 10L.
        return _evaluated(re.sub(r"(?<=\d)L(?=[,)])", "", text))


@lru_cache(64)  # files of one dataset often have the same header
def _evaluated(text: str) -> Any:
    return parsed(partial(ast.literal_eval, text))


def parsed(parse: Callable[[], _T]) -> _T:
    """Return what a function returns that has Python parse a header.

    Python 3.11 adds up the recursion depth of all threads, and may raise SystemError if several
    threads parse at once. So they parse one header at a time, and try again in case another library
    parses too.
    """
    with _EVALUATING:
        for _ in range(_TRIES):
            try:
                return parse()
            except SystemError:
                continue
        return parse()


def header_keeps(dtype: np.dtype[Any]) -> bool:
    """Tell whether a header can store this dtype; it stores only the size of bfloat16 etc."""
    told = np.lib.format.descr_to_dtype(np.lib.format.dtype_to_descr(dtype))
    return bool(told == dtype)


def header_bytes(dtype: np.dtype[Any], inner: tuple[int, ...], rows: int | None) -> bytes:
    """Return the header of an array; ``rows`` is None if they have not been counted.

    It has the same size for any number of rows, so that it can be rewritten later.
    """
    size = len(_padded(dtype, (_MAX_ROWS, *inner), 0))
    return _padded(dtype, (_MAX_ROWS if rows is None else rows, *inner), size)


def _padded(dtype: np.dtype[Any], shape: tuple[int, ...], size: int) -> bytes:
    descr = np.lib.format.dtype_to_descr(dtype)
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    version, length_size = (1, 2) if len(text) < 60000 else (2, 4)
    if not text.isascii():
        version, length_size = 3, 4
    body = text.encode()
    start = 8 + length_size
    size = size or -(-(start + len(body) + 1) // 64) * 64
    length = (size - start).to_bytes(length_size, "little")
    return _MAGIC + bytes([version, 0]) + length + body.ljust(size - start - 1) + b"\n"


def create_npy(output: Output, schema: Schema, *, expected: int | None = None) -> Sink:
    """Create a .npy file of numbers or of strings; several columns make a structured array."""
    fields = list(schema.values())
    if len(fields) == 1 and fields[0].is_bytes and not fields[0].ragged:
        return StringsSink(output, schema)
    check_rows(output.target, schema)
    lost = [name for name, field in schema.items() if not header_keeps(field.dtype)]
    if lost and len(schema) > 1:
        raise ColumnError(
            f"column {lost[0]!r} is {schema[lost[0]]}, which NumPy's header cannot describe "
            f"among other columns; write it to a separate .npy file, or write {output.target} as "
            ".npz, .h5, .zarr or .tfrecord"
        )
    # Without a sidecar, a plain array is named DEFAULT_NAME, and bfloat16 becomes bytes.
    dtype, plain = row_dtype(schema), len(schema) == 1
    header = partial(header_bytes, dtype, fields[0].inner if plain else ())
    describe = plain and (DEFAULT_NAME not in schema or not header_keeps(dtype))
    return RawSink(output, schema, expected, header, describe=describe)


class StringsSink(Sink):
    """Writes an array of strings as NumPy saves it: each takes as many bytes as the longest.

    That width is only known at the end. Until then, the strings wait in unnamed files.
    """

    def __init__(self, output: Output, schema: Schema) -> None:
        super().__init__(output, schema)
        ((self._name, self._field),) = schema.items()
        self._rows = self._longest = self._size = 0
        self._padded = output.stream()
        waiting = Spooler()
        self._contents, self._lengths = output.scratch(waiting), output.scratch(waiting)

    def write(self, batch: Mapping[str, Any]) -> None:
        columns, rows = fit(as_columns(batch), self.schema)
        if not rows:
            return
        column = columns[self._name]
        assert isinstance(column, Ragged)
        strings, values = column, column.flat
        while isinstance(values, Ragged):
            strings, values = values, values.flat
        content, lengths = np.ascontiguousarray(values).view(np.uint8), strings.lengths
        self._check_ends(content, lengths)
        self._contents.write(content)
        self._lengths.write(np.ascontiguousarray(lengths).view(np.uint8))
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
                f"column {self._name!r}: row {row:,} ends with a zero byte, which a .npy file of "
                "strings does not keep; write .npz, .h5, .zarr or .tfrecord"
            )

    def end(self) -> None:
        width, count = max(self._longest, 1), self._rows * self._field.count
        self._check_growth(width, count)
        self._contents.finish()
        self._lengths.finish()
        self._padded.write(header_bytes(np.dtype(f"S{width}"), self._field.inner, self._rows))
        contents, lengths = self._contents.reader(), self._lengths.reader()
        step = max(1, _PADDED_SIZE // width)
        for start in range(0, count, step):
            some = np.frombuffer(lengths.read(8 * min(step, count - start)), np.int64)
            padded = np.zeros((len(some), width), np.uint8)
            within = np.arange(width) < some[:, None]
            padded[within] = np.frombuffer(contents.read(int(some.sum())), np.uint8)
            self._padded.write(padded.reshape(-1))
        self.output.accompany(description_path, self._describe)

    def _check_growth(self, width: int, count: int) -> None:
        """Refuse to write if one long string makes the file much larger than the strings."""
        if width * count > max(_MAX_GROWTH * self._size, _MAX_PADDED):
            raise ColumnError(
                f"column {self._name!r}: the longest string has {width:,} bytes, so that "
                f"{count:,} of them would take {size_text(width * count)} in "
                f"{self.output.target}, and all together have {size_text(self._size)}; write .npz, "
                ".h5, .zarr or .tfrecord"
            )

    def _describe(self, data: str, path: str) -> None:
        # Without a sidecar, the column is named DEFAULT_NAME, and holds bytes.
        if self._name == DEFAULT_NAME and not self._field.is_text:
            remove_description(path)
        else:
            save_description(path, self.schema, data)


def _streams(path: str, schema: Schema, options: Mapping[str, Any]) -> bool:
    """Return whether rows are sent as they are written.

    The header has their number, and that of a file of strings the length of the longest.
    """
    del path
    strings = any(field.is_bytes for field in schema.values())
    return options.get("expected") is not None and not strings


SINK = SinkKind(create_npy, streams=_streams, describes=True)
