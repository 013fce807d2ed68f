"""Arrow files and streams (.arrow, .feather), read and written through pyarrow.

The record batches are row groups. Those that are not compressed are views of the mapped file.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recmap.errors import DataError, RecmapError
from recmap.formats.arrow_columns import ARROW_FAILURES, ArrowColumns, check_values, decoding
from recmap.formats.arrow_messages import ArrowMessage, read_messages
from recmap.formats.arrow_sizes import bytes_before, check_offsets
from recmap.formats.exact_types import arrow_fields
from recmap.formats.row_group_file import Cells, Cuts, RowGroupFile, check_groups, cut, even_cuts
from recmap.formats.row_group_sink import RowGroupSink
from recmap.formats.row_groups import RowGroupSource
from recmap.formats.sink import SinkKind
from recmap.formats.stored_columns import noted_fields
from recmap.local.local_path import located
from recmap.local.output import Output
from recmap.machine.mapped import guarded
from recmap.machine.memory import also_give_back
from recmap.machine.spans import Places
from recmap.model.arguments import check_choice
from recmap.model.batch import RowArray
from recmap.model.nulls import Nulls
from recmap.model.schema import Batch, FieldsLike, Schema
from recmap.model.table_notes import arrow_types, stored_types

also_give_back(pa.default_memory_pool().release_unused)

# Cells that rows are divided into to find large ones, and the part of a piece that one may have.
_CELLS, _PART = 256, 4


def open_arrow(
    path: str, fields: FieldsLike | None = None, *, nulls: Nulls = "keep"
) -> RowGroupSource:
    """Open a file or a stream, or some of its columns."""
    file = _ArrowFile(path, fields, nulls)
    names = file.columns.choose(fields, file.index_names)
    # Reopen by name, so that the warning about columns left out is not repeated.
    reopen = partial(open_arrow, path, file.columns.fields(names), nulls=nulls)
    return RowGroupSource(file, names, reopen)


class _ArrowFile(RowGroupFile):
    format = "arrow"

    def __init__(self, path: str, fields: FieldsLike | None, nulls: Nulls) -> None:
        super().__init__(path, located(path).map())
        self._threads, self._nulls = threading.local(), nulls
        self._messages = read_messages(self.mapped)
        self.group_rows = np.array([message.rows for message in self._messages.batches], np.int64)
        try:
            with self.mapped.hold(*self._places([])):
                self._arrow_schema: Any = self._open(None).schema
            alone = [
                (field.name, pa.RecordBatchReader.from_batches(pa.schema([field]), []))
                for field in self._exact_fields()
            ]
            metadata = self._arrow_schema.metadata
            noted, types = noted_fields(metadata), arrow_types(self._arrow_schema)
        except RecmapError:
            raise
        except ARROW_FAILURES as e:
            raise DataError(f"{path}: not a valid Arrow file: {e}", file=path) from e
        self.columns = ArrowColumns(path, alone, noted, nulls, fields)
        self.alternatives = self.columns.alternatives
        stored = (*self._messages.dictionaries, *self._messages.batches)
        self._compressed = any(message.compressed for message in stored)
        # Whether pyarrow makes a copy of a whole batch.
        streamed = bool(self._messages.dictionaries) and not self._messages.is_file
        self.packed = self._compressed or self._messages.big_endian or streamed
        self.in_place = not self.packed and self.mapped.whole
        self.columns.compare_notes(self)
        self.table_types = stored_types(types, metadata, self.schema)

    def _exact_fields(self) -> Any:
        if self._nulls not in ("keep", "mask"):
            return self._arrow_schema
        messages = self._messages
        dictionaries = any(message.nulls for message in messages.dictionaries)
        return arrow_fields(self._arrow_schema, messages.nulls, dictionaries)

    def _opened(self, fields: list[int] | None) -> Any:
        """Return the file as this thread has opened it, to read some columns, by number.

        Opening it takes as long as it has record batches.
        """
        key = None if fields is None else tuple(fields)
        opened = self._threads.__dict__.setdefault("opened", {})
        if key not in opened:
            opened.clear()
            opened[key] = self._open(fields)
        return opened[key]

    def _open(self, fields: list[int] | None) -> Any:
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
    def schema(self) -> Schema:
        return self.columns.schema

    @property
    def note(self) -> str:
        batches = len(self._messages.batches)
        note = "1 record batch" if batches == 1 else f"{batches:,} record batches"
        return f"{note}, compressed" if self._compressed else note

    def can_take(self, names: Sequence[str]) -> bool:
        types = [self._arrow_schema.field(self.columns.owners[name]).type for name in names]
        kept = self._nulls in ("error", "keep")
        return self.in_place and kept and all(map(_is_fixed, types))

    def take(self, group: int, names: Sequence[str], rows: RowArray) -> Batch | None:
        with decoding(self, group):
            read = self._read(group, names)
            nullable = all(self.schema[name].nullable for name in names)
            if not nullable and any(column.null_count for column in read.columns):
                return None  # reading them says which row has one
            return self.columns.batch(read.take(pa.array(rows)), names, self.first_row(group))

    def row_bytes(self, name: str) -> int:
        known = [field.row_bytes for field in self.schema.values()]
        mine = self.schema[name].row_bytes
        if mine is not None:
            return mine
        # What the other columns do not take is that of the columns whose rows differ.
        rows = int(self.group_rows.sum())
        decoded = sum(message.decoded for message in self._messages.batches)
        left = decoded // max(1, rows) - sum(size for size in known if size is not None)
        return max(1, left // known.count(None))

    def spans(self, group: int, names: Sequence[str]) -> tuple[Places, Places]:
        del names  # they are close to each other
        return self._places([self._messages.batches[group]])

    def largest_unit(self, names: Sequence[str]) -> tuple[int, int]:
        del names  # a compressed batch has a buffer for each, but in a store all are held
        dictionaries = sum(map(_size, self._messages.dictionaries))
        sizes = [dictionaries + _size(message) for message in self._messages.batches]
        return max(zip(sizes, range(len(sizes)), strict=True), default=(0, 0))

    def cuts(
        self, group: int, row_bytes: Mapping[str, int], size: int, whole: int | None = None
    ) -> Cuts:
        message = self._messages.batches[group]
        varying = [name for name in row_bytes if self.schema[name].row_bytes is None]
        each = sum(bytes for name, bytes in row_bytes.items() if name not in varying)
        if varying and (self.in_place or self._messages.dictionaries):
            del whole  # looking at offsets takes little
            with self.mapped.hold(*self.spans(group, varying)):
                return self._measured_cuts(group, varying, each, size)
        if varying:
            each = max(each, message.decoded // max(1, message.rows))
        if each * message.rows <= 2 * message.decoded and not self.in_place:
            # It is in memory, and pieces of it would be views.
            return Cuts(np.array([0, message.rows]), np.array([message.decoded]))
        return even_cuts(message.rows, each, size)

    def _measured_cuts(self, group: int, names: Sequence[str], each: int, size: int) -> Cuts:
        with decoding(self, group):
            read = self._read(group, names)
            cells = _cells(read.columns, 0, read.num_rows, max(1, size // _PART))
        return cut([Cells(*cells)], read.num_rows, each, size)

    def _read(self, group: int, names: Sequence[str]) -> Any:
        """Read the columns of a record batch that these columns are in."""
        read = self._batch(group, sorted({self.columns.owners[name] for name in names}))
        read.validate()
        return read

    def batches(self, group: int, names: Sequence[str], cuts: Cuts) -> Iterator[Batch]:
        with decoding(self, group):
            read = self._read(group, names)
            if read.num_rows != self.group_rows[group]:
                raise self.damaged(group, f"it has {read.num_rows:,} rows")
            if len(cuts.sizes) > 1:
                for column in read.columns:
                    check_offsets(column)
            message = self._messages.batches[group]
            part = read.nbytes / max(1, message.decoded)  # that these columns take
            size = message.end - message.begin
            self.mapped.load_ahead(message.begin, message.end, int(part * size))
            first = self.first_row(group)
            for start, stop in pairwise(cuts.starts.tolist()):
                yield self.columns.batch(read.slice(start, stop - start), names, first + start)

    def _batch(self, group: int, fields: list[int]) -> Any:
        """Read some columns of a record batch, by number."""
        messages, message = self._messages, self._messages.batches[group]
        if messages.is_file and self.packed:
            return self._opened(fields).get_batch(group)
        if messages.is_file and messages.dictionaries:
            # Unlike one that is asked for some columns, this reader copies nothing.
            return self._opened(None).get_batch(group).select(fields)
        if not self.packed:
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
        unread = suppress(pa.ArrowNotImplementedError)  # pyarrow does not read one of the columns
        with decoding(self, group), unread, self.mapped.hold(*self.spans(group, ())):
            check_values(self._batch(group, list(range(len(self._arrow_schema)))))


def check_arrow(path: str) -> Iterator[tuple[int, DataError | None]]:
    """Decode all of a file, and yield the rows of each batch and what is wrong with it."""
    return check_groups(_ArrowFile(path, None, "error"))


def _size(message: ArrowMessage) -> int:
    """Return the bytes that a message takes in memory, as it is stored or decoded."""
    return max(message.decoded, message.end - message.begin)


def _is_fixed(kind: Any) -> bool:
    """Return whether the values of an Arrow type are numbers or bools, in rows of one size."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_fixed_size_list(kind):
        return _is_fixed(kind.value_type)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return bool(is_number or pa.types.is_boolean(kind))


