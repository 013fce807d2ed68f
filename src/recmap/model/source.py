"""Source: reads rows. Every format that recmap reads has one.

A new source defines four members (``schema``, ``len()``, ``read``, ``gather``) and says in
``facts`` what it knows about its rows. Optional capabilities are methods that return None unless
a source overrides them: ask the object, never check its class.

``WrappedSource`` forwards everything to another source. Its subclasses keep every fast path
and define only what they change. ``MappedColumns`` is the one for columns: it selects, renames and
converts them.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Self, TypeAlias

import numpy as np

from recmap.model.batch import (
    Allocate,
    PaddedColumn,
    PaddedRows,
    PadSpec,
    RowArray,
    RowNumbers,
)
from recmap.model.facts import SourceFacts, with_facts
from recmap.model.fetching import Coming, Fetching
from recmap.model.field import Field
from recmap.model.info import Info
from recmap.model.ragged import Column
from recmap.model.row_places import RowPlaces
from recmap.model.row_sizes import RowSizes, fitting, measure
from recmap.model.schema import Batch, Schema
from recmap.model.value_test import ValueRange

# What to do with bad records.
Errors: TypeAlias = Literal["raise", "skip"]


class Source(ABC):
    """Reads rows, by span or by number."""

    @property
    @abstractmethod
    def schema(self) -> Schema: ...

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        """Return rows ``start`` to ``stop``, or fewer if the source ends before.

        With ``limit``, return at least one row, and no more than fit into ``limit`` bytes of
        memory; if not even one fits, raise MemoryLimitError. Columns may be views of the file
        and must not be written to.
        """

    @abstractmethod
    def gather(self, rows: RowArray) -> Batch:
        """Return the rows with these numbers, in this order."""

    @property
    def facts(self) -> SourceFacts:
        """What is known about the rows: the files, the order, how they are stored."""
        return SourceFacts()

    # What a source may know better.

    def known_rows(self) -> int | None:
        """Return the number of rows, or None if they would have to be counted first."""
        return len(self)

    def up_to(self, stop: int) -> int:
        """Return ``stop``, or the number of rows if there are fewer; count no more than needed."""
        counted = self.known_rows() is not None
        if not counted and stop and measure(self.read(stop - 1, stop))[0]:
            return stop
        return min(stop, len(self))

    def row_bytes(self) -> int:
        """Return the approximate size of a row in the file, in bytes; at least 1."""
        return max(1, measure(self.read(0, 1))[1])

    def info(self) -> Info:
        """Count the rows, and collect the other facts about the files."""
        facts = self.facts
        return Info(
            format=facts.format,
            files=list(facts.files),
            size=sum(os.path.getsize(file) for file in facts.files if os.path.isfile(file)),
            rows=len(self),
            schema=self.schema,
            origin=facts.origin,
            mapped=[name for name in self.schema if self.column(name) is not None],
            compression=sorted(set(facts.compressed_files.values())),
        )

    # What only some sources can do.

    def column(self, name: str) -> Column | None:
        """Return a whole column as a view of the file, or None if it is not stored as arrays.

        The offsets of a ragged column have not been checked.
        """
        del name
        return None

    def places(self, name: str, rows: RowArray) -> RowPlaces | None:
        """Return where rows of a column lie, or None if they are not stored as arrays.

        Those of several sources are copied at once.
        """
        del name, rows
        return None

    def joined(self, sources: Sequence[Source]) -> Source | None:
        """Return the rows of several sources, this one among them, as one source.

        It has those columns that it gathers faster than one source after another. Return None if
        there are none, or not yet.
        """
        del sources
        return None

    def read_padded(
        self, rows: RowNumbers, pads: Mapping[str, PadSpec], size: int, allocate: Allocate
    ) -> PaddedRows | None:
        """Return rows by number, padding the columns of ``pads`` while they are decoded.

        Each padded column is a list of arrays of ``size`` rows. ``allocate`` allocates all
        columns whose rows differ in size, padded or not, with their offsets.
        Return None if these rows have to be read first and padded afterwards.
        """
        del rows, pads, size, allocate
        return None

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        """Begin to fetch rows that are going to be read (a range) or gathered (an array).

        Return at once. Return None if they are not in a store, or cannot be fetched ahead.
        """
        del rows
        return None

    def coming(self, start: int, stop: int | None = None) -> Iterator[Coming]:
        """Yield the files in a store that are read after the one with row ``start``, in order.

        Those of several files yield the first one, too, if ``start`` is -1. Without ``stop``, all
        rows to the end are read.
        """
        del start, stop
        return iter(())

    def row_sizes(self, rows: RowArray) -> RowSizes | None:
        """Return an upper bound on the size of each row in memory, or None if unknown."""
        del rows
        return None

    def gather_sized(self, rows: RowArray, limit: int) -> Batch | None:
        """Return these rows if they are known to fit into ``limit`` bytes before they are read."""
        sizes = self.row_sizes(rows) if self.facts.sized else None
        if sizes is None or int(np.broadcast_to(sizes, len(rows)).sum()) > limit:
            return None
        return self.gather(rows)

    def value_ranges(self, name: str) -> Sequence[ValueRange] | None:
        """Return the ranges of the values of a column, for consecutive rows up to the last one.

        They say where no row can have a value, so that it is not read. Return None if unknown.
        """
        del name
        return None

    def select(self, names: Sequence[str]) -> Source:
        """Return a source of these columns, in this order; if possible, the others are not read."""
        return renamed(self, {name: name for name in names})


class VaryingRows(Source):
    """Rows of other sources. They may differ from epoch to epoch; those of files do not."""

    @abstractmethod
    def rebuilt(self, change: Callable[[Source], Source]) -> Source:
        """Return the same rows of what ``change`` makes of the other sources."""

    def at_epoch(self, epoch: int) -> Source:
        """Return the rows as they are in an epoch: a shuffle has a new order in each."""
        return self.rebuilt(lambda source: at_epoch(source, epoch))

    def reseeded(self, by: int) -> Source:
        """Return the rows for another branch of a pipeline, with other random numbers."""
        return self.rebuilt(lambda source: reseeded(source, by))

    @abstractmethod
    def row_name(self, row: int) -> str:
        """Say which row this is, for error messages: ``row 17 of x.npy``."""

    def prepare(self) -> None:
        """Compute now what would be computed when a row is first read.

        Otherwise each of several processes computes it.
        """

    def uncopied(self) -> Source:
        """Return the same rows for a conversion: what is read may be a view of a file."""
        return self

    def stored_rows(self, rows: RowArray) -> tuple[Source, RowArray]:
        """Return the source that these rows are taken from, and their numbers there.

        Only sources that change nothing but the order of rows pass others on.
        """
        return self, rows


def at_epoch(source: Source, epoch: int) -> Source:
    """Return the rows of a source as they are in an epoch."""
    return source.at_epoch(epoch) if isinstance(source, VaryingRows) else source


def reseeded(source: Source, by: int) -> Source:
    """Return the rows of a source for another branch of a pipeline."""
    return source.reseeded(by) if isinstance(source, VaryingRows) else source


def prepare(source: Source) -> None:
    """Compute now what would be computed when a row is first read."""
    if isinstance(source, VaryingRows):
        source.prepare()


def uncopied(source: Source) -> Source:
    """Return the rows of a source for a conversion, which does not change what it reads."""
    return source.uncopied() if isinstance(source, VaryingRows) else source


def stored_rows(source: Source, rows: RowArray) -> tuple[Source, RowArray]:
    """Return the source that rows of this one are taken from, and their numbers there."""
    return source.stored_rows(rows) if isinstance(source, VaryingRows) else (source, rows)


def reference(source: Source) -> Source:
    """Return the same rows, read by the format's own library if there is one."""
    if isinstance(source, VaryingRows):
        return source.rebuilt(reference)
    opened: Source = source if (other := source.facts.reference) is None else other()
    return opened


