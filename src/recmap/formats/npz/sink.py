"""Writes .npz files: one array per column."""

from __future__ import annotations

import json
import os
import resource
import struct
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError, LeftOutWarning
from recmap.formats.npy import header_bytes, header_keeps
from recmap.formats.npz.source import FIELD_PREFIX
from recmap.formats.ragged_layout import VALUES, ArraysSink, ColumnPart
from recmap.formats.sink import SinkKind
from recmap.local.output import Output, OutputStream, Spooler
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
# Bytes of an array written at once, and bytes of all arrays that may wait to be written.
_SPAN_SIZE = 1 << 20
_MAX_HELD = 8 << 20
# The most spool files to use, and the number of allowed file descriptors per spool file.
_MOST_SPOOLS, _DESCRIPTORS = 64, 32
# Precedes each span of an array: its size, and where the previous one begins (-1 if first).
_LINK = struct.Struct("<qq")
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
        self._held = 0
        self._members: dict[tuple[str, str], _SpooledArray] = {}
        self._spools: list[_Spool] = []
        spooler = Spooler()
        parts = [(n, part) for n, splitter in self.splitters.items() for part in splitter.parts]
        # Neighbours share a spool file, which is deleted before the next file is joined.
        share = -(-len(parts) // _most_spools())
        for i, (name, part) in enumerate(parts):
            if i % share == 0:
                self._spools.append(_Spool(output.scratch(spooler)))
            self._members[name, part.key] = _SpooledArray(name, part, self._spools[-1])
        for name, splitter in self.splitters.items():
            self.append(name, splitter.head())

    def append(self, name: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Append items to the arrays of a column, and write them if many wait."""
        for key, rows in arrays.items():
            self._members[name, key].append(rows)
            self._held += rows.nbytes
        # Each member holds few bytes, but there may be many members.
        if self._held > _MAX_HELD:
            self._flush()

    def _flush(self) -> None:
        for member in self._members.values():
            member.flush()
        for spool in self._spools:
            spool.stream.flush()
        self._held = 0

    def end(self) -> None:
        """Join the arrays."""
        self._flush()
        for spool in self._spools:
            spool.stream.finish()
        with zipfile.ZipFile(self.output.path, "x") as archive:
            for (name, key), member in self._members.items():
                self._join(archive, member, _comment(self.schema[name], key))
            archive.comment = self._comment

    def _join(self, archive: zipfile.ZipFile, member: _SpooledArray, comment: str) -> None:
        # Use a fixed time, so that equal input gives equal bytes.
        info = zipfile.ZipInfo(member.name, (1980, 1, 1, 0, 0, 0))
        info.compress_type = self._method
        info.comment = comment.encode()
        info.file_size = member.size
        large = info.file_size >= zipfile.ZIP64_LIMIT // 2
        if self._method == zipfile.ZIP_STORED:
            info.extra = _padding(archive, info, large)
        with archive.open(info, "w", force_zip64=large) as target:
            target.write(member.header)
            for data in member.read():
                target.write(data)
        # Free the disk space early, so that few arrays are on disk twice at any time.
        member.spool.leave()


class _Spool:
    """A file with spans of several arrays, in the order they were added.

    Each span is preceded by its size and the start of the previous span of the same array.
    """

    def __init__(self, stream: OutputStream) -> None:
        self.stream = stream
        self.members = 0
        self._size = 0

    def append(self, buffers: list[npt.NDArray[np.uint8]], previous: int) -> int:
        """Append a span, given as buffers, and return its start."""
        size, begin = sum(map(len, buffers)), self._size
        self.stream.write(_LINK.pack(size, previous))
        for buffer in buffers:
            self.stream.write(buffer)
        self._size += _LINK.size + size
        return begin

    def read(self, last: int) -> Iterator[bytes]:
        """Read the bytes of an array, given the start of its last span.

        Finish the stream first.
        """
        file = self.stream.reader().fileno()
        found: list[tuple[int, int]] = []
        while last >= 0:
            size, previous = _LINK.unpack(os.pread(file, _LINK.size, last))
            found.append((last + _LINK.size, size))
            last = previous
        for begin, size in reversed(found):
            for at in range(begin, begin + size, _SPAN_SIZE):
                yield os.pread(file, min(_SPAN_SIZE, begin + size - at), at)

    def leave(self) -> None:
        """Note that one of the arrays has been joined; delete the file after the last one."""
        self.members -= 1
        if self.members == 0:
            self.stream.output.discard()


class _SpooledArray:
    """An array of the zip while it is being written."""

    def __init__(self, column: str, part: ColumnPart, spool: _Spool) -> None:
        self.name = f"{column}/{part.key}.npy" if part.key else f"{column}.npy"
        if "\0" in self.name or len(self.name.encode()) >= 1 << 16:
            path = spool.stream.output.target
            raise ColumnError(f"{path}: the column {column!r} has a name no zip file can hold")
        self._part = part
        self._rows = self._bytes = 0
        self._pending: list[npt.NDArray[np.uint8]] = []
        self._held = 0
        self._last = -1
        self.spool = spool
        spool.members += 1

    def append(self, rows: npt.NDArray[Any]) -> None:
        self._rows += len(rows)
        if rows.size:
            data = np.ascontiguousarray(rows, self._part.dtype).reshape(-1).view(np.uint8)
            # Copy pending data, because a view would keep all columns of its batch alive.
            self._pending.append(data if len(data) >= _SPAN_SIZE else data.copy())
            self._held += len(data)
            self._bytes += len(data)
            if self._held >= _SPAN_SIZE:
                self.flush()

    def flush(self) -> None:
        """Write pending data to the spool file."""
        pending, self._pending, self._held = self._pending, [], 0
        if pending:
            self._last = self.spool.append(pending, self._last)

    @property
    def header(self) -> bytes:
        return header_bytes(self._part.dtype, self._part.inner, self._rows)

    @property
    def size(self) -> int:
        """Size of the array as a .npy file, in bytes."""
        return len(self.header) + self._bytes

    def read(self) -> Iterator[bytes]:
        """Read the bytes after the header."""
        return self.spool.read(self._last)


def _most_spools() -> int:
    """Return how many spool files to use: few enough that several sinks can run at once."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    unlimited = limit == resource.RLIM_INFINITY
    return _MOST_SPOOLS if unlimited else max(1, min(_MOST_SPOOLS, limit // _DESCRIPTORS))


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
