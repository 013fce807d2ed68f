"""Read all rows in a random order.

Rows that can be read individually are gathered by number. Rows that are decoded together with
others (compressed files, chunks), rows whose sizes are not known before, and inputs larger than
half of the physical memory, are first copied in one pass into bucket files. Each bucket holds a
span of the new order, and its rows are then read in that order.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.conversion.budget import BoundedReader, Budget
from recmap.errors import OptionError
from recmap.formats.tfrecord_source import TFRecordSource
from recmap.local.local_path import located
from recmap.local.temporary import remove, temporary_path
from recmap.model.facts import SourceFacts, each_alone, with_facts
from recmap.model.field import Field
from recmap.model.order import Order
from recmap.model.ordered_rows import OrderedRows
from recmap.model.ragged import concatenate
from recmap.model.row_sizes import measure
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source, gather_within
from recmap.store.staging import check_space, make_staging_folder
from recmap.tfrecord.encoder import Encoder

_POSITION = "recmap position"
# The memory that a row of a bucket takes in addition to its values: its position, its place in
# the order, and its offset in the file.
_ROW_OVERHEAD = 64


@contextmanager
def shuffled(
    source: Source, order: Order, place: str, budget: Budget, on_this_machine: bool = True
) -> Iterator[Source]:
    """Yield the source in a random order.

    Buckets are written to a temporary folder next to ``place``, or on this machine if that is in
    a store. Then they can be read only ``on_this_machine``.
    """
    size = len(source) * source.row_bytes()
    if not _fits_records(source) or (_can_gather(source) and size <= _physical_memory() // 2):
        yield OrderedRows(source, order)
        return
    if located(place).remote:
        if not on_this_machine:
            raise OptionError(
                "shuffling these rows needs a folder that all nodes of the cluster see: write to "
                'one, or use engine="local", or shuffle the rows when they are read'
            )
        check_space(2 * size, place)  # in TFRecord files, a little larger
        temporary = make_staging_folder()
    else:
        temporary = temporary_path(place, ".shuffle")
        os.makedirs(temporary)
    try:
        # Few enough rows that a bucket stays in the page cache while it is read in random
        # order, and that its positions take little of our memory.
        row_size = max(budget.row_bytes, _ROW_OVERHEAD)
        bucket_rows = max(1, budget.memory // (4 * budget.workers * row_size))
        yield _Bucketed(source, order, temporary, bucket_rows, budget)
    finally:
        remove(temporary)


def _can_gather(source: Source) -> bool:
    """Return whether rows are read alone, and their sizes are known before, to read only a few."""
    if source.facts.chunk_rows() > 1:
        return False
    return not len(source) or source.row_sizes(np.zeros(1, np.int64)) is not None


def _fits_records(source: Source) -> bool:
    """Return whether records hold all columns: their lists hold no nulls, two axes at most."""
    return all(not each.null_items and each.ragged <= 2 for each in source.schema.values())


class _Bucketed(OrderedRows):
    """Rows read from bucket files. Each file holds a span of the new order."""

    def __init__(
        self, source: Source, order: Order, folder: str, bucket_rows: int, budget: Budget
    ) -> None:
        super().__init__(source, order)
        self._mixed = order
        self._folder, self._bucket_rows = folder, bucket_rows
        self._position = _POSITION
        while self._position in source.schema:
            self._position += "_"
        self._fields = Schema({**source.schema, self._position: Field("int64")})
        self._held = threading.local()
        self._fill_buckets(budget)

    # Not the methods of a wrapped source: the buckets already hold all columns, and only recmap
    # reads them.
    select = Source.select

    def rebuilt(self, change: Callable[[Source], Source]) -> Source:
        del change
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_held": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _held=threading.local())

    @property
    def facts(self) -> SourceFacts:
        return with_facts(super().facts, chunk_rows=each_alone)

    def _path(self, bucket: int) -> str:
        return os.path.join(self._folder, f"{bucket}.tfrecord")

    def _fill_buckets(self, budget: Budget) -> None:
        encoder = Encoder(self._fields)
        with BoundedReader(self._source, budget, 0, len(self)) as reader:
            while (slab := reader.next()) is not None:
                rows, _ = measure(slab)
                start = reader.row - rows
                positions = self._mixed.positions_of(np.arange(start, start + rows))
                buckets = positions // self._bucket_rows
                by_bucket = np.argsort(buckets, kind="stable")
                owners, firsts = np.unique(buckets[by_bucket], return_index=True)
                for owner, a, b in zip(owners, firsts, [*firsts[1:], rows], strict=True):
                    mine = by_bucket[a:b]
                    rows_of_bucket: Batch = {name: column[mine] for name, column in slab.items()}
                    rows_of_bucket[self._position] = positions[mine]
                    records, _ = encoder.encode(rows_of_bucket, int(b - a), start)
                    with open(self._path(int(owner)), "ab") as file:
                        file.write(records.data)
                del slab  # free it before the next one is read

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        stop = min(stop, len(self))
        found = []
        while start < stop:
            bucket, first = divmod(start, self._bucket_rows)
            held, order = self._bucket(bucket)
            rows = order[first : first + stop - start]
            found.append(gather_within(held, rows, limit))
            if limit is not None:
                break
            start += measure(found[-1])[0]
        if not found:
            return self._source.read(0, 0)
        return {name: concatenate([batch[name] for batch in found]) for name in self.schema}

    def _bucket(self, bucket: int) -> tuple[Source, npt.NDArray[np.int64]]:
        """Return the file of a bucket, and the order of its rows."""
        if getattr(self._held, "number", None) != bucket:
            path = self._path(bucket)
            positions = TFRecordSource([path], {self._position: "int64"})
            order = np.argsort(np.asarray(positions.read(0, self._bucket_rows)[self._position]))
            self._held.rows = TFRecordSource([path], dict(self._source.schema)), order
            self._held.number = bucket
        rows: tuple[Source, npt.NDArray[np.int64]] = self._held.rows
        return rows


def _physical_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
