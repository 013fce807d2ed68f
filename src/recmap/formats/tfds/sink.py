"""Writing TFDS folders.

Every shard is a TFRecord file. The metadata comes last, so that a split appears in
``dataset_info.json`` when all its shards are there. A group ``steps`` of lists is the nested
dataset of RLDS: a record is an episode.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from recmap.errors import (
    ColumnError,
    DataError,
    Message,
    Option,
    OptionError,
    OptionTypeError,
    OutputExistsError,
)
from recmap.formats.episodes import find_episodes
from recmap.formats.sink import SinkKind, Written
from recmap.formats.tfds.episode_rows import STEPS, EpisodeRows
from recmap.formats.tfds.feature import Feature, disassemble
from recmap.formats.tfds.features_json import described, feature_group, parse_features, step_group
from recmap.formats.tfds.metadata import (
    FEATURES,
    INFO,
    DatasetInfo,
    Split,
    add_split,
    is_version,
    keep_features,
    label_file,
    load_features,
    load_info,
)
from recmap.formats.tfrecord_sink import RecordOptions, TFRecordSink
from recmap.local.local_path import located
from recmap.local.location import Location
from recmap.local.output import Output
from recmap.model.field import TEXT, Field
from recmap.model.ragged import Ragged
from recmap.model.schema import Schema
from recmap.model.source import Source
from recmap.store.paths import shard_names
from recmap.tfrecord.encoder import little_endian

_VERSION = "1.0.0"
# Lists of integers hold these exactly. They are shorter than raw bytes for a few values only.
_SHORT = 16
_LISTED = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
# What tensorflow_datasets decodes from raw bytes.
_RAW = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint64", "float16",
        "float32", "float64")  # fmt: skip


def split_path(folder: str, options: Mapping[str, Any]) -> str:
    """Return the path that the names of the shards of a split begin with.

    ``folder`` is that of a version, ``.../NAME/1.0.0``, or the one that all datasets are in.
    """
    name, split = options.get("name"), options.get("split")
    for option, value in (("name", name), ("split", split)):
        if not isinstance(value, str | None):
            raise OptionTypeError(f"{option}={value!r}: give text")
    if split is None:
        raise _missing("split", "train", "the split to write")
    if not re.fullmatch(r"\w[\w-]*", split) or split == "all":
        raise OptionError(f"split={split!r}: give a name like 'train' or 'test_2'")
    parts = folder.rstrip("/").split("/")
    if is_version(parts[-1]):
        parent = parts[-2] if len(parts) > 1 else ""
        name = name or parent
    elif name is None:
        raise _missing("name", "my_dataset", "the name of the dataset")
    else:
        folder = _below(_below(folder, name), _VERSION)
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise OptionError(f"name={name!r}: give a name like 'my_dataset'")
    return located(folder).child(f"{name}-{split}.tfrecord")


def _name_and_split(path: str) -> tuple[str, str]:
    """Return the parts of a path that ``split_path`` made."""
    name, _, split = os.path.basename(path).removesuffix(".tfrecord").partition("-")
    return name, split


def _below(folder: str, name: str) -> str:
    return located(folder).child(f"{name}/")


def _missing(option: str, example: str, what: str) -> OptionError:
    needed = Option("options", {option: example})
    return OptionError(Message('format="tfds" needs ', needed, f", {what}"))


class TfdsShard(TFRecordSink):
    """Writes one shard of a split."""

    def __init__(
        self,
        output: Output,
        schema: Schema,
        *,
        name: str = "",
        split: str = "",
        episodes: str | None = None,
        labels: Mapping[str, Sequence[str]] | None = None,
        descriptions: Mapping[str, Any] | None = None,
    ) -> None:
        del name, split, labels, descriptions  # for the metadata
        del episodes  # for the rows
        self._columns = shard_features(schema)
        self._steps = [name for name, column in self._columns.items() if column.steps]
        fields = {
            n: f for column in self._columns.values() for n, f in column.stored_fields.items()
        }
        encoding = {n: e for column in self._columns.values() for n, e in _encodings(column)}
        options = RecordOptions(encoding=encoding, describe=False)
        plain = Schema({n: Field(f.dtype, f.shape) for n, f in fields.items()})
        super().__init__(output, options.encoder(plain), options)

    def write(self, batch: Mapping[str, Any]) -> None:
        stored: dict[str, Any] = {}
        _check_steps(batch, self._steps)
        for name, column in self._columns.items():
            values = batch[name]
            if column.simple:
                stored[name] = values
            else:
                assert isinstance(values, Ragged)
                stored |= disassemble(column, values)
        super().write(stored)


def _check_steps(batch: Mapping[str, Any], steps: Sequence[str]) -> None:
    """Raise if the lists of the nested dataset do not have an item for each step."""
    for name in steps[1:]:
        wrong = np.flatnonzero(batch[name].lengths != batch[steps[0]].lengths)
        if len(wrong):
            row = int(wrong[0])
            raise ColumnError(
                f"columns {steps[0]!r} and {name!r}: a row has {len(batch[steps[0]][row]):,} and "
                f"{len(batch[name][row]):,} items, but in a TFDS dataset, the group {STEPS!r} has "
                "the steps of an episode; rename the columns if they are not steps"
            )


def _encodings(column: Feature) -> list[tuple[str, str]]:
    """Return the list that holds each feature of a column."""
    lists = {"float": "float_list", "int64": "int64_list", "bytes": "bytes_list"}
    made = []
    for name, kind in column.kinds().items():
        raw = kind.name == "bytes" and not column.stored_fields[name].is_bytes
        made.append((name, "raw" if raw else lists[kind.name]))
    return made


def shard_features(schema: Schema) -> dict[str, Feature]:
    """Return how the columns of a schema are stored, without losing a bit."""
    nested = _nested(schema)
    made = {
        name: _step_feature(name, field) if name in nested else _feature(name, field)
        for name, field in schema.items()
    }
    for name in made:
        parents = name.split("/")
        for i in range(1, len(parents)):
            if "/".join(parents[:i]) in made:
                raise ColumnError(
                    f"columns {'/'.join(parents[:i])!r} and {name!r}: in a TFDS dataset, a feature "
                    "is either a column or a group of columns; rename one of them"
                )
    return made


def _nested(schema: Schema) -> set[str]:
    """Return the columns of the nested dataset: a group of lists that is called ``steps``."""
    group = {name for name in schema if name.startswith(f"{STEPS}/")}
    return group if all(schema[name].ragged for name in group) else set()


def _step_feature(name: str, field: Field) -> Feature:
    """Return how a column with a list of items, one for each step, is stored."""
    if field.dtype == TEXT or field.ragged > 1:
        return replace(_feature(name, field), steps=STEPS)
    item = Field(field.dtype, field.shape[1:])
    feature = _feature(name, item)
    return replace(feature, lengths=(None, *feature.lengths), steps=STEPS)


def _feature(name: str, field: Field) -> Feature:
    path = tuple(name.split("/"))
    if not all(path):
        raise ColumnError(f"column {name!r}: a TFDS feature cannot have such a name; rename it")
    if field.dtype == TEXT:
        return Feature(path, TEXT, lengths=field.shape)
    if field.is_bytes:
        nested = field.ragged if field.ragged > 1 else 0
        return Feature(path, shape=field.shape[nested:], lengths=field.shape[:nested])
    dtype = field.dtype.newbyteorder("=")
    if field.ragged > 1:
        listed = dtype.name in _LISTED or dtype == np.float32
        if not listed:
            raise _unsupported(name, field, "float32" if dtype.kind == "f" else "int64")
        inner, outer = field.shape[field.ragged :], field.shape[: field.ragged]
        return Feature(path, dtype, inner, outer)
    if dtype == np.float32 or (dtype.name in _LISTED and _fits_list(field, dtype)):
        return Feature(path, dtype, field.shape)
    if dtype.name not in _RAW:
        raise _unsupported(name, field, "int64")
    return Feature(path, dtype, field.shape, encoding="bytes")


def _fits_list(field: Field, dtype: np.dtype[Any]) -> bool:
    if dtype.name in ("int64", "uint32"):
        return True
    few = 1 if dtype.itemsize == 1 else _SHORT
    return dtype.itemsize > 1 if field.ragged else field.count <= few


def _unsupported(name: str, field: Field, dtype: str) -> ColumnError:
    return ColumnError(
        Message(
            f"column {name!r}: a TFDS dataset cannot hold {field} without losing values",
            hint=("cast it, such as ", Option("cast", {name: dtype}, verb=True)),
        )
    )


# The metadata.


def check_folder(path: str, schema: Schema, shards: Sequence[str], overwrite: bool) -> None:
    """Refuse a folder whose metadata does not fit what is going to be written."""
    features = shard_features(schema)
    folder, (name, split) = located(path).folder, _name_and_split(path)
    if folder.child(FEATURES).is_file():
        _refuse_others(folder, load_features(folder), features)
    if not folder.child(INFO).is_file():
        return
    info = load_info(folder)
    if info.name != name or info.file_format != "tfrecord":
        raise OutputExistsError(
            f"{folder} holds {info.name!r} as {info.file_format} files; write elsewhere"
        )
    names = [os.path.basename(shard) for shard in shards]
    if split in info.splits and info.shard_names(info.splits[split]) != names and not overwrite:
        raise OutputExistsError(
            Message(
                f"{folder} has a split {split!r} already",
                hint=("use ", Option("overwrite", True), " to replace it"),
            )
        )


def _refuse_others(
    folder: Location, content: Mapping[str, Any], features: Mapping[str, Feature]
) -> None:
    """Refuse features that are not stored as those of a folder are."""
    known = parse_features(content, folder.child(FEATURES))
    if {f.name: _layout(f) for f in known} != {n: _layout(f) for n, f in features.items()}:
        there = ", ".join(f"{feature.name}: {feature.field}" for feature in known)
        raise OutputExistsError(
            f"{folder} has different features from the new split: {there}; all splits of a dataset "
            "must have the same features; write elsewhere"
        )


def _layout(feature: Feature) -> list[Any]:
    """Return how a column is stored."""
    return [feature.encoding, feature.field, feature.stored_fields, feature.kinds()]


def complete_folder(written: Written) -> None:
    """Add a split to the metadata of its folder, or write the metadata."""
    schema = written.source.schema
    folder, (name, split) = located(written.path).folder, _name_and_split(written.path)
    features = shard_features(schema)

    def kept(content: dict[str, Any] | None) -> Mapping[str, Any]:
        if content is None:
            return _new_features(folder, schema, features, written.options)
        _refuse_others(folder, content, features)
        return content

    keep_features(folder, kept)
    version = folder.rstrip("/").rpartition("/")[2]
    new = DatasetInfo(name, version if is_version(version) else _VERSION)
    add_split(folder, new, Split(split, tuple(written.rows), sum(written.sizes)))


def _new_features(
    folder: Location, schema: Schema, features: Mapping[str, Feature], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the descriptions of all columns; write the names of their classes."""
    labels, given = options.get("labels") or {}, options.get("descriptions") or {}
    tree: dict[str, Any] = {}
    for name, feature in features.items():
        classes = labels.get(name, ()) if schema[name] == Field(np.int64) else ()
        told = _given(feature, given.get(name)) or described(feature, len(classes))
        _place(tree, feature, told)
        if classes:
            if any(each != each.strip() or not each or "\n" in each for each in classes):
                raise DataError(
                    f"column {name!r}: the name of a class is empty, or has a line break or spaces "
                    "at its ends"
                )
            names = folder.child(label_file(feature.path))
            names.write_whole(("\n".join(classes) + "\n").encode())
    return feature_group(tree)


