"""How deep the values of Parquet columns are defined, from the footer.

A value that is null, or in an empty or null list, is defined less deeply than others. Newer
programs write how many values of a column chunk are how deep, which pyarrow does not tell.
"""

from __future__ import annotations

from typing import Any

from recmap.formats.parquet_thrift import THRIFT_FAILURES, ThriftReader

# A larger footer takes too long to read in Python.
_MOST = 1 << 20
# The fields that lead to the levels: row groups, columns, their metadata, its size statistics.
_GROUPS, _COLUMNS, _METADATA, _SIZES, _LEVELS = 4, 1, 3, 16, 3


def definition_levels(footer: bytes) -> list[list[list[int] | None]]:
    """Return for each row group and column how many values are how deep; None if unknown.

    Damage is not reported: other readers find it.
    """
    if len(footer) > _MOST:
        return []
    try:
        groups = ThriftReader(footer).struct().get(_GROUPS, [])
        return [[_levels(chunk) for chunk in group.get(_COLUMNS, [])] for group in groups]
    except THRIFT_FAILURES:
        return []


def _levels(chunk: dict[int, Any]) -> list[int] | None:
    found = chunk.get(_METADATA, {}).get(_SIZES, {}).get(_LEVELS)
    return list(found) if found else None
