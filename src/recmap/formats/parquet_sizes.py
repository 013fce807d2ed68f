"""How many bytes the rows of a Parquet file take once they are decoded, from what is stored.

A column chunk is a sequence of pages, and a page can only be decoded whole. pyarrow does not tell
of pages, and ends the process if what a damaged footer says does not fit together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recmap.errors import DataError, MemoryLimitError
from recmap.formats.arrow_sizes import bytes_before
from recmap.formats.row_group_file import Cells
from recmap.machine.mapped import MappedFile
from recmap.model.row_sizes import OFFSET
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
#: Bytes that pyarrow takes for each value of a list while it is decoded: how deep it is.
LEVELS = 8
# A column of a row group that is not larger is taken to be one page.
_SMALL = 1 << 19
# What pages and dictionaries in a store are taken to have at most until they are looked at.
_REMOTE = 3 << 20
# How many row groups are looked at before anything is read.
_LOOKED_AT = 16
# What damaged footers and pages may raise.
_FAILURES = (
    *(ValueError, LookupError, TypeError, ArithmeticError, RuntimeError, OSError, MemoryError),
    pa.ArrowException,
)
# Bytes of a value in memory, by the number of its type: bool, int32, int64, int96, float, double.
_WIDTHS = (1, 4, 8, 12, 4, 8)
_STRINGS = 6
# Values that are looked at together, and the part of a piece that a cell of strings may have.
_TOGETHER, _PART = 1 << 18, 8
# If rows are taken to be as long as the longest string, pieces may become this small.
_LEAST_PIECE = 1 << 20


class ParquetSizes:
    """The sizes of the rows of a file. A stored column is called a leaf, and has a number."""

    def __init__(
        self,
        mapped: MappedFile,
        footer: tuple[int, int],
        metadata: Any,
        reopen: Callable[[Sequence[str]], Any],
    ) -> None:
        """``reopen`` opens the file so that the strings of some columns stay in dictionaries."""
        self._mapped, self._footer = mapped, footer
        self._metadata, self._reopen = metadata, reopen
        self._unit = cache(self._find_unit)
        # The largest unit that the reader has made room for.
        self._counted: int | None = None

    @cached_property
    def _table(self) -> npt.NDArray[np.int64]:
        """The numbers of each chunk, in the order of row groups."""
        begin, end = self._footer
        try:
            with self._mapped.hold(begin, end):
                return _core.parquet_chunks(self._mapped.bytes[begin:end])
        except ValueError as e:
            path = self._mapped.path
            raise DataError(f"{path}: a damaged footer: {e}", file=path) from e

    def read_footer(self) -> None:
        """Read the footer now. If it is damaged, that is raised when it is needed."""
        with suppress(DataError):
            _ = self._table

    def chunks(self, group: int) -> list[Chunk]:
        """Return what the footer says of the columns of a row group."""
        first, stop = np.searchsorted(self._table[:, 0], [group, group + 1]).tolist()
        return [Chunk(*numbers) for numbers in self._table[first:stop].tolist()]

    def stored_row(self, group: int, leaves: Sequence[int]) -> int:
        """Return the bytes of a row as it is stored, before it is compressed."""
        try:
            chunks = self.chunks(group)
            return sum(chunks[leaf].size for leaf in leaves) // max(1, self._rows(group))
        except _FAILURES:
            return 0

    def unit(self, group: int, leaves: Sequence[int]) -> int:
        """Return the bytes that must be in memory to decode any row of these leaves."""
        return sum(self._unit(group, leaf) for leaf in leaves)

    def largest_unit(self, leaves: Sequence[int]) -> tuple[int, int]:
        """Return the most bytes that must be in memory to decode any row, and the row group.

        Only the largest row groups are looked at. A page of another one that takes more memory is
        refused when it is reached.
        """
        groups = self._metadata.num_row_groups
        try:
            sizes = np.bincount(self._table[:, 0], self._table[:, 4], groups)
            groups = np.argsort(-sizes, kind="stable")[:_LOOKED_AT].tolist()
        except DataError:
            groups = list(range(min(groups, _LOOKED_AT)))
        found = max(((self.unit(group, leaves), group) for group in groups), default=(0, 0))
        self._counted = max(found[0], self._counted or 0)
        return found

    def most(self, group: int, leaves: Sequence[int]) -> int | None:
        """Return the bytes that all rows of these leaves take, if the footer tells."""
        try:
            chunks = self.chunks(group)
            sizes = [self._most(chunks[leaf], leaf, self._rows(group)) for leaf in leaves]
        except _FAILURES:
            return None
        return sum(sizes) if min(sizes, default=0) >= 0 else None

    def cells(self, group: int, leaves: Sequence[int], size: int) -> list[Cells] | None:
        """Return what rows of a row group take, leaf by leaf, to divide them into pieces of
        ``size`` bytes. Return None if that cannot be known before it is decoded.
        """
        try:
            return [self._cells(group, leaf, size) for leaf in leaves]
        except MemoryLimitError:
            raise
        except _FAILURES:
            return None  # if it is damaged, reading these rows tells

    def _rows(self, group: int) -> int:
        return int(self._metadata.row_group(group).num_rows)

    def _bytes(self, chunk: Chunk, leaf: int, values: Any, rows: Any) -> Any:
        """Return the bytes of values while they are decoded, without the text of strings."""
        column = self._metadata.schema.column(leaf)
        depth = int(column.max_repetition_level)
        width = OFFSET if chunk.kind == _STRINGS else (*_WIDTHS, 0, column.length)[chunk.kind]
        if depth > 1:
            width += OFFSET
        return values * (width + LEVELS) + rows * OFFSET if depth else values * width

    def _most(self, chunk: Chunk, leaf: int, rows: int) -> int:
        """Return the bytes that a leaf takes, or -1."""
        if chunk.kind == _STRINGS and chunk.text < 0:
            return -1
        text = chunk.text if chunk.kind == _STRINGS else 0
        return int(self._bytes(chunk, leaf, chunk.values, rows)) + text

    def _find_unit(self, group: int, leaf: int) -> int:
        """Return the size of the dictionary and of the largest page of a leaf."""
        try:
            chunk = self.chunks(group)[leaf]
            if chunk.size <= _SMALL or not self._mapped.whole:
                return min(chunk.size, _REMOTE)
            return _largest(list(read_pages(self._mapped, chunk)))
        except _FAILURES:
            return _REMOTE

    def _cells(self, group: int, leaf: int, size: int) -> Cells:
        chunk, rows = self.chunks(group)[leaf], self._rows(group)
        most = self._most(chunk, leaf, rows)
        if 0 <= most <= size // _PART:
            return Cells(np.array([rows]), np.array([most]))
        pages = list(read_pages(self._mapped, chunk))
        self._check_unit(group, pages, size)
        pages = [page for page in pages if page.values]
        counts = np.array([self._count(chunk, leaf, page) for page in pages], np.int64)
        if counts.sum() != rows or not counts[0]:
            raise ValueError("the pages do not have as many rows as the file says")
        strings = chunk.kind == _STRINGS
        sizes = self._bytes(chunk, leaf, np.array([page.values for page in pages]), counts)
        if strings:
            sizes += [page.size for page in pages]
        # Strings are in a dictionary until that becomes too large.
        short = next((i for i, page in enumerate(pages) if not page.indices), len(pages))
        cells = Cells(np.cumsum(counts), sizes)
        if not strings or not short:
            return cells
        values = sum(page.values for page in pages[:short])
        first = self._of_dictionary(group, leaf, int(counts[:short].sum()), values, size)
        return Cells(
            np.append(first.ends, cells.ends[short:]), np.append(first.sizes, sizes[short:])
        )

    def _check_unit(self, group: int, pages: Sequence[Page], size: int) -> None:
        """Refuse a page that was not counted before, and for which there is too little memory."""
        unit = _largest(pages)
        if self._counted is not None and unit > max(self._counted, _REMOTE, 2 * size):
            raise MemoryLimitError(
                f"{self._mapped.path}: row group {group:,} has a page of {unit:,} bytes, which is "
                f"decoded whole, but only {2 * size:,} may be used for it",
                size=unit,
                limit=2 * size,
            )

    def _count(self, chunk: Chunk, leaf: int, page: Page) -> int:
        levels = self._metadata.schema.column(leaf).max_repetition_level
        return count_rows(self._mapped, page, chunk.codec, levels) if levels else page.values

    def _of_dictionary(self, group: int, leaf: int, rows: int, values: int, size: int) -> Cells:
        """Return the sizes of the first rows, whose strings are in a dictionary."""
        first = next(self._with_dictionary(group, leaf, 1)[1], None)
        if first is None:
            raise ValueError("no rows")
        strings = first.column(0)
        while pa.types.is_struct(strings.type):  # of this leaf alone
            strings = strings.field(0)
        if pa.types.is_dictionary(strings.type):
            words = strings.dictionary
            lengths = np.diff(bytes_before(words, np.arange(len(words) + 1)))
            longest = max(1, int(lengths.max(initial=1)))
            step = max(1, size // _PART // longest)
            # Measuring every string decodes its index twice. Usually all of them may be taken to
            # be as long as the longest one.
            if _PART * step * lengths.sum() >= min(size // 2, _LEAST_PIECE) * len(words):
                ends = np.append(np.arange(step, rows, step), rows)
                return Cells(ends, np.diff(ends, prepend=0) * longest)
        return self._measured(group, leaf, rows, values, size)

    def _with_dictionary(self, group: int, leaf: int, rows: int) -> tuple[Any, Iterator[Any]]:
        """Return a reader of a leaf whose strings stay in their dictionary, and its batches."""
        reader = self._reopen([self._metadata.schema.column(leaf).path]).reader
        return reader, reader.iter_batches(
            rows, row_groups=[group], column_indices=[leaf], use_threads=False
        )

    def _measured(self, group: int, leaf: int, rows: int, values: int, size: int) -> Cells:
        """Measure rows without decoding their strings."""
        step = max(1, rows * _TOGETHER // max(1, values))
        reader, found = self._with_dictionary(group, leaf, min(step, rows))
        ends: list[npt.NDArray[np.int64]] = []
        sizes: list[npt.NDArray[np.int64]] = []
        done = 0
        while done < rows:
            batch = next(found, None)
            if batch is None:
                raise ValueError("fewer rows than the file says")
            array = batch.column(0)
            before = bytes_before(array, np.arange(len(array) + 1))
            crossed = np.flatnonzero(np.diff((before - before[0]) // max(1, size // _PART))) + 1
            edges = np.unique([0, *crossed.tolist(), len(array)])
            ends.append(edges[1:] + done)
            sizes.append(np.diff(before[edges]))
            done += len(array)
            reader.set_batch_size(max(1, min(step, rows - done)))
        return Cells(np.concatenate(ends), np.concatenate(sizes))


def _largest(pages: Sequence[Page]) -> int:
    """Return the size of the dictionary and of the largest page."""
    dictionary = sum(page.size for page in pages if not page.values)
    return dictionary + max((page.size for page in pages if page.values), default=0)


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
