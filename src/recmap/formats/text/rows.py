"""A source of the rows of one text file. Each read parses the rows it returns, and no others."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from recmap.errors import DataError, MemoryLimitError, OptionError
from recmap.formats.text.columns import TextColumn, native_columns, parsed_column
from recmap.formats.text.faults import damaged_row, found_value
from recmap.formats.text.row_index import RowIndex
from recmap.formats.text.text_file import Bytes, PlainText, TextFile, open_text
from recmap.local.local_path import any_remote, located
from recmap.machine.cpus import pool_size, thread_count
from recmap.machine.mapped import guarded
from recmap.machine.threads import Threads
from recmap.model.batch import RowArray, join, pick
from recmap.model.facts import SourceFacts, with_facts
from recmap.model.info import Info
from recmap.model.null_columns import empty_column
from recmap.model.row_sizes import RowSizes, batch_sizes, fitting
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source
from recmap.native import _core

# Bytes of text that a thread parses at a time.
_PART = 1 << 20
# Rows and bytes of text that tell how large a row is.
_SAMPLED = 100
# An item of a list takes at most this many times its text: "1," is 8 bytes, and 1 if it is null.
_LIST_GROWTH = 5
# A row that could take more than this is not parsed to see whether it fits.
_TRIED = 16 << 20
# Stands for the rows of a compressed file before they are counted; more than there ever are.
_UNCOUNTED = 1 << 62


@dataclass(frozen=True)
class RowParser:
    """How the rows of a format are told apart and parsed. Small, so that it can be sent."""

    format: str
    columns: Sequence[TextColumn]
    origin: str
    #: What is between the fields of a row; None if rows are lines of JSON.
    delimiter: str | None = None
    #: Reads the names of the columns of a file, if its first row has them.
    names: Callable[[TextFile], list[str]] | None = None
    #: Whether values that no column reads are errors.
    strict: bool = True

    @property
    def skipped(self) -> int:
        """The rows before the first one: a header."""
        return int(self.names is not None)

    @property
    def syntax(self) -> _core.RowSyntax:
        return row_syntax(self.delimiter)

    @property
    def rules(self) -> str:
        """What tells rows apart, as an index notes it."""
        return "lines" if self.delimiter is None else f"quoted {self.delimiter}"

    def check_header(self, text: TextFile) -> None:
        """Raise if a file names other columns."""
        if self.names is None:
            return
        found, names = self.names(text), [column.name for column in self.columns]
        if found != names:
            raise DataError(
                f"{text.path}: its columns are {', '.join(found)}, but those of the first file "
                f"are {', '.join(names)}; open them separately",
                file=text.path,
            )

    def parse(
        self, text: Bytes, columns: _core.TextColumns
    ) -> tuple[int, list[Any], _core.TextFault | None]:
        """Parse whole rows."""
        if self.delimiter is None:
            return _core.parse_json_rows(text, columns)
        return _core.parse_csv(text, self.syntax, columns)


def row_syntax(delimiter: str | None) -> _core.RowSyntax:
    """Return how rows are told apart: with quotes around a delimiter, or as lines."""
    return _core.RowSyntax() if delimiter is None else _core.RowSyntax(ord('"'), ord(delimiter))


class TextRows(Source):
    """The rows of a text file."""

    def __init__(self, path: str, parser: RowParser, names: Sequence[str]) -> None:
        self._path, self._parser = path, parser
        self._text = open_text(path)
        parser.check_header(self._text)
        self._index = RowIndex(self._text, parser.syntax, parser.rules, parser.skipped)
        self._index.load()
        self._choose(names)
        # By process: threads do not survive a fork.
        self._threads = cache(lambda _: Threads(pool_size(), "recmap-text"))

    def _choose(self, names: Sequence[str]) -> None:
        known = {column.name: column for column in self._parser.columns}
        self._chosen = [known[name] for name in names]
        self._schema = Schema({name: known[name].field for name in names})
        self._native = native_columns(self._parser.columns, names, strict=self._parser.strict)
        # The parser returns columns in the order of the file.
        self._parsed = [column for column in self._parser.columns if column.name in self._schema]
        fields = [column.field for column in self._chosen]
        self._fixed = sum(9 + 8 * len(f.shape) + (f.row_bytes or 8) for f in fields)
        varies = any(field.row_bytes is None or field.shape for field in fields)
        lists = any(field.shape for field in fields)
        self._growth = _LIST_GROWTH if lists else int(varies)

    def __reduce__(self) -> tuple[Any, ...]:
        rows = self._index.count if self._index.complete else None
        return _reopened, (located(self._path).absolute(), self._parser, list(self._schema), rows)

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def facts(self) -> SourceFacts:
        packing = self._text.packing
        facts = SourceFacts(
            format=self._parser.format,
            files=[self._path],
            origin=self._parser.origin,
            owns_rows=True,
            open_ended=True,
            remote=any_remote([self._path]),
        )
        if packing is None:
            return facts
        # Reading a row inflates all rows before it, or those around it.
        return with_facts(
            facts,
            compressed_files={self._path: packing},
            chunk_rows=self._chunk_rows,
            stored_in_order=self.known_rows() not in (0, 1),
        )

    def _chunk_rows(self) -> int:
        rows, parts = self.known_rows(), 1
        if isinstance(self._text, PlainText):
            parts = max(1, self._text.parts)
        return _UNCOUNTED if rows is None else max(min(rows, 1), rows // parts)

    def known_rows(self) -> int | None:
        return self._index.count if self._index.complete else None

    @guarded
    def save_index(self, beside: str) -> str:
        """Write where rows begin next to a path, and return the name of the index."""
        if self._text.packing is not None:
            raise OptionError(f"{self._path}: a compressed file is read from its beginning")
        return self._index.save(beside)

    @guarded
    def up_to(self, stop: int) -> int:
        return self._index.reach(stop)

    @guarded
    def __len__(self) -> int:
        return self._index.reach(None)

    def row_bytes(self) -> int:
        return self._row_bytes

    @cached_property
    def _row_bytes(self) -> int:
        rows = self.up_to(_SAMPLED)
        if not rows:
            return 1
        begin, end = self._place(0, rows)
        return max(1, (end - begin) // rows)

    def info(self) -> Info:
        return replace(super().info(), size=located(self._path).stat().size)

    def _place(self, start: int, stop: int) -> tuple[int, int]:
        """Return where rows that were found begin and end."""
        offsets, steps, ends = self._index.near(np.array([start, stop - 1]))
        first, last = int(offsets[0]), int(offsets[1])
        with self._text.span(first, int(ends[0])) as text:
            zero = np.zeros(1, np.uint64)
            begins, _ = _core.locate_text_rows(text, self._parser.syntax, zero, steps[:1])
            begin = first + int(begins[0])
        with self._text.span(last, int(ends[1])) as text:
            _, after = _core.locate_text_rows(text, self._parser.syntax, zero, steps[1:])
            return begin, last + int(after[0])

    @guarded
    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        self._text.refuse_changed()
        stop = self.up_to(stop)
        if start >= stop:
            return {name: empty_column(field) for name, field in self._schema.items()}
        if limit is not None:
            stop = min(stop, start + max(1, limit // (2 * self._fixed)))
        begin, end = self._place(start, stop)
        rows = stop - start
        if limit is not None and self._bound(rows, end - begin) > limit:
            rows, end = self._within(begin, end, rows, limit)
        batch = self._parse_span(begin, end, start, rows)
        if limit is None:
            return batch
        sizes = batch_sizes(batch)
        fits = fitting(sizes, rows, limit)
        return batch if fits == rows else pick(batch, slice(fits))

    def _bound(self, rows: int, size: int) -> int:
        """Return the most memory that rows of ``size`` bytes of text take."""
        return rows * self._fixed + size * self._growth

    def _within(self, begin: int, end: int, rows: int, limit: int) -> tuple[int, int]:
        """Return how many of the first rows are sure to fit, at least one, and their end."""
        most = limit // (2 * max(1, self._growth))
        # Half of the limit for each: many rows of little text, or few of much.
        with self._text.span(begin, self._index.cuts(begin, end, max(1, most))[1]) as text:
            count, size = _core.walk_text_rows(text, self._parser.syntax, rows, most)
        bound = self._bound(count, size)
        if count == 1 and bound > max(limit, _TRIED):
            raise MemoryLimitError(
                f"{self._path}: a row at byte {begin:,} has {size:,} bytes of text, but "
                f"only {limit:,} may be used for it",
                size=bound,
                limit=limit,
            )
        return count, begin + size

    def _parse_span(self, begin: int, end: int, first_row: int, count: int) -> Batch:
        cuts = [begin, end]
        if thread_count() > 1 and end - begin > 2 * _PART and isinstance(self._text, PlainText):
            cuts = self._index.cuts(begin, end, max(_PART, (end - begin) // (4 * thread_count())))
        with self._text.span(begin, end) as text:
            parts = [text[a - begin : b - begin] for a, b in pairwise(cuts)]
            if len(parts) == 1:
                found = [self._parsed_rows(parts[0])]
            else:
                found = list(self._threads(os.getpid()).map(self._parsed_rows, parts))
            row = first_row
            for part, place, (rows, _, fault) in zip(parts, cuts, found, strict=False):
                if fault is not None:
                    raise self._damaged(part, fault, row + fault.row, place + fault.begin)
                row += rows
        if row - first_row != count:
            raise self._index.stale(begin)
        return join([self._batch(columns) for _, columns, _ in found])

    def _parsed_rows(self, text: Bytes) -> tuple[int, list[Any], _core.TextFault | None]:
        return self._parser.parse(text, self._native)

    def _batch(self, columns: Sequence[Any]) -> Batch:
        made = {
            column.name: parsed_column(self._path, column.name, column.field, *parsed)
            for column, parsed in zip(self._parsed, columns, strict=True)
        }
        return {name: made[name] for name in self._schema}

    def _damaged(self, text: Bytes, fault: _core.TextFault, row: int, byte: int) -> DataError:
        value = found_value(text, fault)
        columns = self._parser.columns
        column = None
        if fault.column >= 0 and fault.code != _core.TextFaultCode.few_fields:
            column = columns[fault.column].name, columns[fault.column].field
        return damaged_row(self._text, fault, row, byte, value, column, len(columns))

    @guarded
    def gather(self, rows: RowArray) -> Batch:
        self._text.refuse_changed()
        if not len(rows):
            return {name: empty_column(field) for name, field in self._schema.items()}
        self._index.reach(int(rows.max()) + 1)
        if isinstance(self._text, PlainText):
            offsets, steps, ends = self._index.near(rows)
            with self._text.spans(offsets, ends) as text:
                begins, stops = _core.locate_text_rows(text, self._parser.syntax, offsets, steps)
                copied, places = _core.gather_text_rows(text, begins, stops)
        else:
            copied, places, begins = self._gather_packed(self._text, rows)
        count, columns, fault = self._parser.parse(copied, self._native)
        if fault is not None:
            byte = int(begins[fault.row]) + fault.begin - int(places[fault.row])
            raise self._damaged(copied, fault, int(rows[fault.row]), byte)
        if count != len(rows):
            raise self._index.stale(int(begins[0]))
        return self._batch(columns)

    def _gather_packed(self, text: Any, rows: RowArray) -> tuple[Bytes, Any, Any]:
        """Copy rows from one pass over the file."""
        found: dict[int, bytes] = {}
        begins = np.zeros(len(rows), np.uint64)
        where: dict[int, int] = {}
        wanted = np.unique(rows)
        for row, offset, step, end in zip(wanted.tolist(), *self._index.near(wanted), strict=True):
            with text.span(int(offset), int(end)) as span:
                zero = np.zeros(1, np.uint64)
                (begin,), (stop,) = _core.locate_text_rows(
                    span, self._parser.syntax, zero, np.array([step], np.uint64)
                )
                found[row] = span[int(begin) : int(stop)].tobytes() + b"\n"
                where[row] = int(offset) + int(begin)
        copied = [found[row] for row in rows.tolist()]
        begins[:] = [where[row] for row in rows.tolist()]
        places = np.cumsum([0, *map(len, copied[:-1])]).astype(np.uint64)
        return np.frombuffer(b"".join(copied), np.uint8), places, begins

    def row_sizes(self, rows: RowArray) -> RowSizes | None:
        if not self._growth:
            return self._fixed
        if not isinstance(self._text, PlainText) or not self._text.mapped.whole or not len(rows):
            return None
        self._index.reach(int(rows.max()) + 1)
        offsets, steps, ends = self._index.near(rows)
        with self._text.spans(offsets, ends) as text:
            begins, stops = _core.locate_text_rows(text, self._parser.syntax, offsets, steps)
        return self._fixed + (stops - begins).astype(np.int64) * self._growth

    def select(self, names: Sequence[str]) -> TextRows:
        chosen = TextRows.__new__(TextRows)
        chosen.__dict__.update(self.__dict__)
        chosen._choose(list(self._schema.select(names)))  # noqa: SLF001  # of this class
        return chosen


def _reopened(path: str, parser: RowParser, names: Sequence[str], rows: int | None) -> TextRows:
    source = TextRows(path, parser, names)
    if rows is not None:
        located(path).check_unchanged()
    return source