def _cells(
    columns: Sequence[Any], first: int, stop: int, most: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Divide rows into cells of at most ``most`` bytes, or of one row."""
    edges = np.unique(np.linspace(first, stop, min(_CELLS, stop - first) + 1).astype(np.int64))
    before = sum(bytes_before(column, edges) for column in columns)
    sizes = np.diff(before)
    large = np.flatnonzero((sizes > most) & (np.diff(edges) > 1))
    ends, found = np.split(edges[1:], large), np.split(sizes, large)
    for number, cell in enumerate(large.tolist(), 1):
        inner = _cells(columns, int(edges[cell]), int(edges[cell + 1]), most)
        ends[number] = np.append(inner[0], ends[number][1:])
        found[number] = np.append(inner[1], found[number][1:])
    return np.concatenate(ends), np.concatenate(found)


class ArrowFileSink(RowGroupSink):
    """Writes record batches, each of as many rows as fit into the memory.

    ``row_group_rows`` sets a number of rows instead. Without compression, rows are read in place.
    """

    def __init__(
        self,
        output: Output,
        schema: Schema,
        *,
        compression: Literal["zstd", "lz4"] | None = None,
        row_group_rows: int | None = None,
        tensors: Literal["extension", "list"] = "extension",
        room: int | None = None,
        table_types: Mapping[str, Any] | None = None,
    ) -> None:
        check_choice("compression", compression, ("zstd", "lz4", None))
        self._compression = compression
        self._writer: Any = None
        super().__init__(output, schema, row_group_rows, tensors, room, table_types)

    def begin(self, file: Any, empty: Any, metadata: Mapping[bytes, bytes]) -> None:
        arrow = pa.RecordBatchReader.from_stream(empty).schema.with_metadata(metadata)
        options = pa.ipc.IpcWriteOptions(compression=self._compression, use_threads=False)
        self._writer = pa.ipc.new_file(file, arrow, options=options)

    def write_group(self, rows: Any) -> None:
        for batch in pa.RecordBatchReader.from_stream(rows):
            self._writer.write_batch(batch)

    def end_groups(self) -> None:
        self._writer.close()


SINK = SinkKind(ArrowFileSink, streams=True, nulls="values", column_bytes=8_000)