def row_name(source: Source, row: int) -> str:
    """Say which row this is, for error messages."""
    return source.row_name(row) if isinstance(source, VaryingRows) else source.facts.row_name(row)


def gather_within(source: Source, rows: RowArray, limit: int | None) -> Batch:
    """Return the first of these rows, as many as fit into ``limit`` bytes."""
    if limit is not None and len(rows):
        sizes = source.row_sizes(rows)
        rows = rows[: 1 if sizes is None else fitting(sizes, len(rows), limit)]
    return source.gather(rows)


def gather_span(source: Source, start: int, stop: int, limit: int | None) -> Batch:
    """Read a span of a source by the numbers of its rows."""
    stop = stop if source.facts.endless else min(stop, len(source))
    return gather_within(source, np.arange(start, max(start, stop), dtype=np.int64), limit)


class WrappedSource(VaryingRows):
    """A source that forwards to another one, except for what a subclass overrides.

    A subclass that changes names or values overrides ``schema``, ``read``, ``gather``, ``column``
    and ``read_padded``. One that changes the set of rows overrides all that takes or counts rows.
    """

    #: Whether these are all rows of the other source, in its order.
    keeps_rows = False

    def __init__(self, source: Source) -> None:
        self._source = source

    def _over(self, source: Source) -> Self:
        """Return the same wrapper around another source."""
        other = copy(self)
        other._source = source  # noqa: SLF001  # a copy of this one
        return other

    @property
    def schema(self) -> Schema:
        return self._source.schema

    def __len__(self) -> int:
        return len(self._source)

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        return self._source.read(start, stop, limit)

    def gather(self, rows: RowArray) -> Batch:
        return self._source.gather(rows)

    @property
    def facts(self) -> SourceFacts:
        return self._source.facts

    def known_rows(self) -> int | None:
        return self._source.known_rows()

    def up_to(self, stop: int) -> int:
        return self._source.up_to(stop) if self.keeps_rows else min(stop, len(self))

    def row_bytes(self) -> int:
        return self._source.row_bytes()

    def row_name(self, row: int) -> str:
        return row_name(self._source, row)

    def info(self) -> Info:
        return replace(
            self._source.info(),
            rows=len(self),
            schema=self.schema,
            mapped=[name for name in self.schema if self.column(name) is not None],
        )

    def column(self, name: str) -> Column | None:
        return self._source.column(name)

    def read_padded(
        self, rows: RowNumbers, pads: Mapping[str, PadSpec], size: int, allocate: Allocate
    ) -> PaddedRows | None:
        return self._source.read_padded(rows, pads, size, allocate)

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        return self._source.fetch_ahead(rows)

    def coming(self, start: int, stop: int | None = None) -> Iterator[Coming]:
        return self._source.coming(start, stop)

    def row_sizes(self, rows: RowArray) -> RowSizes | None:
        return self._source.row_sizes(rows)

    def rebuilt(self, change: Callable[[Source], Source]) -> Source:
        source = change(self._source)
        return self if source is self._source else self._over(source)

    def prepare(self) -> None:
        prepare(self._source)

    def uncopied(self) -> Source:
        return self.rebuilt(uncopied)

    def select(self, names: Sequence[str]) -> Source:
        return self._over(self._source.select(names))


