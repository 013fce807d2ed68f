"""Reads the members of a .npz file with zipfile and NumPy, to verify what recmap reads."""

from __future__ import annotations

import io
import lzma
import struct
import weakref
import zipfile
import zlib
from contextlib import ExitStack
from threading import Lock
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError, RecmapError
from recmap.formats.npy import MAX_HEADER, NpyHeader
from recmap.local.local_path import located
from recmap.machine.lru import Lru
from recmap.store.open_object import SeekableObject

# Members kept open; each has a 32 kB window.
_OPEN = 256
_LOCAL_SIZE = 30
_BROKEN = (zipfile.BadZipFile, EOFError, OSError, RuntimeError, zlib.error, lzma.LZMAError)


class ZipReader:
    """Reads the members of a zip, from any thread."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._opened = ExitStack()
        self._seekable = self._opened.enter_context(located(path).seekable())
        self._archive = zipfile.ZipFile(self._seekable)
        self._file = self._opened.enter_context(located(path).open())
        self._members = Lru[int, IO[bytes]](_OPEN)
        weakref.finalize(self, _close, self._archive, self._members, self._opened)
        self._lock = Lock()

    def read(self, info: zipfile.ZipInfo, offset: int, size: int) -> bytes:
        """Read bytes of a member; fewer if it ends first."""
        try:
            if info.compress_type == zipfile.ZIP_STORED:
                return self._stored(info, offset, min(size, info.file_size - offset))
            with self._lock:
                member = self._member(info)
                member.seek(offset)
                return member.read(size)
        except RecmapError:
            raise
        except _BROKEN as e:
            if isinstance(self._seekable, SeekableObject):
                self._seekable.raise_error()
            raise DataError(f"{self.path}: {info.filename}: {e}", file=self.path) from e

    def _stored(self, info: zipfile.ZipInfo, offset: int, size: int) -> bytes:
        # Not through zipfile, which would read all bytes before the offset.
        local = self._file.pread(_LOCAL_SIZE, info.header_offset)
        name, extra = struct.unpack_from("<HH", local, 26)
        at = info.header_offset + _LOCAL_SIZE + name + extra + offset
        found = []
        while size > 0 and (data := self._file.pread(size, at)):
            found.append(data)
            at, size = at + len(data), size - len(data)
        return b"".join(found)

    def _member(self, info: zipfile.ZipInfo) -> IO[bytes]:
        member = self._members.get(info.header_offset)
        if member is None:
            member = self._archive.open(info)
            for old in self._members.put(info.header_offset, member):
                old.close()
        return member


def _close(
    archive: zipfile.ZipFile,
    members: Lru[int, IO[bytes]],
    opened: ExitStack,
) -> None:
    for member in members.shrink(0):
        member.close()
    archive.close()
    opened.close()


class UnzippedMember:
    """The bytes of one member, and its header as NumPy reads it."""

    def __init__(self, reader: ZipReader, info: zipfile.ZipInfo) -> None:
        self._reader, self._info = reader, info

    def header(self) -> NpyHeader | None:
        """Read the header; None for a version that NumPy has no public reader for."""
        file = io.BytesIO(self._reader.read(self._info, 0, MAX_HEADER))
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            return None
        read: Any = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = read(file, max_header_size=MAX_HEADER)
        return NpyHeader(dtype.base, (*shape, *dtype.shape), fortran, file.tell())

    def read(self, offset: int, size: int) -> npt.NDArray[np.uint8]:
        """Read exactly ``size`` bytes."""
        data = self._reader.read(self._info, offset, size)
        if len(data) < size:
            path, name = self._reader.path, self._info.filename
            raise DataError(
                f"{path}: {name}: it ends after {offset + len(data):,} bytes", file=path
            )
        return np.frombuffer(data, np.uint8)
