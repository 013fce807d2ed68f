"""Sink: writes rows. Every format that recmap writes has one, and a SinkKind that makes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.local.output import Output, OutputStream
from recmap.model.schema import Schema
from recmap.model.source import Source

# Memory is counted only for columns beyond this number.
_FEW_COLUMNS = 100
# Maximum bytes of one column that wait to fill a chunk.
_WAITING = 24_000
# Maximum bytes that one column of an open file takes.
_OPENED = 11_000
# How many columns a library holds ready to read, beyond the first few.
_READY = 200


class Sink(ABC):
    """Writes rows to an output, which appears on commit."""

    #: The stream of whole records, if they can be checked one by one while they are written.
    records: OutputStream | None = None

    def __init__(self, output: Output, schema: Schema) -> None:
        self.output, self.schema = output, schema

    @abstractmethod
    def write(self, batch: Mapping[str, Any]) -> None:
        """Append the rows of a batch: a dict of columns of equal length."""

    @abstractmethod
    def end(self) -> None:
        """Write what comes after the last row."""

    def close(self) -> None:
        """Let go of what is open, before what was written is removed."""
        return

    def finish(self) -> str:
        """Write the remaining data, and return the temporary name of the file.

        It is empty if the file has none, because it is being sent to a store.
        """
        if not self.output.finished:
            self.end()
            self.output.finish()
        return self.output.path

    def commit(self) -> None:
        """Finish if necessary, and let the output appear."""
        self.finish()
        self.output.commit()

    def abort(self) -> None:
        """Remove everything that was written."""
        try:
            self.close()
        finally:
            self.output.abort()


# Returns the statistics of the numbers and the encoded images of rows, given the names of the
# images: for each column, arrays by what they are, such as "mean".
StatsOf: TypeAlias = Callable[[Source, Sequence[str]], Mapping[str, Mapping[str, npt.NDArray[Any]]]]


@dataclass(frozen=True)
class Written:
    """The shards of an output that are all there, for what they have in common.

    ``rows`` and ``sizes`` are the rows and the bytes of each. ``stats`` may be called once the
    shards can be read.
    """

    path: str
    source: Source
    shards: Sequence[str]
    rows: Sequence[int]
    sizes: Sequence[int]
    options: Mapping[str, Any]
    stats: StatsOf | None


@dataclass(frozen=True)
class SinkKind:
    """How the files of a format are written: what makes a sink, and what else callers need to know.

    ``create`` takes ``output`` and ``schema`` and returns a ``Sink``. Its other parameters are
    options of ``rm.convert``, except ``expected``, the number of rows that will be written,
    ``room``, the bytes of rows that may be held in memory, and what the source says about its
    columns: ``labels``, ``descriptions`` and ``table_types``, or only ``table_note``.
    """

    create: Callable[..., Sink]
    #: Whether an object is sent while it is written, given its path, schema and options, and the
    #: ``expected`` rows. If not, it is made on disk first.
    streams: bool | Callable[[str, Schema, Mapping[str, Any]], bool] = False
    #: Whether the files do not tell the types of their columns, so that reading takes a schema.
    untyped: bool = False
    #: Whether the sink takes care of a description beside the file.
    describes: bool = False
    #: Returns the types that the files hold. Columns are cast to them.
    stored: Callable[[Schema], Schema] | None = None
    #: How the files hold nulls: as values of their own, or only as rows, not as items of lists,
    #: or by masks next to the columns.
    nulls: Literal["values", "rows", "masks"] | None = None
    #: The bytes per column, besides its rows, while a file is written and checked.
    column_bytes: int = 3_000
    #: The bytes that the format's library takes for each column that it holds ready to read.
    ready_bytes: int = 0
    #: The most bytes of rows that wait to fill chunks, including overhead.
    waiting_bytes: int = 0
    #: How many additional copies of lists the format's library holds while reading them.
    list_copies: int = 0
    #: Returns the names of so many shards, given the name in ``place``; even one has its own.
    names: Callable[[str, int], Sequence[str]] | None = None
    #: Columns that count from 0 in each file, and are not compared with the rows of the source.
    counted: Sequence[str] = ()
    #: Returns the path of a second file that belongs to each file.
    beside: Callable[[str], str] | None = None
    #: Returns the path of the shards, given that of the user and the options.
    place: Callable[[str, Mapping[str, Any]], str] | None = None
    #: Returns the rows as the files hold them, such as those of an episode in one, given all rows
    #: and the options.
    arrange: Callable[[Source, Mapping[str, Any]], Source] | None = None
    #: Returns the rows that a shard may begin with, and the number of rows, given what
    #: ``arrange`` returned. By default, that is any row.
    starts: Callable[[Source], npt.NDArray[np.int64]] | None = None
    #: Refuses an output that could not be completed, given its path, its schema, the paths of its
    #: shards, and whether they may be overwritten.
    begin: Callable[[str, Schema, Sequence[str], bool], None] | None = None
    #: Writes what the shards have in common.
    complete: Callable[[Written], None] | None = None

    def sends(self, path: str, schema: Schema, options: Mapping[str, Any]) -> bool:
        """Return whether an object is sent while it is written."""
        if isinstance(self.streams, bool):
            return self.streams
        return self.streams(path, schema, options)

    def column_memory(self, schema: Schema, opened: int) -> int:
        """Return the memory that many columns take in addition to their rows.

        This counts the file being written and each of the ``opened`` files.
        """
        many = max(0, len(schema) - _FEW_COLUMNS)
        waiting = min(many * _WAITING, self.waiting_bytes)
        ready = min(many, _READY) * self.ready_bytes
        return many * self.column_bytes + waiting + ready + opened * many * _OPENED

    def read_copies(self, schema: Schema) -> int:
        """Return how many additional copies of rows are held while a file is read."""
        lists = any(field.is_bytes or field.ragged for field in schema.values())
        return self.list_copies if lists else 0
