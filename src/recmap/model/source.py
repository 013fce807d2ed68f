"""Source: reads rows. Every format that recmap reads has one.

A new source defines four members (``schema``, ``len()``, ``read``, ``gather``) and inherits
the rest. Optional capabilities are methods that return None, or properties that are empty,
unless a source overrides them: ask the object, never check its class.

``WrappedSource`` forwards everything to another source. Its subclasses keep every fast path
and define only what they change.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Literal, Self, TypeAlias

import numpy.typing as npt

from recmap.model.batch import (
    Allocate,
    PaddedColumn,
    PaddedRows,
    PadSpec,
    RowArray,
    RowNumbers,
    rename,
)
from recmap.model.facts import SourceFacts
from recmap.model.fetching import Coming, Fetching
from recmap.model.info import Info
from recmap.model.row_sizes import RowSizes, measure
from recmap.model.schema import Batch, Schema

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

    def row_bytes(self) -> int:
        """Return the approximate size of a row in the file, in bytes; at least 1."""
        return max(1, measure(self.read(0, 1))[1])

    def row_name(self, row: int) -> str:
        """Say which row this is, for error messages: ``row 17 of x.npy``."""
        files = self.facts.files
        more = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
        return f"row {row:,} of {files[0]}{more}" if files else f"row {row:,}"

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

    def column(self, name: str) -> npt.NDArray[Any] | None:
        """Return a whole column as a view of the file, or None if it is not stored as an array."""
        del name
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

    # Other views of the same rows.

    def at_epoch(self, epoch: int) -> Source:
        """Return the rows as they are in an epoch: a shuffle has a new order in each."""
        del epoch  # a file is the same in every epoch
        return self

    def reseeded(self, by: int) -> Source:
        """Return the rows for another branch of a pipeline, with other random numbers."""
        del by  # nothing here is random
        return self

    def select(self, names: Sequence[str]) -> Source:
        """Return a source of these columns, in this order; if possible, the others are not read."""
        return SelectedSource(self, {name: name for name in names})

    def reference(self) -> Source:
        """Return the same rows, read by the format's own library if there is one."""
        return self


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

    def row_bytes(self) -> int:
        return self._source.row_bytes()

    def row_name(self, row: int) -> str:
        return self._source.row_name(row)

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

    def at_epoch(self, epoch: int) -> Source:
        source = self._source.at_epoch(epoch)
        return self if source is self._source else self._over(source)

    def reseeded(self, by: int) -> Source:
        source = self._source.reseeded(by)
        return self if source is self._source else self._over(source)

    def select(self, names: Sequence[str]) -> Source:
        return self._over(self._source.select(names))

    def reference(self) -> Source:
        return self._over(self._source.reference())


class SelectedSource(WrappedSource):
    """Some columns of a source, possibly renamed."""

    def __init__(self, source: Source, names: Mapping[str, str]) -> None:
        """Select and rename columns: ``names`` maps each new name to its name in ``source``."""
        super().__init__(source)
        self._names = dict(names)
        self._schema = Schema({new: source.schema[old] for new, old in names.items()})
        # A column with two names could be padded in two ways, and both would share one array.
        self._distinct = len(set(self._names.values())) == len(self._names)

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def facts(self) -> SourceFacts:
        facts, names = self._source.facts, self._names.items()
        return replace(
            facts,
            owns_rows=self._distinct and facts.owns_rows,
            can_pad=self._distinct and facts.can_pad,
            labels={new: facts.labels[old] for new, old in names if old in facts.labels},
            descriptions={
                new: facts.descriptions[old] for new, old in names if old in facts.descriptions
            },
        )

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        return rename(self._source.read(start, stop, limit), self._names)

    def gather(self, rows: RowArray) -> Batch:
        return rename(self._source.gather(rows), self._names)

    def column(self, name: str) -> npt.NDArray[Any] | None:
        return self._source.column(self._names[name])

    def read_padded(
        self, rows: RowNumbers, pads: Mapping[str, PadSpec], size: int, allocate: Allocate
    ) -> PaddedRows | None:
        there = {self._names[name]: pad for name, pad in pads.items()}
        read = self._source.read_padded(rows, there, size, allocate)
        if read is None:
            return None
        names = self._names.items()
        padded: dict[str, PaddedColumn] = {n: read.padded[o] for n, o in names if o in read.padded}
        return PaddedRows(padded, {n: read.others[o] for n, o in names if o in read.others})

    def select(self, names: Sequence[str]) -> Source:
        chosen = {name: self._names[name] for name in self._schema.select(names)}
        return SelectedSource(self._source.select(list(dict.fromkeys(chosen.values()))), chosen)

    def info(self) -> Info:
        info = super().info()
        notes = {n: info.notes[o] for n, o in self._names.items() if o in info.notes}
        return replace(info, notes=notes)
