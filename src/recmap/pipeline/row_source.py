"""The rows that a pipeline begins with, and what it asks of any rows.

Rows are sources: a shuffle or a repetition puts those of another source in an ``Order``
(model/order.py). Nothing has to be kept in memory, and a run can resume from any position.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cached_property, partial
from typing import Any

import numpy as np

from recmap.errors import DataError, OptionError, StoreError
from recmap.local.local_path import located
from recmap.machine.mapped import Guard
from recmap.machine.memory import empty
from recmap.model.batch import Allocate, PaddedRows, PadSpec, RowArray, RowNumbers
from recmap.model.facts import Skipped, SourceFacts, with_facts
from recmap.model.fetching import Fetching
from recmap.model.ragged import Column, Ragged, has_mask
from recmap.model.row_sizes import measure
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source, WrappedSource, stored_rows
from recmap.pipeline.signature import data_of
from recmap.store.fetch import FetchCounter
from recmap.store.object_address import store_of

_FEW: ContextVar[bool] = ContextVar("recmap few rows", default=False)

# More bytes than any rows take.
_NO_LIMIT = 1 << 62


@contextmanager
def only_a_few_rows() -> Iterator[None]:
    """Tell sources that only a few rows will be read, so files are not scanned to their end."""
    token = _FEW.set(True)
    try:
        yield
    finally:
        _FEW.reset(token)


class SourceRows(WrappedSource):
    """The rows of a source as a pipeline reads them: into arrays of their own.

    A process that was forked, or that received this by pickle, opens the files again:
    processes must not share the position in an open file. Objects in a store have none, and
    opening them takes requests, so a source of these is pickled with all that is known of it.
    """

    def __init__(
        self,
        source: Source,
        reopen: Callable[[], Source] | None,
        how: Mapping[str, str] | None = None,
    ) -> None:
        facts = source.facts
        if facts.once:
            raise OptionError("these rows can be read only once, in order; save them first")
        super().__init__(source)
        self._reopen = reopen
        #: The options that the files were opened with, as text.
        self.how = dict(how or {})
        self._schema, self._files, self._remote = source.schema, facts.files, facts.remote
        self._owns_rows = facts.owns_rows
        # What can be known without opening the files again.
        self._facts = SourceFacts(
            format=facts.format,
            files=facts.files,
            digest=facts.digest,
            origin=facts.origin,
            stored_in_order=facts.stored_in_order,
            in_order=facts.in_order,
            owns_rows=True,
            remote=facts.remote,
            # What is decoded together is read in order, by one thread.
            can_pad=facts.can_pad and facts.chunk_rows() == 1,
            sized=facts.sized,
            searched=facts.searched,
            open_ended=facts.open_ended,
            labels=facts.labels,
            descriptions=facts.descriptions,
            table_types=facts.table_types,
            table_index=facts.table_index,
            meaning=facts.meaning,
            compressed_files=facts.compressed_files,
        )
        self._counted = _Counted()

    def _reach(self) -> int:
        """Return how many rows may be asked for; they are counted when that is first needed."""
        if self._counted.reach is None:
            self._counted.count(self._source)
        assert self._counted.reach is not None
        return self._counted.reach

    @cached_property
    def _chunk_rows(self) -> int:
        return self._source.facts.chunk_rows()

    @property
    def _source(self) -> Source:
        """The source, opened by this process."""
        if self._process != os.getpid() and self._reopen is not None:
            if self._remote:
                raise _forked(self._files[0])
            self._source = self._same(self._reopen())
            known = self._counted.reach is not None
            if known and self._chunk_rows == 1 and not _FEW.get():
                with suppress(DataError):
                    len(self._opened)  # finding rows is faster once all are indexed
        return self._opened

    @_source.setter
    def _source(self, source: Source) -> None:
        self._opened, self._process = source, os.getpid()

    def _same(self, source: Source) -> Source:
        """Return a source that was opened again; raise if its rows have changed."""
        rows, before = source.known_rows(), self._counted.sound
        had = found = ""
        if None not in (before, rows) and rows != before:
            had, found = f"{before:,} rows", f"{rows:,} rows"
        if source.facts.digest != self._facts.digest:
            had, found = "labels", "others"
        if source.schema != self._schema:
            had, found = f"{had}{' of ' if had else ''}{self._schema}", str(source.schema)
        if found:
            raise DataError(
                f"{self._files[0]}: the data changed while it was read: it had {had}, and a worker "
                f"that opened it found {found}; open it again",
                file=self._files[0],
            )
        return source

    # What is known of the rows, without opening the files again.

    @property
    def schema(self) -> Schema:
        return self._schema

    def __len__(self) -> int:
        reach = self._reach()
        if self._counted.damage is not None:
            raise self._counted.damage
        return reach

    def known_rows(self) -> int | None:
        if self._counted.reach is not None:
            return self._counted.sound
        # A process that received this by pickle has not opened the files yet.
        return self._opened.known_rows() if self._process else None

    def up_to(self, stop: int) -> int:
        """Return ``stop``, or the number of rows within reach if there are fewer."""
        if self._counted.reach is None and self.known_rows() is None:
            with suppress(DataError):
                if self._source.up_to(stop) == stop:
                    return stop
        return min(stop, self._reach())

    @property
    def facts(self) -> SourceFacts:
        # In another process, the files are opened when they are first read.
        searched = bool(self._process) and self._opened.facts.searched
        return with_facts(
            self._facts,
            chunk_rows=self._rows_of_chunk,
            searched=self._facts.searched or searched,
            rows_before_damage=self._rows_before_damage,
            sound_rows=self._sound_rows,
            largest_row=self._largest_row,
        )

    def _rows_of_chunk(self) -> int:
        return self._chunk_rows

    def _largest_row(self, above: int) -> tuple[int, int] | None:
        return self._source.facts.largest_row(above)

    def _rows_before_damage(self) -> int | None:
        counted = self._counted
        return None if counted.reach is None or counted.damage is None else counted.reach - 1

    def row_name(self, row: int) -> str:
        # Files that were opened again have their full paths; those that were given are shorter.
        ordered = isinstance(self._source, WrappedSource)
        return super().row_name(row) if ordered else self._facts.row_name(row)

    @property
    def lasting(self) -> bool:
        """Whether the rows can be opened again; those in memory cannot."""
        return self._reopen is not None

    @property
    def skipped(self) -> Sequence[Skipped]:
        """The records that ``errors="skip"`` left out, as far as they have been read."""
        return self._source.facts.skipped

    @property
    def remote_bytes(self) -> int:
        """The size of all objects; 0 if the rows are not in a store.

        Zarr stores do not count: zarr fetches their chunks, which are not kept on disk.
        """
        remote = [path for path in map(located, self._files) if path.remote]
        return sum(path.stat().size for path in remote if not path.is_folder())

    @cached_property
    def counters(self) -> list[FetchCounter]:
        """The counters of the stores that the rows are fetched from."""
        stores = [store_of(located(path)) for path in self._files]
        return list({id(store): store.counter for store in stores if store is not None}.values())

    @cached_property
    def known_by(self) -> dict[str, Any]:
        """What states identify the data by: names, sizes and digests."""
        return data_of(self._source, self._reach())

    # Reading.

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        if self._owns_rows:
            return self._source.read(start, stop, limit)
        with Guard(self._source):  # what is read may be a view of a file
            read = self._source.read(start, stop, limit)
            return {name: _owned(column) for name, column in read.items()}

    def gather(self, rows: RowArray) -> Batch:
        span = _span(rows)
        if span is not None:
            return self.read(span.start, span.stop)
        if self._owns_rows:
            return self._source.gather(rows)
        with Guard(self._source):
            return {name: _owned(column) for name, column in self._source.gather(rows).items()}

    def stored_rows(self, rows: RowArray) -> tuple[Source, RowArray]:
        return stored_rows(self._source, rows)

    def read_padded(
        self, rows: RowNumbers, pads: Mapping[str, PadSpec], size: int, allocate: Allocate
    ) -> PaddedRows | None:
        if not len(rows):
            return None
        return self._source.read_padded(_spanned(rows), pads, size, allocate)

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        return self._source.fetch_ahead(_spanned(rows)) if self._remote else None

    def _sound_rows(self, rows: RowArray) -> int:
        span, found = _span(rows), 0
        with suppress(DataError):
            while span is not None and found < len(span):
                more = measure(self._source.read(span.start + found, span.stop, _NO_LIMIT))[0]
                if not more:
                    break
                found += more
        return found

    def select(self, names: Sequence[str]) -> SourceRows:
        again = None if self._reopen is None else partial(_reopened, self._reopen, list(names))
        chosen = SourceRows(self._source.select(names), again, self.how)
        chosen._counted = self._counted  # of the same rows
        return chosen

    def uncopied(self) -> Source:
        return self._source

    def at_epoch(self, epoch: int) -> SourceRows:
        del epoch  # files are the same in every epoch
        return self

    def reseeded(self, by: int) -> SourceRows:
        del by  # nothing here is random
        return self

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state.pop("counters", None)
        state["_facts"] = with_facts(self._facts, table_index=None)  # workers make no tables
        if self._reopen is not None and not self._remote:
            state["_opened"] = None
            state["_process"] = 0
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._remote:
            self._process = os.getpid()


class _Counted:
    """The rows that may be asked for in order, and the damage that the last of them raises.

    They are counted once, for all that is derived from a source; ``reach`` is None before that.
    """

    def __init__(self) -> None:
        self.reach: int | None = None
        self.damage: DataError | None = None

    @property
    def sound(self) -> int | None:
        """The number of rows; None if it is unknown, or not counted yet."""
        return self.reach if self.damage is None else None

    def count(self, source: Source) -> None:
        """Count the rows, up to damage that makes the number of rows unknown."""
        try:
            self.reach = len(source)
        except DataError as e:
            before = source.facts.rows_before_damage
            if before is None or (rows := before()) is None:
                raise
            self.damage, self.reach = e, rows + 1


def count_of(rows: Source) -> int | None:
    """Return the number of rows; None if endless. Raises damage that makes it unknown."""
    return None if rows.facts.endless else len(rows)


def is_damaged(rows: Source) -> bool:
    """Return whether counting the rows found that the last row within reach raises."""
    return _sound_rows(rows) is not None


def _sound_rows(rows: Source) -> int | None:
    before = rows.facts.rows_before_damage
    return None if before is None else before()


def count_sound(rows: Source, positions: RowArray) -> int:
    """Count the consecutive rows before a bad one; 0 if that is unknown."""
    count = rows.facts.sound_rows
    return 0 if count is None else count(positions)


def reach_of(rows: Source) -> int | None:
    """Count the rows that may be asked for in order; None if endless.

    They are all rows or, if a file is damaged, those before the damage and one more, which raises.
    """
    sound = _sound_rows(rows)
    try:
        return count_of(rows) if sound is None else sound + 1
    except DataError:
        sound = _sound_rows(rows)
        if sound is None:
            raise
        return sound + 1


def _forked(file: str) -> StoreError:
    return StoreError(
        f"{file}: this process was forked from one that had read from a store, and cannot do so "
        'itself; start processes with "spawn": DataLoader(..., multiprocessing_context="spawn"), '
        'or multiprocessing.set_start_method("spawn") for those of Keras',
        url=file,
    )


def _span(rows: RowArray) -> range | None:
    """Return row numbers as a range if they are consecutive, else None."""
    if not len(rows):
        return range(0)
    first, last = int(rows[0]), int(rows[-1])
    together = last - first + 1 == len(rows) and bool((np.diff(rows) == 1).all())
    return range(first, last + 1) if together else None


def _spanned(rows: RowNumbers) -> RowNumbers:
    """Return row numbers as a range if they are consecutive."""
    span = rows if isinstance(rows, range) else _span(rows)
    return rows if span is None else span


def _reopened(reopen: Callable[[], Source], columns: list[str]) -> Source:
    return reopen().select(columns)


def _owned(column: Column) -> Column:
    """Return the column in its own memory, copied if it is a view."""
    if isinstance(column, Ragged):
        return Ragged(_owned(column.flat), column.offsets - column.offsets[0], column.mask)
    if has_mask(column):
        return column.copy()
    base = column.base
    fresh = base is None or not isinstance(base, np.ndarray | memoryview)
    if fresh and column.flags.writeable:
        return column
    own = empty(column.shape, column.dtype)
    own[...] = column
    return own
