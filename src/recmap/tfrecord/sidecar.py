"""Index files: our own, and the text one that DALI and ``tfrecord`` use.

Ours lies beside the data as a hidden file, so that no pattern for the data
matches it. docs/format.md describes it. It is never needed, and never believed
unless the data is the data it was made from.
"""

from __future__ import annotations

import json
import os
import struct
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap._core import FRAME_SIZE, crc32c
from recmap.errors import FieldTextError, IndexFileError, StaleIndexWarning
from recmap.files.disk import temporary_path
from recmap.files.mapped import MappedFile
from recmap.tfrecord.index import Index
from recmap.types import Schema

__all__ = [
    "Sidecar",
    "load_sidecar",
    "read_text_index",
    "save_sidecar",
    "sidecar_path",
    "stored_schema",
    "write_text_index",
]

_MAGIC = b"RECMAPIX"
_VERSION = 1
_HEAD = struct.Struct("<8sIIII")  # magic, version, size and CRC of the JSON, CRC of the marks
# Smaller indexes are read whole.
_SMALL = 1 << 16
_SAMPLES = 16
_SAMPLE_SIZE = 4096


@dataclass(frozen=True)
class Sidecar:
    """What is known of a file: its records, its schema, and what was checked."""

    index: Index
    schema: Schema
    # How each field is stored, for those who wonder: float_list, raw, ...
    encoding: Mapping[str, str]
    # All CRCs were checked, or computed by us.
    verified: bool
    # Fields whose payloads lie at the same place in every record.
    mapped: tuple[str, ...]


