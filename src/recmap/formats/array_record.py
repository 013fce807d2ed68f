"""ArrayRecord files, through the ``array_record`` package: Examples, or records as bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError, DataError
from recmap.formats.record_readers import RecordReaders, array_record_module, framed
from recmap.formats.sink import Sink, SinkKind
from recmap.formats.tfds.array_record import ArrayRecordSource
from recmap.formats.tfrecord_schema import sampled_schema
from recmap.local.output import Output
from recmap.model.arguments import as_whole
from recmap.model.coerce import as_columns, fit
from recmap.model.facts import SourceFacts
from recmap.model.field import Field
from recmap.model.ragged import Ragged
from recmap.model.schema import Batch, FieldsLike, Schema
from recmap.model.source import Source
from recmap.native import _core
from recmap.tfrecord.encoder import Encoder, little_endian
from recmap.tfrecord.survey import Seen, Summary

# Records looked at: all over the files, or the first of a long read.
_SAMPLED, _LOOKED_AT = 64, 64
# The column of records that are not Examples.
_RECORD = "record"
_BYTES = Schema({_RECORD: "bytes"})
# Bytes of a frame before the record in it, and after.
_BEFORE, _AFTER = 12, 4


def open_array_record(files: Sequence[str], fields: FieldsLike | None = None) -> Source:
    """Open records as tf.train.Examples if all that are looked at are; otherwise as bytes."""
    readers = RecordReaders(files)
    summary = _summary(readers)
    asked = list(fields or ())
    if summary is None or (asked == [_RECORD] and _RECORD not in summary.features):
        return RecordBytes(readers)
    choice = sampled_schema(files[0], fields, summary)
    return ArrayRecordSource(readers, choice.decoder, None, choice.origin)


def _summary(readers: RecordReaders) -> Summary | None:
    """Return what is in some of the records; None if they are not Examples."""
    rows = np.unique(np.linspace(0, max(len(readers) - 1, 0), _SAMPLED).astype(np.int64))
    rows = rows[: len(readers)]
    facts = _core.inspect(*framed(readers.read(rows)), False)
    if facts.not_example is not None:
        return None
    summary = Summary()
    summary.add(facts, lambda row: Seen(*readers.where(int(rows[row])), 0))
    return summary if summary.features else None


class RecordBytes(Source):
    """One column of bytes: the records, whatever they are."""

    def __init__(self, readers: RecordReaders) -> None:
        self._readers = readers

    @property
    def schema(self) -> Schema:
        return _BYTES

    @property
    def facts(self) -> SourceFacts:
        return SourceFacts("array_record", self._readers.files, owns_rows=True)

    def __len__(self) -> int:
        return len(self._readers)

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        rows = np.arange(start, max(start, min(stop, len(self))), dtype=np.int64)
        if limit is None or not len(rows):
            return self.gather(rows)
        records = self._readers.read(rows[:_LOOKED_AT])
        # The sizes of the next records are probably those of the first few.
        ends = np.cumsum([len(record) + 8 for record in records])
        fitting = max(1, int(np.searchsorted(ends, limit, side="right")))
        if fitting < len(records):
            return _batch(records[:fitting])
        each = max(1, int(ends[-1]) // len(records))
        return self.gather(rows[: max(fitting, limit // each)])

    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        return _batch(self._readers.read(rows))

    def select(self, names: Sequence[str]) -> RecordBytes:
        _BYTES.select(names)
        return self


def _batch(records: Sequence[bytes]) -> Batch:
    return {_RECORD: Ragged.from_bytes(records)}


class ArrayRecordSink(Sink):
    """Writes rows as Examples, or a column ``record`` of bytes as it is.

    ``group_size`` is how many records are compressed together. With 1, the default, any record is
    read alone.
    """

    def __init__(self, output: Output, schema: Schema, *, group_size: int = 1) -> None:
        group_size = as_whole("group_size", group_size, 1, 2**20)
        self._encoder = None
        if dict(schema) != {_RECORD: Field("bytes")}:
            self._encoder = Encoder(schema, describe=True)
        if self._encoder is not None and self._encoder.lead:
            raise ColumnError(
                f"{output.target}: Examples do not keep the types of {schema}, only float32, "
                "int64 and bytes with one value or a fixed number of them. Cast the columns, or "
                "write .tfrecord"
            )
        super().__init__(output, schema)
        module = array_record_module()
        self._writer = module.ArrayRecordWriter(output.path, f"group_size:{group_size}")
        self._rows = 0

    def write(self, batch: Mapping[str, Any]) -> None:
        columns, rows = fit(as_columns(batch), self.schema)
        for record in self._records(columns, rows) if rows else ():
            self._checked(self._writer.write, record)
        self._rows += rows

    def _records(self, columns: Batch, rows: int) -> list[bytes]:
        if self._encoder is None:
            column = columns[_RECORD]
            assert isinstance(column, Ragged)
            records: list[bytes] = column.tolist()
            return records
        encoded, offsets = self._encoder.encode(columns, rows, self._rows)
        edges = offsets.tolist()
        whole = encoded.tobytes()
        return [whole[begin + _BEFORE : end - _AFTER] for begin, end in pairwise(edges)]

    def _checked(self, call: Any, *arguments: Any) -> None:
        try:
            call(*arguments)
        except (RuntimeError, ValueError) as e:
            path = self.output.target
            raise DataError(f"{path}: cannot be written: {e}", file=path) from e

    def end(self) -> None:
        self._checked(self._writer.close)

    def close(self) -> None:
        if self._writer.is_open():
            self._writer.close()


SINK = SinkKind(ArrayRecordSink, untyped=True, stored=little_endian)