def _place(tree: dict[str, Any], feature: Feature, described: Mapping[str, Any]) -> None:
    """Put the description of a column into the tree of all columns."""
    *parents, last = feature.path
    at = tree
    for parent in parents:
        if at is tree and feature.steps:
            # The nested dataset is the first of the sequences that the column is in.
            described = described["sequence"]["feature"]
            at = at.setdefault(parent, step_group({}))["sequence"]["feature"]
        else:
            at = at.setdefault(parent, feature_group({}))
        at = at["featuresDict"]["features"]
    at[last] = described


def _given(feature: Feature, description: Any) -> dict[str, Any] | None:
    """Return the description that a column had in another folder, if it still is what it was."""
    if description is None:
        return None
    if feature.steps and not isinstance(description.get("sequence"), dict):
        return None
    tree: dict[str, Any] = {}
    _place(tree, feature, description)
    (found,) = parse_features(feature_group(tree), FEATURES)
    return dict(description) if _layout(found) == _layout(feature) else None


def arranged(source: Source, options: Mapping[str, Any]) -> Source:
    """Return a row for each episode, if ``episodes`` names the column that tells them apart."""
    column = options.get("episodes")
    if column is None:
        return source
    if not isinstance(column, str):
        raise OptionTypeError(f"episodes={column!r}: give the name of a column")
    return EpisodeRows(source, find_episodes(source, column), column)


SINK = SinkKind(
    TfdsShard,
    streams=True,
    untyped=True,
    stored=little_endian,
    names=lambda name, count: shard_names(name, "", count),
    place=split_path,
    arrange=arranged,
    begin=check_folder,
    complete=complete_folder,
)
