"""Source: reads rows. Every format that recmap reads has one.

A new source defines four members (``schema``, ``len()``, ``read``, ``gather``) and inherits
the rest. Optional capabilities are methods that return None, or properties that are empty,
unless a source overrides them: ask the object, never check its class.

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
from typing import Any, Literal, Protocol, Self, TypeAlias

import numpy.typing as npt

from recmap.model.batch import (
    Allocate,
    PaddedColumn,
    PaddedRows,
    PadSpec,
    RowArray,
    RowNumbers,
)
from recmap.model.fetching import Coming, Fetching
from recmap.model.field import Field
from recmap.model.info import Info
from recmap.model.ragged import Column
from recmap.model.row_sizes import RowSizes, measure
from recmap.model.schema import Batch, Schema

# What to do with bad records.
Errors: TypeAlias = Literal["raise", "skip"]


@dataclass(frozen=True)
class Skipped:
    """A record that was left out. If ``inflated``, ``byte`` is a place in the inflated data."""

    file: str
    record: int
    byte: int
    reason: str
    inflated: bool = False

    def __str__(self) -> str:
        inflated = " of the inflated data" if self.inflated else ""
        place = f"record {self.record:,} at byte {self.byte:,}{inflated}"
        return f"{self.file}: {place}: {self.reason}"


class RowReader(Protocol):
    """Anything that reads a span of rows."""

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch: ...


class Partition(Protocol):
    """Files for one cluster task to read. It is small, is pickled, and the task opens it."""

    @property
    def files(self) -> list[str]: ...

    @property
    def rows(self) -> int | None:
        """The number of rows; None if it is unknown until they are read."""
        ...

    @property
    def unit(self) -> int:
        """The number of rows that it is best to read together."""
        ...

    def part(self, start: int, stop: int) -> Partition:
        """Return a partition for a task that reads only this span of rows."""
        ...

    def open(self, columns: Sequence[str]) -> RowReader: ...


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

    # Facts about the rows.

    @property
    def format(self) -> str:
        """The format, as ``info()`` shows it."""
        return "rows"

    @property
    def files(self) -> list[str]:
        """The files, in the order of their rows."""
        return []

    @property
    def origin(self) -> str:
        """Where the schema comes from, in words."""
        return "from the file"

    @property
    def skipped(self) -> Sequence[Skipped]:
        """The records that ``errors="skip"`` left out."""
        return ()

    @property
    def chunk_rows(self) -> int:
        """The number of rows that are decoded together; 1 if any row can be read alone."""
        return 1

    @property
    def chunk_bytes(self) -> int:
        """The bytes that must be decoded to read any row, such as whole chunks."""
        return 0

    @property
    def chunk_place(self) -> str:
        """Where the chunks of ``chunk_bytes`` are, for messages; empty if they are everywhere."""
        return ""

    @property
    def stored_in_order(self) -> bool:
        """Whether rows are stored so that they are fast to read only in order.

        Unlike ``chunk_rows``, this is the same wherever the files are: orders depend on it.
        """
        return self.chunk_rows > 1

    @property
    def in_order(self) -> bool:
        """Whether reading all rows in order reads every row of the files in file order."""
        return True

    @property
    def owns_rows(self) -> bool:
        """Whether every read returns new arrays, which the caller may keep and write to."""
        return False

    @property
    def remote(self) -> bool:
        """Whether rows are fetched from a store. A process that is forked cannot do that."""
        return False

    @property
    def can_pad(self) -> bool:
        """Whether ``read_padded`` is worth trying."""
        return False

    @property
    def compressed_files(self) -> Mapping[str, str]:
        """The compression of each file that can only be read from the beginning."""
        return {}

    @property
    def labels(self) -> Mapping[str, Sequence[str]]:
        """The names of the classes, for columns of class numbers."""
        return {}

    @property
    def descriptions(self) -> Mapping[str, Any]:
        """The descriptions of columns in a TFDS folder, to keep them in another."""
        return {}

    def known_rows(self) -> int | None:
        """Return the number of rows, or None if they would have to be counted first."""
        return len(self)

    def row_bytes(self) -> int:
        """Return the approximate size of a row in the file, in bytes; at least 1."""
        return max(1, measure(self.read(0, 1))[1])

    def info(self) -> Info:
        """Count the rows, and collect the other facts about the files."""
        return Info(
            format=self.format,
            files=list(self.files),
            size=sum(os.path.getsize(file) for file in self.files if os.path.isfile(file)),
            rows=len(self),
            schema=self.schema,
            origin=self.origin,
            mapped=self.mapped_columns(),
            compression=sorted(set(self.compressed_files.values())),
        )

    # What only some sources can do.

    def column(self, name: str) -> npt.NDArray[Any] | None:
        """Return a whole column as a view of the file, or None if it is not stored as an array."""
        del name
        return None

    def mapped_columns(self) -> list[str]:
        """Return the columns that are stored as arrays."""
        return [name for name in self.schema if self.column(name) is not None]

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

        Without ``stop``, all rows to the end are read.
        """
        del start, stop
        return iter(())

    def row_sizes(self, rows: RowArray) -> RowSizes | None:
        """Return an upper bound on the size of each row in memory, or None if unknown."""
        del rows
        return None

    def largest_row(self, above: int) -> tuple[int, int] | None:
        """Return the number and size of the largest row if it takes more than ``above`` bytes.

        Return None if it is smaller, or if finding it would be slow.
        """
        del above
        return None

    def rows_before_damage(self) -> int | None:
        """Return the number of rows before the damage, after ``len()`` has raised DataError; None
        if the damage makes the whole source unreadable.
        """
        return None

    def partitions(self, *, skip: bool) -> list[Partition] | None:
        """Divide the source into units of work for a cluster, or return None if it cannot.

        With ``skip``, tasks leave out bad records.
        """
        del skip
        return None

    def unindexed_files(self) -> Sequence[Any]:
        """Return the record files without an index, which several readers can index at once."""
        return ()

    def features(self) -> Mapping[str, Any] | None:
        """Return the features in a sample of tf.train.Example records; None for other formats."""
        return None

    def check_sums(self) -> None:  # noqa: B027  # nothing to check
        """Verify the checksums that ``gather`` skips, such as those of mapped columns."""

    def trust(self) -> None:  # noqa: B027  # nothing to skip
        """Skip the checks before the first read: they were done when the file was last opened."""

    # Other views of the same rows.

    def select(self, names: Sequence[str]) -> Source:
        """Return a source of these columns, in this order; if possible, the others are not read."""
        return renamed(self, {name: name for name in names})

    def reference(self) -> Source:
        """Return the same rows, read by the format's own library if there is one."""
        return self

    def sequence(self) -> Sequence[Source]:
        """Return the sources that this one concatenates."""
        return [self]


