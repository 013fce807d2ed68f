"""``rename``: columns under other names. Nothing is read or copied."""

from __future__ import annotations

from collections.abc import Mapping

from recmap.errors import OptionError
from recmap.model.nulls import NULL_SUFFIX
from recmap.model.source import Source, renamed


def rename_columns(source: Source, names: Mapping[str, str]) -> Source:
    """Return the source with new names: ``{"old": "new"}``; the source itself if none changes."""
    schema = source.schema
    for old in names:
        schema[old]  # raises an error that lists the columns
    # A mask keeps the name of its column, unless it is given a name of its own.
    masks = {old + NULL_SUFFIX: new + NULL_SUFFIX for old, new in names.items()}
    changed = {**masks, **names}
    old_names = {changed.get(name, name): name for name in schema}
    if len(old_names) != len(schema):
        raise OptionError("two columns would have the same name")
    same = all(new == old for new, old in old_names.items())
    return source if same else renamed(source, old_names)
