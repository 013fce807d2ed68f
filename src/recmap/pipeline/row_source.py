"""Rows by position, in any order: the part of a pipeline that has no state.

A shuffle, a repetition or a mix is a function of positions. Nothing has to be kept in
memory, and a run can resume from any position.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cached_property, partial
from typing import Any, Protocol, runtime_checkable

import numpy as np

from recmap.errors import DataError, OptionError, StoreError
from recmap.files.fetch import FetchCounter
from recmap.files.local_path import located
from recmap.files.mapped import Guard
from recmap.model.batch import Allocate, PaddedRows, PadSpec, Positions
from recmap.model.fetching import Fetching
from recmap.model.ragged import Column, Ragged
from recmap.model.row_sizes import measure
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source
from recmap.pipeline.signature import data_of

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


class Rows(Protocol):
    """Rows by position. ``epoch`` is for rows that differ from one epoch to the next."""

    @property
    def schema(self) -> Schema: ...

    @property
    def count(self) -> int | None:
        """The number of rows; None if there is no end."""
        ...

    @property
    def in_order(self) -> bool:
        """Whether rows are fast to read only by one thread, in the order of their positions."""
        ...

    @property
    def keeps_blocks(self) -> bool:
        """Whether a shuffle by windows keeps the order of its blocks, wherever the files are."""
        ...

    @property
    def calls_user_code(self) -> bool:
        """Whether reading calls the user's functions, which not every thread may do."""
        ...

    def gather(self, positions: Positions, epoch: int) -> Batch:
        """Read the rows at these positions, into arrays that the caller may write to."""
        ...

    def fetch_ahead(self, positions: Positions, epoch: int) -> Fetching | None:
        """Begin to fetch rows that are going to be read; None if they are not in a store."""
        ...

    def select(self, columns: Sequence[str]) -> Rows:
        """Return the rows with these columns; the others are not read if that can be avoided."""
        ...

    def reseeded(self, by: int) -> Rows:
        """Return the rows for another branch of a pipeline, with other random numbers."""
        ...

    def row_bytes(self) -> int:
        """Estimate the bytes of a row."""
        ...

    def origin(self, position: int, epoch: int) -> str:
        """Say where a row comes from, for error messages: ``row 17 of x.npy``."""
        ...


