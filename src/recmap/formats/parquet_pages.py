"""The column chunks of a Parquet file and their pages: how large they are, and how many rows.

A column chunk is a sequence of pages, and a page can only be decoded whole. pyarrow does not tell
of pages, and ends the process if what a damaged footer says does not fit together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recmap.files.mapped import MappedFile
from recmap.native import _core

#: The compressions by their numbers in a file, as pyarrow calls them.
CODECS = ("", "snappy", "gzip", "lzo", "brotli", "lz4_hadoop", "zstd", "lz4_raw")
# Those that the beginning of a page can be had of without the rest.
_STREAMED = ("gzip", "brotli", "zstd")
_DICTIONARY = 2
# Encodings of values that refer to the dictionary, and of strings that take less than they are.
_BY_DICTIONARY, _BY_DIFFERENCE = (2, 8), 7
# As many bytes of an object are fetched to find a header: with statistics, it may have hundreds.
_HEADER = 1 << 14


class Chunk(NamedTuple):
    """A column of a row group: how it is stored, where, and how large it is once decompressed.

    ``kind`` is the number of its type. ``text`` are the bytes of its strings once they are
    decoded; -1 if the file does not tell.
    """

    group: int
    kind: int
    codec: int
    values: int
    size: int
    begin: int
    end: int
    has_dictionary: int
    text: int


class Page(NamedTuple):
    """A page: where it is in the file, its bytes once decompressed, and what is in it.

    ``rows`` is -1 if the header does not tell. A dictionary has no ``values``. ``indices`` says
    that the values refer to the dictionary.
    """

    begin: int
    end: int
    size: int
    values: int
    rows: int
    indices: bool


def read_pages(file: MappedFile, chunk: Chunk) -> Iterator[Page]:
    """Yield the pages of a column chunk. Raise ValueError if it is damaged."""
    at, end = chunk.begin, min(chunk.end, file.size)
    while at < end:
        ahead = end if file.whole else min(at + _HEADER, end)
        with file.hold(at, ahead):
            found = _core.parquet_page(file.bytes[at:ahead])
        header, kind, size, stored, values, rows, encoding = found
        begin, at = at + header, at + header + stored
        if at > end or (kind == _DICTIONARY and values):
            raise ValueError("a page outside of its column")
        if values and encoding == _BY_DIFFERENCE:
            raise ValueError("strings that are stored by differences, which may be any size")
        yield Page(begin, at, size, values, rows, encoding in _BY_DICTIONARY)


def count_rows(file: MappedFile, page: Page, codec: int, deepest: int) -> int:
    """Count the rows that begin in a page of lists, whose levels are ``deepest`` at most.

    They begin where the level is 0, and the levels are at the beginning of the page.
    """
    if page.rows >= 0:
        return page.rows
    if not 0 <= codec < len(CODECS):
        raise ValueError("an unknown compression")
    with file.hold(page.begin, page.end):
        levels = _levels(file.bytes[page.begin : page.end], page.size, CODECS[codec])
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
    if codec == "snappy":
        length = int.from_bytes(_snappy_front(data, 4), "little")
        return _snappy_front(data, min(4 + length, size))[4:]
    if codec:
        data = np.frombuffer(pa.Codec(codec).decompress(data, size), np.uint8)
    length = int.from_bytes(data[:4].tobytes(), "little")
    return data[4 : 4 + length]


def _snappy_front(data: npt.NDArray[np.uint8], size: int) -> npt.NDArray[np.uint8]:
    front = np.empty(size, np.uint8)
    return front[: _core.snappy_front(data, front)]
