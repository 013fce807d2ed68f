"""Protobuf wire format and TFRecord framing, built by hand for the tests."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from recmap.native import _core

VARINT, FIXED64, LEN, START_GROUP, END_GROUP, FIXED32 = range(6)


_SHORT = [bytes([value]) for value in range(128)]


def varint(value: int) -> bytes:
    if 0 <= value < 128:
        return _SHORT[value]
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def tag(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)


def field(number: int, content: bytes) -> bytes:
    return tag(number, LEN) + varint(len(content)) + content


def bytes_list(*values: bytes) -> bytes:
    return field(1, b"".join(field(1, value) for value in values))


def float_list(*values: float) -> bytes:
    packed = struct.pack(f"<{len(values)}f", *values)
    return field(2, field(1, packed) if values else b"")


def int64_list(*values: int) -> bytes:
    return field(3, field(1, b"".join(map(varint, values))) if values else b"")


def entry(key: str, feature: bytes) -> bytes:
    """Make a map entry of Features or FeatureLists."""
    return field(1, field(1, key.encode()) + field(2, feature))


def example(**features: bytes) -> bytes:
    return field(1, b"".join(entry(key, feature) for key, feature in features.items()))


def feature_list(*steps: bytes) -> bytes:
    return b"".join(field(1, step) for step in steps)


def sequence(context: dict[str, bytes], lists: dict[str, bytes]) -> bytes:
    first = field(1, b"".join(entry(key, value) for key, value in context.items()))
    second = field(2, b"".join(entry(key, value) for key, value in lists.items()))
    return (first if context else b"") + second


def masked(data: bytes) -> int:
    crc = _core.crc32c(np.frombuffer(data, np.uint8))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frame(record: bytes) -> bytes:
    length = struct.pack("<Q", len(record))
    return length + struct.pack("<I", masked(length)) + record + struct.pack("<I", masked(record))


def write(path: str | Path, *records: bytes) -> str:
    Path(path).write_bytes(b"".join(map(frame, records)))
    return str(path)
