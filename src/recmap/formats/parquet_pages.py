"""The column chunks of a Parquet file and their pages: how large they are, and how many rows.

A column chunk is a sequence of pages. A page can only be decompressed whole. The footer, and the
header of each page, are structs in Thrift's compact protocol. pyarrow does not tell of pages, and
ends the process if what a damaged footer says of a column chunk does not fit together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recmap.native import _core

__all__ = ["Chunk", "Page", "count_rows", "read_chunks", "read_pages"]

_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
# Encodings of values that refer to the dictionary.
_BY_DICTIONARY = (2, 8)
# Names of the compressions, by their numbers in a file.
_CODECS = ("", "snappy", "gzip", "lzo", "brotli", "lz4_hadoop", "zstd", "lz4_raw")
# Those that the beginning of a page can be had of without the rest.
_STREAMED = ("gzip", "brotli", "zstd")
# No header has structs this deep.
_MOST_DEPTH = 8


class Chunk(NamedTuple):
    """A column of a row group: how it is stored, where, and how large it is once inflated.

    ``kind`` is the number of its type.
    """

    kind: int
    codec: str
    values: int
    size: int
    begin: int
    end: int
    has_dictionary: bool


class Page(NamedTuple):
    """A page: where it is in the file, its bytes once inflated, and what is in it.

    ``rows`` is None if the header does not tell. A dictionary has no ``values``. ``indices`` says
    that the values refer to the dictionary.
    """

    begin: int
    end: int
    size: int
    values: int = 0
    rows: int | None = 0
    indices: bool = False


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
    places = [about[9], *([about[11]] if about.get(11) else [])]
    begin = min(places)
    if min(begin, *(about[number] for number in (1, 4, 5, 6, 7))) < 0:
        raise ValueError("a column with a negative size")
    codec = _CODECS[about[4]]
    return Chunk(about[1], codec, about[5], about[6], begin, begin + about[7], len(places) > 1)


def read_pages(file: npt.NDArray[np.uint8], begin: int, end: int) -> Iterator[Page]:
    """Yield the pages of a column chunk.

    Raise ValueError, LookupError or TypeError if it is damaged.
    """
    data = file.data
    while begin < end:
        header, body = _struct(data, begin, _MOST_DEPTH)
        size, stop = header[2], body + header[3]
        if size < 0 or not body <= stop <= end:
            raise ValueError("a page outside of its column")
        if header[1] == _DATA:
            about = header[5]
            yield Page(body, stop, size, about[1], None, about[2] in _BY_DICTIONARY)
        elif header[1] == _DATA_V2:
            about = header[8]
            yield Page(body, stop, size, about[1], about[3], about[4] in _BY_DICTIONARY)
        else:
            yield Page(body, stop, size)
        begin = stop


def count_rows(file: npt.NDArray[np.uint8], page: Page, codec: str, deepest: int) -> int:
    """Count the rows that begin in a page of lists, whose levels are ``deepest`` at most.

    They begin where the level is 0, and the levels are at the beginning of the page.
    """
    if page.rows is not None:
        return page.rows
    levels = _levels(file[page.begin : page.end], page.size, codec)
    found = _core.count_zero_levels(levels, page.values, deepest.bit_length())
    if found < 0:
        raise ValueError("fewer values than a page says")
    return found


def _levels(data: npt.NDArray[np.uint8], size: int, codec: str) -> npt.NDArray[np.uint8]:
    """Decompress the levels of a page, and the rest only if they cannot be had alone."""
    if codec in _STREAMED:
        with pa.input_stream(pa.py_buffer(data), compression=codec) as stream:
            length = int.from_bytes(stream.read(4), "little")
            return np.frombuffer(stream.read(min(length, size)), np.uint8)
    if codec:
        data = np.frombuffer(pa.Codec(codec).decompress(data, size), np.uint8)
    length = int.from_bytes(data[:4].tobytes(), "little")
    return data[4 : 4 + length]


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
