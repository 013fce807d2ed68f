"""Writes .npz files: one array per column."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy.typing as npt

from recmap.errors import ColumnError, LeftOutWarning
from recmap.formats.npy import header_bytes, header_keeps
from recmap.formats.npz.source import FIELD_PREFIX
from recmap.formats.ragged_layout import VALUES, ArraysSink, ColumnPart
from recmap.formats.sink import SinkKind
from recmap.formats.spooled_arrays import SpooledArray, SpooledArrays
from recmap.local.output import Output
from recmap.model.arguments import check_choice
from recmap.model.description import encode_field
from recmap.model.field import Field
from recmap.model.schema import Schema
from recmap.warn import warn

NpzCompression: TypeAlias = Literal["deflate"] | None

_METHODS = {None: zipfile.ZIP_STORED, "deflate": zipfile.ZIP_DEFLATED}
# Stored arrays begin at a multiple of this, so that the mapped arrays are aligned.
_ALIGN = 64
# The ID of the extra field that Android's zipalign uses for padding.
_PADDING = 0xD935
# Bytes that zipfile adds to the local header of a member that may exceed 4 GB.
_ZIP64_SIZE = 20
# Bytes that the comment of a zip file may have.
_MOST_COMMENT = 0xFFFF


class NpzSink(ArraysSink):
    """Writes arrays as NumPy saves them; ragged columns become values and offsets.

    The arrays grow in unnamed spool files, which are joined into a zip at the end.
    """

    def __init__(
        self,
        output: Output,
        schema: Schema,
        *,
        compression: NpzCompression = None,
        table_note: Mapping[str, Any] | None = None,
    ) -> None:
        check_choice("compression", compression, _METHODS)
        super().__init__(output, schema)
        self._comment = _noted(output.target, table_note)
        self._method = _METHODS[compression]
        self._parts = {
            (name, part.key): part
            for name, splitter in self.splitters.items()
            for part in splitter.parts
        }
        self._names = {at: _name(output.target, at[0], part) for at, part in self._parts.items()}
        dtypes = {at: part.dtype for at, part in self._parts.items()}
        self._arrays = SpooledArrays(output, dtypes)
        self.begin()

    def append(self, name: str, key: str, items: npt.NDArray[Any]) -> None:
        self._arrays.append((name, key), items)

    def end(self) -> None:
        """Join the arrays."""
        with zipfile.ZipFile(self.output.path, "x") as archive:
            for at, array in self._arrays.finish().items():
                self._join(archive, at, array)
            archive.comment = self._comment

    def _join(self, archive: zipfile.ZipFile, at: tuple[str, str], array: SpooledArray) -> None:
        name, key = at
        header = header_bytes(self._parts[at].dtype, self._parts[at].inner, array.rows)
        # Use a fixed time, so that equal input gives equal bytes.
        info = zipfile.ZipInfo(self._names[at], (1980, 1, 1, 0, 0, 0))
        info.compress_type = self._method
        info.comment = _comment(self.schema[name], key).encode()
        info.file_size = len(header) + array.size
        large = info.file_size >= zipfile.ZIP64_LIMIT // 2
        if self._method == zipfile.ZIP_STORED:
            info.extra = _padding(archive, info, large)
        with archive.open(info, "w", force_zip64=large) as target:
            target.write(header)
            for data in array.read():
                target.write(data)


def _name(path: str, column: str, part: ColumnPart) -> str:
    """Return the name of the member that holds an array of a column."""
    name = f"{column}/{part.key}.npy" if part.key else f"{column}.npy"
    if "\0" in name or len(name.encode()) >= 1 << 16:
        raise ColumnError(f"{path}: the column {column!r} has a name no zip file can hold")
    return name


def _noted(path: str, table_note: Mapping[str, Any] | None) -> bytes:
    """Return the comment of the zip: what columns were in a DataFrame, if that fits."""
    comment = json.dumps(table_note).encode() if table_note else b""
    if len(comment) <= _MOST_COMMENT:
        return comment
    warn(
        f"{path}: the dtypes of the DataFrame are left out, and its index is an ordinary column, "
        f"because they take {len(comment):,} bytes, and .npz files have room for "
        f"{_MOST_COMMENT:,}; save a .parquet file",
        LeftOutWarning,
    )
    return b""


def _comment(field: Field, key: str) -> str:
    """Return the field as a comment; "" if the headers of the arrays determine it."""
    if key not in ("", VALUES):
        return ""
    if field.is_bytes:
        in_header = not field.inner and not field.is_text
    else:
        in_header = header_keeps(field.dtype)
    return "" if in_header else FIELD_PREFIX + encode_field(field)


def _padding(archive: zipfile.ZipFile, info: zipfile.ZipInfo, large: bool) -> bytes:
    assert archive.fp is not None
    fixed = 30 + len(info.filename.encode()) + (_ZIP64_SIZE if large else 0) + 6
    size = -(archive.fp.tell() + fixed) % _ALIGN
    return struct.pack("<HHH", _PADDING, 2 + size, _ALIGN) + bytes(size)


SINK = SinkKind(NpzSink, nulls="masks", column_bytes=5_000)
