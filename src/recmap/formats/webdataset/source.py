"""Tar files of WebDataset: each sample is a row, and each extension a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from recmap.errors import DataError, LeftOut
from recmap.formats.column_readers import ColumnReader
from recmap.formats.column_source import ColumnsSource, warn_of_left_out
from recmap.formats.combined import ConcatenatedSource
from recmap.formats.npy import NpyHeader
from recmap.formats.webdataset.members import (
    ARRAY,
    KEY,
    NO_PICKLES,
    NUMBERS,
    PICKLES,
    TEXT,
    ArrayMember,
    KeyColumn,
    MemberColumn,
    array_field,
    ending,
    extension_of,
    used_headers,
)
from recmap.formats.webdataset.tar_index import Members, TarIndex, find_samples, open_tar
from recmap.machine.mapped import MappedFile
from recmap.model.description import Description, json_object
from recmap.model.field import Field, as_field
from recmap.model.preview import listed
from recmap.model.ragged import BYTE, Ragged
from recmap.model.schema import FieldsLike
from recmap.model.source import Source
from recmap.store.paths import for_each_file

# The extension of the members of a column, and what they are read as.
_Plan: TypeAlias = tuple[str, Field]


def open_webdataset(files: Sequence[str], fields: FieldsLike | None = None) -> Source:
    """Open tar files, or some of the columns.

    Extensions tell the types: .txt and .json are text, .cls and .id whole numbers, and .npy arrays;
    all others are bytes, as they are. A field that is asked for may say ``bytes`` or ``text``.
    """
    from recmap.formats.open_spec import select

    opened = for_each_file(_indexed, files)
    indexes = [index for _, index in opened]
    found = _Columns(files, indexes, _asked_types(fields))
    plans = found.described() or found.by_extension()
    if fields is None or ... in fields:
        found.tell_of_refused(alone=not plans)
    else:
        for name in fields:
            if name in found.refused:
                raise DataError(
                    f"{files[0]}: {name!r} {found.refused[name]}", file=files[0], field=name
                )
    shards = [_source(path, *each, plans) for path, each in zip(files, opened, strict=True)]
    source: Source = shards[0] if len(shards) == 1 else ConcatenatedSource(shards)
    return source if fields is None else select(source, fields, files[0])


def _asked_types(fields: FieldsLike | None) -> dict[str, Field]:
    """Return the types that a user gives, by column."""
    given = fields if isinstance(fields, Mapping) else {}
    types = {n: as_field(each) for n, each in given.items() if n is not ... and each is not None}
    return {name: replace(field.without_nulls(), fill=None) for name, field in types.items()}


def _indexed(path: str) -> tuple[MappedFile, TarIndex]:
    file = open_tar(path)
    return file, find_samples(path, file)


def _open(path: str, index: TarIndex, plans: Mapping[str, _Plan]) -> ColumnsSource:
    """Open one file whose index is known, so that another process need not make it."""
    return _source(path, open_tar(path), index, plans)


def _source(
    path: str, file: MappedFile, index: TarIndex, plans: Mapping[str, _Plan]
) -> ColumnsSource:
    columns = {name: _column(file, index, name, plan) for name, plan in plans.items()}
    return ColumnsSource(
        "webdataset", [path], columns, reopen=partial(_open, path, index, plans), mapped=file
    )


def _column(file: MappedFile, index: TarIndex, name: str, plan: _Plan) -> ColumnReader:
    extension, field = plan
    if extension == KEY:
        return KeyColumn(Ragged(index.keys.view(BYTE), index.key_ends), field)
    members = index.members.get(extension) or Members.none(len(index))
    if field.is_bytes or ending(extension) != ARRAY:
        return MemberColumn(file, index, name, field, members)
    headers = used_headers(index, extension, members)
    return ArrayMember(file, index, name, field, members, headers)


class _Columns:
    """The columns of several tar files, found by the extensions in all of them."""

    def __init__(
        self, files: Sequence[str], indexes: Sequence[TarIndex], asked: Mapping[str, Field]
    ) -> None:
        self._files, self._indexes, self._asked = files, indexes, asked
        #: Why extensions are not columns.
        self.refused: dict[str, str] = {}

    def by_extension(self) -> dict[str, _Plan]:
        """Return a column for each extension, called like it."""
        plans: dict[str, _Plan] = {KEY: (KEY, self._asked.get(KEY, Field("text")))}
        for name in dict.fromkeys(name for index in self._indexes for name in index.members):
            if name == KEY:
                self.refused[name] = "is the name of the column of keys"
                continue
            try:
                plans[name] = name, self._nullable(name, self._field(name))
            except ValueError as e:
                self.refused[name] = str(e)
        return plans

    def _field(self, name: str) -> Field:
        """Return the field of the members with an extension; raise ValueError if it has none."""
        asked, end = self._asked.get(name), ending(name)
        if asked is not None and asked.is_bytes and not asked.shape:
            return asked
        if end in PICKLES:
            raise ValueError(NO_PICKLES)
        if end == ARRAY:
            return self._array(name, asked)
        if end in NUMBERS:
            return asked if asked is not None and _is_whole(asked) else Field("int64")
        return Field("text" if end in TEXT else "bytes")

    def _array(self, name: str, asked: Field | None) -> Field:
        headers: list[NpyHeader] = []
        for index in self._indexes:
            if name in index.members:
                found = used_headers(index, name, index.members[name])
                headers += {
                    each.dtype.str + str(each.shape): each for each in found if each
                }.values()
        field = array_field(headers)
        return asked if asked is not None and _holds(asked, field) else field

    def _nullable(self, extension: str, field: Field) -> Field:
        """Return a field that may be null, if the member is missing in some samples."""
        members = [index.members.get(extension) for index in self._indexes if len(index)]
        complete = all(each is not None and each.complete for each in members)
        return replace(field, nullable=not complete)

    def described(self) -> dict[str, _Plan] | None:
        """Return the columns that all files say they have, if that is what they hold."""
        told = {index.description for index in self._indexes}
        if len(told) != 1 or None in told:
            return None
        try:
            schema = Description.decode(json_object(told.pop() or "")).schema
            return {name: self._as_described(name, field) for name, field in schema.items()}
        except ValueError:
            return None  # another program has changed the files

    def _as_described(self, name: str, field: Field) -> _Plan:
        bare = replace(field.without_nulls(), fill=None)
        asked = self._asked.get(name)
        if name == KEY:
            return KEY, asked or bare
        extension = extension_of(name, field)
        there = [index for index in self._indexes if extension in index.members]
        if not there:
            if any(map(len, self._indexes)) and not field.nullable:
                raise ValueError(f"no members with the extension {extension}")
        elif not bare.is_bytes and ending(extension) == ARRAY:
            found = self._array(extension, None)
            if not _holds(bare, found):
                raise ValueError(f"{name!r} is {bare}, but the members are {found}")
        if asked is not None and asked.is_bytes and not asked.shape:
            bare = asked
        known = self._nullable(extension, bare)
        return extension, replace(known, nullable=known.nullable or field.nullable)

    def tell_of_refused(self, *, alone: bool) -> None:
        """Warn of extensions that are left out; raise if there are no others."""
        told = listed([f"{name!r} {why}" for name, why in self.refused.items()])
        others = {name: LeftOut(why, "") for name, why in self.refused.items()}
        if self.refused and alone:
            raise DataError(f"{self._files[0]}: {told}", file=self._files[0], left_out=others)
        if self.refused:
            warn_of_left_out(f"{self._files[0]}: left out: {told}", others)


def _is_whole(field: Field) -> bool:
    return field.dtype.kind in "iu" and not field.shape


def _holds(wanted: Field, found: Field) -> bool:
    """Return whether arrays of one field can be read as another one, with more ragged axes."""
    opaque = found.dtype.kind == "V" and found.dtype.itemsize == wanted.dtype.itemsize
    if (found.dtype != wanted.dtype and not opaque) or len(found.shape) != len(wanted.shape):
        return False
    axes = zip(found.shape, wanted.shape, strict=True)
    return all(axis == other or other is None for axis, other in axes)
