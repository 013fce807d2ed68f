"""Divide files into partitions, and assign their rows to tasks.

A partition names the files that a task opens. It never holds rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from recmap.errors import ObjectChangedError
from recmap.formats.combined import ConcatenatedSource
from recmap.formats.open_spec import Opening, select
from recmap.formats.tfrecord_partitions import Partition, Read, RecordSource
from recmap.local.local_path import located
from recmap.local.location import Stat
from recmap.model.field import Field
from recmap.model.source import Source
from recmap.tfrecord.index import Index

# Ray spends about 15 ms on each block, little compared to reading this many bytes.
_GOOD_SIZE = 16 << 20
_LEAST_SIZE = 1 << 20
_MOST_SIZE = 64 << 20
# Tasks per CPU. With several, all CPUs finish at about the same time.
_PER_CPU = 4


@dataclass(frozen=True)
class RowSpan:
    """Rows ``start`` to ``stop`` of a partition, or to its end if ``stop`` is None."""

    partition: Partition
    start: int
    stop: int | None

    @property
    def rows(self) -> int | None:
        return None if self.stop is None else self.stop - self.start


def good_count(size: int, cpus: int) -> int:
    """Return a good number of tasks for ``size`` bytes: one per CPU, more if it is large.

    >>> [good_count(size << 20, 8) for size in (0, 3, 80, 400, 10_000)]
    [1, 3, 8, 25, 157]
    """
    each = min(cpus, size // _LEAST_SIZE)
    several = min(_PER_CPU * cpus, size // _GOOD_SIZE)
    return max(1, each, several, -(-size // _MOST_SIZE))


def assign_rows(partitions: Sequence[Partition], tasks: int) -> list[list[RowSpan]]:
    """Divide the rows evenly, in order, among at most ``tasks`` tasks.

    A partition is split only at multiples of its ``unit``. If the number of rows of any
    partition is unknown, none is split.
    """
    counts = [each.rows for each in partitions]
    known = [rows for rows in counts if rows is not None]
    if len(known) < len(counts):
        groups = np.array_split(np.arange(len(partitions)), min(tasks, len(partitions)))
        return [[RowSpan(partitions[i], 0, counts[i]) for i in group] for group in groups]
    edges = np.arange(tasks) * sum(known) // tasks
    assigned: list[list[RowSpan]] = [[] for _ in range(tasks)]
    base = 0
    for partition, rows in zip(partitions, known, strict=True):
        first = int(np.searchsorted(edges, base, side="right")) - 1
        # The first row of each task. If several tasks would start at the same row, only the
        # last one gets rows.
        owners = {0: first}
        for task in range(first + 1, int(np.searchsorted(edges, base + rows))):
            owners[int(edges[task] - base) // partition.unit * partition.unit] = task
        starts = list(owners)
        for start, stop in zip(starts, [*starts[1:], rows], strict=True):
            if stop > start:
                span = RowSpan(partition.part(start, stop), start, stop)
                assigned[owners[start]].append(span)
        base += rows
    return [spans for spans in assigned if spans] or [[RowSpan(partitions[0], 0, 0)]]


def file_partitions(source: Source, reopen: Callable[[], Source], skip: bool) -> list[Partition]:
    """Return the partitions of a source, one per file if its files can be opened separately.

    With ``skip``, tasks leave out bad records.
    """
    if isinstance(source, RecordSource):
        return source.partitions(skip=skip)
    sources: Sequence[Source] = [source]
    if isinstance(source, ConcatenatedSource) and isinstance(reopen, Opening):
        sources = source.sources
    return [_files_partition(each, reopen) for each in sources]


def _files_partition(source: Source, reopen: Callable[[], Source]) -> Partition:
    """Return files that need no index, because their headers say where the rows are."""
    files: list[str] = [located(file).alone() for file in source.facts.files]
    if isinstance(reopen, Opening):
        reopen = replace(reopen, paths=files)  # the others may be many
    facts = source.facts
    agreed = {name: source.schema[name] for name in facts.alternatives if name in source.schema}
    opener = partial(_open_files, reopen, files, agreed)
    return Partition(files, len(source), facts.chunk_rows(), opener)


def _open_files(
    reopen: Callable[[], Source],
    files: Sequence[str],
    agreed: Mapping[str, Field],
    columns: Sequence[str],
    _index: Index | None,
) -> Read:
    if isinstance(reopen, Opening):
        return reopen.only(files, columns, agreed)().read
    source = reopen()
    for old, new in zip(files, source.facts.files, strict=True):
        if _version(old) != _version(new):
            raise ObjectChangedError(
                f"{old}: changed while it was open; open it again", url=str(old)
            )
    return select(source, columns, files[0]).read


def _version(path: str) -> Stat | None:
    """Return what tells an object from another of the same name."""
    file = located(path)
    return file.stat() if file.remote and not file.is_folder() else None
