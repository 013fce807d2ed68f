"""Datasets with too many files to keep them all open."""

from __future__ import annotations

import resource
import weakref
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from recmap.formats.column_source import refuse_changed
from recmap.machine.lru import Lru
from recmap.model.batch import RowNumbers
from recmap.model.facts import LargestChunk, SourceFacts, with_facts
from recmap.model.fetching import Fetching
from recmap.model.info import Info
from recmap.model.ragged import Column, owned
from recmap.model.row_sizes import RowSizes
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source, reference
from recmap.model.value_test import ValueRange
from recmap.store.mapped_files import fetch_whole

_MAX_OPEN = 64
# A process keeps one file open per this many file descriptors it may use: HDF5 takes two per
# file, and the rest of the program needs some too.
_DESCRIPTORS = 4
# How many datasets may have files with descriptors open at the same time.
_DATASETS = 8
# A small object is fetched whole if that is at most this many times what its columns take.
_WASTE = 2


def max_open_files(descriptors: int = 0) -> int:
    """Return how many files one dataset may keep open without being lazy.

    ``descriptors`` is how many file descriptors an open file of the format takes.
    """
    return max(1, _max_kept() // _DATASETS) if descriptors else _MAX_OPEN


def _max_kept() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    unlimited = limit == resource.RLIM_INFINITY
    return _MAX_OPEN if unlimited else max(1, min(_MAX_OPEN, limit // _DESCRIPTORS))


class OpenFiles:
    """The open files of a dataset.

    All datasets of the process share one limit, and the least recently used file is closed
    first.
    """

    def __init__(self) -> None:
        self._number = next(_numbers)
        weakref.finalize(self, _forget, self._number).atexit = False

    def __reduce__(self) -> tuple[Any, ...]:
        return OpenFiles, ()  # another process opens its own files

    def get(self, path: str) -> Source | None:
        return _kept.get((self._number, path))

    def keep(self, path: str, source: Source) -> None:
        _kept.put((self._number, path), source, _max_kept())


_numbers = count()
_kept = Lru[tuple[int, str], Source](_MAX_OPEN)


def _forget(number: int) -> None:
    for key in _kept:
        if key[0] == number:
            _kept.pop(key)


class _ColumnCost(NamedTuple):
    """What must be known about a column while its file is closed."""

    row_bytes: int = 1
    chunk_rows: int = 1
    stored_in_order: bool = False


def _cost(column: Source) -> _ColumnCost:
    facts = column.facts
    return _ColumnCost(column.row_bytes(), facts.chunk_rows(), facts.stored_in_order)


class LazySource(Source):
    """One of many files, opened when its rows are read and possibly closed afterwards."""

    def __init__(
        self, source: Source, reopen: Callable[[Schema], Source], open_files: OpenFiles
    ) -> None:
        """``source`` provides what must be known while the file is closed. ``reopen`` opens the
        file again, given the schema of its columns.
        """
        facts = source.facts
        self._schema, self._rows = source.schema, len(source)
        self._facts = SourceFacts(
            facts.format,
            facts.files,
            facts.origin,
            remote=facts.remote,
            table_types=facts.table_types,
            alternatives=facts.alternatives,
            meaning=facts.meaning,
        )
        self._knows_sizes = source.row_sizes(np.empty(0, np.int64)) is not None
        self._knows_ranges = any(source.value_ranges(n) is not None for n in source.schema)
        self._costs = {name: _cost(source.select([name])) for name in source.schema}
        self._reopen, self._open_files = reopen, open_files
        self._whole = source.schema
        self._as_reference = False
        self._was_read = False

    def _open(self) -> Source:
        source = self._open_files.get(self._key)
        if source is None:
            source = self._reopen(self._whole)
            source = reference(source) if self._as_reference else source
            refuse_changed(source, self._whole, self._rows)
            if self._was_read:
                for checksums in source.facts.checksums:
                    checksums.trust()
            self._open_files.keep(self._key, source)
        return self._selected(source)

    def _opened(self) -> Source | None:
        """Return the file if it is open."""
        source = self._open_files.get(self._key)
        return None if source is None else self._selected(source)

    @property
    def _key(self) -> str:
        path = self._facts.files[0]
        return f"{path}\0" if self._as_reference else path

    def _selected(self, source: Source) -> Source:
        return source if self._schema is self._whole else source.select(list(self._schema))

    def select(self, names: Sequence[str]) -> LazySource:
        chosen = copy(self)
        chosen._schema = self._schema.select(names)  # noqa: SLF001  # a copy of this one
        return chosen

    def _reference(self) -> LazySource:
        other = copy(self)
        other._as_reference = True  # noqa: SLF001  # a copy of this one
        return other

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def facts(self) -> SourceFacts:
        # The largest column stands for all, as in ColumnsSource.
        heaviest = max(self._chosen(), key=lambda cost: cost.row_bytes, default=_ColumnCost())
        return with_facts(
            self._facts,
            chunk_rows=partial(int, heaviest.chunk_rows),
            largest_chunk=self._largest_chunk,
            stored_in_order=heaviest.stored_in_order,
            checksums=[self],
            largest_row=self._largest_row,
            reference=self._reference,
        )

    def _largest_chunk(self) -> LargestChunk:
        return self._open().facts.largest_chunk()

    def _chosen(self) -> list[_ColumnCost]:
        return [self._costs[name] for name in self._schema]

    def __len__(self) -> int:
        return self._rows

    def row_bytes(self) -> int:
        return max(1, sum(cost.row_bytes for cost in self._chosen()))

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        batch = self._open().read(start, stop, limit)
        self._was_read = True
        # Copy the columns, because a view would keep the file open.
        return {name: owned(column) for name, column in batch.items()}

    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        batch = self._open().gather(rows)
        self._was_read = True
        return batch

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        remote = self._facts.remote
        source = self._opened() if remote else None
        if source is not None:
            return source.fetch_ahead(rows)
        # Opening the file would take requests, and close another one.
        begins = remote and isinstance(rows, range) and rows.start == 0
        return fetch_whole(self._facts.files[0]) if begins and self._reads_most else None

    @property
    def _reads_most(self) -> bool:
        """Whether the columns take most of the file."""
        every = sum(cost.row_bytes for cost in self._costs.values())
        return _WASTE * self.row_bytes() >= every

    def row_sizes(self, rows: npt.NDArray[np.int64]) -> RowSizes | None:
        return self._open().row_sizes(rows) if self._knows_sizes else None

    def _largest_row(self, above: int) -> tuple[int, int] | None:
        return self._open().facts.largest_row(above) if self._knows_sizes else None

    def column(self, name: str) -> Column | None:
        return self._open().column(name)

    def value_ranges(self, name: str) -> Sequence[ValueRange] | None:
        return self._open().value_ranges(name) if self._knows_ranges else None

    def check(self) -> None:
        """Verify the checksums of the file."""
        for checksums in self._open().facts.checksums:
            checksums.check()

    def trust(self) -> None:
        """Skip the checks before the first read."""
        self._was_read = True

    def info(self) -> Info:
        return self._open().info()
