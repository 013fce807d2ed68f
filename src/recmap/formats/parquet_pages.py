"""The column chunks of a Parquet file, as its footer lists them.

The footer is a struct in Thrift's compact protocol. pyarrow reads it too, but ends the process if
what a damaged footer says of a column chunk does not fit together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["Chunk", "read_chunks"]

# Names of the compressions, by their numbers in a file.
_CODECS = ("uncompressed", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4")
# No footer has structs this deep.
_MOST_DEPTH = 8


class Chunk(NamedTuple):
    """A column of a row group: how it is compressed, and how many values it has."""

    codec: str
    values: int


def read_chunks(footer: memoryview) -> Iterator[list[Chunk]]:
    """Yield the column chunks of each row group.

    Raise ValueError, LookupError or TypeError if the footer is damaged.
    """
    for group in _listed(footer, 4):
        yield [_chunk(column[3]) for column in group[1]]


def _listed(data: memoryview, wanted: int) -> Iterator[Any]:
    """Yield the values of a list in a struct, as they are read: there may be many."""
    at = number = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _zigzag(data, at)
        if number != wanted:
            _, at = _value(data, at, head & 15, _MOST_DEPTH)
            continue
        count, kind, at = _list_head(data, at)
        for _ in range(count):
            value, at = _value(data, at, kind, _MOST_DEPTH)
            yield value


def _chunk(about: dict[int, Any]) -> Chunk:
    if about[5] < 0:
        raise ValueError("a column with a negative number of values")
    known = 0 <= about[4] < len(_CODECS)
    return Chunk(_CODECS[about[4]] if known else "an unknown compression", about[5])


def _struct(data: memoryview, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Read a struct, and return its fields by number, and where it ends."""
    fields: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _zigzag(data, at)
        fields[number], at = _value(data, at, head & 15, depth)
    return fields, at + 1


def _value(data: memoryview, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (1, 2):  # true and false
        return kind == 1, at
    if kind == 3:
        return data[at], at + 1
    if kind in (4, 5, 6):
        return _zigzag(data, at)
    if kind == 7:
        return None, at + 8
    if kind == 8:  # bytes, which are statistics
        size, at = _varint(data, at)
        return None, at + size
    if kind == 9:
        return _list(data, at, depth)
    if kind == 12 and depth:
        return _struct(data, at, depth - 1)
    raise ValueError(f"a field of kind {kind}")


def _list(data: memoryview, at: int, depth: int) -> tuple[list[Any], int]:
    count, kind, at = _list_head(data, at)
    values = []
    for _ in range(count):
        value, at = _value(data, at, kind, depth)
        values.append(value)
    return values, at


def _list_head(data: memoryview, at: int) -> tuple[int, int, int]:
    """Return how many values a list has, of which kind, and where they begin."""
    head, at = data[at], at + 1
    count, kind = head >> 4, head & 15
    if count == 15:
        count, at = _varint(data, at)
    if count > len(data) - at:
        raise ValueError("a list that is longer than what it is in")
    return count, 3 if kind in (1, 2) else kind, at  # true and false take a byte here


def _zigzag(data: memoryview, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number without end")
