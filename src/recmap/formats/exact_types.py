"""What columns of Arrow and Parquet files really hold, without reading their values.

Nearly all columns are declared nullable. Arrow files count the nulls of every array, and Parquet
files usually those of every stored column of a row group. There, empty lists count, too. Files of
older programs do not tell them from nulls, so such lists may have nulls, unless the file was
written by recmap, which notes the fields.

Many decimals are declared to have far more digits than any of them has. Where the statistics of a
Parquet file say that int64 holds all of a column, its type becomes one of fewer digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import count
from typing import Any

import pyarrow as pa

from recmap.formats.parquet_statistics import definition_levels
from recmap.model.arrow_import import INT64_DIGITS
from recmap.model.field import Field

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def arrow_fields(schema: Any, counts: Mapping[int, int], dictionaries: bool) -> Iterator[Any]:
    """Yield the fields of an Arrow schema, nullable only where there are nulls.

    ``counts`` has the nulls of each array, numbered depth first; ``dictionaries`` says whether
    dictionaries have some.
    """
    number = 0
    for field in schema:
        exact, number = _arrow_field(field, number, counts, dictionaries)
        yield exact


def _arrow_field(
    field: Any, number: int, counts: Mapping[int, int], dictionaries: bool
) -> tuple[Any, int]:
    type = _storage(field.type)
    nulls, after = counts.get(number, 0), number + 1
    children = []
    for i in range(type.num_fields):
        child, after = _arrow_field(type.field(i), after, counts, dictionaries)
        children.append(child)
    nullable = nulls != 0 or (dictionaries and pa.types.is_dictionary(type))
    if pa.types.is_fixed_size_list(type) and counts.get(number + 1, 0) == nulls * type.list_size:
        # The items of a null list are null as well.
        children = [children[0].with_nullable(False)]
    return _rebuilt(field, nullable, children), after


class ParquetNulls:
    """What a Parquet file tells of the nulls of its stored columns, the leaves."""

    def __init__(self, metadata: Any, footer: Callable[[], bytes]) -> None:
        self._metadata, self._footer = metadata, footer

    @cached_property
    def _levels(self) -> list[list[list[int] | None]]:
        return definition_levels(self._footer())

    @property
    def groups(self) -> Iterator[int]:
        """The row groups that have rows."""
        groups = range(self._metadata.num_row_groups)
        return (group for group in groups if self._metadata.row_group(group).num_rows)

    def at(self, leaf: int, depth: int, *, in_struct: bool) -> bool:
        """Return whether values may be null at a depth, as far as the file tells.

        Some versions of pyarrow do not count null lists of structs.
        """
        column = self._metadata.schema.column(leaf)
        if not column.max_definition_level:
            return False
        none = all(self.count(group, leaf) == 0 for group in self.groups)
        if not column.max_repetition_level or (none and not in_struct):
            return not none
        # Empty lists count as nulls, but are defined more deeply.
        found = [self._counts(group, leaf) for group in self.groups]
        known = all(len(counts) == column.max_definition_level + 1 for counts in found)
        return any(counts[depth] for counts in found) if known else not none

    def knows_lists(self, leaf: int) -> bool:
        """Return whether null lists can be told from null items."""
        return all(self._counts(group, leaf) for group in self.groups)

    def _counts(self, group: int, leaf: int) -> list[int]:
        if group >= len(self._levels) or leaf >= len(self._levels[group]):
            return []
        return self._levels[group][leaf] or []

    def count(self, group: int, leaf: int) -> int | None:
        """Return the number of nulls and empty lists of a leaf, if the file tells."""
        statistics = self._metadata.row_group(group).column(leaf).statistics
        known = statistics is not None and statistics.has_null_count
        return int(statistics.null_count) if known else None

    def lists(self, leaf: int, size: int) -> tuple[bool, bool]:
        """Return whether lists of a fixed size are null, and whether their items are.

        A null list is one value, and any other list has ``size``.
        """
        rows = items = False
        for group in self.groups:
            nulls, chunks = self.count(group, leaf), self._metadata.row_group(group)
            if nulls is None or size < 2:
                return True, True
            null = (chunks.num_rows * size - chunks.column(leaf).num_values) // (size - 1)
            rows, items = rows or null > 0, items or nulls != null
        return rows, items


def parquet_fields(
    schema: Any, nulls: ParquetNulls, noted: Mapping[str, Field] | None
) -> Iterator[Any]:
    """Yield the fields of the Arrow schema of a Parquet file, nullable only where there are nulls.

    ``noted`` are the fields that recmap wrote.
    """
    leaf = 0
    for field in schema:
        exact, leaf = _parquet_field(field, leaf, nulls, 0, in_list=False)
        yield _as_noted(exact, (noted or {}).get(field.name))


def _parquet_field(
    field: Any, leaf: int, nulls: ParquetNulls, depth: int, *, in_list: bool
) -> tuple[Any, int]:
    type, first = _storage(field.type), leaf
    # A value is defined one step more deeply if it is not null, and if it is in a list.
    is_list = bool(type.num_fields) and not pa.types.is_struct(type)
    below = depth + bool(field.nullable) + is_list
    children = []
    for i in range(type.num_fields):
        inside = in_list or is_list
        child, leaf = _parquet_field(type.field(i), leaf, nulls, below, in_list=inside)
        children.append(child)
    if not type.num_fields and not pa.types.is_struct(type):
        leaf += 1
    # A null struct or list is a null in all that it holds.
    held = any(pa.types.is_struct(type.field(i).type) for i in range(type.num_fields))
    nullable = field.nullable and all(
        nulls.at(each, depth, in_struct=is_list and held) for each in range(first, leaf)
    )
    flat = pa.types.is_fixed_size_list(type) and not _storage(type.value_type).num_fields
    if flat and nullable and not in_list and not nulls.knows_lists(first):
        nullable, items = nulls.lists(first, type.list_size)
        children = [children[0].with_nullable(items)]
    return _rebuilt(field, nullable, children), leaf


def _as_noted(field: Any, noted: Field | None) -> Any:
    """Return the field of lists with the nulls that recmap noted."""
    type = field.type
    if noted is None or isinstance(type, pa.BaseExtensionType) or not _is_list(type):
        return field
    item = type.field(0) if noted.null_items else _without_nulls(type.field(0))
    return _rebuilt(field, field.nullable and noted.nullable, [item])


def with_fewer_digits(schema: Any, metadata: Any) -> list[Any]:
    """Return the fields of the Arrow schema of a Parquet file, with the digits that numbers have.

    If the statistics are wrong, reading the column raises an error.
    """
    leaves = count()
    return [_of_fewer_digits(field, metadata, leaves) for field in schema]


def _of_fewer_digits(field: Any, metadata: Any, leaves: Iterator[int]) -> Any:
    type = _storage(field.type)
    children = [_of_fewer_digits(type.field(i), metadata, leaves) for i in range(type.num_fields)]
    if children or pa.types.is_struct(type):
        return _rebuilt(field, field.nullable, children)
    leaf = next(leaves)
    wide = pa.types.is_decimal128(type) or pa.types.is_decimal256(type)
    if not wide or type.scale or type.precision <= INT64_DIGITS:
        return field
    small = False
    with suppress(Exception):  # whatever damaged statistics make pyarrow raise
        small = _in_int64(metadata, leaf)
    if not small:
        return field
    make = pa.decimal128 if pa.types.is_decimal128(type) else pa.decimal256
    return field.with_type(make(INT64_DIGITS, 0))


def _in_int64(metadata: Any, leaf: int) -> bool:
    """Return whether int64 holds all numbers of a column, as its statistics say."""
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        told = group.column(leaf).statistics
        if told is None or not told.has_min_max:
            nulls = told is not None and told.has_null_count and told.num_values == 0
            if group.num_rows and not nulls:
                return False
        elif not (told.min >= _LEAST and told.max <= _MOST):
            return False
    return True


def _without_nulls(field: Any) -> Any:
    type = _storage(field.type)
    return _rebuilt(field, False, [_without_nulls(type.field(i)) for i in range(type.num_fields)])


def _is_list(type: Any) -> bool:
    return bool(
        pa.types.is_list(type) or pa.types.is_large_list(type) or pa.types.is_fixed_size_list(type)
    )


def _storage(type: Any) -> Any:
    return type.storage_type if isinstance(type, pa.BaseExtensionType) else type


def _rebuilt(field: Any, nullable: bool, children: Sequence[Any]) -> Any:
    """Return a field with other children, if its type can be made of them."""
    field, type = field.with_nullable(nullable), field.type
    if pa.types.is_struct(type):
        return field.with_type(pa.struct(children))
    if pa.types.is_fixed_size_list(type):
        return field.with_type(pa.list_(children[0], type.list_size))
    if pa.types.is_list(type):
        return field.with_type(pa.list_(children[0]))
    if pa.types.is_large_list(type):
        return field.with_type(pa.large_list(children[0]))
    return field
