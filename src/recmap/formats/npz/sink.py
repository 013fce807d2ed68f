"""Columns as the arrays of a .npz file."""

from __future__ import annotations

import os
import resource
import struct
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError
from recmap.files.output_file import OutputFile, Spooler
from recmap.formats.npy_header import header_bytes, header_keeps
from recmap.formats.npz.source import FIELD_MARK
from recmap.formats.ragged_layout import VALUES, Part, Splitter, check_names
from recmap.model.arguments import check_choice
from recmap.model.coerce import as_columns, fit
from recmap.model.schema import Field, Schema
from recmap.model.sink import Sink

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
# Of the descriptors that a process has, one in so many is for arrays that are gathered.
_MOST_HEAPS, _DESCRIPTORS = 64, 32
# Before a piece of an array: its size, and where the one before it begins; -1 if none does.
_LINK = struct.Struct("<qq")


class NpzSink(Sink):
    """Arrays as numpy saves them, ragged columns as their values and offsets. They are
    gathered in files without names, and joined when all rows are there.
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
        self._heaps: list[_Heap] = []
        self._file: OutputFile | None = None
        try:
            self._file = OutputFile(path, None, self._spooler)
            parts = [
                (n, part) for n, splitter in self._splitters.items() for part in splitter.parts
            ]
            # Neighbours share a file, so that each can be closed before the next is joined.
            share = -(-len(parts) // _most_heaps())
            for i, (name, part) in enumerate(parts):
                if i % share == 0:
                    self._heaps.append(_Heap(path, self._spooler))
                self._members[name, part.key] = _Member(path, name, part, self._heaps[-1])
            for name, splitter in self._splitters.items():
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
            self._flush()

    def _flush(self) -> None:
        for member in self._members.values():
            member.flush()
        for heap in self._heaps:
            heap.file.flush()
        self._held = 0

    def finish(self) -> str:
        """Joins the arrays; the temporary name."""
        assert self._file is not None
        if not self._finished:
            self._flush()
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
        info.file_size = member.size
        large = info.file_size >= zipfile.ZIP64_LIMIT // 2
        if self._method == zipfile.ZIP_STORED:
            info.extra = _padding(archive, info, large)
        with archive.open(info, "w", force_zip64=large) as target:
            target.write(member.header)
            for piece in member.pieces():
                target.write(piece)
        # The disk holds few arrays twice: those that lie in one file with the one joined.
        member.heap.leave()

    def commit(self) -> None:
        """Finishes the file and gives it its name."""
        self.finish()
        assert self._file is not None
        self._file.commit(self._durable)

    def abort(self) -> None:
        """Leaves nothing behind."""
        self._spooler.stop()
        for heap in self._heaps:
            heap.file.abort()
        if self._file is not None:
            self._file.abort()


class _Heap:
    """A file in which pieces of several arrays lie in the order they came. Before each is its
    size, and where the piece before it of the same array begins.
    """

    def __init__(self, path: str, spooler: Spooler) -> None:
        self.file = OutputFile(path, None, spooler, unnamed=True)
        self.members = 0
        self._size = 0

    def append(self, pieces: list[npt.NDArray[np.uint8]], before: int) -> int:
        """Appends a piece, given in parts; where it begins."""
        size, begin = sum(map(len, pieces)), self._size
        self.file.write(_LINK.pack(size, before))
        for piece in pieces:
            self.file.write(piece)
        self._size += _LINK.size + size
        return begin

    def pieces(self, last: int) -> Iterator[bytes]:
        """The pieces of one array, the last of which begins at ``last``, in order and cut into
        smaller ones; the spooler must have been closed.
        """
        file = self.file.reader().fileno()
        found: list[tuple[int, int]] = []
        while last >= 0:
            size, before = _LINK.unpack(os.pread(file, _LINK.size, last))
            found.append((last + _LINK.size, size))
            last = before
        for begin, size in reversed(found):
            for at in range(begin, begin + size, _PIECE):
                yield os.pread(file, min(_PIECE, begin + size - at), at)

    def leave(self) -> None:
        """One of its arrays has been joined; with the last, the file is gone."""
        self.members -= 1
        if self.members == 0:
            self.file.abort()


class _Member:
    """One array that grows."""

    def __init__(self, path: str, column: str, part: Part, heap: _Heap) -> None:
        self.name = f"{column}/{part.key}.npy" if part.key else f"{column}.npy"
        if "\0" in self.name or len(self.name.encode()) >= 1 << 16:
            raise ColumnError(f"{path}: the column {column!r} has a name no zip file can hold")
        self._part = part
        self._rows = self._bytes = 0
        self._pieces: list[npt.NDArray[np.uint8]] = []
        self._held = 0
        self._last = -1
        self.heap = heap
        heap.members += 1

    def append(self, rows: npt.NDArray[Any]) -> None:
        self._rows += len(rows)
        if rows.size:
            data = np.ascontiguousarray(rows, self._part.dtype).reshape(-1).view(np.uint8)
            # A copy if it waits: it would hold on to all columns of its batch.
            self._pieces.append(data if len(data) >= _PIECE else data.copy())
            self._held += len(data)
            self._bytes += len(data)
            if self._held >= _PIECE:
                self.flush()

    def flush(self) -> None:
        """Hands over what is held."""
        pieces, self._pieces, self._held = self._pieces, [], 0
        if pieces:
            self._last = self.heap.append(pieces, self._last)

    @property
    def header(self) -> bytes:
        return header_bytes(self._part.dtype, self._part.inner, self._rows)

    @property
    def size(self) -> int:
        """Of the array as a .npy file."""
        return len(self.header) + self._bytes

    def pieces(self) -> Iterator[bytes]:
        """Its bytes behind the header."""
        return self.heap.pieces(self._last)


def _most_heaps() -> int:
    """Files for the arrays: few enough for several that are written at once."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    unlimited = limit == resource.RLIM_INFINITY
    return _MOST_HEAPS if unlimited else max(1, min(_MOST_HEAPS, limit // _DESCRIPTORS))


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
