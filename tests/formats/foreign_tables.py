"""Files that pyarrow reads but does not write: other footers of Parquet, big-endian Arrow."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from recmap.formats.arrow_messages import read_messages
from recmap.local.local_path import located

__all__ = ["big_endian_stream", "with_footer"]

# Types of the compact protocol of Thrift.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12

Struct = dict[int, tuple[int, Any]]


def with_footer(path: str, change: Callable[[Struct], None]) -> None:
    """Change the footer of a Parquet file: fields by number, each with its type and value."""
    content = Path(path).read_bytes()
    size = int.from_bytes(content[-8:-4], "little")
    reader = _Reader(content[-8 - size : -8])
    footer = reader.struct()
    change(footer)
    made = _struct(footer)
    Path(path).write_bytes(
        content[: -8 - size] + made + len(made).to_bytes(4, "little") + content[-4:]
    )


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def struct(self) -> Struct:
        fields: Struct = {}
        number = 0
        while head := self._byte():
            step, kind = head >> 4, head & 15
            number = number + step if step else (self._varint() >> 1)
            fields[number] = kind, self._value(kind)
        return fields

    def _value(self, kind: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind == _STRUCT:
            return self.struct()
        if kind in (_LIST, _SET):
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._varint()
            return head & 15, [self._value(head & 15) for _ in range(count)]
        if kind in (_BYTE, _DOUBLE, _BINARY):
            size = {_BYTE: 1, _DOUBLE: 8}.get(kind) or self._varint()
            self._at += size
            return self._data[self._at - size : self._at]
        return self._varint()  # numbers stay as they are


def _varint(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def _struct(fields: Struct) -> bytes:
    made = b""
    for number, (kind, value) in sorted(fields.items()):
        made += bytes([kind]) + _varint(number << 1) + _encoded(kind, value)
    return made + b"\0"


def _encoded(kind: int, value: Any) -> bytes:
    if kind in (_TRUE, _FALSE):
        return b""
    if kind == _STRUCT:
        return _struct(value)
    if kind in (_LIST, _SET):
        inner, items = value
        return (
            bytes([0xF0 | inner])
            + _varint(len(items))
            + b"".join(_encoded(inner, item) for item in items)
        )
    if kind == _BINARY:
        return _varint(len(value)) + bytes(value)
    return value if isinstance(value, bytes) else _varint(value)


def big_endian_stream(path: str, table: pa.Table) -> None:
    """Write a table of numbers, times and strings without nulls as a machine of IBM would."""
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)
    content = bytearray(Path(path).read_bytes())
    (batch,) = read_messages(located(path).map()).batches
    for column in table.combine_chunks().to_batches()[0].columns:
        stored = _numbers(column)
        place = content.index(stored.tobytes(), batch.begin)
        content[place : place + stored.nbytes] = stored.byteswap().tobytes()
    Path(path).write_bytes(_marked(bytes(content)))


def _numbers(column: Any) -> np.ndarray[Any, Any]:
    """Return the numbers that a column is stored as: those of strings are offsets."""
    if pa.types.is_string(column.type):
        lengths = [len(text.encode()) for text in column.to_pylist()]
        return np.cumsum([0, *lengths], dtype=np.int32)
    numbers: np.ndarray[Any, Any] = column.to_numpy()
    return numbers


def _marked(stream: bytes) -> bytes:
    """Set the flag of the schema. It is left out while it is 0, so it gets a place at the end."""
    size = struct.unpack_from("<i", stream, 4)[0]
    data = bytearray(stream[8 : 8 + size])
    message = struct.unpack_from("<I", data)[0]
    fields = message - struct.unpack_from("<i", data, message)[0]
    header = message + struct.unpack_from("<H", data, fields + 4 + 2 * 2)[0]
    schema = header + struct.unpack_from("<I", data, header)[0]
    entries = schema - struct.unpack_from("<i", data, schema)[0]
    struct.pack_into("<H", data, entries + 4, len(data) - schema)
    data += b"\1\0" + bytes(6)
    return stream[:4] + struct.pack("<i", len(data)) + bytes(data) + stream[8 + size :]
