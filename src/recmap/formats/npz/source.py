"""NumPy .npz files: arrays of equal length in a zip are columns."""

from __future__ import annotations

import lzma
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from recmap.errors import DataError, RecmapError
from recmap.formats.column_readers import ColumnReader, array_columns, decoded_columns
from recmap.formats.column_source import Checksum, ColumnsSource, choose_columns
from recmap.formats.npy import (
    MAX_HEADER,
    SCATTERED,
    SHORT_HEADER,
    NpyHeader,
    parse_header,
    read_head,
)
from recmap.formats.npz.members import (
    LOCAL_SIZE,
    MAX_LOADED,
    Deflated,
    StoredChecksum,
    StreamedArray,
    ZipReader,
)
from recmap.formats.null_masks import mask_names
from recmap.formats.ragged_layout import VALUES, join, levels
from recmap.local.local_path import located
from recmap.machine.mapped import Guard, MappedFile
from recmap.model.arguments import size_text
from recmap.model.description import decode_field, misfit, warn_of_notes
from recmap.model.field import Field
from recmap.model.ragged import BYTE
from recmap.model.table_notes import and_index, decode_note, divided

# Precedes the field in the comment of a member, if its header cannot hold the field.
FIELD_PREFIX = "recmap: "
_LOCAL_MAGIC = b"PK\x03\x04"
# Flags, method, both sizes and the length of the name; skips version, time and CRC.
_LOCAL = struct.Struct("<6xHH8xIIH")
# Flags: encrypted (two ways) or a patch to other data; sizes follow the data; UTF-8 name.
_ENCRYPTED, _DESCRIBED_LATER, _UTF8 = 0x61, 8, 0x800
# Replaces a size that is stored in 64 bits in the extra field.
_IN_EXTRA = 0xFFFFFFFF
_END_SIZE = 22
# Replaces a number of members that needs more than 16 bits.
_MANY = 0xFFFF
_READ_SIZE = 1 << 20
_BROKEN = (
    zipfile.BadZipFile,
    EOFError,
    IndexError,
    NotImplementedError,
    OSError,
    OverflowError,
    struct.error,
    ValueError,
)


def open_npz(
    path: str, names: Sequence[str] | None, *, verify: bool = True, direct: bool = True
) -> ColumnsSource:
    """Open the arrays of equal length, or those in ``names``.

    Stored arrays are mapped; deflated arrays are inflated as they are read. Without
    ``verify``, the CRCs of stored arrays are not checked. Without ``direct``, zipfile and
    NumPy read all values.
    """
    file = located(path).map()
    reader = None if direct else ZipReader(path)
    found_members, comment = _directory(path)
    with _hold_heads(file, found_members):
        # If two members have the same name, the last one counts, as in NumPy.
        members = {m.name: m for m in (_ZippedArray(file, info, reader) for info in found_members)}
    found: dict[str, ColumnReader] = {}
    sums: dict[str, list[Checksum]] = {}
    refused: dict[str, str] = {}
    for name, member in members.items():
        stem, _, end = name.rpartition("/")
        values, keys = members.get(f"{stem}/{VALUES}"), levels(stem, members)
        if values is not None and keys and end in (VALUES, *keys):
            if end == VALUES:
                offsets = {key: members[f"{stem}/{key}"] for key in keys}
                found[stem] = _ragged(path, stem, values, offsets)
                sums[stem] = [s for m in (values, *offsets.values()) for s in m.sums]
        elif member.refusal:
            refused[name] = member.refusal
        else:
            columns = member.columns()
            found |= columns
            sums |= dict.fromkeys(columns, member.sums)
    types = decode_note(comment)
    columns = choose_columns(path, found, refused, and_index(names, types, found))
    for name in columns:
        sums[name] = [s for each in (name, *mask_names(name)) for s in sums.get(each, ())]
    columns, table = divided(columns, types, names)
    # Reopen by name, so that the warning about arrays left out is not repeated.
    again = partial(open_npz, path, list(columns), verify=verify, direct=direct)
    other = partial(open_npz, path, list(columns), verify=verify, direct=False)
    checked = sums if verify else None
    return ColumnsSource(
        "npz",
        [path],
        columns,
        reopen=again,
        mapped=file,
        reference=other,
        sums=checked,
        table=table,
    )


def check_members(path: str) -> Iterator[tuple[str, DataError | None]]:
    """Check every member of the zip, column or not; yield its name and its error, if any."""
    file = located(path).map()
    for info in _directory(path)[0]:
        wrong: DataError | None = None
        try:
            with Guard(path):
                file.check_size()
                member = _ZippedArray(file, info)
                if member.checksum is not None:
                    member.checksum.check()
                else:
                    _check_with_zipfile(path, info)
        except DataError as e:
            wrong = e
        yield info.filename, wrong