def sidecar_path(path: str) -> str:
    """Where the index of a file lies."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.recmap")


def save_sidecar(path: str, sidecar: Sidecar, beside: str | None = None) -> str:
    """Writes the index of the file at ``path``, under that name or ``beside`` another."""
    rows, offsets = sidecar.index.marks
    info = {
        "file": _fingerprint(path),
        "records": sidecar.index.count,
        "length": sidecar.index.length,
        "marks": len(rows),
        "schema": {name: str(field) for name, field in sidecar.schema.items()},
        "encoding": dict(sidecar.encoding),
        "verified": sidecar.verified,
        "mapped": list(sidecar.mapped),
    }
    text = json.dumps(info).encode()
    text += b" " * (-(_HEAD.size + len(text)) % 8)  # so that the marks are aligned
    marks = rows.tobytes() + offsets.tobytes()
    head = _HEAD.pack(_MAGIC, _VERSION, len(text), _crc(text), _crc(marks))
    target = sidecar_path(beside or path)
    temporary = temporary_path(beside or path, ".recmap")
    with open(temporary, "wb") as file:
        file.write(head + text + marks)
    os.replace(temporary, target)
    return target


def load_sidecar(path: str) -> Sidecar | None:
    """The index beside a file, or None if there is none that belongs to it."""
    target = sidecar_path(path)
    try:
        content = _content(target)
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        _distrust(target, "it cannot be read")
        return None
    try:
        info, rows, offsets = _parse(content)
        if info["file"] != _fingerprint(path):
            _distrust(target, "the data changed after it was made")
            return None
        index = Index.of_marks(
            int(info["records"]), _length(info), rows, offsets, int(info["file"]["size"])
        )
        return Sidecar(
            index,
            Schema(info["schema"]),
            dict(info["encoding"]),
            bool(info["verified"]),
            tuple(info["mapped"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, FieldTextError) as e:
        _distrust(target, f"it is damaged: {e}")
        return None


def stored_schema(path: str) -> tuple[Schema, dict[str, str]] | None:
    """Schema and encoding in the index beside a file, even if the data has changed.

    Types of raw bytes stand nowhere else, so an index that is made anew keeps them
    if the records still fit.
    """
    try:
        info, _, _ = _parse(_content(sidecar_path(path)))
        return Schema(info["schema"]), dict(info["encoding"])
    except (OSError, KeyError, TypeError, ValueError, AttributeError):
        return None


def _content(target: str) -> npt.NDArray[np.uint8]:
    """The bytes of an index: those of a small one, or a large one mapped. Neither holds a
    descriptor, of which a dataset of many files would need too many.
    """
    with open(target, "rb", buffering=0) as file:
        content = file.read(_SMALL)
    if len(content) < _SMALL:
        return np.frombuffer(content, np.uint8)
    return MappedFile(target).bytes


def _parse(
    content: npt.NDArray[np.uint8],
) -> tuple[dict[str, Any], npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    if len(content) < _HEAD.size:
        raise ValueError("too short")
    magic, version, size, text_crc, marks_crc = _HEAD.unpack(content[: _HEAD.size].tobytes())
    if magic != _MAGIC or version != _VERSION:
        raise ValueError("not an index of this version")
    text = content[_HEAD.size : _HEAD.size + size].tobytes()
    marks = content[_HEAD.size + size :]
    if _crc(text) != text_crc or crc32c(marks) != marks_crc:
        raise ValueError("CRC mismatch")
    info = json.loads(text)
    rows, offsets = marks.view(np.uint64).reshape(2, info["marks"])
    _check_marks(info, rows)
    return info, rows, offsets


def _check_marks(info: Mapping[str, Any], rows: npt.NDArray[np.uint64]) -> None:
    # Offsets need no check: every record is checked where it is said to lie.
    count, size, length = info["records"], info["file"]["size"], _length(info)
    if length is not None and count * (length + FRAME_SIZE) != size:
        raise ValueError("records of one length do not fill the file")
    if length is None and count and (len(rows) == 0 or rows[0] != 0):
        raise ValueError("no mark at the first record")
    if len(rows) and (rows[-1] >= count or bool((rows[1:] <= rows[:-1]).any())):
        raise ValueError("marks out of order")


def _length(info: Mapping[str, Any]) -> int | None:
    length = info["length"]
    if length is not None and (not isinstance(length, int) or length < 0):
        raise ValueError("length of records")
    return length


def _distrust(target: str, why: str) -> None:
    warnings.warn(
        f"{target} was not used: {why}. Run `recmap index` to renew it.",
        StaleIndexWarning,
        stacklevel=2,
    )


def _fingerprint(path: str) -> dict[str, int]:
    """Size, time of change, and a CRC over blocks spread through the file."""
    crc = 0
    with open(path, "rb") as file:
        stat = os.fstat(file.fileno())
        last = max(stat.st_size - _SAMPLE_SIZE, 0)
        for i in range(_SAMPLES):
            file.seek(last * i // (_SAMPLES - 1))
            crc = crc32c(np.frombuffer(file.read(_SAMPLE_SIZE), np.uint8), crc)
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "crc": crc}


def _crc(data: bytes) -> int:
    return crc32c(np.frombuffer(data, np.uint8))


def write_text_index(path: str, offsets: Iterator[tuple[int, int]]) -> None:
    """Writes offset and size of each record, framing included, a line each."""
    temporary = temporary_path(path)
    with open(temporary, "w", encoding="ascii") as file:
        file.writelines(f"{offset} {size}\n" for offset, size in offsets)
    os.replace(temporary, path)


def read_text_index(path: str, size: int) -> npt.NDArray[np.uint64]:
    """The offsets in a text index of a file of ``size`` bytes."""
    with open(path, encoding="ascii", errors="replace") as file:
        text = file.read()
    try:
        table = np.array(text.split(), dtype=np.uint64).reshape(-1, 2)
    except (ValueError, OverflowError) as e:
        raise IndexFileError(
            f"{path}: not an index of 'offset size' lines: {e}", file=path
        ) from None
    ends = np.append(table[1:, 0], np.uint64(size))
    if len(table) and (table[0, 0] != 0 or not np.array_equal(table.sum(axis=1), ends)):
        raise IndexFileError(
            f"{path}: does not describe a file of {size:,} bytes (is it older than the data?)",
            file=path,
        )
    return table[:, 0]
