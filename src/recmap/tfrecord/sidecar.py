"""The index files next to a TFRecord file.

recmap's own is hidden, so that no pattern for the data matches it. docs/format.md specifies
it. It is optional, and used only if it was made from exactly this data. The size is compared
when the index is loaded. Sampled blocks are compared then, or when the data is first read.

The text index, ``data.tfrecord.idx``, lists the offset and size of each record. DALI and the
``tfrecord`` package use it.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import (
    FileChangedError,
    IndexFileError,
    StaleIndexWarning,
    StoreError,
)
from recmap.local.local_path import located
from recmap.local.location import Location
from recmap.local.temporary import temporary_path
from recmap.model.description import Description
from recmap.model.schema import Schema
from recmap.native import _core
from recmap.tfrecord.embedded_schema import checksum, parse_schema
from recmap.tfrecord.index import Index
from recmap.warn import warn

_MAGIC = b"RECMAPIX"
#: How the index of a compressed stream begins.
STREAM_MAGIC = b"RECMAPGZ"
_VERSION = 2
# Blocks sampled for the fingerprint, by version. Version 1 also had the modification time.
_VERSIONS = {1: 16, 2: 64}
_HEAD = struct.Struct("<8sIIII")  # magic, version, size and CRC of the JSON, CRC of the anchors
_SAMPLE_SIZE = 4096
# The name of an index in the cache, and more bytes than any has.
_KEPT, _MOST_KEPT = "index", 64 << 20
# Number of record lengths to compare at a time.
_CHECKED_AT_ONCE = 1 << 16
# The clock that file systems take their times from. It ticks every few milliseconds.
_CLOCK = 5 if sys.platform == "linux" else time.CLOCK_REALTIME  # CLOCK_REALTIME_COARSE
# The longest to wait for the next tick, in ns.
_LONGEST_TICK = 50_000_000
# A time in whole seconds is that of a file system that keeps no fractions.
_SECOND = 1_000_000_000


@dataclass(frozen=True)
class Fingerprint:
    """Identifies the content of a file by its size and a CRC of blocks spread over it.

    The blocks cover all of a small file. Name and modification time do not count, so a copy
    matches too.
    """

    size: int
    crc: int
    samples: int = _VERSIONS[_VERSION]

    @classmethod
    def of(cls, path: str, samples: int = _VERSIONS[_VERSION]) -> Fingerprint:
        """Compute the fingerprint of a file."""
        crc = 0
        with located(path).open() as file:
            size = file.size
            last = max(size - _SAMPLE_SIZE, 0)
            places = [(last * i // (samples - 1), _SAMPLE_SIZE) for i in range(samples)]
            if size <= samples * _SAMPLE_SIZE and samples == _VERSIONS[_VERSION]:
                places = [(0, size)]
            for block in file.pread_many([(length, place) for place, length in places]):
                crc = _core.crc32c(np.frombuffer(block, np.uint8), crc)
        return cls(size, crc, samples)

    def fits(self, path: str) -> bool:
        """Return whether the file at a path has this fingerprint."""
        return located(path).stat().size == self.size and Fingerprint.of(path, self.samples) == self


@dataclass(frozen=True)
class Sidecar:
    """The content of an index: a file's records, its schema, and what was checked."""

    index: Index
    schema: Schema
    # How each field is stored: float_list, raw, ...
    encoding: Mapping[str, str]
    # Whether all CRCs were checked, or computed by recmap.
    verified: bool
    # Fields with a payload at the same place in every record.
    mapped: tuple[str, ...]
    # The fingerprint of the file the index was made from; None until it is saved.
    fingerprint: Fingerprint | None = None
    # Whether recmap wrote the file itself, not only its index.
    written: bool = False
    # The last change of the file when the index was loaded, if it was made after that.
    checked: int | None = None
    # What columns were in the DataFrame that was saved.
    table_note: Mapping[str, Any] = field(default_factory=dict)

    def vouches_for(self, path: str) -> bool:
        """Return whether all of the file was checked, or written, after its last change."""
        return (
            self.verified
            and self.checked is not None
            and self.checked == located(path).last_change()
        )


def sidecar_path(path: str) -> Location:
    """Return the path of the index of a file."""
    return located(path).sibling(f".{os.path.basename(path)}.recmap")


