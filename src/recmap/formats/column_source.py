"""A source of columns that are read one by one, for every format except TFRecord.

``choose_columns`` picks the arrays of a file that are its columns: those of equal length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError, FieldNotFoundError, LeftOut, LeftOutWarning, Message, Option
from recmap.formats.column_readers import ColumnReader, Which
from recmap.formats.null_masks import with_nulls
from recmap.local.local_path import any_remote, check_all_unchanged, located
from recmap.machine.mapped import Guard, MappedFile, guarded
from recmap.model.arguments import is_pattern, matching, no_column
from recmap.model.batch import RowNumbers
from recmap.model.facts import LargestChunk, Meaning, SourceFacts, TableType, with_facts
from recmap.model.fetching import Fetching, fetching_all
from recmap.model.field import Field
from recmap.model.info import Info
from recmap.model.preview import listed
from recmap.model.ragged import Column, Ragged
from recmap.model.row_places import RowPlaces
from recmap.model.row_sizes import RowSizes, added_up, fitting, largest
from recmap.model.schema import Batch, Schema
from recmap.model.source import ColumnMap, MappedColumns, Source
from recmap.model.text import stored_strings
from recmap.warn import warn

_S = TypeVar("_S", bound=Source)

# Decoded row groups cached for later reads may take this many times the limit of one read, because
# two threads may be reading.
_KEPT = 2
_NOTHING = nullcontext()
# Larger than any row, but small enough that sums of sizes do not overflow.
_NO_LIMIT = 1 << 48
# A larger span is not checked: it is returned as a view, and its values may never be used.
_MOST_CHECKED = 64 << 20
# The mapped columns of a file are checked before the first read if they total at most this.
_MOST_AHEAD = 16 << 20


class Checksum(Protocol):
    """The checksum of a part of a file that holds columns."""

    @property
    def known(self) -> bool:
        """Whether the checksum has been compared and is correct."""
        ...

    @property
    def ahead(self) -> int:
        """How many bytes to check before the first read; 0 if reading checks them."""
        ...

    def passed(self, start: int, stop: int, rows: int, *, in_order: bool) -> None:
        """Check the bytes of a span of rows; ``rows`` is the total number of rows.

        Unless rows are known to be read ``in_order``, check the span only if the bytes shortly
        before it have been checked.
        """
        ...

    def check(self) -> None:
        """Check all bytes that have not been checked yet."""
        ...


class ColumnChecksums:
    """The checksums of the columns of a file that have not been compared yet."""

    def __init__(self, sums: Sequence[Checksum], rows: int, mapped: MappedFile | None) -> None:
        self._unchecked, self._rows, self._mapped = list(sums), rows, mapped
        ahead = sum(checksum.ahead for checksum in sums)
        self._checked_ahead = not 0 < ahead <= _MOST_AHEAD

    def __bool__(self) -> bool:
        return bool(self._unchecked)

    def check_ahead(self) -> None:
        """Check all of a small file before its first rows are read, in any order."""
        if not self._checked_ahead:
            for checksum in self._unchecked:
                if checksum.ahead:
                    checksum.check()
            self._unchecked = [checksum for checksum in self._unchecked if not checksum.known]
            self._checked_ahead = True

    def check_span(self, start: int, stop: int, *, in_order: bool) -> None:
        """Check the bytes of a span of rows, as part of a pass over all of them.

        The span counts as the same fraction of every column's bytes, wherever its values are
        stored.
        """
        for checksum in self._unchecked:
            checksum.passed(start, stop, self._rows, in_order=in_order)
        self._unchecked = [checksum for checksum in self._unchecked if not checksum.known]

    def check(self) -> None:
        with Guard(self._mapped):
            if self._mapped is not None:
                self._mapped.check_size()
            for checksum in self._unchecked:
                checksum.check()
        self._unchecked = []

    def trust(self) -> None:
        self._checked_ahead = True


class ColumnsSource(Source):
    """Columns of equal length, read one by one."""

    def __init__(
        self,
        format: str,
        files: Sequence[str],
        columns: Mapping[str, ColumnReader],
        origin: str = "from the file",
        reopen: Callable[[], ColumnsSource] | None = None,
        mapped: MappedFile | None = None,
        reference: Callable[[], ColumnsSource] | None = None,
        sums: Mapping[str, Sequence[Checksum]] | None = None,
        strings: Mapping[str, Field] | None = None,
        table: tuple[Mapping[str, TableType], Mapping[str, ColumnReader]] = ({}, {}),
        notes: Mapping[str, str] | None = None,
        meaning: Callable[[list[str]], Meaning] | None = None,
    ) -> None:
        """``reopen`` opens the same file again in a process that unpickles this source.
        ``reference`` opens it with the format's own library. ``mapped`` is the file that
        columns are views of. ``sums`` holds the checksums of each column, and ``strings`` the
        fields of strings that are to be text or bytes, whatever their readers say. ``table`` is
        what columns were in the table that was saved, and its index. ``notes`` is what the file
        says of columns, for display, and ``meaning`` what other files must agree on.
        """
        self._columns = dict(columns)
        self._reopen, self._reference = reopen, reference
        self._mapped = mapped
        self._sums = {name: tuple(found) for name, found in (sums or {}).items()}
        self._table_types, self._table_index = table
        self._notes, self._meaning = dict(notes or {}), meaning
        fields = {name: column.field for name, column in columns.items()} | dict(strings or {})
        self._schema = Schema(fields)
        self._strings = {name: field for name, field in fields.items() if field.is_bytes}
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name!r} has {rows:,}" for name, rows in lengths.items())
            raise DataError(f"columns must have the same number of rows, but {listed}")
        self._rows = next(iter(lengths.values()), 0)
        self._chunk_bytes = sum(column.chunk_bytes for column in columns.values())
        found = [each for name in columns for each in self._sums.get(name, ())]
        self._unchecked = ColumnChecksums(found, self._rows, mapped)
        # The largest column stands for all: a chunk of labels may span a million images.
        heaviest = max(columns.values(), key=lambda column: column.row_bytes(), default=None)
        chunk_rows = 1 if heaviest is None else heaviest.chunk_rows
        stored_rows = 1 if heaviest is None else heaviest.stored_rows
        self._facts = SourceFacts(
            format=format,
            files=list(files),
            origin=origin,
            chunk_rows=partial(int, chunk_rows),
            largest_chunk=partial(LargestChunk, self._chunk_bytes),
            stored_in_order=stored_rows > 1,
            remote=any_remote(files),
            sized=not self._chunk_bytes and not any_remote(files),
            checksums=[self._unchecked],
            largest_row=partial(_largest_row, columns, self._rows, mapped, tuple(files)),
            reference=reference and partial(_unchanged, reference, files),
            table_types={n: each for n, each in self._table_types.items() if n in fields},
            meaning=dict if meaning is None else partial(meaning, list(columns)),
        )
        self._facts = with_facts(self._facts, table_index=self._index())

    def _index(self) -> ColumnsSource | None:
        """Return the columns that are the index of the table, if there are any."""
        if not self._table_index:
            return None
        return self._with(self._table_index, {}, _index_of, (self._table_types, {}))

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self._reopen is None:
            return super().__reduce_ex__(protocol)
        return reopened, (self._reopen, self._schema, self._rows)

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def facts(self) -> SourceFacts:
        return self._facts

    def __len__(self) -> int:
        return self._rows

    @guarded
    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        self._check_size()
        stop = min(stop, self._rows)
        start = min(start, stop)
        for column in self._columns.values() if self._chunk_bytes else ():
            column.keep(None if limit is None else max(1, _KEPT * limit // self._chunk_bytes))
        if limit is not None and start < stop:
            span = slice(start, stop)
            sizes = added_up(column.sizes(span, limit) for column in self._columns.values())
            stop = start + (1 if sizes is None else fitting(sizes, stop - start, limit))
        with self._fetched(range(start, stop)):
            if self._unchecked:
                self._unchecked.check_ahead()
                if limit is not None or (stop - start) * self.row_bytes() <= _MOST_CHECKED:
                    self._unchecked.check_span(start, stop, in_order=limit is not None)
            read = {name: column.read(start, stop) for name, column in self._columns.items()}
        return self._typed(read, range(start, stop)) if self._strings else read

    @guarded
    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        self._check_size()
        with self._fetched(rows):
            self._unchecked.check_ahead()
            read = {name: column.gather(rows) for name, column in self._columns.items()}
        return self._typed(read, rows) if self._strings else read

    def places(self, name: str, rows: npt.NDArray[np.int64]) -> RowPlaces | None:
        self._check_size()
        self._unchecked.check_ahead()
        return None if name in self._strings else self._columns[name].places(rows)

    def joined(self, sources: Sequence[Source]) -> Source | None:
        names = [name for name, column in self._columns.items() if column.joins]
        if not names:
            return None
        columns: dict[str, list[ColumnReader]] = {name: [] for name in names}
        files: list[str] = []
        for source in sources:
            if not isinstance(source, ColumnsSource) or not source.is_mapped:
                return None
            files += source.facts.files
            for name, alike in columns.items():
                alike.append(source.readers[name])
        found = {name: self._columns[name].joined(alike) for name, alike in columns.items()}
        together = {name: column for name, column in found.items() if column is not None}
        strings = {name: field for name, field in self._strings.items() if name in together}
        return ColumnsSource(self._facts.format, files, together, strings=strings)

    @property
    def readers(self) -> Mapping[str, ColumnReader]:
        """The columns, by name."""
        return self._columns

    @property
    def is_mapped(self) -> bool:
        """Whether columns are read from one file, all of which is mapped."""
        return self._mapped is not None and self._mapped.current().whole

    def _typed(self, batch: Batch, rows: RowNumbers) -> Batch:
        """Make strings the text or the bytes that their fields say they are."""
        file = "".join(self._facts.files[:1])
        for name, field in self._strings.items():
            column = batch[name]
            assert isinstance(column, Ragged)
            batch[name] = stored_strings(file, name, field, column, rows)
        return batch

    def _fetched(self, rows: RowNumbers) -> AbstractContextManager[object]:
        """Fetch the rows of all columns of an object at once, inside a context."""
        if self._mapped is None or self._mapped.whole:
            return _NOTHING
        if len(self._columns) < 2 and not self._unchecked:
            return _NOTHING
        fetching = self.fetch_ahead(rows)
        return _NOTHING if fetching is None else closing(fetching)

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        if not self._facts.remote:
            return None
        return fetching_all(column.fetch_ahead(rows) for column in self._columns.values())

    def column(self, name: str) -> Column | None:
        self._check_size()
        self._unchecked.check_ahead()
        return self._columns[name].view()

    def _check_size(self) -> None:
        """Raise if the file has become shorter."""
        if self._mapped is not None:
            self._mapped.check_size()

    @guarded
    def row_sizes(self, rows: npt.NDArray[np.int64]) -> RowSizes | None:
        self._check_size()
        return added_up(column.sizes(rows, _NO_LIMIT) for column in self._columns.values())

    def select(self, names: Sequence[str]) -> ColumnsSource:
        chosen = {name: self._columns[name] for name in self._schema.select(names)}
        strings = {name: field for name, field in self._strings.items() if name in chosen}
        return self._with(chosen, strings, partial(_selected, list(chosen)))

    def with_string_types(self, fields: Mapping[str, Field]) -> ColumnsSource:
        """Return a source whose columns in ``fields`` are text or bytes, as these say."""
        strings = {**self._strings, **fields}
        return self._with(self._columns, strings, partial(_retyped, dict(fields)))

    def _with(
        self,
        columns: Mapping[str, ColumnReader],
        strings: Mapping[str, Field],
        change: Callable[[Callable[[], ColumnsSource]], ColumnsSource],
        table: tuple[Mapping[str, TableType], Mapping[str, ColumnReader]] | None = None,
    ) -> ColumnsSource:
        """Return the same source with other columns; ``change`` makes that change again."""
        reopen = self._reopen and partial(change, self._reopen)
        reference = self._reference and partial(change, self._reference)
        return ColumnsSource(
            self._facts.format,
            self._facts.files,
            columns,
            self._facts.origin,
            reopen,
            self._mapped,
            reference,
            self._sums,
            strings,
            (self._table_types, self._table_index) if table is None else table,
            self._notes,
            self._meaning,
        )

    def row_bytes(self) -> int:
        return max(1, sum(column.row_bytes() for column in self._columns.values()))

    def info(self) -> Info:
        told = {n: (self._notes.get(n, ""), column.note) for n, column in self._columns.items()}
        files = self._facts.files
        return Info(
            format=self._facts.format,
            files=files,
            size=sum(located(file).size_below() for file in files),
            rows=self._rows,
            schema=self._schema,
            origin=self._facts.origin,
            mapped=[n for n, c in self._columns.items() if c.view() is not None and files],
            notes={n: "; ".join(filter(None, each)) for n, each in told.items() if any(each)},
        )


# Facts of a source that outlive it do not keep it.


def _largest_row(
    columns: Mapping[str, ColumnReader],
    rows: int,
    mapped: MappedFile | None,
    files: tuple[str, ...],
    above: int,
) -> tuple[int, int] | None:
    def sizes(which: Which) -> RowSizes | None:
        return added_up(column.sizes(which, _NO_LIMIT) for column in columns.values())

    with Guard(files):
        if mapped is not None:
            mapped.check_size()
        if sizes(np.empty(0, np.int64)) is None:
            return None
        return largest(lambda start, stop: sizes(slice(start, stop)), rows, above)


def _unchanged(open_reference: Callable[[], ColumnsSource], files: Sequence[str]) -> ColumnsSource:
    source = open_reference()
    check_all_unchanged(files)  # the library opens them by their names
    return source


def with_string_types(source: Source, fields: Mapping[str, Field]) -> Source:
    """Return a source whose columns in ``fields`` are text or bytes, as these say."""
    if isinstance(source, ColumnsSource):  # text that is read as bytes is not checked
        return source.with_string_types(fields)
    file = source.facts.files[0] if len(source.facts.files) == 1 else ""
    maps = {name: ColumnMap(name, field) for name, field in source.schema.items()}
    for name, field in fields.items():
        maps[name] = ColumnMap(name, field, partial(stored_strings, file, name, field))
    return MappedColumns(source, maps)


def _index_of(reopen: Callable[[], ColumnsSource]) -> ColumnsSource:
    index = reopen().facts.table_index
    if not isinstance(index, ColumnsSource):
        raise DataError("the index of the table is no longer there; open the file again")
    return index


def _selected(names: Sequence[str], reopen: Callable[[], ColumnsSource]) -> ColumnsSource:
    return reopen().select(names)


def _retyped(fields: Mapping[str, Field], reopen: Callable[[], ColumnsSource]) -> ColumnsSource:
    return reopen().with_string_types(fields)


def reopened(reopen: Callable[[], _S], schema: Schema, rows: int) -> _S:
    """Open a file again, which must have the same schema and number of rows as before."""
    source = reopen()
    refuse_changed(source, schema, rows)
    return source


def refuse_changed(source: Source, schema: Schema, rows: int) -> None:
    """Raise if a file that was opened again has another schema or number of rows than before."""
    if (source.schema, len(source)) != (schema, rows):
        file = "".join(source.facts.files[:1])
        raise DataError(
            f"{file}: it has {len(source):,} rows of {source.schema}, but had {rows:,} of {schema} "
            "when it was opened; open it again",
            file=file,
        )


def choose_columns(
    path: str,
    found: Mapping[str, ColumnReader],
    refused: Mapping[str, str],
    names: Sequence[str] | None,
    whats: Mapping[str, str] | None = None,
) -> dict[str, ColumnReader]:
    """Return the requested columns, or those with the most common length.

    A warning names the arrays that are left out. ``refused`` says why an array cannot be a
    column at all, and ``whats`` what it is instead.
    """
    kinds = whats or {}
    found = with_nulls(found)
    if names is not None:
        chosen: dict[str, ColumnReader] = {}
        for name in names:
            chosen |= _asked(path, name, found, refused, kinds)
        return chosen
    if not found:
        why = "; ".join(f"{name!r} {reason}" for name, reason in refused.items())
        raise DataError(
            f"{path}: no arrays with rows ({why or 'it is empty'})",
            file=path,
            left_out={name: LeftOut(why, kinds.get(name, "")) for name, why in refused.items()},
        )
    rows = common_length(len(column) for column in found.values())
    left = [f"{n!r} has {len(c):,} rows" for n, c in found.items() if len(c) != rows]
    left += [f"{name!r} {reason}" for name, reason in refused.items()]
    if left:
        others = {
            name: LeftOut(f"has {len(column):,} rows, not {rows:,}", str(column.field))
            for name, column in found.items()
            if len(column) != rows
        }
        others |= {name: LeftOut(why, kinds.get(name, "")) for name, why in refused.items()}
        told = f"{path}: left out, alongside columns of {rows:,} rows: {listed(left)}"
        warn_of_left_out(told, others)
    return {name: column for name, column in found.items() if len(column) == rows}


def common_length(lengths: Iterable[int]) -> int:
    """Return the most common length; if several are equally common, the largest of them.

    Lengths of 0 and 1 count only if there are no others.
    """
    counts = Counter(lengths)
    return max(counts, key=lambda length: (length > 1, counts[length], length))


def _asked(
    path: str,
    name: str,
    found: Mapping[str, ColumnReader],
    refused: Mapping[str, str],
    whats: Mapping[str, str],
) -> dict[str, ColumnReader]:
    """Return the column of a name, or those that match a pattern."""
    if name in refused:
        raise DataError(f"{path}: {name!r} {refused[name]}", file=path, field=name)
    if name in found:
        return {name: found[name]}
    alike = matching(name, found) if is_pattern(name) else []
    if not alike:
        raise FieldNotFoundError(f"{path}: {no_column(name, found)}")
    others = {each: refused[each] for each in matching(name, refused)}
    return choose_columns(path, {each: found[each] for each in alike}, others, None, whats)


def warn_of_left_out(told: str, left_out: Mapping[str, LeftOut] | None = None) -> None:
    """Warn of columns that are left out because nobody chose any; ``left_out`` has the reasons."""
    text = Message(f"{told} (", Option("fields", [...]), " chooses columns)")
    warn(LeftOutWarning(text, left_out))
