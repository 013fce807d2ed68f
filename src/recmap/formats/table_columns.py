"""The columns of a file that was written from a table: their types, and which are its index."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from recmap.formats.column_readers import ColumnReader
from recmap.model.facts import TableType
from recmap.model.table_notes import index_columns


@dataclass(frozen=True)
class TableColumns:
    """What columns were in the table that was saved, and those that are its index."""

    types: Mapping[str, TableType] = field(default_factory=dict)
    index: Mapping[str, ColumnReader] = field(default_factory=dict)


def and_index(
    names: Sequence[str] | None, types: Mapping[str, TableType], found: Collection[str]
) -> list[str] | None:
    """Return the names to read: those of columns that are asked for, and of the index."""
    if names is None:
        return None
    return list(dict.fromkeys([*names, *index_columns(types, found)]))


def divided(
    columns: Mapping[str, ColumnReader],
    types: Mapping[str, TableType],
    names: Sequence[str] | None,
) -> tuple[dict[str, ColumnReader], TableColumns]:
    """Take the index away from the columns, unless ``names`` asks for it."""
    index = {name: columns[name] for name in index_columns(types, columns)}
    rest = {name: column for name, column in columns.items() if name not in index}
    asked = {name: column for name, column in index.items() if name in (names or ())}
    lengths = {len(column) for column in columns.values()}
    if index and rest and not asked and len(lengths) == 1:
        return rest, TableColumns(types, index)
    shown = dict(columns) if names is None else {**rest, **asked}
    return shown, TableColumns(types)
