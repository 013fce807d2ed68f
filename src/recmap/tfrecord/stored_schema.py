"""The types that a file was written with, wherever they are noted.

In its first record, in the index beside it, or in the manifest of its folder; each is
enough by itself, and they must not contradict each other.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import (
    CompressionError,
    DataError,
    FieldMismatchError,
    IndexFileError,
    SkippedRecordsWarning,
    StaleIndexWarning,
)
from recmap.files.atomic_write import read_whole
from recmap.model.schema import Schema
from recmap.native import _core
from recmap.tfrecord.compressed_file import CompressedShard
from recmap.tfrecord.embedded_schema import (
    check_claims,
    parse_schema,
    read_description,
    schema_texts,
)
from recmap.tfrecord.embedded_schemas import DescribedTypes
from recmap.tfrecord.inflate import inflate
from recmap.tfrecord.plain_file import PlainShard
from recmap.tfrecord.sidecar import Fingerprint, Sidecar, sidecar_path
from recmap.tfrecord.survey import Shard, sample

__all__ = [
    "FirstRead",
    "Manifests",
    "Types",
    "described_by",
    "first_record",
    "indexed_types",
    "stored_types",
    "written_types",
]

Bytes = npt.NDArray[np.uint8]

_ITS_FIRST = "its first record"
_MANIFEST = "_manifest.json"
_MAX_MANIFEST = 256 << 20
# Of a compressed file, so much is inflated for its first record.
_MAX_RECORD = 128 << 20


@dataclass(frozen=True)
class Types:
    """A schema, and where it stands, for people. It is ``firm`` if whoever wrote the file
    noted it, not somebody who looked at the records later.
    """

    schema: Schema
    origin: str
    where: str
    file: str
    firm: bool = True

    @property
    def place(self) -> str:
        """Where it stands, said without speaking of the file before."""
        return self.where.replace(_ITS_FIRST, f"the first record of {self.file}")


def described_by(types: Types | None, names: Collection[str], skip: bool) -> DescribedTypes | None:
    """What descriptions in records are compared with, where these fields have types that
    whoever wrote the files noted. Types that were inferred read the values of any.
    """
    if types is None or not types.firm:
        return None
    texts = {name: text for name, text in schema_texts(types.schema).items() if name in names}
    return DescribedTypes(texts, types.place, skip=skip)


def same_types(a: Schema, b: Schema) -> bool:
    """Whether two schemas are the same but for the order of their fields."""
    return a == b or schema_texts(a) == schema_texts(b)


def stored_types(
    shard: Shard,
    sidecar: Sidecar | None,
    manifests: Manifests,
    *,
    skip: bool,
) -> Types | None:
    """The types of a file; None if they are noted nowhere. With ``skip`` a description that
    is damaged is passed over.
    """
    path = shard.path
    found = list[Types]()
    frame = first_record(shard)
    if frame is not None:
        embedded = _embedded(frame, path, skip)
        if embedded is not None:
            found.append(embedded)
    indexed = indexed_types(path, sidecar)
    if indexed is not None and frame is not None:
        check_claims(indexed.schema, frame, indexed.where, path, may_lack=True)
    if indexed is not None:
        found.append(indexed)
    listed = manifests.types(path)
    if listed is not None and frame is not None:
        check_claims(listed.schema, frame, listed.where, path)
    if listed is not None:
        found.append(listed)
    for other in found[1:]:
        if other is indexed and _has_all(indexed.schema, found[0].schema):
            continue  # it has seen all records, and perhaps features of other files' records
        if not same_types(found[0].schema, other.schema):
            raise _conflict(found[0], other)
    if indexed is not None and found[0] is not indexed:
        return replace(found[0], schema=indexed.schema, origin=indexed.origin)
    return found[0] if found else None


def _has_all(schema: Schema, fields: Schema) -> bool:
    """Whether a schema has these fields, perhaps among others."""
    texts = schema_texts(schema)
    return all(texts.get(name) == text for name, text in schema_texts(fields).items())


def indexed_types(path: str, sidecar: Sidecar | None) -> Types | None:
    """The types in the index of a file; None if it has none, or the file has no rows that
    could tell any.
    """
    if sidecar is None or not sidecar.schema:
        return None
    where = f"the index {sidecar_path(path)}"
    return Types(sidecar.schema, "from the index", where, path, firm=False)


def written_types(
    shards: Sequence[Shard],
    found: Mapping[int, Types | None],
    later: Mapping[int, Types | None],
    skip: bool,
) -> Types | None:
    """The types that whoever wrote the files noted, from what was ``found`` for some, and
    what the indexes say of those that are looked at ``later``. None if they noted none.
    """
    noted = [types for types in (*found.values(), *later.values()) if types is not None]
    firm = next((types for types in noted if types.firm), None)
    if firm is None:
        return None
    for types in noted:
        if not same_types(types.schema, firm.schema):
            raise _conflict(firm, types)
    others = [shards[i] for i, types in found.items() if types is None]
    if others:
        _check_others(others, firm, skip)
    return firm


def _check_others(shards: Sequence[Shard], types: Types, skip: bool) -> None:
    """Raises if files that tell no types have features that would be left out."""
    more = [name for name in sample(shards, skip).features if name not in types.schema]
    if more:
        raise FieldMismatchError(
            f"{shards[0].path}: has the feature {more[0]!r}, which {types.place} does not "
            "describe (open the files apart, or give fields={...})",
            file=shards[0].path,
            field=more[0],
        )


def _embedded(frame: Bytes, path: str, skip: bool) -> Types | None:
    where = _ITS_FIRST
    try:
        schema = read_description(frame[_core.HEADER_SIZE :], path)
        if schema is None:
            return None
        check_claims(schema, frame, where, path)
    except DataError as e:
        if not skip:
            raise
        warnings.warn(f"not used: {e}", SkippedRecordsWarning, stacklevel=6)
        return None
    return Types(schema, "from the first record", where, path)


def _conflict(one: Types, other: Types) -> FieldMismatchError:
    a, b = schema_texts(one.schema), schema_texts(other.schema)
    name = next(n for n in [*a, *b] if a.get(n) != b.get(n))

    def says(types: Types, texts: dict[str, str]) -> str:
        return (
            f"{types.where} says {name!r} is {texts[name]}"
            if name in texts
            else (f"{types.where} has no {name!r}")
        )

    if one.file == other.file:
        remedy = "delete the one that is wrong, or give fields={...} with the types"
        text = f"{one.file}: {says(one, a)}, but {says(other, b)} ({remedy})"
    else:
        remedy = "open the files apart, or give fields={...} with types that fit all of them"
        text = f"{one.file}: {says(one, a)}, but in {other.file} {says(other, b)} ({remedy})"
    return FieldMismatchError(text, file=other.file, field=name)


def first_record(shard: Shard) -> Bytes | None:
    """The first record of a file, with its framing; None if it cannot be read, which
    reading it will say.
    """
    if isinstance(shard, PlainShard):
        data = shard.mapped().bytes if shard.size else np.empty(0, np.uint8)
    else:
        data = _inflated(shard)
    found = _core.scan(data, _core.ScanRequest(limit=1))
    return data[: found.end] if found.records else None


def _inflated(shard: CompressedShard) -> Bytes:
    held, wanted = bytearray(), _core.FRAME_SIZE
    try:
        for piece in inflate(shard.path, shard.compression):
            held += piece.plain
            if len(held) >= 8:
                wanted = int.from_bytes(held[:8], "little") + _core.FRAME_SIZE
            if len(held) >= min(wanted, _MAX_RECORD):
                break
    except (CompressionError, OSError):
        pass  # reading says so
    return np.frombuffer(bytes(held[:wanted]), np.uint8)


class Manifests:
    """The manifests of folders, each read once. What they say may come from anywhere: what
    makes no sense is as if it were not there.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[Schema, dict[str, int | None]] | None] = {}

    def types(self, path: str) -> Types | None:
        """The types of a file, if the manifest beside it names it."""
        folder, name = os.path.split(path)
        if folder not in self._known:
            self._known[folder] = _read(os.path.join(folder, _MANIFEST))
        known = self._known[folder]
        if known is None or name not in known[1]:
            return None
        target, size = os.path.join(folder, _MANIFEST), known[1][name]
        if size is not None and size != os.path.getsize(path):
            warnings.warn(
                f"{target} was not used for {path}, which was {size:,} bytes long when it was "
                "written and is not any more",
                StaleIndexWarning,
                stacklevel=6,
            )
            return None
        return Types(known[0], "from the manifest", f"the manifest {target}", path)


def _read(path: str) -> tuple[Schema, dict[str, int | None]] | None:
    try:
        content = json.loads(read_whole(path, _MAX_MANIFEST))
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
        return parse_schema(content["schema"]), sizes
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _size(state: Any) -> int | None:
    size = state[0] if isinstance(state, list) and state else None
    return size if isinstance(size, int) else None


class FirstRead:
    """What is checked when a file is first read, of many that were opened together."""

    def __init__(self, path: str, fingerprint: Fingerprint | None, expected: Types | None) -> None:
        self._path, self._fingerprint, self._expected = path, fingerprint, expected

    def check(self, shard: Shard) -> None:
        """Raises if the index is not that of the file, or if the file describes columns of
        other types.
        """
        if self._fingerprint is not None and not self._fingerprint.fits(self._path):
            raise IndexFileError(
                f"{sidecar_path(self._path)} was made from other data of the same size; run "
                "`recmap index` to renew it, or delete it, and open the files again",
                file=self._path,
            )
        if self._expected is not None:
            frame = first_record(shard)
            found = None if frame is None else _embedded(frame, self._path, skip=False)
            if found is not None and not same_types(found.schema, self._expected.schema):
                raise _conflict(self._expected, found)
