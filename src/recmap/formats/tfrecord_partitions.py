"""TFRecord files as units of work for a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from recmap.errors import DataError
from recmap.local.local_path import located
from recmap.model.schema import Batch
from recmap.tfrecord.compressed_file import CompressedFile
from recmap.tfrecord.decoder import ExampleDecoder
from recmap.tfrecord.index import Index
from recmap.tfrecord.plain_file import PlainFile
from recmap.tfrecord.record_file import RecordFile
from recmap.tfrecord.survey import survey

# Maximum number of anchors sent to a task with its rows: about 256 KB.
_MAX_ANCHORS = 1 << 14


#: Reads a span of rows, as ``read`` of a source does.
Read: TypeAlias = Callable[[int, int, int | None], Batch]


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

    def open(self, columns: Sequence[str]) -> Read: ...


@runtime_checkable
class RecordSource(Protocol):
    """What a source of TFRecord files can do, but not one that changes their rows."""

    def features(self) -> Mapping[str, Any]:
        """Return the features in a sample of the tf.train.Example records."""
        ...

    def partitions(self, *, skip: bool) -> list[Partition]:
        """Divide the files into units of work. With ``skip``, tasks leave out bad records."""
        ...


def record_partitions(
    files: Sequence[RecordFile], decoder: ExampleDecoder, verify: bool, skip: bool
) -> list[Partition]:
    """Return one partition per file. Partitions of plain files include an index of records."""
    return [_partition(file, decoder, verify, skip) for file in files]


def _partition(file: RecordFile, decoder: ExampleDecoder, verify: bool, skip: bool) -> Partition:
    path = located(file.path).alone()
    if isinstance(file, PlainFile):
        file.count()  # so that a task can begin at any record
        return _PlainPartition(path, file.size, decoder, verify, file.index)
    count = file.known_count()
    assert file.compression is not None
    return _CompressedPartition(path, file.compression, decoder, verify, count, skip)


@dataclass(frozen=True)
class _PlainPartition:
    """A plain file, and the index of its records."""

    path: str
    size: int
    decoder: ExampleDecoder
    verify: bool
    index: Index
    unit: int = 1

    @property
    def files(self) -> list[str]:
        return [self.path]

    @property
    def rows(self) -> int | None:
        return self.index.count

    def part(self, start: int, stop: int) -> Partition:
        return replace(self, index=self.index.span(start, stop, _MAX_ANCHORS))

    def open(self, columns: Sequence[str]) -> Read:
        file = PlainFile(self.path, self.verify, self.index)
        if file.size != self.size:
            raise DataError(
                f"{self.path}: it has {file.size:,} bytes, but had {self.size:,} when it was "
                "opened; open it again",
                file=self.path,
            )
        return partial(file.read, _selected(self.decoder, columns))


@dataclass(frozen=True)
class _CompressedPartition:
    """A compressed file, which can only be read from the start."""

    path: str
    compression: Literal["gzip", "zlib"]
    decoder: ExampleDecoder
    verify: bool
    rows: int | None
    skip: bool

    @property
    def files(self) -> list[str]:
        return [self.path]

    @property
    def unit(self) -> int:
        return max(1, self.rows or 1)

    def part(self, start: int, stop: int) -> Partition:
        del start, stop
        return self

    def open(self, columns: Sequence[str]) -> Read:
        file = CompressedFile(self.path, self.compression, self.verify, None)
        if self.skip:
            # Check all columns: a record is bad if any of them is.
            survey(file, self.decoder, None, True)
        return partial(file.read, _selected(self.decoder, columns))


def _selected(decoder: ExampleDecoder, columns: Sequence[str]) -> ExampleDecoder:
    return decoder if list(columns) == list(decoder.schema) else decoder.select(columns)
