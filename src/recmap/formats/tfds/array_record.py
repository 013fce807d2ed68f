"""Examples in ArrayRecord files, such as the shards of a TFDS folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError
from recmap.formats.record_readers import RecordReaders, as_records
from recmap.formats.tfds.metadata import INFO
from recmap.formats.tfds.steps import EpisodeRecords
from recmap.machine.cpus import thread_count
from recmap.model.batch import RowArray
from recmap.model.facts import SourceFacts
from recmap.model.row_sizes import fitting
from recmap.model.schema import Batch, Schema
from recmap.tfrecord.decoder import Decoder, ExampleDecoder, StepNumbers

_T = TypeVar("_T")
# Records looked at to judge how many fit into memory, and how much longer values may be than the
# records that hold them.
_LOOKED_AT, _GROWTH = 64, 8


class ArrayRecordSource(EpisodeRecords):
    """The Examples in ArrayRecord files, end to end."""

    def __init__(
        self,
        readers: RecordReaders,
        decoder: ExampleDecoder,
        expected: Sequence[int] | None = None,
        origin: str = "from the file",
    ) -> None:
        """``expected`` is how many records the metadata says each file has."""
        self._readers, self._decoder, self._origin = readers, decoder, origin
        counts = np.diff(readers.starts).tolist()
        for path, count, told in zip(readers.files, counts, expected or counts, strict=True):
            if count != told:
                raise DataError(
                    f"{path}: has {count:,} records, but {INFO} says {told:,}", file=path
                )

    @property
    def schema(self) -> Schema:
        return self._decoder.schema

    @property
    def facts(self) -> SourceFacts:
        return SourceFacts("array_record", self._readers.files, self._origin, owns_rows=True)

    def __len__(self) -> int:
        return len(self._readers)

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        stop = max(start, min(stop, len(self)))
        if limit is not None and stop > start:
            # The size of the next records is probably that of the first few.
            rows = np.arange(start, min(stop, start + _LOOKED_AT), dtype=np.int64)
            records = self._readers.read(rows)
            sizes = _GROWTH * np.array([len(record) for record in records], np.int64)
            fit = fitting(sizes, len(rows), max(limit, int(sizes[0])))
            each = max(1, int(sizes[:fit].mean()))
            stop = min(stop, start + (fit if fit < len(rows) else max(fit, limit // each)))
        return self.gather(np.arange(start, stop, dtype=np.int64))

    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        return self._decode(self._decoder, rows)

    def gather_steps(self, decoder: ExampleDecoder, rows: RowArray, steps: StepNumbers) -> Batch:
        return self._decode(decoder.at_steps(steps), rows)

    def unverified(self) -> ArrayRecordSource:
        return self  # the package checks what it reads, and nothing else does

    def select(self, names: Sequence[str]) -> ArrayRecordSource:
        chosen = object.__new__(ArrayRecordSource)
        chosen.__dict__.update(self.__dict__, _decoder=self._decoder.select(names))
        return chosen

    def _decode(self, decoder: Decoder[_T], rows: npt.NDArray[np.int64]) -> _T:
        def where(row: int) -> tuple[str, int]:
            return self._readers.where(int(rows[row]))

        records = as_records(self._readers.read(rows))
        threads = thread_count() if len(rows) > 1 else 1
        decoded, fault = decoder.decode(records, False, threads, where)
        if fault is not None:
            raise decoder.error(fault, *where(fault.row))
        return decoded