class WithFacts(WrappedSource):
    """The rows of a source, of which other ``facts`` are known."""

    keeps_rows = True

    def __init__(self, source: Source, **facts: Any) -> None:
        super().__init__(source)
        self._known = facts

    @property
    def facts(self) -> SourceFacts:
        return with_facts(super().facts, **self._known)


@dataclass(frozen=True)
class ColumnMap:
    """A column of ``MappedColumns``: a ``column`` of the source, which may be converted.

    ``convert`` takes the values and the numbers of their rows, for errors; None leaves the values
    as they are. Converted values take at most ``growth`` times as much memory. If ``convert``
    works on every number by itself, rows may be padded before: ``fill_before`` returns the bytes
    of the number that becomes a fill value, or None if there is none.
    """

    column: str
    field: Field
    convert: Callable[[Any, RowNumbers], Column] | None = None
    growth: int = 1
    fill_before: Callable[[bytes], bytes | None] | None = None


def renamed(source: Source, names: Mapping[str, str]) -> MappedColumns:
    """Select and rename columns: ``names`` maps each new name to the one in ``source``."""
    return MappedColumns(
        source, {n: ColumnMap(old, source.schema[old]) for n, old in names.items()}
    )


class MappedColumns(WrappedSource):
    """Columns of a source: some of them, renamed, or converted when they are read.

    Columns that are not converted keep every fast path.
    """

    keeps_rows = True

    def __init__(self, source: Source, maps: Mapping[str, ColumnMap]) -> None:
        super().__init__(source)
        self._maps = dict(maps)
        self._schema = Schema({name: each.field for name, each in maps.items()})
        self._names = {name: each.column for name, each in maps.items()}
        self._conversions = {
            n: each.convert for n, each in maps.items() if each.convert is not None
        }
        # A column with two names could be padded in two ways, and both would share one array.
        self._distinct = len(set(self._names.values())) == len(self._names)
        taken = Counter[str]()
        for each in maps.values():
            taken[each.column] += each.growth
        # By how much a row may grow. Names without a conversion share the memory of the column.
        self._growth = max([1, *(taken[self._names[name]] for name in self._conversions)])

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def facts(self) -> SourceFacts:
        facts = self._source.facts
        return with_facts(
            facts,
            owns_rows=self._distinct and facts.owns_rows,
            can_pad=self._distinct and facts.can_pad,
            labels=self._by_new_name(facts.labels),
            descriptions=self._by_new_name(facts.descriptions),
            table_types=self._by_new_name(facts.table_types),
            largest_row=partial(_grown, facts.largest_row, self._growth),
        )

    def _by_new_name(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is told of the columns of the source, for those here."""
        return {new: told[old] for new, old in self._names.items() if old in told}

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        room = None if limit is None else limit // self._growth
        return self._mapped(self._source.read(start, stop, room), range(start, stop))

    def gather(self, rows: RowArray) -> Batch:
        return self._mapped(self._source.gather(rows), rows)

    def _mapped(self, batch: Batch, rows: RowNumbers) -> Batch:
        mapped = self._by_new_name(batch)
        for name, convert in self._conversions.items():
            if name in mapped:  # others were padded
                mapped[name] = convert(mapped[name], rows)
        return mapped

    def column(self, name: str) -> Column | None:
        return None if name in self._conversions else self._source.column(self._names[name])

    def value_ranges(self, name: str) -> Sequence[ValueRange] | None:
        return None if name in self._conversions else self._source.value_ranges(self._names[name])

    def read_padded(
        self, rows: RowNumbers, pads: Mapping[str, PadSpec], size: int, allocate: Allocate
    ) -> PaddedRows | None:
        there: dict[str, PadSpec] = {}
        for name, pad in pads.items():
            fill = self._fill_before(name, pad.fill)
            if fill is None:
                return None
            there[self._names[name]] = pad._replace(fill=fill)
        read = self._source.read_padded(rows, there, size, allocate)
        if read is None:
            return None
        padded: dict[str, PaddedColumn] = self._by_new_name(read.padded)
        for name in padded.keys() & self._conversions.keys():
            arrays, lengths = padded[name]
            converted: list[Any] = [self._conversions[name](array, rows) for array in arrays]
            padded[name] = PaddedColumn(converted, lengths)
        return PaddedRows(padded, self._mapped(read.others, rows))

    def _fill_before(self, name: str, fill: bytes) -> bytes | None:
        if name not in self._conversions:
            return fill
        before = self._maps[name].fill_before
        return None if before is None else before(fill)

    def row_sizes(self, rows: RowArray) -> RowSizes | None:
        sizes = self._source.row_sizes(rows)
        return None if sizes is None else sizes * self._growth

    def select(self, names: Sequence[str]) -> Source:
        chosen = {name: self._maps[name] for name in self._schema.select(names)}
        source = self._source.select(list(dict.fromkeys(each.column for each in chosen.values())))
        plain = all(n == each.column and each.convert is None for n, each in chosen.items())
        return source if plain else MappedColumns(source, chosen)

    def info(self) -> Info:
        info = super().info()
        return replace(info, notes=self._by_new_name(info.notes))


def _grown(
    largest: Callable[[int], tuple[int, int] | None], growth: int, above: int
) -> tuple[int, int] | None:
    found = largest(above // growth)
    return None if found is None else (found[0], found[1] * growth)