def save_sidecar(path: str, sidecar: Sidecar, beside: str | None = None) -> str:
    """Write the index of the file at ``path`` next to it, or ``beside`` another path."""
    fingerprint = Fingerprint.of(path)
    data, target = located(path), sidecar_path(beside or path)
    if target.remote:
        # It gives the version of the object that it was made for.
        data = data if beside is None else located(beside).anew()
    content = _encoded(sidecar, fingerprint, data.stat().etag)
    temporary = temporary_path(beside or path, ".recmap")
    target.write_whole(content, durable=False, temporary=temporary)
    return target.public()


def misplaced(path: str, record: int, offset: int) -> IndexFileError:
    """Make the error for a record that does not end where the index says."""
    return IndexFileError(
        f"{sidecar_path(path)} was made from other data: record {record:,} at byte {offset:,} is "
        "longer than it says; run `recmap index` to renew it, or delete it, and open the data "
        "again",
        file=path,
        record=record,
        byte=offset,
    )


def keep_index(path: str, index: Index) -> None:
    """Keep the index of an object in the cache, so that it is not scanned again."""
    if located(path).remote and index.complete and not index.skipped:
        only = Sidecar(index, Schema({}), {}, False, ())
        located(path).keep(_KEPT, _encoded(only, Fingerprint(index.end, 0)))


