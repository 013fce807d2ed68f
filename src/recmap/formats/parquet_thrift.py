"""Thrift's compact protocol, in which the footers of Parquet files are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

# Kinds of values.
_TRUE, _FALSE, _BYTE, _DOUBLE, _SET = 1, 2, 3, 7, 10
INT32, INT64, BYTES, LIST, STRUCT = 5, 6, 8, 9, 12
#: What damaged bytes may raise.
THRIFT_FAILURES = (IndexError, ValueError, TypeError, AttributeError, RecursionError)


class ThriftReader:
    """Reads values. A struct is a dict by the numbers of its fields."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        self._read: dict[int, Callable[[], Any]] = {
            _TRUE: lambda: True,
            _FALSE: lambda: False,
            _BYTE: self._byte,
            **dict.fromkeys((4, INT32, INT64), self._number),
            _DOUBLE: lambda: self._pass(8),
            BYTES: lambda: self._pass(self._varint()),
            LIST: self._list,
            _SET: self._list,
            STRUCT: self.struct,
        }

    def struct(self) -> dict[int, Any]:
        return {number: self._value(kind) for number, kind in self._fields()}

    def structs_of(self, wanted: int) -> Iterator[tuple[dict[int, Any], bytes]]:
        """Yield the structs of a list in this struct, and their bytes. Read nothing behind it."""
        for number, kind in self._fields():
            if number != wanted:
                self._value(kind)
                continue
            for _ in range(self._head()[0]):
                begin = self._at
                yield self.struct(), self._data[begin : self._at]
            return

    def _fields(self) -> Iterator[tuple[int, int]]:
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._number()
            yield number, head & 15

    def _value(self, kind: int) -> Any:
        if kind not in self._read:
            raise ValueError(f"a value of kind {kind}")
        return self._read[kind]()

    def _list(self) -> list[Any]:
        count, kind = self._head()
        return [self._value(kind) for _ in range(count)]

    def _head(self) -> tuple[int, int]:
        head = self._byte()
        count = head >> 4 if head >> 4 != 15 else self._varint()
        if count > len(self._data) - self._at:
            raise ValueError(f"a list of {count:,}")
        return count, head & 15 if (head & 15) > _FALSE else _BYTE

    def _number(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 128:
            value |= (byte & 127) << shift
            shift += 7
        return value | byte << shift

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _pass(self, size: int) -> None:
        self._at += size


def thrift_struct(*fields: tuple[int, int, bytes]) -> bytes:
    """Write a struct of fields, each with a number, a kind and its bytes, in ascending order.

    >>> thrift_struct((1, INT32, thrift_number(-2)), (4, BYTES, thrift_bytes(b"a")))
    b'\\x15\\x038\\x01a\\x00'
    """
    before, parts = 0, []
    for number, kind, value in fields:
        parts.append(bytes([(number - before) << 4 | kind]) + value)
        before = number
    return b"".join([*parts, b"\0"])


def thrift_number(value: int) -> bytes:
    """Write a number of any size."""
    return _as_varint(value << 1 ^ value >> 63)


def thrift_bytes(value: bytes) -> bytes:
    """Write a string."""
    return _as_varint(len(value)) + value


def thrift_list(kind: int, values: Sequence[bytes]) -> bytes:
    """Write a list of values of one kind."""
    return bytes([15 << 4 | kind]) + _as_varint(len(values)) + b"".join(values)


def _as_varint(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])
