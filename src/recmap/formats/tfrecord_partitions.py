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


@dataclass(frozen=True)
class Partition:
    """Files for one cluster task to read. It is small, is pickled, and the task opens it."""

    files: list[str]
    #: The number of rows; None if it is unknown until they are read.
    rows: int | None
    #: The number of rows that it is best to read together.
    unit: int
    #: Opens the files, given the columns to read and the index.
    opener: Callable[[Sequence[str], Index | None], Read]
    #: Where the records of a plain TFRecord file are, so that a task can begin at any of them.
    index: Index | None = None

    def part(self, start: int, stop: int) -> Partition:
        """Return a partition for a task that reads only this span of rows."""
        if self.index is None:
            return self
        return replace(self, index=self.index.span(start, stop, _MAX_ANCHORS))

    def open(self, columns: Sequence[str]) -> Read:
        return self.opener(columns, self.index)


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
        rows = file.count()  # so that a task can begin at any record
        opener = partial(_open_plain, path, file.size, decoder, verify)
        return Partition([path], rows, 1, opener, file.index)
    count = file.known_count()
    assert file.compression is not None
    # A compressed file can only be read from the start.
    compressed = partial(_open_compressed, path, file.compression, decoder, verify, skip)
    return Partition([path], count, max(1, count or 1), compressed)


def _open_plain(
    path: str,
    size: int,
    decoder: ExampleDecoder,
    verify: bool,
    columns: Sequence[str],
    index: Index | None,
) -> Read:
    file = PlainFile(path, verify, index)
    if file.size != size:
        raise DataError(
            f"{path}: it has {file.size:,} bytes, but had {size:,} when it was opened; open it "
            "again",
            file=path,
        )
    return partial(file.read, _selected(decoder, columns))


def _open_compressed(
    path: str,
    compression: Literal["gzip", "zlib"],
    decoder: ExampleDecoder,
    verify: bool,
    skip: bool,
    columns: Sequence[str],
    _index: Index | None,
) -> Read:
    file = CompressedFile(path, compression, verify, None)
    if skip:
        # Check all columns: a record is bad if any of them is.
        survey(file, decoder, None, True)
    return partial(file.read, _selected(decoder, columns))


def _selected(decoder: ExampleDecoder, columns: Sequence[str]) -> ExampleDecoder:
    return decoder if list(columns) == list(decoder.schema) else decoder.select(columns)
