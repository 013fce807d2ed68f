"""The schema used to read TFRecord files: given, stored with them, or inferred."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from recmap.errors import FieldMismatchError, Message, Option
from recmap.model.facts import TableType
from recmap.model.field import BYTES, Field, as_field
from recmap.model.schema import FieldsLike, Schema
from recmap.model.table_notes import decode_note
from recmap.native import _core
from recmap.store.paths import for_each
from recmap.store.read_ahead import MOST_OBJECTS
from recmap.tfrecord.decoder import ExampleDecoder, UnknownFeatures, kinds_of
from recmap.tfrecord.faults import FieldChoice, ragged_text
from recmap.tfrecord.record_file import RecordFile
from recmap.tfrecord.sidecar import Sidecar
from recmap.tfrecord.stored_schema import (
    Manifests,
    Types,
    check_first_read,
    described_by,
    indexed_types,
    stored_types,
    written_types,
)
from recmap.tfrecord.survey import Summary, join_schemas, sample


class SchemaChoice(NamedTuple):
    """How to decode records, where the schema comes from, and the sample it was inferred from,
    if any.

    ``table_types`` are what columns were in the DataFrame that was saved, and ``frame_index``
    decodes those that were its index.
    """

    decoder: ExampleDecoder
    origin: str
    summary: Summary | None = None
    table_types: Mapping[str, TableType] = {}
    frame_index: ExampleDecoder | None = None

    def with_table(self, stored: Types | None, kinds: Mapping[str, _core.Kind]) -> SchemaChoice:
        """Return this choice with what is stored of the DataFrame."""
        if stored is None or not stored.table_note:
            return self
        shown = any(name in self.decoder.schema for name in stored.frame_index)
        index = None if shown or not stored.frame_index else stored.frame_index
        return self._replace(
            table_types=decode_note(stored.table_note),
            frame_index=None if index is None else ExampleDecoder(index, None, kinds),
        )


def _choice(fields: FieldsLike | None) -> FieldChoice:
    """Return what the user passed as ``fields=``. The names of all fields are known later."""
    if fields is None:
        return FieldChoice((), {}, whole=True)
    given: dict[Any, Any] = dict(fields) if isinstance(fields, Mapping) else dict.fromkeys(fields)
    types = {n: None if f is None else as_field(f) for n, f in given.items() if n is not ...}
    return FieldChoice((), types, ... in given)


def choose_schema(
    files: Sequence[RecordFile],
    sidecars: Sequence[Sidecar | None],
    examined: Collection[int],
    fields: FieldsLike | None,
    *,
    skip: bool,
) -> SchemaChoice:
    """Choose how to decode the records of files.

    Stored types come from the ``examined`` files. The other files are compared with them when
    they are first read. Records are sampled only if the stored types do not suffice.
    """
    asked = _choice(fields)
    need_types = asked.whole or None in asked.given.values()
    stored = _stored(files, sidecars, examined, skip) if need_types else None
    for i, (file, sidecar) in enumerate(zip(files, sidecars, strict=True)):
        if i not in examined:
            fingerprint = sidecar.fingerprint if sidecar else None
            file.before_read = partial(check_first_read, fingerprint, stored)
    kinds = _indexed_kinds(sidecars)
    if fields is None and stored is not None:
        unknown = UnknownFeatures(stored.origin, hidden=stored.hidden)
        described = described_by(stored, stored.schema, skip)
        decoder = ExampleDecoder(stored.schema, None, kinds, unknown, described)
        return SchemaChoice(decoder, stored.origin).with_table(stored, kinds)
    return _by_sample(files[0].path, asked, stored, sample(files, skip), kinds, skip)


def sampled_schema(path: str, fields: FieldsLike | None, summary: Summary) -> SchemaChoice:
    """Choose how to decode records of another kind of file, of which some were looked at."""
    return _by_sample(path, _choice(fields), None, summary, {}, skip=False)


def _by_sample(
    path: str,
    asked: FieldChoice,
    stored: Types | None,
    summary: Summary,
    kinds: Mapping[str, _core.Kind],
    skip: bool,
) -> SchemaChoice:
    records = "1 record" if summary.rows == 1 else f"{summary.rows:,} records"
    origin = f"inferred from {records}"
    if asked.whole and not asked.given:
        unknown = UnknownFeatures(origin)
        decoder = ExampleDecoder(summary.schema(), summary.places(), summary.kinds(), unknown)
        return SchemaChoice(decoder, origin, summary)
    decoder = _given_decoder(path, asked, stored, summary, kinds, origin, skip)
    return SchemaChoice(decoder, "given").with_table(stored, kinds)


def _given_decoder(
    path: str,
    asked: FieldChoice,
    stored: Types | None,
    summary: Summary,
    kinds: Mapping[str, _core.Kind],
    inferred: str,
    skip: bool,
) -> ExampleDecoder:
    """Make a decoder for the fields in ``fields=``.

    Fields without a type get the stored type, or the one inferred from the sample.
    """
    seen = [name for name, feature in summary.features.items() if feature.kinds]
    known = list(stored.schema) if stored else seen
    fields = {**dict.fromkeys(known if asked.whole else ()), **asked.given}
    absent = [n for n in fields if n not in summary.features and n not in known]
    if absent and summary.rows:
        _check_absent(path, absent, asked, summary)
    untyped = [n for n, field in fields.items() if field is None and n not in absent]
    types = stored.whole_schema if stored else summary.schema(untyped)
    schema = Schema({n: types[n] if f is None else f for n, f in fields.items()})
    return ExampleDecoder(
        schema,
        summary.places(),
        {n: kind for n, kind in (kinds or summary.kinds()).items() if n in untyped},
        _unknown(stored, inferred) if asked.whole else None,
        described_by(stored, untyped, skip),
        asked._replace(names=list(schema)),
    )


def _unknown(stored: Types | None, inferred: str) -> UnknownFeatures:
    if stored is None:
        return UnknownFeatures(inferred)
    return UnknownFeatures(stored.origin, hidden=stored.hidden)


def _check_absent(path: str, absent: list[str], asked: FieldChoice, summary: Summary) -> None:
    """Refuse features missing from the sample, unless their field allows rows without them."""
    for name in absent:
        field = asked.given[name]
        if field is not None and (field.fill is not None or field.ragged or field.nullable):
            continue
        option = asked.fields_option(name, ragged_text(field or Field("int64")))
        raise FieldMismatchError(
            Message(
                f"{path}: no feature {name!r} in the {summary.rows:,} records looked at; they "
                f"hold: {summary.describe()} (if later records have it, rm.index finds it, or "
                "give a type for rows of any length, ",
                option,
                ")",
            ),
            file=path,
            field=name,
        )


def _stored(
    files: Sequence[RecordFile],
    sidecars: Sequence[Sidecar | None],
    examined: Collection[int],
    skip: bool,
) -> Types | None:
    """Return the types that the files were written with, or those in their indexes."""
    manifests = Manifests()
    numbers = sorted(examined)
    types = for_each(
        lambda i: stored_types(files[i], sidecars[i], manifests, skip=skip),
        numbers,
        [files[i].path for i in numbers],
        MOST_OBJECTS,
    )
    found = dict(zip(numbers, types, strict=True))
    later = {
        i: indexed_types(files[i].path, sidecar)
        for i, sidecar in enumerate(sidecars)
        if i not in found
    }
    return written_types(files, found, later, skip) or _indexed([f.path for f in files], sidecars)


def _indexed(paths: Sequence[str], sidecars: Sequence[Sidecar | None]) -> Types | None:
    """Return the types in the indexes, if every file has one and they can be joined."""
    indexed = {
        path: sidecar for path, sidecar in zip(paths, sidecars, strict=True) if sidecar is not None
    }
    if len(indexed) < len(set(paths)):
        return None
    # Ignore files without rows, unless there are no others.
    filled = [path for path, sidecar in indexed.items() if sidecar.index.count]
    first, *others = filled or paths[:1]
    types = indexed_types(first, indexed[first])
    if types is None:
        return None
    schemas = [indexed[path].schema for path in (first, *others)]
    joined = join_schemas([_without(schema, types.hidden) for schema in schemas])
    return None if joined is None else replace(types, schema=joined)


def _without(schema: Schema, names: Collection[str]) -> Schema:
    return schema.select([name for name in schema if name not in names]) if names else schema


def _indexed_kinds(sidecars: Sequence[Sidecar | None]) -> dict[str, _core.Kind]:
    """Return the kind of list that holds each field, if all indexes agree on it."""
    kinds = [set(kinds_of(s.encoding).items()) for s in sidecars if s and s.index.count]
    changing = {name for one in kinds for name, kind in one if (name, kind) not in kinds[0]}
    return {name: kind for one in kinds for name, kind in one if name not in changing}


def type_notes(features: Mapping[str, Any], schema: Schema) -> dict[str, str]:
    """Say which columns of bytes look like numbers, and how to give them a type."""
    notes: dict[str, str] = {}
    for name, feature in features.items():
        hint = feature.hint()
        if hint and name in schema and schema[name].dtype == BYTES:
            given = Option("fields", {name: ...})
            notes[name] = Message(f"{hint}; ", given, " gives it a type")
    return notes
