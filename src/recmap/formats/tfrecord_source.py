"""TFRecord files as a source of rows."""

from __future__ import annotations

import os
import warnings
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from threading import RLock
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from recmap.errors import (
    DataError,
    FieldMismatchError,
    MemoryLimitError,
    OptionError,
    SkippedRecordsWarning,
)
from recmap.files.cpus import thread_count
from recmap.files.mapped import MappedFiles, guarded
from recmap.files.paths import PathLike, as_path
from recmap.formats.tfrecord_partitions import record_partitions
from recmap.model.batch import (
    Allocate,
    PaddedRows,
    PadSpec,
    RowNumbers,
    gather_from,
    rows_by_owner,
)
from recmap.model.ragged import Column, concatenate
from recmap.model.row_sizes import RowSizes, measure
from recmap.model.schema import Batch, Field, FieldLike, Schema, as_field
from recmap.model.source import Info, Partition, Skipped, Source
from recmap.native import _core
from recmap.tfrecord.compressed_file import CompressedShard
from recmap.tfrecord.decoder import Codec, Decoder, kinds_of
from recmap.tfrecord.faults import Opened, ragged_text
from recmap.tfrecord.file_group import Gathering
from recmap.tfrecord.index import Index
from recmap.tfrecord.inflate import CompressionOption, check_compression
from recmap.tfrecord.padded_decoder import PaddedCodec
from recmap.tfrecord.plain_file import PlainShard
from recmap.tfrecord.schema_inference import Summary, join_schemas
from recmap.tfrecord.sidecar import Sidecar, load_sidecar, read_text_index
from recmap.tfrecord.stored_schema import (
    FirstRead,
    Manifests,
    Types,
    described_by,
    indexed_types,
    stored_types,
    written_types,
)
from recmap.tfrecord.survey import Shard, sample, survey
from recmap.tfrecord.unknown_features import UnknownFeatures

__all__ = ["Errors", "FieldsLike", "TFRecordSource"]

Errors: TypeAlias = Literal["raise", "skip"]
# Keys are names, or the three dots; Mapping is invariant in them, so no narrower type fits both.
FieldsLike: TypeAlias = "Mapping[Any, FieldLike | None] | Iterable[str]"

_T = TypeVar("_T")

# Compressed files of which rows are held, besides one for each thread.
_PASSES = 2
# Files that are looked at when they are opened, not when they are first read.
_AT_ONCE = 64


