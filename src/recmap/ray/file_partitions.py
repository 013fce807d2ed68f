"""Dividing the rows of files into partitions, one for each task that reads.

A partition says which files to open and which rows to read. It never holds rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np

from recmap.errors import DataError
from recmap.formats.combined import ChainSource
from recmap.formats.open_spec import Opening
from recmap.formats.registry import select
from recmap.formats.tfrecord_source import TFRecordSource
from recmap.model.schema import Batch
from recmap.model.source import Source
from recmap.tfrecord.compressed_file import CompressedShard
from recmap.tfrecord.decoder import Codec
from recmap.tfrecord.index import Index
from recmap.tfrecord.plain_file import PlainShard
from recmap.tfrecord.survey import Shard, survey

__all__ = ["InputFiles", "Partition", "Reader", "RowSpan", "good_count", "input_files", "partition"]

# Anchors that are sent with a partition of a file: some 256 KB.
_MOST_ANCHORS = 1 << 14
# Ray takes some 15 ms for a block, which is little compared to reading this many bytes.
_GOOD_SIZE = 16 << 20
_LEAST_SIZE = 1 << 20
_MOST_SIZE = 64 << 20
# Partitions for each CPU, so that all CPUs finish at about the same time.
_PER_CPU = 4


class Reader(Protocol):
    """What a task reads rows from."""

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch: ...


class InputFiles(Protocol):
    """Files that a task opens together."""

    @property
    def files(self) -> list[str]: ...

    @property
    def rows(self) -> int | None:
        """How many rows there are; None if only reading them would tell."""
        ...

    @property
    def unit(self) -> int:
        """How many rows are best read together."""
        ...

    def narrow(self, start: int, stop: int) -> InputFiles:
        """Return the same for a task that reads no other rows."""
        ...

    def open(self, columns: Sequence[str]) -> Reader: ...


@dataclass(frozen=True)
class RowSpan:
    """The rows ``start`` to ``stop`` of some files, or all from ``start`` if that is None."""

    input: InputFiles
    start: int
    stop: int | None

    @property
    def rows(self) -> int | None:
        return None if self.stop is None else self.stop - self.start


# What one task reads.
Partition = list[RowSpan]


def good_count(size: int, cpus: int) -> int:
    """Return how many partitions are good for ``size`` bytes: one per CPU, more if it is large.

    >>> [good_count(size << 20, 8) for size in (0, 3, 80, 400, 10_000)]
    [1, 3, 8, 25, 157]
    """
    each = min(cpus, size // _LEAST_SIZE)
    several = min(_PER_CPU * cpus, size // _GOOD_SIZE)
    return max(1, each, several, -(-size // _MOST_SIZE))


def partition(inputs: Sequence[InputFiles], count: int) -> list[Partition]:
    """Divide the rows into at most ``count`` partitions of about equal size, in order.

    Files are divided only where their rows can be read separately.
    """
    counts = [input.rows for input in inputs]
    known = [rows for rows in counts if rows is not None]
    if len(known) < len(counts):
        groups = np.array_split(np.arange(len(inputs)), min(count, len(inputs)))
        return [[RowSpan(inputs[i], 0, counts[i]) for i in group] for group in groups]
    edges = np.arange(count) * sum(known) // count
    partitions: list[Partition] = [[] for _ in range(count)]
    base = 0
    for input, rows in zip(inputs, known, strict=True):
        first = int(np.searchsorted(edges, base, side="right")) - 1
        # Where the rows of each partition start. Of several that start at one row, only the
        # last has any.
        owners = {0: first}
        for number in range(first + 1, int(np.searchsorted(edges, base + rows))):
            owners[int(edges[number] - base) // input.unit * input.unit] = number
        starts = list(owners)
        for start, stop in zip(starts, [*starts[1:], rows], strict=True):
            if stop > start:
                span = RowSpan(input.narrow(start, stop), start, stop)
                partitions[owners[start]].append(span)
        base += rows
    return [spans for spans in partitions if spans] or [[RowSpan(inputs[0], 0, 0)]]


def input_files(source: Source, reopen: Callable[[], Source], skip: bool) -> list[InputFiles]:
    """Return the files of a source, separately where they can be opened alone.

    With ``skip``, bad records are left out.
    """
    if isinstance(source, TFRecordSource):
        return [_record_file(source, file, skip) for file in source.shards()]
    if isinstance(source, ChainSource) and isinstance(reopen, Opening):
        return [_ArrayFiles.of(part, reopen) for part in source.parts]
    return [_ArrayFiles.of(source, reopen)]


@dataclass(frozen=True)
class _ArrayFiles:
    """Files whose headers tell where their rows are."""

    reopen: Callable[[], Source]
    files: list[str]
    rows: int | None
    unit: int

    @classmethod
    def of(cls, source: Source, reopen: Callable[[], Source]) -> InputFiles:
        files = [os.path.abspath(file) for file in source.files]
        return cls(reopen, files, len(source), source.chunk_rows)

    def narrow(self, start: int, stop: int) -> InputFiles:
        return self

    def open(self, columns: Sequence[str]) -> Reader:
        if isinstance(self.reopen, Opening):
            return self.reopen.only(self.files, columns)()
        return select(self.reopen(), columns, self.files[0])


def _record_file(source: TFRecordSource, file: Shard, skip: bool) -> InputFiles:
    path = os.path.abspath(file.path)
    if isinstance(file, PlainShard):
        file.count()  # so that each task can start at a record of its own
        return _PlainFile(path, file.size, source.codec, source.verify, file.index)
    count = file.known_count()
    return _CompressedFile(path, file.compression, source.codec, source.verify, count, skip)


@dataclass(frozen=True)
class _PlainFile:
    """A TFRecord file, and where its records are."""

    path: str
    size: int
    codec: Codec
    verify: bool
    index: Index
    unit: int = 1

    @property
    def files(self) -> list[str]:
        return [self.path]

    @property
    def rows(self) -> int | None:
        return self.index.count

    def narrow(self, start: int, stop: int) -> InputFiles:
        return replace(self, index=self.index.part(start, stop, _MOST_ANCHORS))

    def open(self, columns: Sequence[str]) -> Reader:
        file = PlainShard(self.path, self.verify, self.index)
        if file.size != self.size:
            raise DataError(
                f"{self.path}: it has {file.size:,} bytes, but had {self.size:,} when it was "
                "opened; open it again",
                file=self.path,
            )
        return _RecordReader(file, _select(self.codec, columns))


@dataclass(frozen=True)
class _CompressedFile:
    """A TFRecord file that can only be read from its beginning."""

    path: str
    compression: Literal["gzip", "zlib"]
    codec: Codec
    verify: bool
    rows: int | None
    skip: bool

    @property
    def files(self) -> list[str]:
        return [self.path]

    @property
    def unit(self) -> int:
        return max(1, self.rows or 1)

    def narrow(self, start: int, stop: int) -> InputFiles:
        return self

    def open(self, columns: Sequence[str]) -> Reader:
        file = CompressedShard(self.path, self.compression, self.verify, None)
        if self.skip:
            # With all columns, because a record is bad if any of them is.
            survey(file, self.codec, None, True)
        return _RecordReader(file, _select(self.codec, columns))


def _select(codec: Codec, columns: Sequence[str]) -> Codec:
    return codec if list(columns) == list(codec.schema) else codec.select(columns)


class _RecordReader:
    """Reads rows of a TFRecord file."""

    def __init__(self, file: Any, codec: Codec) -> None:
        self._file: Shard = file
        self._codec = codec

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        return self._file.read(self._codec, start, stop, limit)