def _check_with_zipfile(path: str, info: zipfile.ZipInfo) -> None:
    """Check a member that recmap cannot inflate."""
    try:
        with (
            located(path).seekable() as file,
            zipfile.ZipFile(file) as archive,
            archive.open(info) as member,
        ):
            while member.read(_READ_SIZE):
                pass
    except RecmapError:
        raise
    except (*_BROKEN, RuntimeError, zlib.error, lzma.LZMAError) as e:
        raise DataError(f"{path}: {info.filename}: {e}", file=path, byte=info.header_offset) from e


def _directory(path: str) -> tuple[list[zipfile.ZipInfo], bytes]:
    """Return the members of the zip, and its comment."""
    try:
        with located(path).seekable() as file, zipfile.ZipFile(file) as archive:
            found = archive.infolist()
            assert archive.fp is not None
            archive.fp.seek(-_END_SIZE - len(archive.comment), os.SEEK_END)
            (count,) = struct.unpack_from("<H", archive.fp.read(_END_SIZE), 10)
            if count not in (len(found), _MANY):
                raise ValueError(f"its directory has {len(found):,} members, not {count:,}")
            return [info for info in found if not info.is_dir()], archive.comment
    except RecmapError:
        raise
    except _BROKEN as e:
        raise DataError(f"{path}: not a valid zip file: {e}", file=path) from e


def _hold_heads(
    file: MappedFile, members: Sequence[zipfile.ZipInfo]
) -> AbstractContextManager[None]:
    """Make the headers of all members available: that of the zip, and that of the array."""
    begins = np.array([info.header_offset for info in members], np.int64).clip(0, file.size)
    names = [len(info.orig_filename.encode()) + len(info.extra) for info in members]
    ends = begins + np.array(names, np.int64) + LOCAL_SIZE + SHORT_HEADER
    return file.hold(begins, ends.clip(0, file.size))


def _ragged(
    path: str, name: str, values: _ZippedArray, offsets: Mapping[str, _ZippedArray]
) -> ColumnReader:
    for member in (values, *offsets.values()):
        if member.refusal:
            raise values.error(member.refusal)
    strings = values.header.dtype == BYTE
    dtype = np.dtype(np.uint8) if strings else values.header.dtype
    readers = {key: _only(member, member.header.dtype) for key, member in offsets.items()}
    return join(path, name, _only(values, dtype), readers, strings, values.field)


def _only(member: _ZippedArray, dtype: np.dtype[Any]) -> ColumnReader:
    columns = member.columns(dtype)
    if len(columns) != 1:
        raise member.error("has fields, but is a part of a ragged column")
    return next(iter(columns.values()))


