"""All rows in a random order.

Rows that can be read alone are gathered. Rows that are read together with others
(compressed files, chunks), or of a file much larger than memory, are first dealt out
over files of a stretch of the new order each, in one pass; every stretch is then put
in order in memory.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from recmap.engine.over import SourceOver
from recmap.engine.plan import Budget
from recmap.errors import OptionError
from recmap.files.disk import remove, temporary_path
from recmap.formats.tfrecord import TFRecordSource
from recmap.permutation import Permutation
from recmap.ragged import concatenate
from recmap.sources import Source
from recmap.tfrecord.encode import Encoder
from recmap.types import Batch, Field, Schema

__all__ = ["shuffled"]

_POSITION = "recmap position"


@contextmanager
def shuffled(source: Source, seed: int, place: str, budget: Budget) -> Iterator[Source]:
    """The source in the order that ``seed`` gives. Files on the way go into a folder
    beside ``place``, with a temporary name of it.
    """
    if source.known_rows() is None and not source.files:
        raise OptionError("rows that come one by one cannot be shuffled; save them to a file first")
    order = Permutation(len(source), seed)
    size = len(source) * source.row_bytes()
    if source.chunk_rows == 1 and size <= _physical_memory() // 2:
        yield _Gathered(source, order)
        return
    temporary = temporary_path(place, source, ".shuffle")
    os.makedirs(temporary)
    try:
        # A stretch is held twice while it is put in order, by every worker.
        stretch_rows = max(1, budget.memory // (4 * budget.workers * budget.row_bytes))
        yield _Dealt(source, order, temporary, stretch_rows, budget.chunk_rows)
    finally:
        remove(temporary)


class _Gathered(SourceOver):
    """Rows gathered by their number."""

    def __init__(self, source: Source, order: Permutation) -> None:
        super().__init__(source)
        self._order = order

    def read(self, start: int, stop: int) -> Batch:
        return self.take(np.arange(start, min(stop, len(self)), dtype=np.int64))

    def take(self, rows: npt.NDArray[np.int64]) -> Batch:
        return self._source.take(self._order[rows])


class _Dealt(SourceOver):
    """Rows from files that each hold a stretch of the new order."""

    def __init__(
        self, source: Source, order: Permutation, folder: str, stretch_rows: int, chunk_rows: int
    ) -> None:
        super().__init__(source)
        self._order, self._folder, self._stretch_rows = order, folder, stretch_rows
        self._fields = Schema({**source.schema, _POSITION: Field("int64")})
        self._held = threading.local()
        self._deal(chunk_rows)

    @property
    def chunk_rows(self) -> int:
        return 1

    def _path(self, stretch: int) -> str:
        return os.path.join(self._folder, f"{stretch}.tfrecord")

    def _deal(self, chunk_rows: int) -> None:
        encoder = Encoder(self._fields)
        for start in range(0, len(self), chunk_rows):
            batch = self._source.read(start, start + chunk_rows)
            rows = len(next(iter(batch.values())))
            positions = self._order.positions_of(np.arange(start, start + rows))
            stretches = positions // self._stretch_rows
            by_stretch = np.argsort(stretches, kind="stable")
            ordered: Batch = {name: column[by_stretch] for name, column in batch.items()}
            ordered[_POSITION] = positions[by_stretch]
            owners, firsts = np.unique(stretches[by_stretch], return_index=True)
            for owner, a, b in zip(owners, firsts, [*firsts[1:], rows], strict=True):
                part = {name: column[a:b] for name, column in ordered.items()}
                records, _ = encoder.encode(part, int(b - a), start)
                with open(self._path(int(owner)), "ab") as file:
                    file.write(records.data)

    def read(self, start: int, stop: int) -> Batch:
        stop = min(stop, len(self))
        parts = []
        while start < stop:
            stretch, first = divmod(start, self._stretch_rows)
            last = min(first + stop - start, self._stretch_rows)
            held = self._stretch(stretch)
            parts.append({name: held[name][first:last] for name in self.schema})
            start += last - first
        if not parts:
            return self._source.read(0, 0)
        return {name: concatenate([part[name] for part in parts]) for name in self.schema}

    def _stretch(self, stretch: int) -> Batch:
        held = self._held
        if getattr(held, "number", None) != stretch:
            held.rows = None  # let go of it before the next is read
            files = TFRecordSource([self._path(stretch)], dict(self._fields))
            rows = files.read(0, self._stretch_rows)
            order = np.argsort(np.asarray(rows.pop(_POSITION)))
            held.rows = {name: column[order] for name, column in rows.items()}
            held.number = stretch
        batch: Batch = held.rows
        return batch

    def take(self, rows: npt.NDArray[np.int64]) -> Batch:
        return self._source.take(self._order[rows])


def _physical_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
