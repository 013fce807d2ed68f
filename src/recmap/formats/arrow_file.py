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
from recmap.files.mapped_files import map_file
from recmap.files.memory import also_give_back
from recmap.files.spans import Places
from recmap.formats.arrow_columns import ArrowColumns
from recmap.formats.row_group_file import RowGroupFile
from recmap.formats.row_group_sink import RowGroupSink
from recmap.formats.row_groups import RowGroupSource
from recmap.model.arguments import check_choice
from recmap.model.nulls import Nulls
from recmap.model.schema import Batch, FieldsLike, Schema

__all__ = ["ArrowFileSink", "open_arrow"]

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
    kept = {name: file.schema[name] for name in names}
    return RowGroupSource(file, names, partial(open_arrow, path, kept, nulls=nulls))


class _ArrowFile(RowGroupFile):
    def __init__(self, path: str, fields: FieldsLike | None, nulls: Nulls) -> None:
        super().__init__(path, map_file(path))
        self._messages = read_messages(self.mapped)
        if self._messages.dictionaries and not self._messages.is_file:
            raise DataError(
                f"{path}: a stream with dictionaries can only be read from its beginning; write "
                "an Arrow file or Parquet",
                file=path,
            )
        try:
            with self.mapped.hold(*self._places([])):
                self._arrow_schema: Any = self._open(None).schema
        except RecmapError:
            raise
        except _FAILURES as e:
            raise DataError(f"{path}: not a sound Arrow file: {e}", file=path) from e
        alone = [
            (field.name, pa.RecordBatchReader.from_batches(pa.schema([field]), []))
            for field in self._arrow_schema
        ]
        self.columns = ArrowColumns(path, alone, self._arrow_schema.metadata, nulls, fields)
        self._compressed = any(message.compressed for message in self._messages.batches)

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
    def in_place(self) -> bool:
        return not self._compressed and self.mapped.whole

    @property
    def decodes_whole(self) -> bool:
        return self._compressed

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
        message = self._messages.batches[group]
        try:
            if self._messages.is_file:
                fields = sorted({self.columns.owners[name] for name in names})
                read = self._open(fields).get_batch(group)
            else:
                data = pa.py_buffer(self.mapped.bytes[message.begin : message.end])
                read = pa.ipc.read_record_batch(pa.ipc.read_message(data), self._arrow_schema)
            read.validate()
            first = self.first_row(group)
            for start in range(0, read.num_rows, rows):
                yield self.columns.batch(read.slice(start, rows), names, first + start)
        except RecmapError:
            raise
        except _FAILURES as e:
            raise self.damaged(group, e) from e


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
