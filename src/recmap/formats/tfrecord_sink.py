"""The sink for TFRecord files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from recmap.errors import OptionError
from recmap.formats.sink import Sink, SinkKind
from recmap.local.output import Compression, Output, Spooler, choose_compression
from recmap.model.arguments import as_mapping, as_whole, check_choice, check_flag
from recmap.model.batch import pick
from recmap.model.coerce import as_columns, fit
from recmap.model.nulls import refuse_null_items
from recmap.model.ragged import Column, Ragged
from recmap.model.schema import Batch, Schema
from recmap.tfrecord.encoder import Encoder, little_endian
from recmap.tfrecord.index import Index
from recmap.tfrecord.sidecar import (
    Sidecar,
    mark_checked,
    remove_sidecar,
    save_sidecar,
    settled_change,
    sidecar_path,
)

# Bytes encoded at a time.
_BLOCK = 8 << 20
# Bytes of a record besides its values, and of each of its features besides its name.
_RECORD, _FEATURE = 24, 16
# The bytes that an integer may take, whatever its type: negative ones take all of them.
_LONGEST = 10


@dataclass(frozen=True)
class RecordOptions:
    """How records are written. ``of`` checks what a user gives."""

    compression: Compression = None
    align: int | None = None
    encoding: Mapping[str, str] | None = None
    index: bool = True
    describe: bool = True

    @classmethod
    def of(
        cls,
        path: str,
        compression: Compression,
        align: int | None,
        encoding: Mapping[str, str] | None,
        index: bool,
        describe: bool,
    ) -> RecordOptions:
        """Check the options for a file. Its name may say that it is compressed."""
        check_choice("compression", compression, ("gzip", "zlib", None))
        align = None if align is None else as_whole("align", align)
        if encoding is not None:
            encoding = as_mapping("encoding", encoding, '{"x": "raw"}')
        for name, flag in {"index": index, "describe": describe}.items():
            check_flag(name, flag)
        compression = choose_compression(path, compression)
        if align and compression:
            raise OptionError("align has no use in a compressed file, which cannot be mapped")
        return cls(compression, align, encoding, index, describe)

    def encoder(self, schema: Schema, table_note: Mapping[str, Any] | None = None) -> Encoder:
        """Return what encodes rows of a schema."""
        refuse_null_items(schema, "lists in TFRecord files cannot hold nulls")
        return Encoder(
            little_endian(schema),
            self.encoding,
            self.align,
            describe=self.describe,
            table_note=table_note,
        )


class TFRecordSink(Sink):
    """Writes the records of one file, and its index."""

    def __init__(
        self,
        output: Output,
        encoder: Encoder | None,
        options: RecordOptions,
        spooler: Spooler | None = None,
    ) -> None:
        """``encoder`` may be set later, before the first row."""
        super().__init__(output, encoder.schema if encoder else Schema({}))
        self.encoder, self._options = encoder, options
        self.stream = output.stream(options.compression, spooler)
        self.records = self.stream if options.compression is None else None
        self._index = Index()
        output.accompany(sidecar_path, self._save_index)

    def write(self, batch: Mapping[str, Any]) -> None:
        columns, rows = fit(as_columns(batch), self.schema)
        for block, count in encoded_at_once(columns, rows):
            self.append(block, count, self._index.count)

    def append(self, block: Batch, rows: int, first: int) -> None:
        """Encode rows with the columns of the schema. The first has number ``first``."""
        assert self.encoder is not None
        if rows == 0:
            return
        begins = self._index.count == 0
        records, offsets = self.encoder.encode(block, rows, first, begins=begins)
        self._index.add_written(offsets)
        self.stream.write(records)

    def end(self) -> None:
        """Do nothing: after the last record, the file ends."""

    def commit(self) -> None:
        super().commit()
        self.mark_checked()

    def mark_checked(self) -> None:
        """Let columns of the file be mapped without a check, as long as it does not change."""
        if self._options.index and self.encoder is not None and self.encoder.fixed_fields():
            path = self.output.target
            mark_checked(path, settled_change(path))

    def _save_index(self, data: str, path: str) -> None:
        """Write the index of ``path``. ``data`` is where the records are now."""
        index = self._index
        if not self._options.index or self.encoder is None:
            remove_sidecar(path)
            return
        # If the first record is longer for another reason, its fields have other offsets.
        mapped = index.count == 1 or index.lead == len(self.encoder.lead)
        if self._options.compression is not None:
            start = np.zeros(min(index.count, 1), np.uint64)
            index = Index.of_anchors(index.count, None, start, start, index.end)
        save_sidecar(
            data,
            Sidecar(
                index,
                self.encoder.schema,
                {name: str(e) for name, e in self.encoder.encoding.items()},
                verified=True,
                mapped=self.encoder.fixed_fields() if mapped else (),
                written=True,
                table_note=self.encoder.table_note,
            ),
            beside=path,
        )


def encoded_at_once(columns: Batch, rows: int) -> Iterator[tuple[Batch, int]]:
    """Yield the rows of a batch in blocks, with the number of rows of each."""
    step = max(1, _BLOCK * rows // max(_encoded_size(columns, rows), 1))
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        yield pick(columns, slice(start, stop)), stop - start


def _encoded_size(columns: Batch, rows: int) -> int:
    """Return how many bytes rows may take as records: far more than in memory, if they are few."""
    overhead = _RECORD + sum(_FEATURE + len(name.encode()) for name in columns)
    return rows * overhead + sum(map(_encoded_values, columns.values()))


def _encoded_values(column: Column) -> int:
    size = column.nbytes
    while isinstance(column, Ragged):
        column = column.flat
    return size * _LONGEST // column.itemsize if column.dtype.kind == "i" else 2 * size


def create_tfrecord(
    output: Output,
    schema: Schema,
    *,
    compression: Compression = None,
    align: int | None = None,
    encoding: Mapping[str, str] | None = None,
    index: bool = True,
    describe: bool = True,
    table_note: Mapping[str, Any] | None = None,
) -> TFRecordSink:
    """Create one output file of a conversion."""
    options = RecordOptions.of(output.target, compression, align, encoding, index, describe)
    return TFRecordSink(output, options.encoder(schema, table_note), options)


def _streams(path: str, schema: Schema, options: Mapping[str, Any]) -> bool:
    """Return whether records are sent as they are written: compressed ones are checked before."""
    del schema
    return choose_compression(path, options.get("compression")) is None


SINK = SinkKind(create_tfrecord, streams=_streams, untyped=True, stored=little_endian, nulls="rows")