class SourceRows:
    """The rows of a source, in its order.

    A process that was forked, or that received this by pickle, opens the files again:
    processes must not share the position in an open file. Objects in a store have none, and
    opening them takes requests, so a source of these is pickled with all that is known of it.
    """

    calls_user_code = False

    def __init__(self, source: Source, reopen: Callable[[], Source] | None) -> None:
        if source.known_rows() is None and not source.files:
            raise OptionError(
                "these rows can be read only once, but training reads them again; save them first"
            )
        self._source, self._reopen = source, reopen
        self._process = os.getpid()
        self.schema = source.schema
        self._damage: DataError | None = None
        try:
            #: Rows that may be asked for in order: all of them or, if the file is damaged,
            #: those before the damage and one more, which raises.
            self.reach = len(source)
            # Rows are compressed together, in a chunk or a stream.
            self.in_order = source.chunk_rows > 1
        except DataError as e:
            sound = source.rows_before_damage()
            if sound is None:
                raise
            self._damage, self.reach = e, sound + 1
            self.in_order = bool(source.compressed_files)
        self.keeps_blocks = self.in_order if self._damage is not None else source.stored_in_order
        self._files = list(source.files)
        self.remote = source.remote
        self._can_pad, self._owns_rows = source.can_pad, source.owns_rows

    @property
    def count(self) -> int:
        """The number of rows. Raises the damage that makes it unknown."""
        if self._damage is not None:
            raise self._damage
        return self.reach

    @property
    def damaged(self) -> bool:
        """Whether reading the last row within reach raises."""
        return self._damage is not None

    @property
    def pads(self) -> bool:
        """Whether rows may be padded while they are read."""
        return self._can_pad and not self.in_order

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
        stores = [located(path).store for path in self._files]
        return list({id(store): store.counter for store in stores if store is not None}.values())

    @property
    def source(self) -> Source:
        """The source, opened by this process."""
        if self._process != os.getpid() and self._reopen is not None:
            if self.remote:
                raise _forked(self._files[0])
            self._source, self._process = self._same(self._reopen()), os.getpid()
            if not self.in_order and not _FEW.get():
                with suppress(DataError):
                    len(self._source)  # finding rows is faster once all are indexed
        return self._source

    def _same(self, source: Source) -> Source:
        """Return a source that was opened again; raise if its rows have changed."""
        rows = source.known_rows()
        changed = f"{rows:,} rows" if rows not in (None, self.reach) and not self.damaged else ""
        if source.schema != self.schema:
            changed = str(source.schema)
        if changed:
            had = f"{self.reach:,} rows of {self.schema}"
            raise DataError(
                f"{self._files[0]}: the data changed while it was read: it had {had}, and a worker "
                f"that opened it found {changed}; open it again",
                file=self._files[0],
            )
        return source

    def gather(self, positions: Positions, epoch: int) -> Batch:
        del epoch  # a file is the same in every epoch
        if self._owns_rows:
            return self._read(positions)
        with Guard(self.source):  # what is read may be a view of a file
            return {name: _owned(column) for name, column in self._read(positions).items()}

    def _read(self, positions: Positions) -> Batch:
        run = _run(positions)
        if run is None:
            return self.source.gather(positions)
        return self.source.read(run.start, run.stop)

    def fetch_ahead(self, positions: Positions, epoch: int) -> Fetching | None:
        del epoch
        if not self.remote:
            return None
        run = _run(positions)
        return self.source.fetch_ahead(positions if run is None else run)

    def sound(self, positions: Positions) -> int:
        """Count the consecutive rows before a bad one."""
        run, found = _run(positions), 0
        with suppress(DataError):
            while run is not None and found < len(run):
                more = measure(self.source.read(run.start + found, run.stop, _NO_LIMIT))[0]
                if not more:
                    break
                found += more
        return found

    def gather_padded(
        self, positions: Positions, pads: Mapping[str, PadSpec], size: int, memory: Allocate
    ) -> PaddedRows | None:
        """Read rows in batches of ``size``, padded while they are read.

        Return None if the source cannot do that.
        """
        if not len(positions):
            return None
        run = _run(positions)
        rows = positions if run is None else run
        return self.source.read_padded(rows, pads, size, memory)

    def select(self, columns: Sequence[str]) -> SourceRows:
        again = None if self._reopen is None else partial(_reopened, self._reopen, list(columns))
        return SourceRows(self.source.select(columns), again)

    def reseeded(self, by: int) -> SourceRows:
        del by  # nothing here is random
        return self

    def row_bytes(self) -> int:
        return self.source.row_bytes()

    def origin(self, position: int, epoch: int) -> str:
        del epoch
        if not self._files:
            return f"row {position:,}"
        more = f" and {len(self._files) - 1:,} more" if len(self._files) > 1 else ""
        return f"row {position:,} of {self._files[0]}{more}"

    @cached_property
    def known_by(self) -> dict[str, Any]:
        """What states identify the data by: names, sizes and digests."""
        return data_of(self.source, self.reach)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state.pop("counters", None)
        if self._reopen is not None and not self.remote:
            state["_source"] = None
            state["_process"] = 0
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.remote:
            self._process = os.getpid()


@runtime_checkable
class InOrder(Protocol):
    """Rows in the order of their files; reading the last one may raise."""

    @property
    def reach(self) -> int | None:
        """The number of rows that may be asked for; None if there is no end."""
        ...

    @property
    def damaged(self) -> bool:
        """Whether reading the last row within reach raises."""
        ...

    def sound(self, positions: Positions) -> int:
        """Count the consecutive rows before a bad one."""
        ...


def reach_of(rows: Rows) -> int | None:
    """Count the rows that may be asked for in order; None if there is no end."""
    return rows.reach if isinstance(rows, InOrder) else rows.count


def is_damaged(rows: Rows) -> bool:
    """Return whether reading the last row within reach raises."""
    return isinstance(rows, InOrder) and rows.damaged


def sound_rows(rows: Rows, positions: Positions) -> int:
    """Count the rows before a bad one; 0 for rows that are not in the order of their files."""
    return rows.sound(positions) if isinstance(rows, InOrder) else 0


def _forked(file: str) -> StoreError:
    return StoreError(
        f"{file}: this process was forked from one that had read from a store, and cannot do so "
        'itself; start processes with "spawn": DataLoader(..., multiprocessing_context="spawn"), '
        'or multiprocessing.set_start_method("spawn") for those of Keras',
        url=file,
    )


def _run(positions: Positions) -> range | None:
    """Return the positions as a range if they are consecutive, else None."""
    if not len(positions):
        return range(0)
    first, last = int(positions[0]), int(positions[-1])
    together = last - first + 1 == len(positions) and bool((np.diff(positions) == 1).all())
    return range(first, last + 1) if together else None


def _reopened(reopen: Callable[[], Source], columns: list[str]) -> Source:
    return reopen().select(columns)


def _owned(column: Column) -> Column:
    """Return the column in its own memory, copied if it is a view."""
    if isinstance(column, Ragged):
        return Ragged(_owned(column.flat), column.offsets - column.offsets[0])
    base = column.base
    fresh = base is None or not isinstance(base, np.ndarray | memoryview)
    return column if fresh and column.flags.writeable else np.array(column)
