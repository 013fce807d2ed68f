"""Make several sources agree on which of their columns may hold nulls, before they are combined."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

import numpy as np

from recmap.model.batch import RowNumbers
from recmap.model.field import Field
from recmap.model.null_columns import can_widen, joint_field, widened
from recmap.model.nulls import NULL_SUFFIX
from recmap.model.ragged import Column
from recmap.model.source import ColumnMap, MappedColumns, Source


def with_the_same_nulls(sources: Sequence[Source]) -> Sequence[Source]:
    """Return the sources with columns that are nullable if those of any source are."""
    schemas = [source.schema for source in sources]
    if not any(field.has_nulls for schema in schemas for field in schema.values()):
        return sources
    joint = dict(schemas[0])
    for schema in schemas[1:]:
        for name in joint.keys() & schema.keys():
            joint[name] = joint_field(joint[name], schema[name])
    return [as_nullable(source, joint) for source in sources]


def with_the_same_masks(sources: Sequence[Source]) -> Sequence[Source]:
    """Return the sources with the masks that any of them has: another may have no nulls."""
    masks = {n for source in sources for n in source.schema if n.endswith(NULL_SUFFIX)}
    return [_with_masks(source, masks) for source in sources] if masks else sources


def _with_masks(source: Source, masks: Collection[str]) -> Source:
    maps: dict[str, ColumnMap] = {}
    for name, field in source.schema.items():
        maps[name] = ColumnMap(name, field)
        mask = name + NULL_SUFFIX
        if mask in masks and mask not in source.schema:
            maps[mask] = ColumnMap(name, Field(np.bool_), _no_nulls)
    return source if len(maps) == len(source.schema) else MappedColumns(source, maps)


def _no_nulls(column: Column, rows: RowNumbers) -> Column:
    del rows
    return np.zeros(len(column), np.bool_)


def as_nullable(source: Source, joint: Mapping[str, Field]) -> Source:
    """Return a source with columns that may hold nulls where those of ``joint`` may."""
    if all(field == joint.get(name) for name, field in source.schema.items()):
        return source
    maps = {}
    for name, field in source.schema.items():
        wanted = joint.get(name, field)
        if field == wanted or not can_widen(field, wanted):
            maps[name] = ColumnMap(name, field)
        else:
            maps[name] = ColumnMap(name, wanted, partial(widened, field=wanted), 2)
    return MappedColumns(source, maps)
