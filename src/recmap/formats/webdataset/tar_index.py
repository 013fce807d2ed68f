"""The index of a tar file: its samples, and where the members of each lie.

It is made by one scan of the headers. recmap keeps it next to files that it wrote or indexed, or
had to inflate, and those of objects in the disk cache. It is used only if it was made from exactly
this file.
"""

from __future__ import annotations

import json
import re
import struct
from array import array
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError, StaleIndexWarning, StoreError
from recmap.formats.inflated_file import InflatedFile, inflated_file, is_gzip
from recmap.formats.npy import SHORT_HEADER
from recmap.formats.webdataset.tar_members import BLOCK, TarMember, TarMembers
from recmap.local.local_path import located
from recmap.local.temporary import temporary_path
from recmap.machine.mapped import Guard, MappedFile
from recmap.model.batch import RowNumbers
from recmap.model.ragged import offsets_of
from recmap.native import _core
from recmap.tfrecord.sidecar import Fingerprint, sidecar_path
from recmap.warn import warn

_MAGIC = b"RECMAPWD"
_VERSION = 1
_HEAD = struct.Struct("<8sIII")  # magic, version, size of the JSON, CRC of all that follows
# The name of an index in the cache, and more bytes than any has.
_KEPT, _MOST = "webdataset", 1 << 31
# How the names of WebDataset's own notes begin.
_META = re.compile(rb"__[^/]*__($|/)")
# Enough for almost all headers.
_NPY_HEAD = 128
_NPY = b"\x93NUMPY"

Numbers = npt.NDArray[np.int64]


def _small(values: array[int]) -> npt.NDArray[Any]:
    """Return numbers as an array that takes little memory."""
    wide = np.frombuffer(values, np.int64) if len(values) else np.empty(0, np.int64)
    return wide.astype(np.uint32) if int(wide.max(initial=0)) < 1 << 32 else wide.copy()


@dataclass(frozen=True)
class Members:
    """The members with one extension: for each sample, where it begins, in blocks, and its size.

    Those that are missing begin at block 0. ``heads`` are the numbers of the headers of .npy
    members.
    """

    blocks: npt.NDArray[Any]
    sizes: npt.NDArray[Any]
    heads: npt.NDArray[Any]

    def at(self, rows: RowNumbers | slice) -> tuple[Numbers, Numbers]:
        """Return where the content of some members begins, and their sizes."""
        key: Any = slice(rows.start, rows.stop) if isinstance(rows, range) else rows
        return self.blocks[key].astype(np.int64) * BLOCK, self.sizes[key].astype(np.int64)

    def missing(self, rows: RowNumbers | slice) -> npt.NDArray[np.bool_]:
        key: Any = slice(rows.start, rows.stop) if isinstance(rows, range) else rows
        found: npt.NDArray[np.bool_] = self.blocks[key] == 0
        return found

    @property
    def complete(self) -> bool:
        """Whether every sample has one."""
        return bool((self.blocks != 0).all())

    @classmethod
    def none(cls, rows: int) -> Members:
        """Return the members of a file that has none of an extension."""
        zeros = np.zeros(rows, np.uint32)
        return cls(zeros, zeros, zeros[:0])


@dataclass(frozen=True)
class TarIndex:
    """What is in a tar file: the keys of its samples end to end, and the members by extension."""

    keys: npt.NDArray[np.uint8]
    key_ends: Numbers
    members: Mapping[str, Members]
    #: The headers of .npy members, each once.
    heads: list[bytes]
    description: str | None

    def __len__(self) -> int:
        return len(self.key_ends) - 1

    def key(self, row: int) -> bytes:
        """Return the key of a sample."""
        return self.keys[self.key_ends[row] : self.key_ends[row + 1]].tobytes()


class _Growing:
    """The members with one extension, while they are found."""

    def __init__(self, name: str) -> None:
        self.rows, self.blocks, self.sizes, self.heads = (array("q") for _ in range(4))
        self.npy = name.rpartition(".")[2] == "npy"

    def done(self, rows: int) -> Members:
        if len(self.rows) == rows:
            return Members(_small(self.blocks), _small(self.sizes), _small(self.heads))
        there = np.frombuffer(self.rows, np.int64)
        spread = []
        for values in (self.blocks, self.sizes, self.heads):
            found = _small(values)
            whole = np.zeros(rows if len(found) else 0, found.dtype)
            whole[there if len(found) else there[:0]] = found
            spread.append(whole)
        return Members(*spread)


