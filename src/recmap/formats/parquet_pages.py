"""Rows at random in a Parquet file: decode only the pages that they are in.

pyarrow decodes whole column chunks. But a page can be decoded without those before it, so the pages
that are needed are put together as a small file of their own, which pyarrow reads. Which rows are
in a page is known from its header or, if values are lists, from their levels.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from recmap.formats.arrow_columns import ArrowColumns
from recmap.formats.parquet_sizes import Chunk, Page, ParquetSizes, count_rows, read_pages
from recmap.formats.parquet_thrift import (
    BYTES,
    INT32,
    INT64,
    LIST,
    STRUCT,
    ThriftReader,
    thrift_bytes,
    thrift_list,
    thrift_number,
    thrift_struct,
)
from recmap.formats.row_group_file import Names
from recmap.machine.lru import Lru
from recmap.machine.mapped import MappedFile
from recmap.model.batch import RowArray, interleave, pick, rows_by_owner
from recmap.model.ragged import owned
from recmap.model.row_sizes import measure
from recmap.model.schema import Batch

_MAGIC = b"PAR1"
_SCHEMA, _CHILDREN = 2, 5
# Bytes of pages that are decoded together, and of those that are kept for later reads.
_TOGETHER, _KEPT = 8 << 20, 32 << 20
# Pages are decoded alone if all of them have at least as many times their bytes.
_FEW = 2
_OTHER_ROWS = "the pages do not have as many rows as the file says"


class ColumnPages(NamedTuple):
    """The pages of a column in a row group.

    The header of page ``i`` is at ``begins[i]``, and its first row is ``starts[i]``. Both have the
    end of the last page, too. ``sizes`` are those of pages once they are decompressed. ``indices``
    says which refer to the dictionary, which is between the begin of the chunk and the first page.
    """

    chunk: Chunk
    begins: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int64]

    def holding(self, rows: RowArray) -> npt.NDArray[np.int64]:
        """Return the number of the page that each row is in."""
        return np.searchsorted(self.starts, rows, side="right") - 1


class PageRows:
    """Rows at random, by the pages that they are in. Some of these are kept.

    Columns of the file are known by their numbers in the schema. Methods raise ValueError and
    others if the file is damaged, or if pages do not begin with rows.
    """

    def __init__(
        self,
        mapped: MappedFile,
        footer: tuple[int, int],
        sizes: ParquetSizes,
        metadata: Any,
        schema: Any,
        verify: bool,
        columns: ArrowColumns,
    ) -> None:
        self._mapped, self._footer, self._sizes = mapped, footer, sizes
        self._metadata, self._schema, self._verify = metadata, schema, verify
        self._columns = columns
        self._pages = cache(self._find_pages)
        self._kept = Lru[tuple[int, Names, int], Batch](_KEPT, lambda batch: measure(batch)[1])

    def take(self, group: int, names: Sequence[str], rows: RowArray) -> Batch | None:
        """Read rows of a row group. Return None if they are in many of its pages."""
        owners = self._columns.owners
        mine: dict[int, Names] = {}
        for name in names:  # a mask is in the same pages as its column
            mine[owners[name]] = (*mine.get(owners[name], ()), name)
        if not self._are_few(group, mine, rows):
            return None
        taken: Batch = {}
        for column, of_column in mine.items():
            taken.update(self._take(group, column, of_column, rows))
        return taken

    def _are_few(self, group: int, columns: Mapping[int, Names], rows: RowArray) -> bool:
        needed = whole = 0
        for column in columns:
            pages = self._pages(group, column)
            needed += int(pages.sizes[np.unique(pages.holding(rows))].sum())
            whole += int(pages.sizes.sum())
        return _FEW * needed <= whole

    def _take(self, group: int, column: int, names: Names, rows: RowArray) -> Batch:
        starts = self._pages(group, column).starts
        wanted = dict(rows_by_owner(starts[:-1], rows))
        parts: dict[int, Batch] = {}
        for page in list(wanted):
            if (kept := self._kept.get((group, names, page))) is not None:
                parts[page] = pick(kept, rows[wanted[page]] - starts[page])
        missing = [page for page in wanted if page not in parts]
        for some, arrow in self._decode(group, column, missing):
            batch = self._columns.batch(arrow, names, 0)
            at = 0
            for page in some:
                stop = at + int(starts[page + 1] - starts[page])
                alone = {name: owned(values[at:stop]) for name, values in batch.items()}
                self._kept.put((group, names, page), alone)
                parts[page] = pick(alone, rows[wanted[page]] - starts[page])
                at = stop
        return interleave([parts[page] for page in wanted], list(wanted.values()))

    @cached_property
    def _elements(self) -> list[tuple[list[bytes], range]]:
        """The elements of each column as they are written, and the numbers of its leaves."""
        footer = self._mapped.bytes[slice(*self._footer)].tobytes()
        elements = ThriftReader(footer).structs_of(_SCHEMA)
        root, _ = next(elements, ({}, b""))
        found, leaf = list[tuple[list[bytes], range]](), 0
        for _ in range(root.get(_CHILDREN, 0)):
            mine, left, first = list[bytes](), 1, leaf
            while left:
                element, stored = next(elements, (None, b""))
                if element is None:
                    raise ValueError("a schema that ends early")
                children = element.get(_CHILDREN, 0)
                leaf += not children
                left += children - 1
                mine.append(stored)
            found.append((mine, range(first, leaf)))
        return found

    def _find_pages(self, group: int, column: int) -> ColumnPages:
        _, leaves = self._elements[column]
        if len(leaves) != 1 or not self._mapped.whole:
            raise ValueError("several leaves, whose pages differ")
        chunk = self._sizes.chunks(group)[leaves[0]]
        pages = list(read_pages(self._mapped, chunk))
        begins = np.array([chunk.begin, *(page.end for page in pages)], np.int64)
        dictionary = int(bool(pages and not pages[0].values))
        pages = pages[dictionary:]
        rows = [self._rows(group, leaves[0], chunk, page) for page in pages]
        starts = np.cumsum([0, *rows], dtype=np.int64)
        if min(rows, default=0) < 1 or starts[-1] != self._metadata.row_group(group).num_rows:
            raise ValueError(_OTHER_ROWS)
        of_pages = [(page.size, page.values, page.indices) for page in pages]
        return ColumnPages(chunk, begins[dictionary:], starts, *np.array(of_pages, np.int64).T)

    def _rows(self, group: int, leaf: int, chunk: Chunk, page: Page) -> int:
        deepest = self._metadata.schema.column(leaf).max_repetition_level
        if not deepest:
            return page.values
        # A page begins with a row if there is an index of pages, or if its header counts rows.
        if page.rows < 0 and not self._metadata.row_group(group).column(leaf).has_offset_index:
            raise ValueError("rows that may go on in the next page")
        return count_rows(self._mapped, page, chunk.codec, deepest)

    def _decode(
        self, group: int, column: int, numbers: Sequence[int]
    ) -> Iterator[tuple[list[int], Any]]:
        """Decode pages, some at a time. Yield their numbers, and an Arrow record batch."""
        found, some, size = self._pages(group, column), list[int](), 0
        for number in numbers:
            if some and size + found.sizes[number] > _TOGETHER:
                yield some, self._decoded(found, column, some)
                some, size = [], 0
            some.append(number)
            size += int(found.sizes[number])
        if some:
            yield some, self._decoded(found, column, some)

    def _decoded(self, found: ColumnPages, column: int, numbers: list[int]) -> Any:
        rows = int((found.starts[1:] - found.starts[:-1])[numbers].sum())
        table = pq.ParquetFile(
            pa.BufferReader(self._file(found, column, numbers, rows)),
            pre_buffer=False,
            page_checksum_verification=self._verify,
        ).read(use_threads=False)
        if table.num_rows != rows or table.column(0).num_chunks != 1:
            raise ValueError(_OTHER_ROWS)
        field = self._schema.field(column)
        return pa.RecordBatch.from_arrays([table.column(0).chunk(0)], schema=pa.schema([field]))

    def _file(self, found: ColumnPages, column: int, numbers: list[int], rows: int) -> bytes:
        """Write a Parquet file of one column that has some of its pages."""
        chunk = found.chunk
        # Programs begin with a dictionary, and give it up if it becomes too large.
        words = int(found.begins[0]) - chunk.begin if found.indices[numbers].any() else 0
        begins, ends = found.begins[numbers].tolist(), found.begins[1:][numbers].tolist()
        spans = zip([chunk.begin, *begins], [chunk.begin + words, *ends], strict=True)
        stored = b"".join([self._mapped.bytes[begin:end].data for begin, end in spans])
        about = thrift_struct(
            (1, INT32, thrift_number(chunk.kind)),
            (2, LIST, thrift_list(INT32, [])),
            (3, LIST, thrift_list(BYTES, [])),
            (4, INT32, thrift_number(chunk.codec)),
            (5, INT64, thrift_number(int(found.values[numbers].sum()))),
            (6, INT64, thrift_number(chunk.size)),
            (7, INT64, thrift_number(len(stored))),
            (9, INT64, thrift_number(len(_MAGIC) + words)),
            *([(11, INT64, thrift_number(len(_MAGIC)))] if words else []),
        )
        footer = self._footer_of(column, about, rows, len(stored))
        return b"".join([_MAGIC, stored, footer, len(footer).to_bytes(4, "little"), _MAGIC])

    def _footer_of(self, column: int, about: bytes, rows: int, size: int) -> bytes:
        chunk = thrift_struct((2, INT64, thrift_number(len(_MAGIC))), (3, STRUCT, about))
        group = thrift_struct(
            (1, LIST, thrift_list(STRUCT, [chunk])),
            (2, INT64, thrift_number(size)),
            (3, INT64, thrift_number(rows)),
        )
        root = thrift_struct((4, BYTES, thrift_bytes(b"schema")), (5, INT32, thrift_number(1)))
        arrow = b64encode(pa.schema([self._schema.field(column)]).serialize())
        note = thrift_struct(
            (1, BYTES, thrift_bytes(b"ARROW:schema")), (2, BYTES, thrift_bytes(arrow))
        )
        return thrift_struct(
            (1, INT32, thrift_number(2)),
            (2, LIST, thrift_list(STRUCT, [root, *self._elements[column][0]])),
            (3, INT64, thrift_number(rows)),
            (4, LIST, thrift_list(STRUCT, [group])),
            (5, LIST, thrift_list(STRUCT, [note])),
            # pyarrow knows which programs wrote what wrongly.
            (6, BYTES, thrift_bytes((self._metadata.created_by or "").encode())),
        )