class _ZippedArray:
    """An array in the zip."""

    def __init__(
        self, file: MappedFile, info: zipfile.ZipInfo, reader: ZipReader | None = None
    ) -> None:
        self.name = info.filename.removesuffix(".npy")
        self._file, self._info, self._reader = file, info, reader
        self._start = self._data_offset()
        self._deflated: Deflated | None = None
        where = file, info.filename, self._start
        encrypted = info.flag_bits & _ENCRYPTED
        if info.compress_type == zipfile.ZIP_DEFLATED and not encrypted:
            self._deflated = Deflated(*where, info.compress_size, info.file_size, info.CRC)
        stored = info.compress_type == zipfile.ZIP_STORED and not encrypted
        # None if recmap cannot read the member.
        self.checksum: StoredChecksum | Deflated | None = (
            StoredChecksum(*where, info.file_size, info.CRC, self.name)
            if stored
            else self._deflated
        )
        self.refusal = self._why_not()

    @property
    def sums(self) -> list[Checksum]:
        """The checksum in a list; an empty list if there is none."""
        return [] if self.checksum is None else [self.checksum]

    def error(self, why: str) -> DataError:
        return DataError(
            f"{self._file.path}: {self._info.filename}: {why}",
            file=self._file.path,
            byte=self._info.header_offset,
            field=self.name,
        )

    def _data_offset(self) -> int:
        """Return where the data of the member begins, after its local header."""
        info = self._info
        local = self._bytes(info.header_offset, LOCAL_SIZE)
        if info.header_offset < 0 or len(local) < LOCAL_SIZE or not local.startswith(_LOCAL_MAGIC):
            raise self.error(f"no member begins at byte {info.header_offset:,}")
        self._check_local(local)
        name_size, extra_size = struct.unpack_from("<HH", local, 26)
        start = info.header_offset + LOCAL_SIZE + int(name_size) + int(extra_size)
        if start + info.compress_size > self._file.size:
            raise self.error(
                f"truncated: {info.compress_size:,} bytes from byte {start:,} on, but the file has "
                f"{self._file.size:,}"
            )
        return start

    def _bytes(self, begin: int, size: int) -> bytes:
        """Return bytes of the file; fewer if it ends before."""
        begin = min(max(begin, 0), self._file.size)
        end = min(begin + size, self._file.size)
        with self._file.hold(begin, end):
            return self._file.bytes[begin:end].tobytes()

    def _check_local(self, local: bytes) -> None:
        """Compare the local header of the member with the directory of the zip."""
        info = self._info
        flags, method, packed, size, name_size = _LOCAL.unpack_from(local)
        name = self._bytes(info.header_offset + LOCAL_SIZE, name_size)
        encoding = "utf-8" if flags & _UTF8 else "cp437"
        pairs: dict[str, tuple[Any, Any]] = {
            "name": (name.decode(encoding, "replace"), info.orig_filename),
            "method of compression": (method, info.compress_type),
        }
        if not flags & _DESCRIBED_LATER:
            if packed != _IN_EXTRA:
                pairs["compressed size"] = (packed, info.compress_size)
            if size != _IN_EXTRA:
                pairs["size"] = (size, info.file_size)
        for what, (local_value, value) in pairs.items():
            if local_value != value:
                raise self.error(
                    f"the {what} before it is {local_value!r}, and {value!r} in the directory: the "
                    "zip is damaged; save or copy it again"
                )

    def _why_not(self) -> str:
        """Say why the member cannot be a column; "" if it can."""
        info = self._info
        if info.flag_bits & _ENCRYPTED:
            return "is encrypted or a patch; save it again without a password"
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            return (
                f"is compressed by method {info.compress_type}, not deflated; save it with "
                "np.savez_compressed"
            )
        head = self._head()
        if not info.filename.endswith(".npy") and not head.startswith(b"\x93NUMPY"):
            return "is not an array"
        self.header = self._restored(parse_header(head, f"{self._file.path}: {info.filename}"))
        if self.header.refusal:
            return self.header.refusal
        size = math.prod(self.header.shape) * self.header.dtype.itemsize
        if self.header.size + size > info.file_size:
            raise self.error(
                f"truncated: {self.header.shape} of {self.header.dtype} need {size:,} bytes, but "
                f"there are {info.file_size - self.header.size:,}"
            )
        if self._deflated is not None and self.header.fortran and size > MAX_LOADED:
            return (
                f"is deflated in Fortran order, so that {size_text(size)} would have to be "
                "inflated for any row; save it with np.savez, or in C order"
            )
        scattered = self.header.fortran and len(self.header.shape) > 1
        if scattered and self._deflated is None and not self._file.whole:
            return SCATTERED
        return ""

    def _head(self) -> bytes:
        if self._deflated is not None:
            return self._deflated.read(0, min(MAX_HEADER, self._deflated.size)).tobytes()
        if self._info.file_size != self._info.compress_size:
            raise self.error("a stored member whose sizes differ")
        size = self._info.file_size
        return read_head(lambda count: self._bytes(self._start, min(count, size)))

    @property
    def field(self) -> Field | None:
        """The field in the comment, if there is one."""
        comment = self._info.comment.decode("utf-8", "replace")
        if not comment.startswith(FIELD_PREFIX):
            return None
        try:
            return decode_field(comment.removeprefix(FIELD_PREFIX))
        except ValueError as e:
            raise self.error(f"its comment: {e}") from e

    def _restored(self, header: NpyHeader) -> NpyHeader:
        """Set the dtype from the comment, if the header could not hold it."""
        field = self.field
        lost = header.dtype.kind == "V" and header.dtype.names is None
        if field is not None and lost and field.dtype.itemsize == header.dtype.itemsize:
            return replace(header, dtype=field.dtype)
        if field is not None and lost:
            warn_of_notes(self._file.path, [misfit(self.name, field, header.dtype)])
        return header

    def columns(self, dtype: np.dtype[Any] | None = None) -> dict[str, ColumnReader]:
        """Return the columns by name. ``dtype`` replaces the dtype with one of the same size."""
        header = self.header if dtype is None else replace(self.header, dtype=dtype)
        unzipped = self._unzipped_array(header.dtype)
        if unzipped is not None:
            columns = decoded_columns("", unzipped)
        elif self._deflated is not None:
            columns = decoded_columns("", StreamedArray(self._deflated.read, header))
        else:
            order = "F" if header.fortran else "C"
            at = self._start + header.size
            array = self._file.array(at, header.shape, header.dtype, order)  # type: ignore[arg-type]
            columns = array_columns("", array, self._file)
        return {f"{self.name}.{n}" if n else self.name: c for n, c in columns.items()}

    def _unzipped_array(self, dtype: np.dtype[Any]) -> StreamedArray | None:
        """Return the array as zipfile and NumPy read it; None if not wanted or not possible."""
        found = None if self._reader is None else self._reader.header(self._info)
        if self._reader is None or found is None:
            return None
        if found.fortran and math.prod(found.shape) * dtype.itemsize > MAX_LOADED:
            return None  # it would be loaded whole
        # NumPy reads bfloat16 and similar types as opaque bytes.
        same = found.dtype.kind == "V" or found.dtype == self.header.dtype
        if not same or found.shape != self.header.shape:
            raise self.error(f"NumPy reads {found.shape} of {found.dtype}, not {self.header}")
        return StreamedArray(partial(self._reader.read, self._info), replace(found, dtype=dtype))
