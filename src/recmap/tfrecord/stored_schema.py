"""The schema that a file was written with, wherever it is stored.

It may be in the first record, in the index next to the file, or in the manifest of its folder.
One of them is enough. If there are several, they must agree.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import (
    DataError,
    FieldMismatchError,
    IndexFileError,
    Message,
    Option,
    SkippedRecordsWarning,
    StaleIndexWarning,
    StoreError,
)
from recmap.local.local_path import located
from recmap.local.whole_output import appended_manifest
from recmap.model.description import Description, json_object
from recmap.model.null_columns import either
from recmap.model.schema import Schema
from recmap.model.table_notes import decode_note, index_columns
from recmap.native import _core
from recmap.tfrecord.embedded_schema import (
    EmbeddedSchemas,
    check_claims,
    parse_schema,
    read_description,
    reads,
)
from recmap.tfrecord.record_file import RecordFile
from recmap.tfrecord.sidecar import Fingerprint, Sidecar, sidecar_path
from recmap.tfrecord.survey import sample
from recmap.warn import warn

Bytes = npt.NDArray[np.uint8]

_ITS_FIRST = "its first record"
_MANIFEST = "_manifest.json"
_MAX_MANIFEST = 256 << 20
_SOME_FIELDS = Option("fields", [...])


@dataclass(frozen=True)
class Types:
    """A stored schema, and where it was found, for messages.

    It is ``firm`` if the writer of the file stored it. An index may have been made later, from
    the records. ``frame_index`` has the columns that are the index of the DataFrame that was saved,
    which are not in the schema, and ``table_note`` what columns were there. ``hidden`` names the
    columns that are such an index in any of several files.
    """

    schema: Schema
    origin: str
    where: str
    file: str
    firm: bool = True
    frame_index: Schema = field(default_factory=lambda: Schema({}))
    table_note: Mapping[str, Any] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()

    def with_table(self, note: Mapping[str, Any]) -> Types:
        """Return the types of a file with a note of what its columns were in a DataFrame."""
        levels = index_columns(decode_note(note), self.schema)
        rows = [name for name in self.schema if name not in levels]
        if not levels or not rows:
            return replace(self, table_note=note)
        return replace(
            self,
            schema=self.schema.select(rows),
            frame_index=self.schema.select(levels),
            table_note=note,
            hidden=frozenset(levels),
        )

    def joined(self, other: Types, schema: Schema) -> Types:
        """Return the types of both files, which have a schema in common."""
        note = {n: each for n, each in self.table_note.items() if other.table_note.get(n) == each}
        same = self.frame_index == other.frame_index and self.frame_index.keys() <= note.keys()
        return replace(
            self,
            schema=schema,
            frame_index=self.frame_index if same else Schema({}),
            table_note=note,
            hidden=self.hidden | other.hidden,
        )

    @property
    def whole_schema(self) -> Schema:
        """The schema of the records, with the columns that are the index of a DataFrame."""
        return Schema({**self.schema, **self.frame_index})

    @property
    def place(self) -> str:
        """Where it was found, for a message that does not name the file elsewhere."""
        return self.where.replace(_ITS_FIRST, f"the first record of {self.file}")


def described_by(types: Types | None, names: Collection[str], skip: bool) -> EmbeddedSchemas | None:
    """Return a check for embedded schemas, if the writer stored the types of these fields.

    Inferred types need no check: they read any values.
    """
    if types is None or not types.firm:
        return None
    texts = {name: text for name, text in Description(types.schema).texts.items() if name in names}
    return EmbeddedSchemas(texts, types.place, skip=skip)


def same_types(a: Schema, b: Schema) -> bool:
    """Return whether two schemas are equal, apart from the order of their fields."""
    return a == b or Description(a).texts == Description(b).texts


def joint_types(a: Schema, b: Schema) -> Schema | None:
    """Return a schema for the columns of both; None if they differ in more than their nulls."""
    if a == b:
        return a
    joint = {n: either(field, b[n]) if n in b else field for n, field in a.items()}
    both = Schema(joint)
    return both if _reads_all(both, a) and _reads_all(both, b) else None


def _reads_all(schema: Schema, other: Schema) -> bool:
    """Return whether a schema has the columns of another, which may have fewer nulls."""
    texts, others = Description(schema).texts, Description(other).texts
    return texts.keys() == others.keys() and all(
        reads(texts[name], text) for name, text in others.items()
    )


def stored_types(
    file: RecordFile,
    sidecar: Sidecar | None,
    manifests: Manifests,
    *,
    skip: bool,
) -> Types | None:
    """Return the types of a file; None if they are not stored anywhere.

    With ``skip``, a damaged description is ignored.
    """
    path, frame = file.path, file.first_record()
    embedded = None if frame is None else _embedded(frame, path, skip)
    indexed = indexed_types(path, sidecar)
    if indexed is not None and frame is not None:
        check_claims(indexed.schema, frame, indexed.where, path, may_lack=True)
    listed = manifests.types(path)
    if listed is not None and frame is not None:
        check_claims(listed.schema, frame, listed.where, path)
    found = [types for types in (embedded, indexed, listed) if types is not None]
    for other in found[1:]:
        if other is indexed and _has_all(indexed.schema, found[0].schema):
            continue  # an index covers all records, and later ones may have more features
        if not same_types(found[0].schema, other.schema):
            raise _conflict(found[0], other)
    if indexed is not None and found[0] is not indexed:
        return replace(found[0], schema=indexed.schema, origin=indexed.origin)
    return found[0] if found else None


def _has_all(schema: Schema, fields: Schema) -> bool:
    """Return whether a schema has these fields, perhaps among others."""
    return Description(fields).texts.items() <= Description(schema).texts.items()


def indexed_types(path: str, sidecar: Sidecar | None) -> Types | None:
    """Return the types in the index of a file.

    Return None if there is no index, or if it has no types because the file has no rows.
    """
    if sidecar is None or not sidecar.schema:
        return None
    where = f"the index {sidecar_path(path)}"
    types = Types(sidecar.schema, "from the index", where, path, firm=False)
    return types.with_table(sidecar.table_note)


def written_types(
    files: Sequence[RecordFile],
    found: Mapping[int, Types | None],
    later: Mapping[int, Types | None],
    skip: bool,
) -> Types | None:
    """Return the types that the writer of the files stored; None if there are none.

    ``found`` are the types of the files checked on opening. ``later`` are those in the indexes
    of the files that are checked when they are first read.
    """
    stored = [types for types in (*found.values(), *later.values()) if types is not None]
    firm = next((types for types in stored if types.firm), None)
    if firm is None:
        return None
    for types in stored:
        joint = joint_types(firm.schema, types.schema)
        if joint is None:
            raise _conflict(firm, types)
        firm = firm.joined(types, joint)
    others = [files[i] for i, types in found.items() if types is None]
    if others:
        _check_others(others, firm, skip)
    return firm


def _check_others(files: Sequence[RecordFile], types: Types, skip: bool) -> None:
    """Raise if files without stored types have features that would be left out."""
    known = types.schema.keys() | types.hidden
    more = [name for name in sample(files, skip).features if name not in known]
    if more:
        raise FieldMismatchError(
            Message(
                f"{files[0].path}: has the feature {more[0]!r}, which {types.place} does not "
                "describe",
                hint=("open the files separately, or choose the columns to read, ", _SOME_FIELDS),
            ),
            file=files[0].path,
            field=more[0],
        )


def _embedded(frame: Bytes, path: str, skip: bool) -> Types | None:
    """Return the types that the first record describes. With ``skip``, warn if they are damaged."""
    where = _ITS_FIRST
    try:
        described = read_description(frame[_core.HEADER_SIZE :], path)
        if described is None:
            return None
        schema, table_note = described
        check_claims(schema, frame, where, path)
    except DataError as e:
        if not skip:
            raise
        warn(Message("not used: ", e.wording), SkippedRecordsWarning)
        return None
    return Types(schema, "from the first record", where, path).with_table(table_note)


def _conflict(one: Types, other: Types) -> FieldMismatchError:
    """Make the error for two stored schemas that disagree."""
    a, b = Description(one.schema).texts, Description(other.schema).texts
    name = next(n for n in [*a, *b] if a.get(n) != b.get(n))

    def says(types: Types, texts: dict[str, str]) -> str:
        return (
            f"{types.where} says {name!r} is {texts[name]}"
            if name in texts
            else (f"{types.where} has no {name!r}")
        )

    given = Option("fields", {name: ...})
    if one.file == other.file:
        where = ""
        remedy = "delete the one that is wrong, or give the types of the columns to read, "
    else:
        where = f"in {other.file} "
        remedy = "open the files separately, or give types that fit all of them, "
    text = f"{one.file}: {says(one, a)}, but {where}{says(other, b)}"
    return FieldMismatchError(Message(text, hint=(remedy, given)), file=other.file, field=name)


class Manifests:
    """The manifests of folders, each read once.

    They are not trusted: an invalid manifest is ignored.
    """

    def __init__(self) -> None:
        # The types of the files of a folder, and the sizes of those that are listed.
        self._known: dict[str, tuple[Types, Mapping[str, int | None]] | None] = {}
        self._lock = Lock()

    def types(self, path: str) -> Types | None:
        """Return the types of a file, if the manifest in its folder lists it."""
        name = os.path.basename(path)
        target = located(path).sibling(appended_manifest(name) or _MANIFEST)
        with self._lock:
            if target not in self._known:
                self._known[target] = _read(target)
            known = self._known[target]
        if known is None or name not in known[1]:
            return None
        types, sizes = known
        size = sizes[name]
        if size is not None and size != located(path).stat().size:
            warn(
                f"{target} was not used for {path}, which has changed: it had {size:,} bytes when "
                "it was written",
                StaleIndexWarning,
            )
            return None
        return replace(types, file=path)


def _read(path: str) -> tuple[Types, dict[str, int | None]] | None:
    if not located(path).is_file():
        return None
    try:
        content = json_object(located(path).text(_MAX_MANIFEST))
        if content["recmap"] != 1 or content["format"] != "tfrecord":
            return None
        if content["complete"] is not True:
            return None
        names = [entry["file"] for entry in content["files"]]
        states = content.get("states") or [None] * len(names)
        sizes = {
            name: _size(state)
            for name, state in zip(names, states, strict=True)
            if isinstance(name, str)
        }
        schema, note = parse_schema(content["schema"]), content.get("options", {})
        types = Types(schema, "from the manifest", f"the manifest {path}", file="")
        return types.with_table(dict(note.get("table_note", {}))), sizes
    except StoreError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _size(state: Any) -> int | None:
    size = state[0] if isinstance(state, list) and state else None
    return size if isinstance(size, int) else None


def check_first_read(
    fingerprint: Fingerprint | None, expected: Types | None, file: RecordFile
) -> None:
    """Check a file when it is first read, if many were opened together.

    Raise if the index belongs to different data, or the file describes other columns.
    """
    if fingerprint is not None and not fingerprint.fits(file.path):
        raise IndexFileError(
            f"{sidecar_path(file.path)} was made from other data of the same size; run "
            "`recmap index` to renew it, or delete it, and open the files again",
            file=file.path,
        )
    if expected is not None:
        frame = file.first_record()
        found = None if frame is None else _embedded(frame, file.path, skip=False)
        if found is not None and not _reads_all(expected.schema, found.schema):
            raise _conflict(expected, found)