class _TarScan:
    """Groups the members of a tar file into samples."""

    def __init__(self, path: str, file: MappedFile) -> None:
        self._path, self._members = path, TarMembers(path, file)
        self._found: dict[str, _Growing] = {}
        self._keys, self._lengths, self._hashes = bytearray(), array("q"), array("q")
        self._heads: dict[bytes, int] = {}
        self._key: bytes | None = None

    def run(self) -> TarIndex:
        names: dict[bytes, _Growing] = {}
        for member in self._members:
            folder, slash, base = member.name.rpartition(b"/")
            stem, dot, end = base.partition(b".")
            # Hidden files, those without an extension and notes are left out, as WebDataset does.
            if not stem or not dot or _META.match(member.name):
                continue
            key = folder + slash + stem
            if key != self._key:
                self._begin(key)
            if (growing := names.get(end)) is None:
                growing = names[end] = self._growing(end, member)
            self._add(growing, member)
        rows = len(self._lengths)
        self._refuse_repeated()
        return TarIndex(
            np.frombuffer(bytes(self._keys), np.uint8),
            offsets_of(np.frombuffer(self._lengths, np.int64) if rows else []),
            {name: each.done(rows) for name, each in self._found.items()},
            list(self._heads),
            self._members.description,
        )

    def _begin(self, key: bytes) -> None:
        self._key = key
        self._keys += key
        self._lengths.append(len(key))
        self._hashes.append(hash(key))

    def _growing(self, end: bytes, member: TarMember) -> _Growing:
        try:
            name = end.decode().lower()
        except UnicodeDecodeError:
            self._fail(member, "its extension is not UTF-8")
        return self._found.setdefault(name, _Growing(name))

    def _add(self, growing: _Growing, member: TarMember) -> None:
        row = len(self._lengths) - 1
        if growing.rows and growing.rows[-1] == row:
            self._fail(member, "its sample has two members with this extension")
        growing.rows.append(row)
        growing.blocks.append(member.start // BLOCK)
        growing.sizes.append(member.size)
        if growing.npy:
            head = self._npy_head(member)
            growing.heads.append(self._heads.setdefault(head, len(self._heads)))

    def _npy_head(self, member: TarMember) -> bytes:
        """Return the header of a .npy member; none if it is damaged or unusually long."""
        head = self._members.read(member.start, min(member.size, _NPY_HEAD))
        length = head[8:10] if head[6:7] == b"\1" else head[8:12]
        stop = 8 + len(length) + int.from_bytes(length, "little")
        if not head.startswith(_NPY) or stop > min(member.size, SHORT_HEADER):
            return b""
        return head[:stop] if stop <= len(head) else self._members.read(member.start, stop)

    def _refuse_repeated(self) -> None:
        """Refuse members of one sample that do not follow each other."""
        hashes = np.frombuffer(self._hashes, np.int64) if self._hashes else np.empty(0, np.int64)
        order = np.argsort(hashes, kind="stable")
        same = np.flatnonzero(np.diff(hashes[order]) == 0)
        if not len(same):
            return
        ends = offsets_of(np.frombuffer(self._lengths, np.int64))
        first: dict[bytes, int] = {}
        for row in sorted({*order[same].tolist(), *order[same + 1].tolist()}):
            key = bytes(self._keys[ends[row] : ends[row + 1]])
            if key in first:
                raise DataError(
                    f"{self._path}: sample {row:,}: {key.decode('utf-8', 'replace')!r} is also "
                    f"the key of sample {first[key]:,}: members of one sample must follow each "
                    "other, and no two samples share a key; write it with tar --sort=name",
                    file=self._path,
                    record=row,
                    field="__key__",
                )
            first[key] = row

    def _fail(self, member: TarMember, why: str) -> NoReturn:
        name = member.name.decode("utf-8", "replace")
        raise DataError(
            f"{self._path}: member {name!r} at byte {member.header:,}: {why}",
            file=self._path,
            record=len(self._lengths) - 1,
            byte=member.header,
        )


def open_tar(path: str) -> MappedFile:
    """Map a tar file, or open the plain bytes of one that is compressed with gzip."""
    return inflated_file(path) if is_gzip(path) else located(path).map()


def scan_tar(path: str, file: MappedFile | None = None) -> TarIndex:
    """Find the samples of a tar file, which may be open already."""
    file = open_tar(path) if file is None else file
    with Guard(path):
        index = _TarScan(path, file).run()
        file.check_size()
    return index


def find_samples(path: str, file: MappedFile | None = None) -> TarIndex:
    """Return the index of a file, kept or made now."""
    index = _beside(path, warns=not isinstance(file, InflatedFile)) or _kept(path)
    if index is None:
        file = open_tar(path) if file is None else file
        index = scan_tar(path, file)
        if located(path).remote:
            known = Fingerprint(located(path).stat().size, 0)
            located(path).keep(_KEPT, _encoded(index, known, _inflated_size(file)))
        elif isinstance(file, InflatedFile):
            with suppress(OSError):  # the folder may not be ours
                _save(path, _encoded(index, Fingerprint.of(path), _inflated_size(file)))
    return index


def save_index(data: str, path: str) -> str:
    """Write the index of a file that is at ``data`` next to ``path``."""
    file = open_tar(data)
    content = _encoded(scan_tar(data, file), Fingerprint.of(data), _inflated_size(file))
    return _save(path, content)


def _inflated_size(file: MappedFile) -> int | None:
    """Return the size of the plain file, if it is compressed."""
    return file.size if isinstance(file, InflatedFile) else None


def _save(path: str, content: bytes) -> str:
    target = sidecar_path(path)
    target.write_whole(content, durable=False, temporary=temporary_path(path, ".recmap"))
    return target.public()


def _encoded(index: TarIndex, fingerprint: Fingerprint, plain: int | None = None) -> bytes:
    """Return the content of an index. ``plain`` is the size of a file before compression."""
    arrays: list[npt.NDArray[Any]] = [index.keys, index.key_ends]
    for each in index.members.values():
        arrays += [each.blocks, each.sizes, each.heads]
    size = {} if plain is None else {"plain": plain}
    info = {
        "file": {"size": fingerprint.size, "crc": fingerprint.crc, **size},
        "members": list(index.members),
        "arrays": [[each.dtype.str, len(each)] for each in arrays],
        "heads": [head.decode("latin-1") for head in index.heads],
        "description": index.description,
    }
    text = json.dumps(info).encode()
    rest = b"".join([text, *(each.tobytes() for each in arrays)])
    return _HEAD.pack(_MAGIC, _VERSION, len(text), _crc(rest)) + rest


def _crc(data: bytes | npt.NDArray[np.uint8]) -> int:
    return _core.crc32c(np.frombuffer(data, np.uint8))


def _decoded(content: npt.NDArray[np.uint8]) -> tuple[TarIndex, Fingerprint]:
    """Decode an untrusted index; raise what is in ``_WRONG`` if it is invalid."""
    magic, version, length, crc = _HEAD.unpack_from(content.data)
    rest = content[_HEAD.size :]
    if (magic, version, crc) != (_MAGIC, _VERSION, _crc(rest)):
        raise ValueError("its checksum is wrong")
    info = json.loads(rest[:length].tobytes())
    at, arrays = length, []
    for dtype, count in info["arrays"]:
        if dtype not in ("|u1", "<u4", "<i8") or count < 0:
            raise ValueError("an array of another type")
        arrays.append(np.frombuffer(rest, dtype, count, at).copy())
        at += arrays[-1].nbytes
    keys, ends, *rest_arrays = arrays
    rows = len(ends) - 1
    if keys.dtype != np.uint8 or ends.dtype != np.int64:
        raise ValueError("keys of another type")
    if rows < 0 or ends[0] or ends[-1] != len(keys) or bool((np.diff(ends) < 0).any()):
        raise ValueError("keys that do not follow each other")
    members = {}
    for i, name in enumerate(info["members"]):
        each = Members(*rest_arrays[3 * i : 3 * i + 3])
        heads = rows if str(name).rpartition(".")[2] == "npy" and not _is_empty(each) else 0
        if (len(each.blocks), len(each.sizes), len(each.heads)) != (rows, rows, heads):
            raise ValueError("members of other samples")
        sizes = each.sizes.astype(np.int64)
        last = info["file"].get("plain", info["file"]["size"]) - sizes
        blocks = each.blocks.astype(np.int64)  # bytes may overflow
        if bool(((sizes < 0) | (blocks < 0) | (blocks > last // BLOCK)).any()):
            raise ValueError("members outside of the file")
        if heads and not 0 <= int(each.heads.min()) <= int(each.heads.max()) < len(info["heads"]):
            raise ValueError("unknown headers")
        members[str(name)] = each
    texts = [head.encode("latin-1") for head in info["heads"]]
    description = info["description"]
    if not isinstance(description, str | None):
        raise TypeError("a description that is not text")
    index = TarIndex(keys, ends, members, texts, description)
    return index, Fingerprint(int(info["file"]["size"]), int(info["file"]["crc"]))


def _is_empty(members: Members) -> bool:
    return not len(members.blocks)


_WRONG = (
    KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError,
    struct.error,
)  # fmt: skip


def _beside(path: str, *, warns: bool) -> TarIndex | None:
    """Return the index next to a file, if it was made from exactly this file.

    One that nobody asked for is made again without a word.
    """
    target = sidecar_path(path)
    try:
        content = target.load(_MOST)
    except StoreError:
        raise
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        _distrust(target, "it cannot be read", warns=warns)
        return None
    try:
        index, known = _decoded(content)
    except _WRONG as e:
        _distrust(target, f"it is damaged: {e}", warns=warns)
        return None
    if known.fits(path):
        return index
    _distrust(target, "the data changed after it was made", warns=warns)
    return None


def _distrust(target: str, why: str, *, warns: bool) -> None:
    if warns:
        warn(
            f"{target} was not used: {why}; run `recmap index` to renew it, or delete it",
            StaleIndexWarning,
        )


def _kept(path: str) -> TarIndex | None:
    """Return the index of an object that the cache has, if any."""
    content = located(path).kept(_KEPT, _MOST)
    if content is None:
        return None
    try:
        index, known = _decoded(np.frombuffer(content, np.uint8))
    except _WRONG:
        return None  # the disk may have been full
    return index if known.size == located(path).stat().size else None
