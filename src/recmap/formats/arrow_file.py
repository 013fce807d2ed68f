"""Arrow files and streams (.arrow, .feather), read and written through pyarrow.

The record batches are row groups. Those that are not compressed are views of the mapped file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recmap.errors import DataError, RecmapError
from recmap.files.arrow_messages import read_messages
from recmap.files.mapped import guarded
from recmap.files.mapped_files import map_file
from recmap.files.memory import also_give_back
from recmap.files.spans import Places
from recmap.formats.arrow_columns import ArrowColumns, check_values
from recmap.formats.row_group_file import RowGroupFile, check_groups
from recmap.formats.row_group_sink import RowGroupSink
from recmap.formats.row_groups import RowGroupSource
from recmap.model.arguments import check_choice
from recmap.model.nulls import Nulls
from recmap.model.schema import Batch, FieldsLike, Schema

__all__ = ["ArrowFileSink", "check_arrow", "open_arrow"]

also_give_back(pa.default_memory_pool().release_unused)

# What pyarrow raises for damaged files.
_FAILURES = (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError, RuntimeError)


def open_arrow(
    path: str, fields: FieldsLike | None = None, *, nulls: Nulls = "error"
) -> RowGroupSource:
    """Open a file or a stream, or some of its columns."""
    file = _ArrowFile(path, fields, nulls)
    names = file.columns.choose(fields)
    # Reopen by name, so that the warning about columns left out is not repeated.
    reopen = partial(open_arrow, path, file.columns.fields(names), nulls=nulls)
    return RowGroupSource(file, names, reopen)


class _ArrowFile(RowGroupFile):
    def __init__(self, path: str, fields: FieldsLike | None, nulls: Nulls) -> None:
        super().__init__(path, map_file(path))
        self._messages = read_messages(self.mapped)
        try:
            with self.mapped.hold(*self._places([])):
                self._arrow_schema: Any = self._open(None).schema
            alone = [
                (field.name, pa.RecordBatchReader.from_batches(pa.schema([field]), []))
                for field in self._arrow_schema
            ]
        except RecmapError:
            raise
        except _FAILURES as e:
            raise DataError(f"{path}: not a sound Arrow file: {e}", file=path) from e
        self.columns = ArrowColumns(path, alone, self._arrow_schema.metadata, nulls, fields)
        self._compressed = any(message.compressed for message in self._messages.batches)
        # Whether pyarrow makes a copy of a whole batch.
        streamed = bool(self._messages.dictionaries) and not self._messages.is_file
        self._copied = self._compressed or self._messages.big_endian or streamed
        self.columns.compare_notes(self)

    def _open(self, fields: list[int] | None) -> Any:
        """Open the file to read some columns, by number."""
        options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=fields)
        source = pa.BufferReader(pa.py_buffer(self.mapped.bytes))
        opened = pa.ipc.open_file if self._messages.is_file else pa.ipc.open_stream
        return opened(source, options=options)

    def _places(self, messages: Sequence[Any]) -> tuple[Places, Places]:
        """Return where messages are, and what is needed to read any of them."""
        needed = [(m.begin, m.end) for m in (*self._messages.dictionaries, *messages)]
        spans = np.array([self._messages.head, *needed], np.int64)
        return spans[:, 0], spans[:, 1]

    @property
    def format(self) -> str:
        return "arrow"

    @property
    def schema(self) -> Schema:
        return self.columns.schema

    @property
    def group_rows(self) -> npt.NDArray[np.int64]:
        return np.array([message.rows for message in self._messages.batches], np.int64)

    @property
    def note(self) -> str:
        batches = len(self._messages.batches)
        note = "1 record batch" if batches == 1 else f"{batches:,} record batches"
        return f"{note}, compressed" if self._compressed else note

    @property
    def packed(self) -> bool:
        return self._copied

    @property
    def in_place(self) -> bool:
        return not self._copied and self.mapped.whole

    @property
    def decodes_whole(self) -> bool:
        return self._copied

    def row_bytes(self, name: str) -> int:
        known = [field.row_bytes for field in self.schema.values()]
        mine = self.schema[name].row_bytes
        if mine is not None:
            return mine
        # What the other columns do not take is that of the columns whose rows differ.
        rows = sum(message.rows for message in self._messages.batches)
        decoded = sum(message.decoded for message in self._messages.batches)
        left = decoded // max(1, rows) - sum(size for size in known if size is not None)
        return max(1, left // known.count(None))

    def spans(self, group: int, names: Sequence[str]) -> tuple[Places, Places]:
        del names  # they are close to each other
        return self._places([self._messages.batches[group]])

    def batches(self, group: int, names: Sequence[str], rows: int) -> Iterator[Batch]:
        try:
            read = self._batch(group, sorted({self.columns.owners[name] for name in names}))
            read.validate()
            first = self.first_row(group)
            for start in range(0, read.num_rows, rows):
                yield self.columns.batch(read.slice(start, rows), names, first + start)
        except RecmapError:
            raise
        except _FAILURES as e:
            raise self.damaged(group, e) from e

    def _batch(self, group: int, fields: list[int]) -> Any:
        """Read some columns of a record batch, by number."""
        messages = self._messages
        if messages.is_file:
            return self._open(fields).get_batch(group)
        message = messages.batches[group]
        if not messages.dictionaries and not messages.big_endian:
            data = pa.py_buffer(self.mapped.bytes[message.begin : message.end])
            read = pa.ipc.read_record_batch(pa.ipc.read_message(data), self._arrow_schema)
            return read.select(fields)
        # Only a reader of streams has dictionaries and swaps bytes: give it a stream of one batch.
        before = [each for each in messages.dictionaries if each.begin < message.begin]
        spans = [messages.head, *((each.begin, each.end) for each in (*before, message))]
        stream = b"".join(self.mapped.bytes[begin:end].tobytes() for begin, end in spans)
        options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=fields)
        return pa.ipc.open_stream(stream, options=options).read_next_batch()

    @guarded
    def check(self, group: int) -> None:
        try:
            with self.mapped.hold(*self.spans(group, ())):
                check_values(self._batch(group, list(range(len(self._arrow_schema)))))
        except RecmapError:
            raise
        except pa.ArrowNotImplementedError:
            return  # pyarrow does not read one of the columns
        except _FAILURES as e:
            raise self.damaged(group, e) from e


def check_arrow(path: str) -> Iterator[tuple[int, DataError | None]]:
    """Decode all of a file, and yield the rows of each batch and what is wrong with it."""
    return check_groups(_ArrowFile(path, None, "error"))


class ArrowFileSink(RowGroupSink):
    """Writes record batches, each of as many rows as fit into the memory.

    ``row_group_rows`` sets a number of rows instead. Without compression, rows are read in place.
    """

    def __init__(
        self,
        path: str,
        schema: Schema,
        *,
        durable: bool = True,
        compression: Literal["zstd", "lz4"] | None = None,
        row_group_rows: int | None = None,
        tensors: Literal["extension", "list"] = "extension",
        room: int | None = None,
    ) -> None:
        check_choice("compression", compression, ("zstd", "lz4", None))
        self._compression = compression
        self._writer: Any = None
        super().__init__(path, schema, durable, row_group_rows, tensors, room)

    def begin(self, output: Any, empty: Any, metadata: Mapping[bytes, bytes]) -> None:
        arrow = pa.RecordBatchReader.from_stream(empty).schema.with_metadata(metadata)
        options = pa.ipc.IpcWriteOptions(compression=self._compression, use_threads=False)
        self._writer = pa.ipc.new_file(output, arrow, options=options)

    def write_group(self, rows: Any) -> None:
        for batch in pa.RecordBatchReader.from_stream(rows):
            self._writer.write_batch(batch)

    def end(self) -> None:
        self._writer.close()
