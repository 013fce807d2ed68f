"""TFRecord files as a source of rows.

Rows are numbered across all files. A span or a list of rows is decoded in one native call if
all its files are plain and indexed, and otherwise file by file. Compressed files can only be
read from the start. They buffer upcoming rows, only a few files at a time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from threading import RLock
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from recmap.errors import (
    DataError,
    MemoryLimitError,
    OptionError,
    SkippedRecordsWarning,
)
from recmap.formats.tfrecord_partitions import Partition, record_partitions
from recmap.formats.tfrecord_schema import SchemaChoice, choose_schema, type_notes
from recmap.local.inflate import CompressionOption
from recmap.local.local_path import any_remote, located
from recmap.local.output import Compression
from recmap.machine.cpus import thread_count
from recmap.machine.lru import Lru
from recmap.machine.mapped import guarded
from recmap.model.batch import (
    Allocate,
    PaddedRows,
    PadSpec,
    RowNumbers,
    divide_rows,
    gather_from,
    interleave,
    join,
    rows_by_owner,
)
from recmap.model.facts import BadRecords, Skipped, SourceFacts, with_facts
from recmap.model.fetching import Coming, Fetching, fetching_all
from recmap.model.info import Info
from recmap.model.null_columns import empty_column
from recmap.model.preview import quantity
from recmap.model.ragged import Column
from recmap.model.row_sizes import RowSizes, measure
from recmap.model.schema import Batch, FieldsLike, Schema
from recmap.model.source import Errors, Source
from recmap.store.files_ahead import FilesAhead, files_ahead
from recmap.store.mapped_files import MappedFiles
from recmap.store.paths import PathLike, as_path, for_each_file
from recmap.tfrecord.compressed_file import CompressedFile
from recmap.tfrecord.decoder import (
    Decoder,
    ExampleDecoder,
    PaddedDecoder,
    StepNumbers,
)
from recmap.tfrecord.file_group import (
    FileGroups,
    coming_files,
    count_before,
    count_objects,
    in_turn,
    largest_row,
    rows_before_damage,
    unindexed_files,
)
from recmap.tfrecord.framing import check_compressions
from recmap.tfrecord.index import Index
from recmap.tfrecord.plain_file import PlainFile
from recmap.tfrecord.record_file import RecordFile
from recmap.tfrecord.sidecar import Sidecar, kept_index, load_sidecar, read_text_index
from recmap.tfrecord.survey import Summary, sample, survey
from recmap.warn import warn

_T = TypeVar("_T")

# How many compressed files keep inflated rows, in addition to one per thread.
_OPEN_WINDOWS = 2
# Stands for the rows of compressed files before they are counted; more than there ever are.
_UNCOUNTED = 1 << 62
# How many files have their metadata checked on opening; the others are checked on first read.
_EXAMINED = 64


class TFRecordSource(Source):
    """The rows of one or more TFRecord files, end to end."""

    def __init__(
        self,
        files: Sequence[str],
        fields: FieldsLike | None = None,
        *,
        errors: Errors = "raise",
        verify: bool = True,
        compression: CompressionOption = "auto",
        index: PathLike | None = None,
        decoder: ExampleDecoder | None = None,
    ) -> None:
        """Open files. If ``decoder`` tells how to decode records, none are looked at for that."""
        if errors not in ("raise", "skip"):
            raise OptionError(f'errors={errors!r}: use "raise" or "skip"')
        if index is not None and len(files) != 1:
            raise OptionError("index= takes the index of one file; open the files one by one")
        self._verify = verify
        step = -(-len(files) // _EXAMINED)
        examined = {*range(0, len(files), step), len(files) - 1}
        checked = {files[i] for i in examined}
        self._sidecars = for_each_file(
            lambda file: load_sidecar(file, check=file in checked), files
        )
        self._mapped = MappedFiles()
        compressions = check_compressions(files, compression, examined)
        self._files = [
            self._open(path, sidecar, each)
            for path, sidecar, each in zip(files, self._sidecars, compressions, strict=True)
        ]
        if index is not None:
            self._use_text_index(as_path(index, "index"))
        # The number of rows before each file, for the files counted so far.
        self._starts = [0]
        self._lock = RLock()
        # Compressed files that keep inflated rows, the most recently read one last.
        self._holding = Lru[int, CompressedFile](_OPEN_WINDOWS)
        self._gathering = FileGroups(self._files, self._mapped)
        self._views: dict[str, npt.NDArray[Any]] | None = None
        skip = errors == "skip"
        self._summary: Summary | None = None
        choice = None if decoder is None else SchemaChoice(decoder, "given")
        if choice is None:
            choice = choose_schema(self._files, self._sidecars, examined, fields, skip=skip)
        self._decoder, self._summary, origin = choice.decoder, choice.summary, choice.origin
        for file in self._files[1:]:
            if isinstance(file, CompressedFile):
                file.release()  # the sample is no longer needed
        self._facts = SourceFacts(
            format="TFRecord",
            files=list(files),
            origin=origin,
            owns_rows=True,
            remote=any_remote(files),
            can_pad=True,
            open_ended=True,
            compressed_files={f.path: f.compression for f in self._files if f.compression},
            skipped=BadRecords(self._skip_bad_records) if skip else (),
            record_files=self._files,
            rows_before_damage=partial(rows_before_damage, self._files, self._starts),
            largest_row=partial(largest_row, self._files, self._decoder),
            table_types=choice.table_types,
        )
        if choice.table_types:
            levels = choice.frame_index and self._decoded_by(choice.frame_index)
            own = {n: t for n, t in choice.table_types.items() if n in self._decoder.schema}
            self._facts = with_facts(self._facts, table_types=own, table_index=levels)
        if skip and self._summary is not None:
            self._settle()  # a schema that is inferred has to fit all records
            largest = partial(largest_row, self._files, self._decoder)
            self._facts = with_facts(self._facts, largest_row=largest)

    def _open(self, path: str, sidecar: Sidecar | None, compression: Compression) -> RecordFile:
        index = sidecar.index if sidecar else None
        if compression is None:
            if index is None:
                index = kept_index(path)
            return PlainFile(path, self._verify, index, self._mapped)
        return CompressedFile(path, compression, self._verify, index.count if index else None)

    def _use_text_index(self, path: str) -> None:
        file = self._files[0]
        if not isinstance(file, PlainFile):
            raise OptionError(f"{path}: a compressed file cannot be indexed by offsets")
        with file.file.hold(0, file.size):
            offsets = read_text_index(path, file.file.bytes)
        rows = np.arange(len(offsets), dtype=np.uint64)
        file.index = Index.of_anchors(len(offsets), None, rows, offsets, file.size)

    def _largest_row(self, above: int) -> tuple[int, int] | None:
        self._settle()
        return largest_row(self._files, self._decoder, above)

    @property
    def _is_unsettled(self) -> bool:
        skipped = self._facts.skipped
        return isinstance(skipped, BadRecords) and not skipped.found

    def _settle(self) -> None:
        """Find the bad records, if they are to be left out: rows are numbered without them."""
        if isinstance(self._facts.skipped, BadRecords):
            self._facts.skipped.find()

    def _skip_bad_records(self) -> list[Skipped]:
        bad: list[Skipped] = []
        for file in in_turn(self._files):
            self._decoder, skipped = survey(file, self._decoder, self._summary, True)
            bad += skipped
        if bad:
            left_out = f"{quantity(len(bad), 'bad record')} left out, the first: {bad[0]}"
            warn(left_out, SkippedRecordsWarning)
        return bad

    def __getstate__(self) -> dict[str, Any]:
        # Keep what is known about rows. Drop mapped memory, and the sample, which can be taken
        # again.
        dropped = dict.fromkeys(("_lock", "_holding", "_summary", "_views"))
        return {**self.__dict__, **dropped}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=RLock(), _holding=Lru(_OPEN_WINDOWS))

    # Facts.

    @property
    def schema(self) -> Schema:
        return self._decoder.schema

    @property
    def decoder(self) -> ExampleDecoder:
        """The decoder of the records."""
        return self._decoder

    @property
    def facts(self) -> SourceFacts:
        if self._is_unsettled:
            return with_facts(self._facts, searched=False, largest_row=self._largest_row)
        if not self._facts.compressed_files:
            return self._facts
        # Reading a row of a compressed file inflates all rows before it.
        several = self.known_rows() not in (0, 1)
        return with_facts(self._facts, chunk_rows=self._chunk_rows, stored_in_order=several)

    def _chunk_rows(self) -> int:
        chunks = [f.chunk_rows() for f in self._files if isinstance(f, CompressedFile)]
        indexed = [rows for rows in chunks if rows is not None]
        if len(indexed) == len(chunks):
            return max(indexed)
        rows = self.known_rows()
        return _UNCOUNTED if rows is None else rows

    def known_rows(self) -> int | None:
        # Files are counted in order, so the first of the others is often not.
        if self._is_unsettled:
            return None
        after = self._starts[-1]
        for file in self._files[len(self._starts) - 1 :]:
            count = file.known_count()
            if count is None:
                return None
            after += count
        return after

    @guarded
    def up_to(self, stop: int) -> int:
        self._settle()
        for i in range(len(self._starts) - 1, len(self._files)):
            first, file = self._start_of(i), self._files[i]
            if file.known_count() is None:
                self._hold_rows(i)
            if first >= stop or first + file.reach(stop - first) >= stop:
                return stop
        return len(self)

    @guarded
    def __len__(self) -> int:
        self._settle()
        count_objects(unindexed_files(self._files))
        last = len(self._files) - 1
        return self._start_of(last) + self._files[last].count()

    def _start_of(self, i: int) -> int:
        """Return the number of the first row of a file; count the files before it if needed."""
        if i >= len(self._starts):
            with self._lock:
                count_before(self._files, i, self._starts)
        return self._starts[i]

    def _all_starts(self) -> npt.NDArray[np.int64]:
        self._settle()
        self._start_of(len(self._files) - 1)
        return np.array(self._starts[: len(self._files)], np.int64)

    def row_bytes(self) -> int:
        self._settle()
        return self._files[0].row_bytes()

    def features(self) -> Mapping[str, Any]:
        """Return the features in a sample of the records."""
        if self._summary is None:
            self._summary = sample(self._files, True)
        return self._summary.features

    def info(self) -> Info:
        facts = self._facts
        strides = {f.index.stride if isinstance(f, PlainFile) else None for f in self._files}
        return Info(
            format=facts.format,
            files=facts.files,
            size=sum(located(path).stat().size for path in facts.files),
            rows=len(self),
            schema=self.schema,
            origin=facts.origin,
            mapped=self._mapped_columns(),
            compression=sorted(set(facts.compressed_files.values())),
            record_size=strides.pop() if len(strides) == 1 else None,
            notes=type_notes(self.features(), self.schema),
        )

    # Reading.

    @guarded
    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        self._settle()
        if limit is None:
            batch = self._read_across(self._decoder, start, stop)
            if batch is not None:
                return batch
        with files_ahead(self, start, stop, limit) as ahead:
            return self._read_by_file(start, stop, limit, ahead)

    def _read_across(self, decoder: Decoder[_T], start: int, stop: int) -> _T | None:
        """Decode a span across several plain files in one call; None if that is not possible."""
        starts = self._starts
        first, last = bisect_right(starts, start) - 1, bisect_right(starts, stop - 1) - 1
        count = self._files[last].known_count()
        if first >= last or count is None or stop > starts[last] + count:
            return None
        group = self._gathering.span(first, last)
        if group is None:
            return None
        return group.gather(
            decoder, np.arange(start, stop) - starts[first], self._verify, ask=False
        )

    def _read_by_file(self, start: int, stop: int, limit: int | None, ahead: FilesAhead) -> Batch:
        parts: list[Batch] = []
        for i in range(max(0, bisect_right(self._starts, start) - 1), len(self._files)):
            first, file = self._start_of(i), self._files[i]
            if first >= stop:
                break
            known = file.known_count()
            if known is not None and first + known <= start:
                continue
            ahead.reach(self, max(start, first))
            self._hold_rows(i)
            begin, end = max(start - first, 0), stop - first
            try:
                batch = file.read(self._decoder, begin, end, limit)
            except (MemoryLimitError, DataError):
                # If some rows were read, return them; the next read raises the error.
                if limit is None or not any(measure(part)[0] for part in parts):
                    raise
                break
            parts.append(batch)
            rows, size = measure(batch)
            known = file.known_count()
            if known is None or begin + rows < min(end, known):
                break
            limit = None if limit is None else limit - size
        if not parts:
            return self._files[0].read(self._decoder, 0, 0)
        return join([part for part in parts if measure(part)[0]] or parts[:1])

    def _hold_rows(self, i: int) -> None:
        """Note that file ``i`` is being read.

        Compressed files buffer upcoming rows, a few MB each. If too many do, drop the rows of
        the least recently read file.
        """
        file = self._files[i]
        if not isinstance(file, CompressedFile):
            return
        for old in self._holding.put(i, file, _OPEN_WINDOWS + thread_count()):
            old.release()

    @guarded
    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        self._settle()
        group = self._gathering.all()
        if group is not None:
            return group.gather(self._decoder, rows, self._verify)
        if len(self._files) == 1:
            # This searches for records only up to the last of these rows.
            return self._files[0].gather(self._decoder, rows)
        starts = self._all_starts()
        if not len(rows):
            return self._files[0].read(self._decoder, 0, 0)
        return gather_from(starts, rows, self._gather_one_file)

    def _gather_one_file(self, i: int, rows: npt.NDArray[np.int64]) -> Batch:
        self._hold_rows(i)
        return self._files[i].gather(self._decoder, rows)

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        if not self._facts.remote or len(self._starts) < len(self._files):
            return None
        # A group maps the files itself.
        group = None if isinstance(rows, range) else self._gathering.all()
        if group is not None and not isinstance(rows, range):
            return group.fetch_ahead(rows)
        divided = divide_rows(np.array(self._starts), rows)
        return fetching_all(self._files[i].fetch_ahead(mine) for i, mine in divided)

    def coming(self, start: int, stop: int | None = None) -> Iterator[Coming]:
        self._settle()
        return coming_files(self, self._files, self._starts, start, stop)

    @guarded
    def read_padded(
        self, rows: RowNumbers, pads: Mapping[str, PadSpec], size: int, allocate: Allocate
    ) -> PaddedRows | None:
        """Return None if some of the files are compressed, if there are too many, or with nulls."""
        if self._decoder.nullable:
            return None
        self._settle()
        decoder = PaddedDecoder(self._decoder, pads, size, allocate)
        if not isinstance(rows, range):
            file, group = self._files[0], self._gathering.all()
            if group is not None:
                return group.gather(decoder, rows, self._verify)
            # This searches for records only up to the last of these rows.
            if len(self._files) == 1 and isinstance(file, PlainFile):
                return file.gather(decoder, rows)
            return None
        padded = self._read_across(decoder, rows.start, rows.stop)
        if padded is not None:
            return padded
        if len(self._starts) < len(self._files):
            self.up_to(rows.stop)
        i = bisect_right(self._starts, rows.start) - 1
        file, start = self._files[i], self._starts[i]
        count = rows.stop - start
        if not isinstance(file, PlainFile) or file.ensure(count) < count:
            return None
        return file.read(decoder, rows.start - start, count)

    @guarded
    def gather_steps(
        self, decoder: ExampleDecoder, rows: npt.NDArray[np.int64], steps: StepNumbers
    ) -> Batch:
        """Decode one step of each of these records, which hold many. No CRC is checked."""
        len(self)  # all rows must be counted
        group = self._gathering.all()
        if group is not None:
            # Loading whole records ahead would read many times what the steps take.
            return group.gather(decoder.at_steps(steps), rows, verify=False, ask=False)
        starts = self._all_starts()
        parts, places = [], []
        for i, mine in rows_by_owner(starts, rows):
            file = self._files[i]
            assert isinstance(file, PlainFile)  # steps of compressed files are not read
            parts.append(file.gather(decoder.at_steps(steps.pick(mine)), rows[mine] - starts[i]))
            places.append(mine)
        if not parts:
            return {name: empty_column(field) for name, field in decoder.schema.items()}
        return interleave(parts, places)

    def unverified(self) -> TFRecordSource:
        """Return the same rows, read without checking the CRCs of the data."""
        self._settle()
        other = object.__new__(TFRecordSource)
        files = [f.unverified() if isinstance(f, PlainFile) else f for f in self._files]
        groups = FileGroups(files, self._mapped)
        damage = partial(rows_before_damage, files, self._starts)
        facts = with_facts(self._facts, record_files=files, rows_before_damage=damage)
        other.__dict__.update(
            self.__dict__, _files=files, _gathering=groups, _verify=False, _facts=facts
        )
        return other

    def column(self, name: str) -> Column | None:
        file, sidecar = self._one_file(), self._sidecars[0]
        if file is None:
            return None
        if self._views is None:
            current = sidecar is not None and sidecar.vouches_for(file.path)
            mapped = self._indexed_columns() if current else None
            self._views = dict(file.columns(self._decoder, mapped))
        return self._views.get(name)

    def _mapped_columns(self) -> list[str]:
        file, mapped = self._one_file(), self._indexed_columns()
        if file is None or mapped is None or self._views is not None:
            return [name for name in self.schema if self.column(name) is not None]
        return list(file.columns(self._decoder, mapped))  # the check can wait

    def _one_file(self) -> PlainFile | None:
        """Return the file, if its columns may be arrays."""
        file, alone = self._files[0], len(self._files) == 1 and not self._facts.skipped
        return file if alone and isinstance(file, PlainFile) else None

    def _indexed_columns(self) -> frozenset[str] | None:
        sidecar = self._sidecars[0]
        return frozenset(sidecar.mapped) if sidecar and sidecar.verified else None

    @guarded
    def row_sizes(self, rows: npt.NDArray[np.int64]) -> RowSizes | None:
        if not len(rows):
            return 0
        starts = self._all_starts()
        sizes = np.empty(len(rows), np.int64)
        for i, mine in rows_by_owner(starts, rows):
            self._hold_rows(i)
            sizes[mine] = self._files[i].row_sizes(self._decoder, rows[mine] - starts[i])
        return sizes

    def select(self, names: Sequence[str]) -> TFRecordSource:
        return self._decoded_by(self._decoder.select(names))

    def _decoded_by(self, decoder: ExampleDecoder) -> TFRecordSource:
        """Return other columns of the same files, which share what is known about their rows."""
        chosen = object.__new__(TFRecordSource)
        facts = with_facts(
            self._facts,
            largest_row=partial(largest_row, self._files, decoder),
            table_types={n: t for n, t in self._facts.table_types.items() if n in decoder.schema},
        )
        chosen.__dict__.update(self.__dict__, _decoder=decoder, _views=None, _facts=facts)
        return chosen

    def partitions(self, *, skip: bool) -> list[Partition]:
        """Divide the files into units of work for a cluster."""
        return record_partitions(self._files, self._decoder, self._verify, skip)
