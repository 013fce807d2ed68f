"""The types of columns on which the files of a dataset agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from recmap.model.field import Field
from recmap.model.source import Source


def agreed_types(sources: Sequence[Source]) -> dict[int, dict[str, Field]]:
    """Return the columns of files that others have with another type, which fits them, too.

    That is the type to open them with, by the number of the file.
    """
    schemas = [source.schema for source in sources]
    if all(schema == schemas[0] for schema in schemas):
        return {}
    others = [source.facts.alternatives for source in sources]
    joint: dict[str, Field] = {}
    large: set[str] = set()  # the columns of decimals that only text holds
    for schema, other in zip(schemas, others, strict=True):
        for name, field in schema.items():
            if other.get(name) == "number":
                joint[name] = field
                large.add(name)
            elif other.get(name) != "any":
                joint.setdefault(name, field)
    found: dict[int, dict[str, Field]] = {}
    for number, (schema, other) in enumerate(zip(schemas, others, strict=True)):
        for name in schema.keys() & other.keys() & joint.keys():
            mine, wanted = schema[name], joint[name]
            lists = wanted.shape[: len(mine.shape)] == mine.shape
            fits = lists and (other[name] == "any" or name in large)
            if fits and (mine.dtype, mine.shape) != (wanted.dtype, wanted.shape):
                date = wanted.dtype.kind in "mM" and not wanted.ragged  # null ones are NaT
                found.setdefault(number, {})[name] = replace(
                    wanted, nullable=mine.nullable and not date, null_items=mine.null_items
                )
    return found
