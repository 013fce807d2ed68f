"""How many bytes the rows of a Parquet file take once they are decoded, from what is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recmap.files.mapped import MappedFile
from recmap.formats.arrow_sizes import bytes_before
from recmap.formats.parquet_pages import Chunk, Page, count_rows, read_chunks, read_pages
from recmap.formats.row_group_cuts import Cells
from recmap.model.row_sizes import OFFSET

__all__ = ["LEVELS", "ParquetSizes"]

#: Bytes that pyarrow takes for each value of a list while it is decoded: how deep it is.
LEVELS = 8
# A column of a row group that is not larger is taken to be one page.
_SMALL = 1 << 19
# What pages and dictionaries in a store are taken to have, to save requests.
_REMOTE = 3 << 20
# What damaged pages may raise.
_FAILURES = (
    *(ValueError, LookupError, TypeError, ArithmeticError, RuntimeError, OSError, MemoryError),
    pa.ArrowException,
)
# Bytes of a value in memory, by the number of its type: bool, int32, int64, int96, float, double.
_WIDTHS = (1, 4, 8, 12, 4, 8)
_STRINGS = 6
# A larger footer would take seconds to read, or long to read before any row.
_MOST_FOOTER, _CHECKED_FOOTER = 8 << 20, 1 << 17
# Values that are looked at together, and the part of a piece that a cell of strings may have.
_TOGETHER, _PART = 1 << 18, 8
# The longest string of a dictionary may be so many times longer than the others to stand for all.
_LONGER = 2


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
        self._read, self._reading = list[list[Chunk]](), self._read_footer()
        self._lock = Lock()

    def flat_values(self, group: int) -> int | None:
        """Return how many values a column without lists has, which are as many as rows.

        Return None if there is no such column, or looking would take long.
        """
        begin, end = self._footer
        if self._flat is None or end - begin > _CHECKED_FOOTER:
            return None
        try:
            return self._chunks(group)[self._flat].values
        except _FAILURES:
            return None

    @cached_property
    def _flat(self) -> int | None:
        schema = self._metadata.schema
        leaves = range(len(schema))
        return next((i for i in leaves if not schema.column(i).max_repetition_level), None)

    def codecs(self) -> list[str]:
        """Return how values are compressed. Programs compress all row groups alike."""
        try:
            chunks = self._chunks(0)
        except _FAILURES:
            return []
        return sorted({chunk.codec.partition("_")[0] or "uncompressed" for chunk in chunks})

    def stored_row(self, group: int, leaves: Sequence[int]) -> int:
        """Return the bytes of a row as it is stored, before it is compressed."""
        rows = int(self._metadata.row_group(group).num_rows)
        try:
            return sum(self._chunks(group)[leaf].size for leaf in leaves) // max(1, rows)
        except _FAILURES:
            return 0

    def unit(self, group: int, leaves: Sequence[int]) -> int:
        """Return the bytes that must be in memory to decode any row of these leaves."""
        found = sum(self._unit(group, leaf) for leaf in leaves)
        whole = int(self._metadata.row_group(group).total_byte_size)
        return found if self._is_known(group) else min(found, max(whole, _REMOTE))

    def _is_known(self, group: int) -> bool:
        try:
            return bool(self._chunks(group))
        except _FAILURES:
            return False

    def cells(self, group: int, leaves: Sequence[int], size: int) -> list[Cells] | None:
        """Return what rows of a row group take, leaf by leaf, to divide them into pieces of
        ``size`` bytes. Return None if that cannot be known before it is decoded.
        """
        try:
            return [self._cells(group, leaf, size) for leaf in leaves]
        except _FAILURES:
            return None  # if it is damaged, reading these rows tells

    def _chunks(self, group: int) -> list[Chunk]:
        """Return the column chunks of a row group. The footer is read as far as needed."""
        with self._lock:
            while len(self._read) <= group:
                chunks = next(self._reading, None)
                if chunks is None:
                    raise ValueError("the footer cannot be read")
                self._read.append(chunks)
        return self._read[group]

    def _read_footer(self) -> Iterator[list[Chunk]]:
        begin, end = self._footer
        if end - begin > _MOST_FOOTER:
            raise NotImplementedError("a footer that would take long to read")
        with self._mapped.hold(begin, end):
            footer = self._mapped.bytes[begin:end].tobytes()
        yield from read_chunks(memoryview(footer))

    def _find_unit(self, group: int, leaf: int) -> int:
        """Return the size of the dictionary and of the largest page of a leaf."""
        try:
            chunk = self._chunks(group)[leaf]
            if chunk.size <= _SMALL or not self._mapped.whole:
                return min(chunk.size, _REMOTE)
            pages = self._pages(chunk)
        except _FAILURES:
            return _REMOTE
        dictionary = sum(page.size for page in pages if not page.values)
        return dictionary + max((page.size for page in pages if page.values), default=0)

    def _pages(self, chunk: Chunk) -> list[Page]:
        return list(read_pages(self._mapped.bytes, chunk.begin, chunk.end))

    def _cells(self, group: int, leaf: int, size: int) -> Cells:
        chunk, column = self._chunks(group)[leaf], self._metadata.schema.column(leaf)
        rows = int(self._metadata.row_group(group).num_rows)
        strings = chunk.kind == _STRINGS
        width = 0 if strings else (*_WIDTHS, 0, column.length)[chunk.kind]
        width += OFFSET + (LEVELS if column.max_repetition_level else 0)
        most = chunk.values * width + (chunk.size if strings else 0)
        if most <= size // _PART and not (strings and chunk.has_dictionary):
            return Cells(np.array([rows]), np.array([most]))
        if not self._mapped.whole:
            raise NotImplementedError("pages in a store are not looked at")
        pages = [page for page in self._pages(chunk) if page.values]
        counts = np.array([self._rows(chunk, column, page) for page in pages], np.int64)
        sizes = np.array([p.values * width + strings * p.size for p in pages], np.int64)
        if counts.sum() != rows or not counts[0]:
            raise ValueError("the pages have other rows than the file says")
        # Strings are in a dictionary until that becomes too large.
        short = next((i for i, page in enumerate(pages) if not page.indices), len(pages))
        if not strings or not short:
            return Cells(np.cumsum(counts), sizes)
        values = sum(page.values for page in pages[:short])
        first = self._bounded(group, leaf, int(counts[:short].sum()), size)
        if first is None:
            first = self._measured(group, leaf, int(counts[:short].sum()), values, size)
        return Cells(
            np.append(first.ends, np.cumsum(counts)[short:]), np.append(first.sizes, sizes[short:])
        )

    def _rows(self, chunk: Chunk, column: Any, page: Page) -> int:
        levels = column.max_repetition_level
        if not levels:
            return page.values
        return count_rows(self._mapped.bytes, page, chunk.codec, levels)

    def _bounded(self, group: int, leaf: int, rows: int, size: int) -> Cells | None:
        """Take all of the first rows to be as large as the longest string of their dictionary.

        Return None if others are much shorter, or rows have several strings.
        """
        if self._metadata.schema.column(leaf).max_repetition_level:
            return None
        first = next(self._with_dictionary(group, leaf, 1)[1], None)
        if first is None:
            raise ValueError("no rows")
        words = first.column(0).dictionary
        lengths = np.diff(bytes_before(words, np.arange(len(words) + 1)))
        longest = int(lengths.max(initial=1))
        if longest > _LONGER * lengths.mean():
            return None
        step = max(1, size // _PART // longest)
        ends = np.append(np.arange(step, rows, step), rows)
        return Cells(ends, np.diff(ends, prepend=0) * longest)

    def _with_dictionary(self, group: int, leaf: int, rows: int) -> tuple[Any, Iterator[Any]]:
        """Return a reader of a leaf whose strings stay in their dictionary, and its batches."""
        reader = self._reopen([self._metadata.schema.column(leaf).path]).reader
        return reader, reader.iter_batches(
            rows, row_groups=[group], column_indices=[leaf], use_threads=False
        )

    def _measured(self, group: int, leaf: int, rows: int, values: int, size: int) -> Cells:
        """Measure the first rows, whose strings are in a dictionary, without decoding them."""
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