class WrappedSource(Source):
    """A source that forwards to another one, except for what a subclass overrides.

    A subclass that changes names or values overrides ``schema``, ``read``, ``gather``, ``column``
    and ``read_padded``. One that changes the set of rows overrides all that takes or counts rows.
    """

    def __init__(self, source: Source) -> None:
        self._source = source

    def _over(self, source: Source) -> Self:
        """Return the same wrapper around another source."""
        other = copy(self)
        other._source = source  # noqa: SLF001  # a copy of this one
        return other

    @property
    def format(self) -> str:
        return self._source.format

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
    def files(self) -> list[str]:
        return self._source.files

    @property
    def origin(self) -> str:
        return self._source.origin

    @property
    def skipped(self) -> Sequence[Skipped]:
        return self._source.skipped

    @property
    def chunk_rows(self) -> int:
        return self._source.chunk_rows

    @property
    def chunk_bytes(self) -> int:
        return self._source.chunk_bytes

    @property
    def chunk_place(self) -> str:
        return self._source.chunk_place

    @property
    def stored_in_order(self) -> bool:
        return self._source.stored_in_order

    @property
    def in_order(self) -> bool:
        return self._source.in_order

    @property
    def owns_rows(self) -> bool:
        return self._source.owns_rows

    @property
    def remote(self) -> bool:
        return self._source.remote

    @property
    def can_pad(self) -> bool:
        return self._source.can_pad

    @property
    def compressed_files(self) -> Mapping[str, str]:
        return self._source.compressed_files

    @property
    def labels(self) -> Mapping[str, Sequence[str]]:
        return {name: each for name, each in self._source.labels.items() if name in self.schema}

    @property
    def descriptions(self) -> Mapping[str, Any]:
        found = self._source.descriptions
        return {name: each for name, each in found.items() if name in self.schema}

    def known_rows(self) -> int | None:
        return self._source.known_rows()

    def row_bytes(self) -> int:
        return self._source.row_bytes()

    def info(self) -> Info:
        return replace(
            self._source.info(),
            rows=len(self),
            schema=self.schema,
            mapped=[name for name in self.schema if self.column(name) is not None],
        )

    def column(self, name: str) -> npt.NDArray[Any] | None:
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

    def largest_row(self, above: int) -> tuple[int, int] | None:
        return self._source.largest_row(above)

    def rows_before_damage(self) -> int | None:
        return self._source.rows_before_damage()

    def unindexed_files(self) -> Sequence[Any]:
        return self._source.unindexed_files()

    def check_sums(self) -> None:
        self._source.check_sums()

    def trust(self) -> None:
        self._source.trust()

    def select(self, names: Sequence[str]) -> Source:
        return self._over(self._source.select(names))

    def reference(self) -> Source:
        return self._over(self._source.reference())


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
    def labels(self) -> Mapping[str, Sequence[str]]:
        return self._by_new_name(self._source.labels)

    @property
    def descriptions(self) -> Mapping[str, Any]:
        return self._by_new_name(self._source.descriptions)

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

    def column(self, name: str) -> npt.NDArray[Any] | None:
        return None if name in self._conversions else self._source.column(self._names[name])

    @property
    def owns_rows(self) -> bool:
        return self._distinct and self._source.owns_rows

    @property
    def can_pad(self) -> bool:
        return self._distinct and self._source.can_pad

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

    def largest_row(self, above: int) -> tuple[int, int] | None:
        largest = self._source.largest_row(above // self._growth)
        return None if largest is None else (largest[0], largest[1] * self._growth)

    def select(self, names: Sequence[str]) -> Source:
        chosen = {name: self._maps[name] for name in self._schema.select(names)}
        source = self._source.select(list(dict.fromkeys(each.column for each in chosen.values())))
        plain = all(n == each.column and each.convert is None for n, each in chosen.items())
        return source if plain else MappedColumns(source, chosen)

    def info(self) -> Info:
        info = super().info()
        return replace(info, notes=self._by_new_name(info.notes))