class TFRecordSource(Source):
    """The rows of one or more TFRecord files, end to end."""

    def __init__(
        self,
        files: list[str],
        fields: FieldsLike | None = None,
        *,
        errors: Errors = "raise",
        verify: bool = True,
        compression: CompressionOption = "auto",
        index: PathLike | None = None,
    ) -> None:
        if errors not in ("raise", "skip"):
            raise OptionError(f'errors={errors!r}: use "raise" or "skip"')
        if index is not None and len(files) != 1:
            raise OptionError("index= takes the index of one file; open the files one by one")
        self._files = files
        self.verify = verify
        self._mapped = MappedFiles()
        # Many files are looked at when they are read, so that opening them stays quick.
        step = -(-len(files) // _AT_ONCE)
        self._looked_at = {*range(0, len(files), step), len(files) - 1}
        self._sidecars = [
            load_sidecar(file, check=i in self._looked_at) for i, file in enumerate(files)
        ]
        self._shards = [
            self._open(file, sidecar, compression)
            for file, sidecar in zip(files, self._sidecars, strict=True)
        ]
        if index is not None:
            self._use_text_index(as_path(index, "index"))
        # Rows before each shard, as far as they are known.
        self._starts = [0]
        self._lock = RLock()
        # Compressed files with a pass under way, the last one used at the end.
        self._passes: OrderedDict[int, CompressedShard] = OrderedDict()
        self._skipped: list[Skipped] = []
        self._summary: Summary | None = None
        self._columns: dict[str, npt.NDArray[Any]] | None = None
        self._gathering = Gathering(self._shards, self._mapped)
        skip = errors == "skip"
        self._origin, self._codec = self._choose_schema(fields, skip)
        for shard in self._shards[1:]:
            if isinstance(shard, CompressedShard):
                shard.rest()  # the sample is no longer needed
        if skip:
            self._leave_out_bad()

    def __getstate__(self) -> dict[str, Any]:
        # What was found goes along, so that nobody looks for it again; what is mapped, and
        # a sample that can be taken anew, do not.
        nothing = dict.fromkeys(("_lock", "_passes", "_summary", "_columns"))
        return {**self.__dict__, **nothing}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=RLock(), _passes=OrderedDict())

    def _open(self, file: str, sidecar: Sidecar | None, option: CompressionOption) -> Shard:
        compression = check_compression(file, option)
        if compression is None:
            return PlainShard(file, self.verify, sidecar.index if sidecar else None, self._mapped)
        return CompressedShard(
            file, compression, self.verify, sidecar.index.count if sidecar else None
        )

    def _use_text_index(self, path: str) -> None:
        shard = self._shards[0]
        if not isinstance(shard, PlainShard):
            raise OptionError(f"{path}: a compressed file cannot be indexed by offsets")
        offsets = read_text_index(path, shard.file.bytes)
        rows = np.arange(len(offsets), dtype=np.uint64)
        shard.use(Index.of_marks(len(offsets), None, rows, offsets, shard.size))

    def _choose_schema(self, fields: FieldsLike | None, skip: bool) -> tuple[str, Codec]:
        given: dict[Any, FieldLike | None] | None = None
        if fields is not None:
            given = dict(fields) if isinstance(fields, Mapping) else dict.fromkeys(fields)
        # The user's choice of fields, or all there are: an ellipsis stands for the others.
        whole = given is None or ... in given
        chosen: dict[str, FieldLike | None] = {
            n: f for n, f in (given or {}).items() if n is not ...
        }
        stored = self._stored_types(skip) if whole or None in chosen.values() else None
        for i, (shard, sidecar) in enumerate(zip(self._shards, self._sidecars, strict=True)):
            if i not in self._looked_at:
                fingerprint = sidecar.fingerprint if sidecar else None
                shard.before_read = FirstRead(shard.path, fingerprint, stored)
        kinds = self._indexed_kinds()
        if given is None and stored is not None:
            unknown = UnknownFeatures(stored.origin)
            described = described_by(stored, stored.schema, skip)
            return stored.origin, Codec(stored.schema, None, kinds, unknown, described)
        summary = sample(self._shards, skip)
        records = "1 record" if summary.rows == 1 else f"{summary.rows:,} records"
        inferred = f"inferred from {records}"
        if given is None:
            self._summary = summary
            return inferred, Codec(
                summary.schema(), summary.places(), summary.kinds(), UnknownFeatures(inferred)
            )
        seen = [name for name, feature in summary.features.items() if feature.kinds]
        known = list(stored.schema) if stored else seen
        asked: dict[str, FieldLike | None] = {**dict.fromkeys(known if whole else ()), **chosen}
        absent = [n for n in asked if n not in summary.features and n not in known]
        if absent and summary.rows:
            self._refuse(absent, chosen, whole, summary)
        untyped = [n for n, field in asked.items() if field is None and n not in absent]
        types = stored.schema if stored else summary.schema(untyped)
        schema = Schema({n: types[n] if f is None else as_field(f) for n, f in asked.items()})
        kept = {n: kind for n, kind in (kinds or summary.kinds()).items() if n in untyped}
        watch = UnknownFeatures(stored.origin if stored else inferred) if whole else None
        described = described_by(stored, untyped, skip)
        opened = Opened(list(schema), _fields_of(chosen), whole)
        return "given", Codec(schema, summary.places(), kept, watch, described, opened)

    def _stored_types(self, skip: bool) -> Types | None:
        """The types that the files were written with; else those of their indexes, if every
        file has one. None if neither is there.
        """
        manifests = Manifests()
        found = {
            i: stored_types(self._shards[i], self._sidecars[i], manifests, skip=skip)
            for i in sorted(self._looked_at)
        }
        later = {
            i: indexed_types(self.files[i], sidecar)
            for i, sidecar in enumerate(self._sidecars)
            if i not in found
        }
        written = written_types(self._shards, found, later, skip)
        return written or self._inferred_types()

    def _inferred_types(self) -> Types | None:
        """The types in the indexes, if every file has one and they can be joined."""
        indexed = {
            file: sidecar
            for file, sidecar in zip(self.files, self._sidecars, strict=True)
            if sidecar is not None
        }
        if len(indexed) < len(set(self.files)):
            return None
        # A file without rows tells nothing, unless it is the only one.
        filled = [file for file, sidecar in indexed.items() if sidecar.index.count]
        first, *others = filled or self.files[:1]
        types = indexed_types(first, indexed[first])
        joined = join_schemas([indexed[file].schema for file in (first, *others)])
        return None if joined is None or types is None else replace(types, schema=joined)

    def _indexed_kinds(self) -> dict[str, _core.Kind]:
        """The kinds of list that hold fields, where the indexes agree on it."""
        kinds = [set(kinds_of(s.encoding).items()) for s in self._sidecars if s and s.index.count]
        changing = {name for one in kinds for name, kind in one if (name, kind) not in kinds[0]}
        return {name: kind for one in kinds for name, kind in one if name not in changing}

    def _refuse(
        self,
        absent: list[str],
        given: Mapping[str, FieldLike | None],
        whole: bool,
        summary: Summary,
    ) -> None:
        # A feature may be rare: if its field says what to do without it, go on.
        for name in absent:
            field = as_field(given[name] or "int64")
            if given[name] is None or (field.fill is None and not field.ragged):
                opened = Opened(list(given), _fields_of(given), whole)
                later = opened.fields_text(name, ragged_text(field))
                raise FieldMismatchError(
                    f"{self.files[0]}: no feature {name!r} in the {summary.rows:,} records looked "
                    f"at; they hold: {summary.describe()} (if later records have it, rm.index "
                    f"finds it, or give a type for rows of any length, {later})",
                    file=self.files[0],
                    field=name,
                )

    def _leave_out_bad(self) -> None:
        for shard in self._shards:
            self._codec, skipped = survey(shard, self._codec, self._summary, True)
            self._skipped += skipped
        if self._skipped:
            warnings.warn(
                f"{len(self._skipped):,} bad records were left out, the first: {self._skipped[0]}",
                SkippedRecordsWarning,
                stacklevel=4,
            )

    @property
    def format(self) -> str:
        return "TFRecord"

    @property
    def files(self) -> list[str]:
        return self._files

    @property
    def origin(self) -> str:
        return self._origin

    @property
    def schema(self) -> Schema:
        return self._codec.schema

    @property
    def codec(self) -> Codec:
        """What reads the fields from records."""
        return self._codec

    @property
    def skipped(self) -> list[Skipped]:
        """The records that ``errors="skip"`` left out."""
        return list(self._skipped)

    @property
    def summary(self) -> Summary:
        """What a sample of the records holds."""
        if self._summary is None:
            self._summary = sample(self._shards, True)
        return self._summary

    def shards(self) -> list[Shard]:
        """The files."""
        return list(self._shards)

    def known_rows(self) -> int | None:
        """The number of rows, if it is known without looking for them."""
        counts = [shard.known_count() for shard in self._shards]
        return None if None in counts else sum(count or 0 for count in counts)

    @guarded
    def __len__(self) -> int:
        last = len(self._shards) - 1
        return self._start_of(last) + self._shards[last].count()

    def rows_before_damage(self) -> int:
        last = len(self._starts) - 1
        return self._starts[last] + self._shards[last].found_rows()

    @property
    def compressed_files(self) -> dict[str, str]:
        return {s.path: s.compression for s in self._shards if isinstance(s, CompressedShard)}

    @property
    def owns_rows(self) -> bool:
        return True

    @property
    def can_pad(self) -> bool:
        return True

    def features(self) -> Mapping[str, Any]:
        return self.summary.features

    def unindexed_files(self) -> Sequence[PlainShard]:
        plain = [shard for shard in self._shards if isinstance(shard, PlainShard)]
        return [shard for shard in plain if shard.known_count() is None]

    def partitions(self, *, skip: bool) -> list[Partition]:
        return record_partitions(self._shards, self._codec, self.verify, skip)

    def _start_of(self, i: int) -> int:
        with self._lock:
            while len(self._starts) <= i:
                last = len(self._starts) - 1
                self._starts.append(self._starts[last] + self._shards[last].count())
            return self._starts[i]

    @guarded
    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        several = self._files_of(start, stop) if limit is None else None
        if several is not None:
            gathered = self._read_together(self._codec, start, stop, *several)
            if gathered is not None:
                return gathered
        parts: list[Batch] = []
        for i, shard in enumerate(self._shards):
            first = self._start_of(i)
            if first >= stop:
                break
            known = shard.known_count()
            if known is not None and first + known <= start:
                continue
            self._pass_over(i)
            try:
                batch = shard.read(self._codec, max(start - first, 0), stop - first, limit)
            except (MemoryLimitError, DataError):
                # It comes to light with the next read, if some rows are enough for this one.
                if limit is None or not any(measure(part)[0] for part in parts):
                    raise
                break
            parts.append(batch)
            rows, size = measure(batch)
            known = shard.known_count()
            if known is None or max(start - first, 0) + rows < min(stop - first, known):
                break
            limit = None if limit is None else limit - size
        return self._join(parts)

    def _files_of(self, start: int, stop: int) -> tuple[int, int] | None:
        """The first and the last file of rows that are known to be in two files or more."""
        starts = self._starts
        if len(starts) < len(self._shards):
            return None
        first, last = bisect_right(starts, start) - 1, bisect_right(starts, stop - 1) - 1
        count = self._shards[last].known_count()
        if first >= last or count is None or stop > starts[last] + count:
            return None
        return first, last

    def _read_together(
        self, codec: Decoder[_T], start: int, stop: int, first: int, last: int
    ) -> _T | None:
        """A stretch of rows of several files in one call, if that can be."""
        together = self._gathering.some(first, last)
        if together is None:
            return None
        rows = np.arange(start, stop) - self._starts[first]
        return together.gather(codec, rows, self.verify, ask=False)

    def _pass_over(self, i: int) -> None:
        """Has those files rest that were not read for longest, if file ``i`` is one too many:
        each holds a few MB of rows to come.
        """
        shard = self._shards[i]
        if not isinstance(shard, CompressedShard):
            return
        with self._lock:
            self._passes[i] = shard
            self._passes.move_to_end(i)
            many = len(self._passes) > _PASSES + thread_count()
            oldest = self._passes.popitem(last=False)[1] if many else None
        if oldest is not None:
            oldest.rest()

    def _join(self, parts: list[Batch]) -> Batch:
        if not parts:
            return self._shards[0].read(self._codec, 0, 0)
        columns: dict[str, list[Column]] = {
            name: [part[name] for part in parts] for name in parts[0]
        }
        filled = [i for i in range(len(parts)) if any(len(c[i]) for c in columns.values())]
        if len(filled) == 1:
            return parts[filled[0]]
        return {name: concatenate(column) for name, column in columns.items()}

    @guarded
    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        together = self._gathering.all()
        if together is not None:
            return together.gather(self._codec, rows, self.verify)
        if len(self._shards) == 1:
            # All before the last row that is wanted are looked for, and no others.
            return self._shards[0].gather(self._codec, rows)
        self._start_of(len(self._shards) - 1)
        if not len(rows):
            return self._join([])
        starts = np.array(self._starts[: len(self._shards)], np.int64)
        return gather_from(starts, rows, self._take)

    def _take(self, i: int, rows: npt.NDArray[np.int64]) -> Batch:
        self._pass_over(i)
        return self._shards[i].gather(self._codec, rows)

    @guarded
    def read_padded(
        self,
        rows: RowNumbers,
        pads: Mapping[str, PadSpec],
        size: int,
        allocate: Allocate,
    ) -> PaddedRows | None:
        """Rows by number, those of ``pads`` padded while they are read, in an array for each
        ``size`` of them; None if some files are compressed, or they are too many.
        """
        total = len(self)
        codec = PaddedCodec(self._codec, pads, size, allocate)
        if not isinstance(rows, range):
            together = self._gathering.all()
            return None if together is None else together.gather(codec, rows, self.verify)
        several = self._files_of(rows.start, rows.stop)
        if several is not None:
            return self._read_together(codec, rows.start, rows.stop, *several)
        i = bisect_right(self._starts, rows.start) - 1
        shard, start = self._shards[i], self._starts[i]
        if not isinstance(shard, PlainShard) or rows.stop > total:
            return None
        return shard.read(codec, rows.start - start, rows.stop - start)

    @guarded
    def row_sizes(self, rows: npt.NDArray[np.int64]) -> RowSizes | None:
        if not len(rows):
            return 0
        self._start_of(len(self._shards) - 1)
        starts = np.array(self._starts[: len(self._shards)], np.int64)
        sizes = np.empty(len(rows), np.int64)
        for i, mine in rows_by_owner(starts, rows):
            self._pass_over(i)
            sizes[mine] = self._shards[i].row_sizes(self._codec, rows[mine] - starts[i])
        return sizes

    @guarded
    def largest_row(self, above: int) -> tuple[int, int] | None:
        found = None
        for i, shard in enumerate(self._shards):
            row = shard.largest_row(self._codec, above)
            if row is not None:
                found, above = (self._start_of(i) + row[0], row[1]), row[1]
        return found

    def column(self, name: str) -> npt.NDArray[Any] | None:
        shard = self._shards[0]
        if len(self._shards) != 1 or not isinstance(shard, PlainShard) or self._skipped:
            return None
        if self._columns is None:
            sidecar = self._sidecars[0]
            trusted = sidecar is not None and (sidecar.verified or not self.verify)
            mapped = frozenset(sidecar.mapped) if sidecar and trusted else None
            self._columns = dict(shard.columns(self._codec, mapped))
        return self._columns.get(name)

    def select(self, names: Sequence[str]) -> TFRecordSource:
        # The files, and what is known of their rows, are the same.
        chosen = copy(self)
        chosen._codec = self._codec.select(names)  # noqa: SLF001  # it is one of these
        chosen._columns = None  # noqa: SLF001
        for shared in ("_lock", "_passes", "_gathering"):
            setattr(chosen, shared, getattr(self, shared))
        return chosen

    def row_bytes(self) -> int:
        return self._shards[0].row_bytes()

    @property
    def chunk_rows(self) -> int:
        # A row of a compressed file costs all rows before it.
        return len(self) if self.compressed_files else 1

    def info(self) -> Info:
        shards = self._shards
        strides = {s.index.stride if isinstance(s, PlainShard) else None for s in shards}
        rows = len(self)
        notes = {}
        for name, feature in self.summary.features.items():
            hint = feature.hint()
            if hint and name in self.schema and self.schema[name].is_bytes:
                notes[name] = f'{hint}; fields={{"{name}": ...}} gives it a type'
        return Info(
            format="TFRecord",
            files=list(self.files),
            size=sum(os.path.getsize(file) for file in self.files),
            rows=rows,
            schema=self.schema,
            origin=self.origin,
            mapped=[name for name in self.schema if self.column(name) is not None],
            compression=sorted({s.compression for s in shards if isinstance(s, CompressedShard)}),
            record_size=strides.pop() if len(strides) == 1 else None,
            notes=notes,
        )


def _fields_of(given: Mapping[str, FieldLike | None]) -> dict[str, Field | None]:
    return {name: None if field is None else as_field(field) for name, field in given.items()}
