"""What is sent to a task that reads: which files, and how they are opened, never rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from recmap.errors import DataError
from recmap.formats.combined import ChainSource
from recmap.formats.open_spec import Opening
from recmap.formats.registry import select
from recmap.formats.tfrecord_source import TFRecordSource
from recmap.model.schema import Batch
from recmap.model.source import Source
from recmap.tfrecord.compressed_file import CompressedFile
from recmap.tfrecord.decoder import ExampleDecoder
from recmap.tfrecord.index import Index
from recmap.tfrecord.plain_file import PlainFile
from recmap.tfrecord.record_file import RecordFile
from recmap.tfrecord.survey import survey

__all__ = ["Piece", "Reader", "pieces_of"]

# Marks that are sent with a stretch of a file: some 256 KB.
_MARKS = 1 << 14


class Reader(Protocol):
    """What a task reads rows from."""

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch: ...


class Piece(Protocol):
    """Files that are opened together, by a task."""

    @property
    def files(self) -> list[str]: ...

    @property
    def rows(self) -> int | None:
        """How many; None if only reading them would tell."""
        ...

    @property
    def unit(self) -> int:
        """Rows that are best read together."""
        ...

    def part(self, start: int, stop: int) -> Piece:
        """The same, for a task that reads no other rows."""
        ...

    def open(self, columns: Sequence[str]) -> Reader: ...


def pieces_of(source: Source, reopen: Callable[[], Source], skip: bool) -> list[Piece]:
    """A source as pieces: its files, where they can be opened alone."""
    if isinstance(source, TFRecordSource):
        return [_record_piece(source, shard, skip) for shard in source.shards()]
    if isinstance(source, ChainSource) and isinstance(reopen, Opening):
        return [_FilePiece.of(part, reopen) for part in source.parts]
    return [_FilePiece.of(source, reopen)]


@dataclass(frozen=True)
class _FilePiece:
    """Files whose headers tell where their rows are."""

    reopen: Callable[[], Source]
    files: list[str]
    rows: int | None
    unit: int

    @classmethod
    def of(cls, source: Source, reopen: Callable[[], Source]) -> Piece:
        files = [os.path.abspath(file) for file in source.files]
        return cls(reopen, files, len(source), source.chunk_rows)

    def part(self, start: int, stop: int) -> Piece:
        return self

    def open(self, columns: Sequence[str]) -> Reader:
        if isinstance(self.reopen, Opening):
            return self.reopen.only(self.files, columns)()
        return select(self.reopen(), columns, self.files[0])


def _record_piece(source: TFRecordSource, shard: RecordFile, skip: bool) -> Piece:
    codec = source.codec
    path = os.path.abspath(shard.path)
    if isinstance(shard, PlainFile):
        shard.count()  # so that each task can begin at a record of its own
        return _PlainPiece(path, shard.size, codec, source.verify, shard.index)
    count = shard.known_count()
    assert shard.compression is not None
    return _CompressedPiece(path, shard.compression, codec, source.verify, count, skip)


@dataclass(frozen=True)
class _PlainPiece:
    """A TFRecord file, and where its records are."""

    path: str
    size: int
    codec: ExampleDecoder
    verify: bool
    index: Index
    unit: int = 1

    @property
    def files(self) -> list[str]:
        return [self.path]

    @property
    def rows(self) -> int | None:
        return self.index.count

    def part(self, start: int, stop: int) -> Piece:
        return replace(self, index=self.index.span(start, stop, _MARKS))

    def open(self, columns: Sequence[str]) -> Reader:
        shard = PlainFile(self.path, self.verify, self.index)
        if shard.size != self.size:
            raise DataError(
                f"{self.path}: it has {shard.size:,} bytes, but had {self.size:,} when it was "
                "opened; open it again",
                file=self.path,
            )
        return _RecordReader(shard, _chosen(self.codec, columns))


@dataclass(frozen=True)
class _CompressedPiece:
    """A TFRecord file that can only be read from its beginning."""

    path: str
    compression: Literal["gzip", "zlib"]
    codec: ExampleDecoder
    verify: bool
    rows: int | None
    skip: bool

    @property
    def files(self) -> list[str]:
        return [self.path]

    @property
    def unit(self) -> int:
        return max(1, self.rows or 1)

    def part(self, start: int, stop: int) -> Piece:
        return self

    def open(self, columns: Sequence[str]) -> Reader:
        shard = CompressedFile(self.path, self.compression, self.verify, None)
        if self.skip:
            # All columns: a record is bad if any of them is.
            survey(shard, self.codec, None, True)
        return _RecordReader(shard, _chosen(self.codec, columns))


def _chosen(codec: ExampleDecoder, columns: Sequence[str]) -> ExampleDecoder:
    return codec if list(columns) == list(codec.schema) else codec.select(columns)


class _RecordReader:
    def __init__(self, shard: Any, codec: ExampleDecoder) -> None:
        self._shard: RecordFile = shard
        self._codec = codec

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        return self._shard.read(self._codec, start, stop, limit)
