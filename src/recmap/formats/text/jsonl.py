"""JSON Lines: an object on each line, whose keys are columns.

The members of an object within are columns, too: ``a/b``. Lists are ragged. A key that is missing
is null, as ``null`` is. Every row is checked against the types that the first rows have.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from recmap.errors import DataError, LeftOut
from recmap.formats.column_source import warn_of_left_out
from recmap.formats.text.columns import TextColumn, check_type
from recmap.formats.text.faults import damaged_row, found_value
from recmap.formats.text.open_files import (
    Given,
    TextSample,
    given_fields,
    open_rows,
    said_origin,
    samples,
)
from recmap.formats.text.rows import RowParser, row_syntax
from recmap.formats.text.text_file import open_text
from recmap.model.field import Field
from recmap.model.preview import listed
from recmap.model.schema import FieldsLike
from recmap.model.source import Source
from recmap.native import _core

# Rows of the sample that are looked at.
_ROWS = 10_000
_INT64 = range(-(1 << 63), 1 << 63)
# Lists within lists, and objects within objects.
_DEEPEST = 8


def open_jsonl(files: Sequence[str], fields: FieldsLike | None = None) -> Source:
    """Open files of JSON Lines as one."""
    found = samples(files, lambda _: row_syntax(None))
    given = given_fields(files, fields)
    survey = _SeenValues()
    for sample in found:
        lines = sample.rows.tobytes().split(b"\n")
        for line in lines[: max(1, _ROWS // len(found))]:
            if (row := _parsed(line)) is not None:
                survey.add(row)
    columns, refused = _columns(files[0], survey, given, fields)
    if not columns:
        _check_rows(found[0])
        why = "; ".join(f"{name!r}: {told}" for name, told in refused.items())
        raise DataError(
            f"{files[0]}: no column can be read ({why or 'there are no rows'})", file=files[0]
        )
    chosen = fields is not None and ... not in list(fields)
    if refused and not chosen:
        left = [f"{name!r}: {told}" for name, told in refused.items()]
        warn_of_left_out(
            f"{files[0]}: left out: {listed(left)}",
            {name: LeftOut(told) for name, told in refused.items()},
        )
    strict = not chosen and not refused
    parser = RowParser("jsonl", columns, said_origin(columns, found, fields), strict=strict)
    return open_rows(files, parser, fields)


def _check_rows(sample: TextSample) -> None:
    """Raise if the first rows are not objects of JSON."""
    anything = _core.TextColumns()
    anything.strict = False
    _, _, fault = _core.parse_json_rows(sample.rows, anything)
    if fault is not None:
        text = open_text(sample.path)
        value = found_value(sample.rows, fault)
        raise damaged_row(text, fault, fault.row, text.begin + fault.begin, value, None, 0)


def _columns(
    path: str, survey: _SeenValues, given: Given, fields: FieldsLike | None
) -> tuple[list[TextColumn], dict[str, str]]:
    """Return the columns, and why others cannot be one."""
    columns, refused = [], {}
    for keys, seen in _leaves((), survey):
        name = "/".join(keys)
        if name in given:
            check_type(path, name, given[name], lists=True)
            columns.append(TextColumn(name, keys, given[name], given=True))
            continue
        found = seen.field()
        if isinstance(found, str):
            refused[name] = found
        elif any(column.name == name for column in columns):
            refused[name] = "two columns with this name"
        else:
            columns.append(TextColumn(name, keys, found))
    known = {column.name for column in columns}
    asked = [name for name in fields or () if name is not ...]
    if not columns and not refused:  # there are no rows, but perhaps a description
        asked = [*asked, *(name for name in given if name not in asked)]
    for name in asked:
        if name in refused:
            raise DataError(
                f"{path}: {name!r} cannot be a column: {refused[name]}", file=path, field=str(name)
            )
        if name not in known and name in given:  # a key that the first rows do not have
            keys = tuple(str(name).split("/"))
            inside = [column.name for column in columns if column.path[: len(keys)] == keys]
            if inside:
                raise DataError(
                    f"{path}: {name!r} cannot be a column: it holds objects, whose columns are "
                    f"{listed(inside)}",
                    file=path,
                    field=str(name),
                )
            check_type(path, name, given[name], lists=True)
            columns.append(TextColumn(name, keys, given[name], given=True))
    return columns, refused


@dataclass
class _SeenValues:
    """What the values of a key were."""

    present: int = 0
    kinds: set[str] = field(default_factory=set)
    depths: set[int] = field(default_factory=set)
    null = null_items = False
    members: dict[str, _SeenValues] = field(default_factory=dict)

    def add(self, value: Any, depth: int = 0) -> None:
        """Look at a value, ``depth`` objects deep."""
        self.present += 1
        if isinstance(value, _Object):
            self.kinds.add("an object")
            if depth < _DEEPEST:
                for key, each in value:
                    self.members.setdefault(key, _SeenValues()).add(each, depth + 1)
        elif value is None:
            self.null = True
        elif isinstance(value, list):
            self._add_items(value, 1)
        else:
            self.kinds.add(_kind(value))
            self.depths.add(0)

    def _add_items(self, items: list[Any], depth: int) -> None:
        self.kinds.add("a list")
        if depth > _DEEPEST:
            self.kinds.add("lists too deep")
            return
        for item in items:
            if isinstance(item, _Object):
                self.kinds.add("objects in a list")
            elif isinstance(item, list):
                self._add_items(item, depth + 1)
            elif item is None:
                self.null_items = True
            else:
                self.kinds.add(_kind(item))
                self.depths.add(depth)
        if not items:
            self.depths.add(-depth)  # at least so deep

    def field(self) -> Field | str:
        """Return the field of the values, or why they have none."""
        kinds = self.kinds - {"a list"}
        if kinds - {"int", "float", "bool", "text"}:
            return f"it holds {listed(sorted(self.kinds))}"
        if kinds == {"int", "float"}:
            kinds = {"float"}
        if len(kinds) > 1:
            return f"it holds {listed(sorted(kinds))}"
        deep = {depth for depth in self.depths if depth >= 0}
        least = max((-depth for depth in self.depths if depth < 0), default=0)
        if len(deep) > 1 or (deep and max(deep) < least):
            return "it holds lists of different depths, or values and lists"
        dtypes = {"int": "int64", "float": "float64", "bool": "bool", "text": "text"}
        if not kinds:
            if not self.kinds:
                return "all values are null; give its type"
            return "all its lists are empty; give its type"
        depth = max(deep)
        return Field(
            dtypes[kinds.pop()], (None,) * depth, None, self.null, bool(depth) and self.null_items
        )


def _parsed(line: bytes) -> _Object | None:
    """Parse a row. What is wrong with it is raised, with its place, when it is read."""
    try:
        value = json.loads(line, object_pairs_hook=_Object)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, _Object) else None


def _leaves(
    keys: tuple[str, ...], seen: _SeenValues
) -> Iterator[tuple[tuple[str, ...], _SeenValues]]:
    for key, member in seen.members.items():
        # A member that an object lacks, or an object that a row lacks, is null.
        member.null = member.null or seen.null or member.present < seen.present
        inside = (*keys, key)
        if member.members and member.kinds == {"an object"} and len(inside) < _DEEPEST:
            yield from _leaves(inside, member)
        else:
            yield inside, member


class _Object(list[tuple[str, Any]]):
    """The members of an object, as they follow each other."""


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int" if value in _INT64 else "integers over 64 bits"
    return "float" if isinstance(value, float) else "text"
