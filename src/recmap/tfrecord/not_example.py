"""Describe a sound record that is not a tf.train.Example."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["describe_record"]

# Larger records are judged by their beginning.
_LARGEST = 16 << 20
_FIELDS = 8
_MAGIC = {
    b"\xff\xd8\xff": "a JPEG image",
    b"\x89PNG\r\n\x1a\n": "a PNG image",
    b"GIF8": "a GIF image",
    b"RIFF": "RIFF data (WAV or WebP)",
    b"\x93NUMPY": "a .npy file",
    b"PK\x03\x04": "a zip file",
    b"\x1f\x8b\x08": "gzip data",
    b"\x80\x04\x95": "a pickle",
    b"\x80\x05\x95": "a pickle",
    b"fLaC": "FLAC audio",
}
_WIRE_TYPES = {0: "varint", 1: "64-bit", 2: "bytes", 5: "32-bit"}


def describe_record(record: npt.NDArray[np.uint8]) -> str:
    """Describe what the bytes of a record look like.

    >>> describe_record(np.frombuffer(b'{"a": 1}', np.uint8))
    'it looks like JSON'
    """
    data = record[:_LARGEST].tobytes()
    for magic, name in _MAGIC.items():
        if data.startswith(magic):
            return f"it looks like {name}"
    if len(record) <= _LARGEST:
        if _is_elwc(data):
            return "it looks like an ExampleListWithContext (ELWC, of TensorFlow Ranking)"
        try:
            fields = sorted({(number, kind) for number, kind, _ in _fields(data)})
        except ValueError:
            pass
        else:
            texts = [f"{number} ({_WIRE_TYPES[kind]})" for number, kind in fields[:_FIELDS]]
            more = ", ..." if len(fields) > _FIELDS else ""
            return (
                f"it looks like another protobuf message, with the fields {', '.join(texts)}{more}"
            )
    return _describe_bytes(data)


def _describe_bytes(data: bytes) -> str:
    try:
        text = data[:1024].decode("utf-8", "strict" if len(data) <= 1024 else "ignore")
    except UnicodeDecodeError:
        text = "\0"
    if not text.replace("\n", "").replace("\t", "").replace("\r", "").isprintable():
        return f"it holds {len(data):,} bytes of something else, beginning with {data[:8].hex(' ')}"
    if text.lstrip()[:1] in ("{", "["):
        return "it looks like JSON"
    return f"it looks like text, beginning with {text[:20]!r}"


def _fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield the number, wire type and content of each field of a message.

    Raise a ValueError if the bytes are not a message. Groups are obsolete and not supported.
    """
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if number == 0 or number >= 1 << 29 or kind not in _WIRE_TYPES:
            raise ValueError
        if kind == 0:
            value, at = _varint(data, at)
            yield number, kind, value
            continue
        size, at = _varint(data, at) if kind == 2 else (8 if kind == 1 else 4, at)
        if at + size > len(data):
            raise ValueError
        yield number, kind, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError


def _is_elwc(data: bytes) -> bool:
    """Return whether the bytes are Examples (field 1), with or without a context (field 2)."""
    try:
        parts = [(number, content) for number, kind, content in _fields(data) if kind == 2]
        whole = len(parts) == sum(1 for _ in _fields(data))
        named = [_features(content) for number, content in parts if number in (1, 2)]
    except ValueError:
        return False
    return whole and len(named) == len(parts) and sum(named) > 0


def _features(example: bytes) -> int:
    """Count the features of an Example; raise a ValueError if the bytes are not one."""
    count = 0
    for number, kind, features in _fields(example):
        if (number, kind) != (1, 2):
            raise ValueError
        for entry_number, entry_kind, entry in _fields(features):
            if (entry_number, entry_kind) != (1, 2):
                raise ValueError
            parts = {n: content for n, k, content in _fields(entry) if k == 2}
            parts.get(1, b"").decode()
            if 2 not in parts or not all(
                n in (1, 2, 3) and k == 2 for n, k, _ in _fields(parts[2])
            ):
                raise ValueError
            count += 1
    return count
