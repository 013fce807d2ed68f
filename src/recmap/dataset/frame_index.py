"""The index of a DataFrame in files: a column for each level, which is hidden when it is read.

Its name is one that pandas gives it, too, and the note of its type says that it is a level.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recmap.dataset.tables import Wanted, open_table
from recmap.errors import ColumnError, LeftOutWarning, RecmapError
from recmap.formats.combined import SideBySideSource
from recmap.formats.registry import notes_types
from recmap.model.facts import IndexLevel, TableType
from recmap.model.source import Source, WithFacts
from recmap.warn import warn


def with_index(source: Source, format: str, options: Mapping[str, Any]) -> Source:
    """Return the columns of a DataFrame and its index, if files of the format can note that."""
    index = source.facts.table_index
    if index is None or not notes_types(format, options):
        return source
    try:
        levels = index if isinstance(index, Source) else _levels(index, source)
        if any(name in source.schema for name in levels.schema):
            return source
        return SideBySideSource({"the columns": source, "the index": levels})
    except RecmapError as e:
        warn(
            f"the index of the DataFrame is left out: {e}; df.reset_index() makes it a column",
            LeftOutWarning,
        )
        return source


def _levels(index: Any, source: Source) -> Source:
    """Return the index of a DataFrame as columns."""
    before = ""
    while any(name.startswith(f"{before}__index_level_") for name in source.schema):
        before += "_"
    names = [f"{before}__index_level_{number}__" for number in range(index.nlevels)]
    frame = index.to_frame(index=False, name=names if index.nlevels > 1 else names[0])
    opened = open_table(frame, Wanted("keep", {})).source
    if list(opened.schema) != names:
        raise ColumnError("it holds structs, such as intervals")
    levels = [_level(index.get_level_values(number)) for number in range(index.nlevels)]
    types = opened.facts.table_types
    known = dict(zip(names, levels, strict=True))
    return WithFacts(
        opened,
        table_types={
            name: TableType(field, types[name].dtype, known[name])
            for name, field in opened.schema.items()
        },
    )


def _level(values: Any) -> IndexLevel:
    name = values.name.item() if hasattr(values.name, "item") else values.name
    if not isinstance(name, str | int | float | None):
        raise ColumnError(f"its name is {name!r}, which is neither text nor a number")
    step = getattr(values, "step", None)
    freq = getattr(values, "freqstr", None)
    return IndexLevel(name, step, freq)
