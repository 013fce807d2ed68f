"""How deep the values of Parquet columns are defined, from the footer.

A value that is null, or in an empty or null list, is defined less deeply than others. Newer
programs write how many values of a column chunk are how deep, which pyarrow does not tell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# A larger footer takes too long to read in Python.
_MOST = 1 << 20
# The fields that lead to the levels: row groups, columns, their metadata, its size statistics.
_GROUPS, _COLUMNS, _METADATA, _SIZES, _LEVELS = 4, 1, 3, 16, 3
# Kinds of values of Thrift's compact protocol.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BYTES, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12


def definition_levels(footer: bytes) -> list[list[list[int] | None]]:
    """Return for each row group and column how many values are how deep; None if unknown.

    Damage is not reported: other readers find it.
    """
    if len(footer) > _MOST:
        return []
    try:
        groups = _Thrift(footer).struct().get(_GROUPS, [])
        return [[_levels(chunk) for chunk in group.get(_COLUMNS, [])] for group in groups]
    except (IndexError, ValueError, TypeError, AttributeError, RecursionError):
        return []


def _levels(chunk: dict[int, Any]) -> list[int] | None:
    found = chunk.get(_METADATA, {}).get(_SIZES, {}).get(_LEVELS)
    return list(found) if found else None


class _Thrift:
    """Reads values of Thrift's compact protocol."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        self._read: dict[int, Callable[[], Any]] = {
            _TRUE: lambda: True,
            _FALSE: lambda: False,
            _BYTE: self._byte,
            **dict.fromkeys((4, 5, 6), self._number),
            _DOUBLE: lambda: self._pass(8),
            _BYTES: lambda: self._pass(self._varint()),
            _LIST: self._list,
            _SET: self._list,
            _STRUCT: self.struct,
        }

    def struct(self) -> dict[int, Any]:
        found: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._number()
            found[number] = self._value(head & 15)
        return found

    def _value(self, kind: int) -> Any:
        if kind not in self._read:
            raise ValueError(f"a value of kind {kind}")
        return self._read[kind]()

    def _list(self) -> list[Any]:
        head = self._byte()
        count = head >> 4 if head >> 4 != 15 else self._varint()
        kind = head & 15 if (head & 15) > _FALSE else _BYTE
        if count > len(self._data) - self._at:
            raise ValueError(f"a list of {count:,}")
        return [self._value(kind) for _ in range(count)]

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