def kept_index(path: str) -> Index | None:
    """Return the index of an object that the cache has, if any."""
    content = located(path).kept(_KEPT, _MOST_KEPT)
    if content is None:
        return None
    try:
        info, rows, offsets, _ = _parse(np.frombuffer(content, np.uint8))
        size = located(path).stat().size
        if int(info["file"]["size"]) != size:
            return None
        return Index.of_anchors(
            int(info["records"]), _length(info), rows, offsets, size, _lead(info)
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        return None  # the disk may have been full


def _encoded(sidecar: Sidecar, fingerprint: Fingerprint, etag: str | None = None) -> bytes:
    rows, offsets = sidecar.index.anchors
    file = {"size": fingerprint.size, "crc": fingerprint.crc}
    info = {
        "file": file if etag is None else {**file, "etag": etag},
        "records": sidecar.index.count,
        "length": sidecar.index.length,
        "lead": sidecar.index.lead,
        "marks": len(rows),  # the number of anchors; the key is older than the word
        "schema": Description(sidecar.schema).texts,
        "encoding": dict(sidecar.encoding),
        "verified": sidecar.verified,
        "mapped": list(sidecar.mapped),
        "written": sidecar.written,
        **({"table": dict(sidecar.table_note)} if sidecar.table_note else {}),
    }
    text = json.dumps(info).encode()
    text += b" " * (-(_HEAD.size + len(text)) % 8)  # so that the anchors are aligned
    anchors = rows.tobytes() + offsets.tobytes()
    head = _HEAD.pack(_MAGIC, _VERSION, len(text), checksum(text), checksum(anchors))
    return head + text + anchors


def load_sidecar(path: str, *, check: bool = True) -> Sidecar | None:
    """Load the index next to a file; return None if there is none that matches it.

    Without ``check``, only the size of the file is compared. Check the fingerprint later.
    """
    target = sidecar_path(path)
    checked = located(path).last_change() if is_checked(path) else None
    try:
        content = target.load(_MOST_KEPT)
    except StoreError:
        raise
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        _distrust(target, "it cannot be read")
        return None
    try:
        info, rows, offsets, samples = _parse(content)
        known = Fingerprint(int(info["file"]["size"]), int(info["file"]["crc"]), samples)
        check = check and not _is_of_version(info, target, path)
        if located(path).stat().size != known.size or (check and not known.fits(path)):
            _distrust(target, "the data changed after it was made")
            return None
        index = Index.of_anchors(
            int(info["records"]), _length(info), rows, offsets, known.size, _lead(info)
        )
        return Sidecar(
            index,
            _schema(tuple(info["schema"].items())),
            dict(info["encoding"]),
            bool(info["verified"]),
            tuple(info["mapped"]),
            known,
            info.get("written") is True,
            checked,
            dict(info.get("table", {})),
        )
    except FileChangedError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as e:
        _distrust(target, f"it is damaged: {e}")
        return None


def _is_of_version(info: Mapping[str, Any], index: str, data: str) -> bool:
    """Return whether an index in a store belongs to this version of its data.

    It gives the version it was made from, or was at least written later. If such an index does
    not fit after all, reading a record that does not end where it should is an error.
    """
    if not located(data).remote:
        return False
    made, of = located(index).stat().modified, located(data).stat()
    etag = info["file"].get("etag")
    if etag is not None:
        return bool(etag == of.etag)
    return made is not None and of.modified is not None and made > of.modified


# Cached, because most files of a dataset share one schema.
@lru_cache(maxsize=16)
def _schema(fields: tuple[tuple[str, str], ...]) -> Schema:
    return parse_schema(dict(fields)) if fields else Schema({})


def settled_change(path: str) -> int | None:
    """Return the time of the last change of a local file, once any later change has another time.

    Return None if the times are too coarse, or come from another clock.
    """
    changed = located(path).last_change()
    if changed is None or changed % _SECOND == 0:
        return None
    # Changes within a tick of the clock have the same time, so wait for the next tick.
    while (now := time.clock_gettime_ns(_CLOCK)) <= changed:
        if changed - now > _LONGEST_TICK:
            return None
        time.sleep(0.0005)
    return changed if located(path).last_change() == changed else None


def mark_checked(path: str, changed: int | None) -> None:
    """Note that all of a file was checked, or written, after its last change at a time.

    The note is the time of the index itself, so that equal files have equal indexes: 1 ns before
    the change, which no copy of both files has by chance.
    """
    if changed is not None and changed == located(path).last_change():
        with suppress(OSError):
            os.utime(sidecar_path(path), ns=(changed - 1, changed - 1))


def is_checked(path: str) -> bool:
    """Return whether the index of a local file was made after the last change of the file."""
    changed = located(path).last_change()
    try:
        return changed is not None and os.stat(sidecar_path(path)).st_mtime_ns == changed - 1
    except OSError:
        return False


def is_written(path: str) -> bool:
    """Return whether recmap wrote this file and nothing has changed it since."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StaleIndexWarning)
        sidecar = load_sidecar(path)
    return sidecar is not None and sidecar.written


def stream_index_path(path: str) -> Location:
    """Return the path of the index of a compressed stream."""
    return located(path).sibling(f".{os.path.basename(path)}.recmap-gz")


def remove_sidecar(path: str) -> None:
    """Remove the indexes next to a file, if there are any."""
    _remove_if(sidecar_path(path), _MAGIC)
    if not located(path).remote:
        _remove_if(stream_index_path(path), STREAM_MAGIC)


def _remove_if(target: Location, magic: bytes) -> None:
    try:
        with target.open() as file:
            ours = file.pread(len(magic), 0) == magic
    except StoreError:
        raise
    except OSError:
        return
    if ours:
        target.remove()


def indexed_schema(path: str) -> tuple[Schema, dict[str, str]] | None:
    """Return schema and encoding from the index next to a file, even if the data has changed.

    The types of raw bytes may be stored nowhere else, so a new index keeps them if the
    records still fit.
    """
    try:
        info, *_ = _parse(sidecar_path(path).load(_MOST_KEPT))
        return _schema(tuple(info["schema"].items())), dict(info["encoding"])
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return None


def _parse(
    content: npt.NDArray[np.uint8],
) -> tuple[dict[str, Any], npt.NDArray[np.uint64], npt.NDArray[np.uint64], int]:
    if len(content) < _HEAD.size:
        raise ValueError("too short")
    magic, version, size, text_crc, anchors_crc = _HEAD.unpack(content[: _HEAD.size].tobytes())
    if magic != _MAGIC or version not in _VERSIONS:
        raise ValueError("not an index of this version")
    text = content[_HEAD.size : _HEAD.size + size].tobytes()
    anchors = content[_HEAD.size + size :]
    if checksum(text) != text_crc or _core.crc32c(anchors) != anchors_crc:
        raise ValueError("CRC mismatch")
    info = json.loads(text)
    _check_info(info)
    rows, offsets = anchors.view(np.uint64).reshape(2, info["marks"])
    _check_anchors(info, rows)
    return info, rows, offsets, _VERSIONS[version]


def _check_info(info: Any) -> None:
    """Raise a ValueError if values are invalid. A matching CRC does not make them trustworthy."""
    for name, most in (("records", 1 << 62), ("marks", 1 << 40)):
        if type(info[name]) is not int or not 0 <= info[name] < most:
            raise ValueError(f"{name} is {info[name]!r}")
    texts = [*info["encoding"].values(), *info["mapped"]]
    if type(info["mapped"]) is not list or not all(type(text) is str for text in texts):
        raise ValueError("encoding or mapped")


def _check_anchors(info: Mapping[str, Any], rows: npt.NDArray[np.uint64]) -> None:
    # Offsets need no check: every record is checked when it is read.
    count, size, length = info["records"], info["file"]["size"], _length(info)
    if length is not None and count * (length + _core.FRAME_SIZE) + _lead(info) != size:
        raise ValueError("records of one length do not fill the file")
    if length is None and count and (len(rows) == 0 or rows[0] != 0):
        raise ValueError("no anchor at the first record")
    if len(rows) and (rows[-1] >= count or bool((rows[1:] <= rows[:-1]).any())):
        raise ValueError("anchors out of order")


def _length(info: Mapping[str, Any]) -> int | None:
    length = info["length"]
    if length is not None and (not isinstance(length, int) or length < 0):
        raise ValueError("length of records")
    return length


def _lead(info: Mapping[str, Any]) -> int:
    lead = info.get("lead", 0)
    if not isinstance(lead, int) or lead < 0 or (lead and not info["records"]):
        raise ValueError("length of the first record")
    return lead


def _distrust(target: str, why: str) -> None:
    warn(
        f"{target} was not used: {why}. Run `recmap index` to renew it.",
        StaleIndexWarning,
    )


def write_text_index(path: str, offsets: Iterator[tuple[int, int]]) -> None:
    """Write a line with the offset and size of each record, framing included."""
    lines = (f"{offset} {size}\n".encode() for offset, size in offsets)
    with located(path).create(durable=False) as output:
        stream = output.stream()
        while some := b"".join(islice(lines, _CHECKED_AT_ONCE)):
            stream.write(some)


def read_text_index(path: str, data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """Read the offsets of the records of a file with these bytes.

    Raise an IndexFileError if a record is not where the index says, or has another size.
    """
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            text = file.read()
    except OSError as e:
        raise IndexFileError(f"{path}: cannot be read: {e.strerror}", file=path) from None
    try:
        table = np.array(text.split(), dtype=np.uint64).reshape(-1, 2)
    except (ValueError, OverflowError) as e:
        raise IndexFileError(
            f"{path}: not an index of 'offset size' lines: {e}", file=path
        ) from None
    offsets, sizes = table[:, 0], table[:, 1]
    size = np.uint64(len(data))
    begins = np.append(offsets, size)
    ends = np.append(np.uint64(0), offsets + sizes)
    # Sums of huge sizes wrap around, so check each number too.
    inside = bool((offsets < size).all() and (sizes >= _core.FRAME_SIZE).all())
    if not np.array_equal(begins, ends) or not inside:
        raise _wrong_text_index(path, f"its {len(table):,} records do not fill {size:,} bytes")
    for start in range(0, len(table), _CHECKED_AT_ONCE):
        some = slice(start, start + _CHECKED_AT_ONCE)
        places = offsets[some, None] + np.arange(8, dtype=np.uint64)
        lengths = data[places].view("<u8")[:, 0]
        wrong = np.flatnonzero(lengths != sizes[some] - np.uint64(_core.FRAME_SIZE))
        if len(wrong):
            row = start + int(wrong[0])
            raise _wrong_text_index(
                path,
                f"record {row:,}, at byte {int(offsets[row]):,}, is not {int(sizes[row]):,} bytes "
                "long",
            )
    return offsets


def _wrong_text_index(path: str, why: str) -> IndexFileError:
    return IndexFileError(
        f"{path}: does not describe the file: {why} (is it older than the data, or from another "
        "file? Make a new one with rm.index(path, text=True), or leave out index=)",
        file=path,
    )
