"""Open text files as one source, with the types that a sample of them or the user tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from recmap.errors import DataError, FieldNotFoundError, IndexFileError, StaleIndexWarning
from recmap.formats.array_sidecar import load_description
from recmap.formats.combined import ConcatenatedSource
from recmap.formats.detect import detect
from recmap.formats.open_spec import select
from recmap.formats.registry import FORMATS
from recmap.formats.text.columns import TextColumn
from recmap.formats.text.faults import misplaced
from recmap.formats.text.rows import RowParser, TextRows
from recmap.formats.text.text_file import Bytes, open_text
from recmap.machine.mapped import guarded
from recmap.model.arguments import no_column
from recmap.model.field import Field, as_field
from recmap.model.schema import FieldsLike, Schema
from recmap.model.source import Source
from recmap.native import _core
from recmap.store.paths import for_each_file
from recmap.warn import warn

#: The types that the user gave.
Given: TypeAlias = dict[str, Field]

# Bytes of the samples of all files together, the least of each, and how many files are looked at.
_SIZE, _LEAST, _FILES = 8 << 20, 1 << 18, 64


class TextSample(NamedTuple):
    """Whole rows from the beginning of a file, and whether they are all of it."""

    path: str
    rows: Bytes
    whole: bool


def given_fields(files: Sequence[str], fields: FieldsLike | None) -> Given:
    """Return the types that the user gave, and those that files were written with.

    They have no fill values: those need nulls.
    """
    found = for_each_file(_written_types, files)
    given = dict(found[0]) if all(each == found[0] for each in found) else {}
    for name, kind in fields.items() if isinstance(fields, Mapping) else ():
        if kind is None or name is ...:
            continue
        field = as_field(kind)
        if field.fill is not None:
            field = Field(field.dtype, field.shape, None, not field.ragged, bool(field.ragged))
        given[name] = field
    return given


def _written_types(file: str) -> Schema:
    """Return the types in the description that recmap wrote for this file, if there is one."""
    try:
        described = load_description(file)
        if described is None or not described.mismatch(file):
            return Schema({}) if described is None else described.schema
        why = described.mismatch(file)
    except IndexFileError as e:
        why = str(e)
    warn(f"{file}: types are inferred, its description was not used: {why}", StaleIndexWarning)
    return Schema({})


def said_origin(
    columns: Sequence[TextColumn], found: Sequence[TextSample], fields: FieldsLike | None
) -> str:
    """Say where the types come from."""
    asked = fields if isinstance(fields, Mapping) else {}
    told = any(column.given and asked.get(column.name) is None for column in columns)
    known = "from the description" if told else "given"
    if all(column.given for column in columns):
        return known
    whole = all(sample.whole for sample in found)
    size = sum(len(sample.rows) for sample in found)
    rows = "all rows" if whole else f"the first {size / 2**20:.1f} MiB"
    return f"inferred from {rows}" + (f", or {known}" if any(c.given for c in columns) else "")


def open_rows(files: Sequence[str], parser: RowParser, fields: FieldsLike | None) -> Source:
    """Open files with the columns of a parser, and choose among them."""
    names = [column.name for column in parser.columns]
    for name in fields or ():
        if name is not ... and name not in names:
            raise FieldNotFoundError(f"{files[0]}: {no_column(name, names)}")
    opened: list[Source] = for_each_file(lambda file: TextRows(file, parser, names), files)
    source = opened[0] if len(opened) == 1 else ConcatenatedSource(opened)
    return source if fields is None else select(source, fields, files[0])


def save_index(data: str, path: str) -> str:
    """Write an index of the rows of a file next to a path."""
    format = detect(data)
    source = FORMATS[format].opener()([data])
    assert isinstance(source, TextRows)
    return source.save_index(path)


def samples(
    files: Sequence[str], syntax: Callable[[TextSample], _core.RowSyntax]
) -> list[TextSample]:
    """Return the first rows of some of the files, the first one among them."""
    step = -(-len(files) // _FILES)
    chosen = [*files[::step]]
    size = max(_LEAST, _SIZE // len(chosen))
    return for_each_file(lambda file: _sample(file, size, syntax), chosen)


@guarded
def _sample(path: str, size: int, syntax: Callable[[TextSample], _core.RowSyntax]) -> TextSample:
    text = open_text(path)
    parts, at, ended = [], text.begin, False
    while at - text.begin < size and not ended:
        window, after = text.window(at)
        parts.append(window[: size - (at - text.begin)])
        ended = after < 0 and len(parts[-1]) == len(window)
        at += len(parts[-1])
    found = np.concatenate([np.empty(0, np.uint8), *parts])
    if found[:2].tobytes() in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(f"{path}: UTF-16: write it again as UTF-8", file=path, byte=0)
    used = syntax(TextSample(path, found, ended))
    after = -1 if ended else ord("\n")
    rows = _core.scan_text_rows(found, after, _core.RowState(), used, 1, 1)
    if rows.fault != _core.RowFault.none and rows.rows < 2:
        raise misplaced(text, rows.fault, 0, text.begin + rows.fault_offset)
    if ended:
        return TextSample(path, found, True)
    # What comes after the last row that begins may belong to it.
    last = int(rows.anchor_offsets[-1]) if rows.rows > 1 else 0
    if not last:
        raise DataError(
            f"{path}: the first row does not end within {len(found):,} bytes", file=path, byte=0
        )
    return TextSample(path, found[:last], False)
