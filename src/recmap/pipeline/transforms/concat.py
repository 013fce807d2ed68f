"""``rm.concat``: the rows of several branches, one branch after another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recmap.errors import FieldMismatchError, OptionError
from recmap.formats.combined import ConcatenatedSource
from recmap.model.facts import SourceFacts, with_facts
from recmap.model.field import Field
from recmap.model.null_columns import joint_field
from recmap.model.schema import Schema
from recmap.model.source import Source, row_name


def concatenated(branches: Sequence[Source]) -> ConcatenatedRows:
    """Return the rows of several branches, which must have the same columns, in any order."""
    first = branches[0].schema
    for number, branch in enumerate(branches, 1):
        _check_ends(branch, number, len(branches))
        _check_columns(branch.schema, first, number)
    names = list(first)
    return ConcatenatedRows(
        [each if list(each.schema) == names else each.select(names) for each in branches]
    )


def _check_ends(branch: Source, number: int, count: int) -> None:
    if branch.facts.endless and count > 1:
        raise OptionError(
            f"concat: the rows of dataset {number} are endless; concatenate first, then repeat"
        )


def _check_columns(schema: Schema, first: Schema, number: int) -> None:
    for name in first:
        if name not in schema:
            raise _mismatch(
                number,
                f"has no column {name!r}, which dataset 1 has; rename one of its columns "
                f"({', '.join(schema)}), or select those that all have",
                name,
            )
    for name, field in schema.items():
        if name not in first:
            raise _mismatch(
                number,
                f"has a column {name!r}, which dataset 1 does not have; leave it out with select, "
                "or rename it",
                name,
            )
        if joint_field(first[name], field) != joint_field(field, first[name]):
            raise _mismatch(
                number,
                f"has {field} in column {name!r}, and dataset 1 {first[name]}; "
                f"{_remedy(name, field, first[name])}",
                name,
            )


def _remedy(name: str, field: Field, first: Field) -> str:
    if field.shape == first.shape:
        return _cast(name, field, first)
    if len(field.shape) != len(first.shape):
        return "make them of one shape with map"
    ragged = Field(first.dtype, (None,) * len(first.shape))
    return f'if lengths differ, say so: map(lambda row: row, columns={{"{name}": "{ragged}"}})'


def _cast(name: str, field: Field, first: Field) -> str:
    """Return the cast that keeps all values, if there is one."""
    if field.is_bytes and first.is_bytes:
        return f'cast it: cast({{"{name}": "{Field(first.dtype)}"}})'
    if field.is_bytes or first.is_bytes:
        return "make them of one type with map, or leave it out with select"
    try:
        joint = np.result_type(field.dtype, first.dtype)
    except TypeError:  # such as a date and a number
        return "make them of one type with map, or leave it out with select"
    which = "it" if joint == first.dtype else "dataset 1" if joint == field.dtype else "both"
    return f'cast {which}: cast({{"{name}": "{Field(joint)}"}})'


def _mismatch(number: int, what: str, name: str) -> FieldMismatchError:
    return FieldMismatchError(f"concat: dataset {number} {what}", field=name)


class ConcatenatedRows(ConcatenatedSource):
    """Rows of several branches with the same columns."""

    @property
    def facts(self) -> SourceFacts:
        counted = self.known_rows() is not None
        return with_facts(self._told, searched=self._told.searched and counted)

    def row_name(self, row: int) -> str:
        number = self._owner(row)
        return row_name(self._sources[number], row - int(self._starts[number]))

    def row_bytes(self) -> int:
        # Files of one dataset are alike; branches need not be.
        return max(branch.row_bytes() for branch in self._sources)
