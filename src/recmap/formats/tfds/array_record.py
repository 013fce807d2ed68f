"""The shards of a TFDS folder that are ArrayRecord files, read by the ``array_record`` package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError, MissingPackageError, RecmapError
from recmap.formats.tfds.metadata import INFO
from recmap.formats.tfds.steps import EpisodeRecords
from recmap.local.local_path import any_remote, located
from recmap.machine.cpus import thread_count
from recmap.model.batch import RowArray, rows_by_owner
from recmap.model.facts import SourceFacts
from recmap.model.row_sizes import fitting
from recmap.model.schema import Batch, Schema
from recmap.native import _core
from recmap.tfrecord.decoder import Decoder, ExampleDecoder, Records, StepDecoder, StepNumbers

_T = TypeVar("_T")
# Records looked at to judge how many fit into memory, and how much longer values may be than the
# records that hold them.
_LOOKED_AT, _GROWTH = 64, 8


class ArrayRecordSource(EpisodeRecords):
    """The records of ArrayRecord files, end to end."""

    def __init__(
        self, files: Sequence[str], decoder: ExampleDecoder, expected: Sequence[int]
    ) -> None:
        if any_remote(files):
            raise DataError(
                f"{files[0]}: ArrayRecord files are read from disk only; copy the folder first",
                file=files[0],
            )
        self._files, self._decoder, self._expected = list(files), decoder, list(expected)
        self._open()

    def _open(self) -> None:
        try:
            from array_record.python.array_record_module import ArrayRecordReader
        except ModuleNotFoundError as e:
            raise MissingPackageError(
                "ArrayRecord files need the package array_record", extra="arrayrecord"
            ) from e
        self._readers: list[Any] = []
        for path, expected in zip(self._files, self._expected, strict=True):
            try:
                reader = ArrayRecordReader(
                    path, "readahead_buffer_size:0", file_reader_buffer_size=32768
                )
                count = reader.num_records()
                located(path).check_unchanged()
            except RecmapError:
                raise
            except (RuntimeError, ValueError, IndexError) as e:
                raise DataError(f"{path}: not an ArrayRecord file: {e}", file=path) from None
            if count != expected:
                raise DataError(
                    f"{path}: has {count:,} records, but {INFO} says {expected:,}", file=path
                )
            self._readers.append(reader)
        self._starts = np.concatenate([[0], np.cumsum(self._expected)]).astype(np.int64)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_readers": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    @property
    def schema(self) -> Schema:
        return self._decoder.schema

    @property
    def facts(self) -> SourceFacts:
        return SourceFacts(files=self._files, owns_rows=True)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        stop = max(start, min(stop, len(self)))
        if limit is not None and stop > start:
            # The size of the next records is probably that of the first few.
            rows = np.arange(start, min(stop, start + _LOOKED_AT), dtype=np.int64)
            sizes = _GROWTH * np.array([len(record) for record in self._read(rows)], np.int64)
            fit = fitting(sizes, len(rows), max(limit, int(sizes[0])))
            each = max(1, int(sizes[:fit].mean()))
            stop = min(stop, start + (fit if fit < len(rows) else max(fit, limit // each)))
        return self.gather(np.arange(start, stop, dtype=np.int64))

    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        return self._decode(self._decoder, rows)

    def gather_steps(self, decoder: ExampleDecoder, rows: RowArray, steps: StepNumbers) -> Batch:
        return self._decode(StepDecoder(decoder, steps), rows)

    def unverified(self) -> ArrayRecordSource:
        return self  # the package checks what it reads, and nothing else does

    def select(self, names: Sequence[str]) -> ArrayRecordSource:
        chosen = object.__new__(ArrayRecordSource)
        chosen.__dict__.update(self.__dict__, _decoder=self._decoder.select(names))
        return chosen

    def _read(self, rows: npt.NDArray[np.int64]) -> list[bytes]:
        """Return records by number."""
        found: list[bytes] = [b""] * len(rows)
        for owner, mine in rows_by_owner(self._starts, rows):
            numbers = rows[mine] - self._starts[owner]
            try:
                records = self._readers[owner].read(numbers.tolist())
            except (RuntimeError, ValueError, IndexError) as e:
                path = self._files[owner]
                raise DataError(f"{path}: cannot be read: {e}", file=path) from None
            for place, record in zip(mine, records, strict=True):
                found[place] = record
        return found

    def _decode(self, decoder: Decoder[_T], rows: npt.NDArray[np.int64]) -> _T:
        """Decode records, after putting them into the frames of a TFRecord file."""
        records = self._read(rows)
        framed = np.frombuffer(_core.frame([np.frombuffer(r, np.uint8) for r in records]), np.uint8)
        sizes = np.array([len(record) for record in records], np.uint64) + np.uint64(
            _core.FRAME_SIZE
        )
        offsets = np.concatenate([[0], np.cumsum(sizes)])[:-1].astype(np.uint64)

        def where(row: int) -> tuple[str, int]:
            owner = int(np.searchsorted(self._starts, rows[row], side="right")) - 1
            return self._files[owner], int(rows[row] - self._starts[owner])

        threads = thread_count() if len(rows) > 1 else 1
        decoded, fault = decoder.decode(Records.of_file(framed, offsets), False, threads, where)
        if fault is not None:
            raise decoder.error(fault, *where(fault.row))
        return decoded
