"""All rows in a random order.

Rows that can be read alone are gathered. Rows that are read together with others
(compressed files, chunks), or of a file much larger than memory, are first dealt out
over files of a stretch of the new order each, in one pass; every stretch is then read
in its order.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.conversion.bounded_reader import Steps
from recmap.conversion.budget import Budget
from recmap.conversion.reordered import ReorderedSource, gather_within
from recmap.errors import OptionError
from recmap.files.temporary import remove, temporary_path
from recmap.formats.tfrecord_source import TFRecordSource
from recmap.model.permutation import Permutation
from recmap.model.ragged import concatenate
from recmap.model.row_sizes import measure
from recmap.model.schema import Batch, Field, Schema
from recmap.model.source import SelectedSource, Source
from recmap.tfrecord.encoder import Encoder

__all__ = ["shuffled"]

_POSITION = "recmap position"
# What a row of a stretch takes beside its values: its position, its place in the order,
# and where it is in the file.
_LEAST_ROW = 64


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
        yield _Shuffled(source, order)
        return
    temporary = temporary_path(place, ".shuffle")
    os.makedirs(temporary)
    try:
        # So few that a stretch stays in the memory of the system while it is read in its
        # order, and that its numbers take little of ours.
        row_size = max(budget.row_bytes, _LEAST_ROW)
        stretch_rows = max(1, budget.memory // (4 * budget.workers * row_size))
        yield _Dealt(source, order, temporary, stretch_rows, budget)
    finally:
        remove(temporary)


class _Shuffled(ReorderedSource):
    """All rows of a source in another order."""

    def __init__(self, source: Source, order: Permutation) -> None:
        super().__init__(source)
        self._order = order

    def row_numbers(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self._order[positions]


class _Dealt(_Shuffled):
    """Rows from files that each hold a stretch of the new order."""

    def __init__(
        self, source: Source, order: Permutation, folder: str, stretch_rows: int, budget: Budget
    ) -> None:
        super().__init__(source, order)
        self._folder, self._stretch_rows = folder, stretch_rows
        self._fields = Schema({**source.schema, _POSITION: Field("int64")})
        self._held = threading.local()
        self._deal(budget)

    def select(self, names: Sequence[str]) -> Source:
        # The files hold all columns.
        return SelectedSource(self, {name: name for name in names})

    def reference(self) -> Source:
        # The rows were dealt out in one pass, and lie in files of recmap's own.
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_held": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _held=threading.local())

    @property
    def chunk_rows(self) -> int:
        return 1

    def _path(self, stretch: int) -> str:
        return os.path.join(self._folder, f"{stretch}.tfrecord")

    def _deal(self, budget: Budget) -> None:
        encoder = Encoder(self._fields)
        steps = Steps(self._source, budget, 0, len(self))
        while (batch := steps.next()) is not None:
            rows, _ = measure(batch)
            start = steps.row - rows
            positions = self._order.positions_of(np.arange(start, start + rows))
            stretches = positions // self._stretch_rows
            by_stretch = np.argsort(stretches, kind="stable")
            owners, firsts = np.unique(stretches[by_stretch], return_index=True)
            for owner, a, b in zip(owners, firsts, [*firsts[1:], rows], strict=True):
                mine = by_stretch[a:b]
                part: Batch = {name: column[mine] for name, column in batch.items()}
                part[_POSITION] = positions[mine]
                records, _ = encoder.encode(part, int(b - a), start)
                with open(self._path(int(owner)), "ab") as file:
                    file.write(records.data)
            del batch  # before the next is read

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        stop = min(stop, len(self))
        parts = []
        while start < stop:
            stretch, first = divmod(start, self._stretch_rows)
            held, order = self._stretch(stretch)
            rows = order[first : first + stop - start]
            parts.append(gather_within(held, rows, limit))
            if limit is not None:
                break
            start += measure(parts[-1])[0]
        if not parts:
            return self._source.read(0, 0)
        return {name: concatenate([part[name] for part in parts]) for name in self.schema}

    def _stretch(self, stretch: int) -> tuple[Source, npt.NDArray[np.int64]]:
        """The file of a stretch, and its rows in their order."""
        if getattr(self._held, "number", None) != stretch:
            path = self._path(stretch)
            positions = TFRecordSource([path], {_POSITION: "int64"})
            order = np.argsort(np.asarray(positions.read(0, self._stretch_rows)[_POSITION]))
            self._held.rows = TFRecordSource([path], dict(self._source.schema)), order
            self._held.number = stretch
        rows: tuple[Source, npt.NDArray[np.int64]] = self._held.rows
        return rows


def _physical_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
