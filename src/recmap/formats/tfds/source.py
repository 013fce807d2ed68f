"""A TFDS folder as a source of rows.

The rows come from a ``TFRecordSource``, which decodes the features that records store. Columns
that are stored as they are read pass through; the others are put together from their features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from recmap.errors import (
    DataError,
    FieldNotFoundError,
    Message,
    Option,
    OptionError,
)
from recmap.formats.combined import ConcatenatedSource
from recmap.formats.memory import memory_source
from recmap.formats.tfds.feature import Feature, record_decoder
from recmap.formats.tfds.features_json import described, parse_features
from recmap.formats.tfds.metadata import (
    FEATURES,
    INFO,
    DatasetInfo,
    check_present,
    load_features,
    load_info,
    load_labels,
)
from recmap.formats.tfds.old_folders import WRITTEN_BY_OLD, is_old, open_old
from recmap.formats.tfds.sink import shard_features
from recmap.formats.tfds.splits import ShardRows, choose_shards
from recmap.formats.tfds.steps import EpisodeRecords, open_steps
from recmap.formats.tfrecord_source import TFRecordSource
from recmap.local.local_path import located
from recmap.local.location import Location
from recmap.local.whole_output import refuse_unfinished
from recmap.model.arguments import no_column
from recmap.model.batch import Allocate, PaddedRows, PadSpec, RowArray, RowNumbers, pick
from recmap.model.facts import SourceFacts, with_facts
from recmap.model.field import BYTES, TEXT, as_field
from recmap.model.info import Info
from recmap.model.null_columns import empty_column
from recmap.model.ordered_rows import sliced
from recmap.model.ragged import Column
from recmap.model.row_sizes import RowSizes, added, fitting, measure
from recmap.model.schema import Batch, FieldsLike, Schema
from recmap.model.source import Errors, Source, WrappedSource
from recmap.tfrecord.decoder import ExampleDecoder, StepNumbers
from recmap.tfrecord.record_file import RecordFile

_MOST_NAMED = 5
Unit = Literal["episodes", "steps"]


def open_tfds(
    path: str,
    *,
    fields: FieldsLike | None = None,
    errors: Errors = "raise",
    verify: bool = True,
    split: str | None = None,
    unit: Unit | None = None,
) -> Source:
    """Open one version of a dataset: the folder with ``dataset_info.json``."""
    folder = located(path)
    if not folder.is_folder():
        return _open_shard(path, fields)
    info = load_info(folder)
    if info.file_format not in ("tfrecord", "array_record"):
        raise DataError(
            f"{path}: its shards are {info.file_format}; recmap reads tfrecord and array_record",
            file=folder.child(INFO),
        )
    if is_old(folder):
        return _open_old(folder, info, split, unit, fields=fields, errors=errors, verify=verify)
    features = parse_features(load_features(folder), folder.child(FEATURES))
    features = _chosen(path, features, fields, unit)
    labels = _labels(folder, features)
    columns = {feature.name: feature for feature in features}
    pieces = choose_shards(info, split, path)
    shards = [name for piece in pieces for name in piece.shards]
    refuse_unfinished(folder, folder.children(), lambda name: folder.child(name).content(), shards)
    records = [_open_records(folder, info, piece, columns, errors, verify) for piece in pieces]
    folder.check_unchanged()
    spans = [range(piece.start, piece.stop) for piece in pieces]
    if unit == "steps":
        steps = open_steps(list(zip(records, spans, strict=True)), columns, verify)
        return TfdsSource(steps, path, None, _step_labels(labels, features), features)
    parts: list[Source] = [
        each if piece.whole else sliced(each, slice(span.start, span.stop))
        for each, piece, span in zip(records, pieces, spans, strict=True)
    ]
    if not parts:
        schema = Schema({name: column.field for name, column in columns.items()})
        empty: Source = memory_source({n: empty_column(f) for n, f in schema.items()}, schema)
        return TfdsSource(empty, path, None, labels, features)
    rows = parts[0] if len(parts) == 1 else ConcatenatedSource(parts)
    return TfdsSource(rows, path, columns, labels, features)


def _open_old(
    path: Location, info: DatasetInfo, split: str | None, unit: Unit | None, **options: Any
) -> Source:
    """Open a split of a folder without ``features.json``."""
    if unit is not None:
        raise OptionError(
            Message(f"{path}: ", Option("unit", unit), f" needs {FEATURES}: {WRITTEN_BY_OLD}")
        )
    rows = open_old(path, info, split, **options)
    labels = {name: load_labels(path, name.split("/")) for name in rows.schema}
    labels = {name: names for name, names in labels.items() if names}
    return TfdsSource(rows, path, None, labels, [], f"{rows.facts.origin}; {WRITTEN_BY_OLD}")


def _open_records(
    folder: Location,
    info: DatasetInfo,
    piece: ShardRows,
    columns: Mapping[str, Feature],
    errors: Errors,
    verify: bool,
) -> EpisodeRecords:
    """Open the shards of a piece."""
    shards = [folder.child(name) for name in piece.shards]
    check_present(shards)
    files = [shard.found() for shard in shards]
    decoder = record_decoder(columns)
    if info.file_format == "array_record":
        from recmap.formats.record_readers import RecordReaders
        from recmap.formats.tfds.array_record import ArrayRecordSource

        return ArrayRecordSource(RecordReaders(files), decoder, piece.shard_rows)
    records = TFRecordSource(files, errors=errors, verify=verify, compression=None, decoder=decoder)
    return _ShardRecords(records, None if errors == "skip" else piece.shard_rows)


def _open_shard(path: str, fields: FieldsLike | None) -> Source:
    """Open one shard that was just written, with the fields that were written."""
    if not isinstance(fields, Mapping):
        raise OptionError(f"{path}: a TFDS dataset is opened by its folder")
    columns = shard_features(Schema(dict(fields)))
    source = TFRecordSource([path], compression=None, decoder=record_decoder(columns))
    return TfdsSource(source, path, columns, {}, [])


def _chosen(
    path: str, features: Sequence[Feature], fields: FieldsLike | None, unit: Unit | None
) -> list[Feature]:
    """Return the features to read: those asked for, if they can be read."""
    if unit is not None and not any(feature.steps for feature in features):
        raise OptionError(
            Message(
                f"{path}: ",
                Option("unit", unit),
                " is for datasets of episodes, but no feature of this one is a nested Dataset",
            )
        )
    known = {feature.name: feature for feature in features}
    asked: dict[Any, Any] = {...: None}
    # The columns of steps have other names; they are chosen when all are known.
    if fields is not None and unit != "steps":
        asked = dict(fields) if isinstance(fields, Mapping) else dict.fromkeys(fields)
    if unit == "steps" and fields is not None:
        known = {name: feature for name, feature in known.items() if not feature.problem}
    names = [*known] if ... in asked else [name for name in asked if name in known]
    absent = [name for name in asked if name is not ... and name not in known]
    if absent:
        raise FieldNotFoundError(f"{path}: {no_column(absent[0], known)}")
    for name in names:
        if known[name].problem:
            others = [each for each, feature in known.items() if not feature.problem]
            raise DataError(
                Message(
                    f"{path}: feature {name!r} {known[name].problem}; to read the others, give ",
                    Option("fields", others[:_MOST_NAMED] + [...] * (len(others) > _MOST_NAMED)),
                ),
                file=located(path).child(FEATURES),
                field=name,
            )
    return [_as_asked(known[name], asked.get(name)) for name in names]


def _as_asked(feature: Feature, asked: Any) -> Feature:
    """Return the feature as bytes or text, if that is what was asked for."""
    if asked is None or not feature.is_string:
        return feature
    dtype = as_field(asked).dtype
    return replace(feature, dtype=dtype) if dtype in (BYTES, TEXT) else feature


def _labels(folder: Location, features: Sequence[Feature]) -> dict[str, tuple[str, ...]]:
    labelled = [feature for feature in features if feature.classes is not None]
    found = {feature.name: load_labels(folder, feature.path) for feature in labelled}
    return {name: names for name, names in found.items() if names}


def _step_labels(
    labels: Mapping[str, Sequence[str]], features: Sequence[Feature]
) -> dict[str, Sequence[str]]:
    """Return the names of classes by the names that the columns of steps have."""
    short = {f.name: f.name.removeprefix(f"{f.steps}/") for f in features if f.steps}
    return {**labels, **{short[name]: each for name, each in labels.items() if name in short}}


class _ShardRecords(WrappedSource, EpisodeRecords):
    """The records of shards. Their number is checked against the metadata once it is known.

    ``expected`` is that number for each shard, or None if records may have been left out.
    """

    keeps_rows = True

    def __init__(self, records: TFRecordSource, expected: Sequence[int] | None) -> None:
        super().__init__(records)
        self._records = records
        self._expected = None if expected is None else sum(expected)
        files = [] if expected is None else records.facts.record_files
        self._unchecked: dict[RecordFile, int] = dict(zip(files, expected or (), strict=True))

    def _checked(self, batch: Batch) -> Batch:
        if self._unchecked:
            self._check()
        return batch

    def _check(self) -> None:
        for file, expected in list(self._unchecked.items()):
            count = file.known_count()
            if count is None:
                continue
            if count != expected:
                raise DataError(
                    f"{file.path}: has {count:,} records, but {INFO} says {expected:,}; get the "
                    "file again, or open it by itself to read what is there",
                    file=file.path,
                )
            del self._unchecked[file]

    def __len__(self) -> int:
        count = len(self._source)
        self._check()
        return count

    def known_rows(self) -> int | None:
        return self._source.known_rows() if self._expected is None else self._expected

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        return self._checked(self._source.read(start, stop, limit))

    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        return self._checked(self._source.gather(rows))

    def read_padded(
        self, rows: RowNumbers, pads: Mapping[str, PadSpec], size: int, allocate: Allocate
    ) -> PaddedRows | None:
        padded = self._source.read_padded(rows, pads, size, allocate)
        self._check()
        return padded

    def gather_steps(self, decoder: ExampleDecoder, rows: RowArray, steps: StepNumbers) -> Batch:
        return self._checked(self._records.gather_steps(decoder, rows, steps))

    def unverified(self) -> EpisodeRecords:
        other = copy(self)
        other._source = other._records = self._records.unverified()  # noqa: SLF001  # a copy
        return other

    def select(self, names: Sequence[str]) -> Source:
        other = copy(self)
        other._source = other._records = self._records.select(names)  # noqa: SLF001  # a copy
        return other


class TfdsSource(WrappedSource):
    """The columns of a TFDS folder.

    ``columns`` tells how to put them together from what ``source`` decodes; None if it gives the
    columns themselves.
    """

    keeps_rows = True

    def __init__(
        self,
        source: Source,
        folder: str,
        columns: Mapping[str, Feature] | None,
        labels: Mapping[str, Sequence[str]],
        features: Sequence[Feature],
        origin: str = f"from {FEATURES}",
    ) -> None:
        super().__init__(source)
        self._origin = origin
        self._folder, self._columns, self._features = folder, columns, features
        self._labels = labels
        self._simple = columns is None or all(column.simple for column in columns.values())
        self._schema = source.schema
        if columns is not None:
            self._schema = Schema({name: each.field for name, each in columns.items()})

    # Facts.

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def facts(self) -> SourceFacts:
        facts, names = self._source.facts, self._schema
        told = [feature for feature in self._features if feature.entry and feature.name in names]
        return with_facts(
            facts,
            format="TFDS",
            files=[self._folder],
            origin=self._origin,
            can_pad=self._simple and facts.can_pad,
            owns_rows=self._simple and facts.owns_rows,
            labels={name: each for name, each in self._labels.items() if name in names},
            descriptions={feature.name: described(feature) for feature in told},
        )

    def info(self) -> Info:
        known, facts = super().info(), self.facts
        notes = {name: note for name in self._schema if (note := self._note(name))}
        return replace(
            known,
            format=facts.format,
            files=facts.files,
            size=located(self._folder).size_below(),
            origin=facts.origin,
            notes=notes,
        )

    def _note(self, name: str) -> str:
        found = [f for f in self._features if f.name == name or f.name.endswith(f"/{name}")]
        classes = self._labels.get(name, ())
        if classes:
            named = ", ".join(classes[:_MOST_NAMED]) + (
                ", ..." if len(classes) > _MOST_NAMED else ""
            )
            return f"{len(classes):,} classes: {named}"
        return found[0].note if found else ""

    # Reading.

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        stored = self._source.read(start, stop, limit)
        if limit is not None and self._columns is not None and not self._simple:
            rows = measure(stored)[0]
            sizes: RowSizes = 0
            for column in self._columns.values():
                sizes = added(sizes, column.row_sizes(stored))
            stored = pick(stored, slice(0, fitting(sizes, rows, limit)))
        return self._assembled(stored)

    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        return self._assembled(self._source.gather(rows))

    def _assembled(self, stored: Batch) -> Batch:
        if self._simple or self._columns is None:
            return stored
        columns = self._columns
        return {name: column.assemble(stored, self._folder) for name, column in columns.items()}

    def column(self, name: str) -> Column | None:
        if self._columns is None or self._columns[name].simple:
            return self._source.column(name)
        return None

    def read_padded(
        self, rows: RowNumbers, pads: Mapping[str, PadSpec], size: int, allocate: Allocate
    ) -> PaddedRows | None:
        return self._source.read_padded(rows, pads, size, allocate) if self._simple else None

    def row_sizes(self, rows: npt.NDArray[np.int64]) -> RowSizes | None:
        if self._simple:
            return self._source.row_sizes(rows)
        assert self._columns is not None
        if any(column.encoding == "zlib" for column in self._columns.values()):
            return None
        sizes = self._source.row_sizes(rows)
        more = sum(8 * len(column.axes) for column in self._columns.values())
        return None if sizes is None else added(sizes, more)

    def select(self, names: Sequence[str]) -> Source:
        chosen = list(self._schema.select(names))
        if self._columns is None:
            source = self._source.select(chosen)
            return TfdsSource(
                source, self._folder, None, self._labels, self._features, self._origin
            )
        columns = {name: self._columns[name] for name in chosen}
        stored = [name for column in columns.values() for name in column.stored_fields]
        return TfdsSource(
            self._source.select(stored), self._folder, columns, self._labels, self._features
        )
