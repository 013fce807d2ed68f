"""Columns as the arrays of a .npz file."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping
from typing import IO, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.checks import check_choice
from recmap.columns import as_columns, fit
from recmap.errors import ColumnError
from recmap.files.output import OutputFile, Spooler
from recmap.formats.npy_header import header_bytes, header_keeps
from recmap.formats.npz import FIELD_MARK
from recmap.formats.parts import VALUES, Part, Splitter, check_names
from recmap.types import Field, Schema

__all__ = ["NpzSink"]

NpzCompression: TypeAlias = Literal["deflate"] | None

_METHODS = {None: zipfile.ZIP_STORED, "deflate": zipfile.ZIP_DEFLATED}
# Data of stored arrays begins at a multiple of this, so that it can be mapped aligned.
_ALIGN = 64
# The kind of extra field that Android's zipalign pads with.
_PADDING = 0xD935
# What zipfile adds to the local header of a member that may be larger than 4 GB.
_ZIP64_SIZE = 20
_PIECE = 1 << 20
_MAX_HELD = 8 << 20


class NpzSink:
    """Arrays as numpy saves them, ragged columns as their values and offsets. Each is
    gathered in a file without a name, and they are joined when all rows are there.
    """

    def __init__(
        self, path: str, schema: Schema, *, durable: bool = True, compression: NpzCompression = None
    ) -> None:
        check_choice("compression", compression, _METHODS)
        if not schema:
            raise ColumnError(f"{path}: there are no columns to write")
        self.path, self.schema = path, schema
        self._durable, self._method = durable, _METHODS[compression]
        self._finished = False
        self._held = 0
        self._splitters = {name: Splitter(name, field) for name, field in schema.items()}
        check_names(schema)
        self._spooler = Spooler()
        self._members: dict[tuple[str, str], _Member] = {}
        self._file: OutputFile | None = None
        try:
            self._file = OutputFile(path, None, self._spooler)
            for name, splitter in self._splitters.items():
                for part in splitter.parts:
                    member = _Member(path, name, part, self._spooler)
                    self._members[name, part.key] = member
                self._append(name, splitter.head())
        except BaseException:
            self.abort()
            raise

    def write(self, batch: Mapping[str, Any]) -> None:
        """Appends rows."""
        columns, rows = fit(as_columns(batch), self.schema)
        for name, column in columns.items() if rows else ():
            self._append(name, self._splitters[name].split(column))

    def _append(self, name: str, pieces: Mapping[str, npt.NDArray[Any]]) -> None:
        for key, rows in pieces.items():
            self._members[name, key].append(rows)
            self._held += rows.nbytes
        # Each gathers small pieces, and there may be many of them.
        if self._held > _MAX_HELD:
            for member in self._members.values():
                member.file.flush()
            self._held = 0

    def finish(self) -> str:
        """Joins the arrays; the temporary name."""
        assert self._file is not None
        if not self._finished:
            for member in self._members.values():
                member.file.flush()
            self._spooler.close()
            with zipfile.ZipFile(self._file.temporary, "w") as archive:
                for (name, key), member in self._members.items():
                    self._join(archive, member, _comment(self.schema[name], key))
            self._file.finish(self._durable)
            self._finished = True
        return self._file.temporary

    def _join(self, archive: zipfile.ZipFile, member: _Member, comment: str) -> None:
        # A fixed time, so that equal input gives equal bytes.
        info = zipfile.ZipInfo(member.name, (1980, 1, 1, 0, 0, 0))
        info.compress_type = self._method
        info.comment = comment.encode()
        info.file_size = member.finish()
        large = info.file_size >= zipfile.ZIP64_LIMIT // 2
        if self._method == zipfile.ZIP_STORED:
            info.extra = _padding(archive, info, large)
        with archive.open(info, "w", force_zip64=large) as target:
            _copy(member.file.reader(), target)
        # The disk holds no array twice, but for the one that is joined.
        member.file.abort()

    def commit(self) -> None:
        """Finishes the file and gives it its name."""
        self.finish()
        assert self._file is not None
        self._file.commit(self._durable)

    def abort(self) -> None:
        """Leaves nothing behind."""
        self._spooler.stop()
        for member in self._members.values():
            member.file.abort()
        if self._file is not None:
            self._file.abort()


class _Member:
    """One array, as a .npy file that grows."""

    def __init__(self, path: str, column: str, part: Part, spooler: Spooler) -> None:
        self.name = f"{column}/{part.key}.npy" if part.key else f"{column}.npy"
        if "\0" in self.name or len(self.name.encode()) >= 1 << 16:
            raise ColumnError(f"{path}: the column {column!r} has a name no zip file can hold")
        self._part = part
        self._rows = 0
        self.file = OutputFile(path, None, spooler, unnamed=True)
        self.file.write(header_bytes(part.dtype, part.inner, None))

    def append(self, rows: npt.NDArray[Any]) -> None:
        self._rows += len(rows)
        if rows.size:
            data = np.ascontiguousarray(rows, self._part.dtype)
            self.file.write(data.reshape(-1).view(np.uint8))

    def finish(self) -> int:
        """Writes the header; the size of the file."""
        self.file.write_at(0, header_bytes(self._part.dtype, self._part.inner, self._rows))
        return self.file.written


def _comment(field: Field, key: str) -> str:
    """The field, where the headers of the arrays do not tell it."""
    if key not in ("", VALUES):
        return ""
    told = field.is_bytes or header_keeps(field.dtype)
    fixed_strings = field.is_bytes and field.inner
    bare = Field(field.dtype, field.shape)
    return "" if told and not fixed_strings else f"{FIELD_MARK}{bare}"


def _padding(archive: zipfile.ZipFile, info: zipfile.ZipInfo, large: bool) -> bytes:
    assert archive.fp is not None
    fixed = 30 + len(info.filename.encode()) + (_ZIP64_SIZE if large else 0) + 6
    size = -(archive.fp.tell() + fixed) % _ALIGN
    return struct.pack("<HHH", _PADDING, 2 + size, _ALIGN) + bytes(size)


def _copy(source: IO[bytes], target: IO[bytes]) -> None:
    while piece := source.read(_PIECE):
        target.write(piece)
