"""What the statistics of row groups tell of Parquet columns: the ranges of values, and their nulls.

Statistics are optional, and not all of them can be trusted. What is doubtful counts as unknown.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

import numpy as np

from recmap.formats.parquet_thrift import THRIFT_FAILURES, ThriftReader
from recmap.model.field import Field
from recmap.model.nulls import Nulls
from recmap.model.value_test import ValueRange

# Old and unknown programs compared strings and unsigned numbers as if their bytes had signs.
# pyarrow knows which versions of parquet-cpp and parquet-mr did.
_TRUSTED = re.compile(
    r"parquet-cpp|parquet-mr|Polars|DuckDB|parquet-rs version (1[3-9]|[2-9]\d|\d{3})\."
)
# Most programs, and Arrow before version 4, have compared decimals that are stored as bytes as if
# all of these had signs, or none. pyarrow takes the results for correct.
_COMPARES_DECIMALS = re.compile(r"parquet-cpp-arrow version ([4-9]|\d{2,})\.")
_PHYSICAL = {"b": ("BOOLEAN",), "i": ("INT32", "INT64"), "u": ("INT32", "INT64")}
_FLOATS = {"FLOAT": np.dtype(np.float32), "DOUBLE": np.dtype(np.float64)}
_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
# A larger footer takes too long to read in Python.
_MOST = 1 << 20
# The fields that lead to the levels: row groups, columns, their metadata, its size statistics.
_GROUPS, _COLUMNS, _METADATA, _SIZES, _LEVELS = 4, 1, 3, 16, 3


def value_ranges(
    metadata: Any, leaf: int, name: str, field: Field, nulls: Nulls
) -> list[ValueRange]:
    """Return the ranges of a column that is stored as one ``leaf``, for each row group."""
    stop, found = 0, []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        stop += group.num_rows
        known = ValueRange(stop)
        with suppress(Exception):  # whatever a damaged file makes pyarrow raise
            if _is_column(metadata.schema.column(leaf), name, field):
                known = _range(group.column(leaf), metadata, leaf, field, nulls, stop)
        found.append(known)
    return found


def _is_column(stored: Any, name: str, field: Field) -> bool:
    """Return whether a leaf has the values of a column, not of lists or of its mask."""
    same = stored.path.replace(".", "/") == name.replace(".", "/")
    return same and not field.shape and not stored.max_repetition_level


def _range(
    chunk: Any, metadata: Any, leaf: int, field: Field, nulls: Nulls, stop: int
) -> ValueRange:
    stored, told = metadata.schema.column(leaf), chunk.statistics
    has_nulls = stored.max_definition_level > 0 and (
        told is None or not told.has_null_count or told.null_count != 0
    )
    # A null that is filled has a value, which may be outside.
    if told is None or not told.has_min_max or (has_nulls and nulls not in ("keep", "mask")):
        return ValueRange(stop, nulls=has_nulls or _has_nat(field))
    least, greatest = _bounds(told, stored, field, metadata.created_by or "") or (None, None)
    # NaT is a null that is stored as a value.
    return ValueRange(stop, least, greatest, has_nulls or (least is None and _has_nat(field)))


def _has_nat(field: Field) -> bool:
    return field.dtype.kind in "mM"


def _bounds(told: Any, stored: Any, field: Field, program: str) -> tuple[Any, Any] | None:
    kind, physical, logical = field.dtype.kind, told.physical_type, stored.logical_type.type
    trusted = _TRUSTED.match(program)
    if kind in "biu" and physical in _PHYSICAL[kind] and logical in ("NONE", "INT"):
        signed = kind != "u" and '"isSigned":false' not in stored.logical_type.to_json()
        return (int(told.min), int(told.max)) if signed or trusted else None
    if kind == "f" and _FLOATS.get(physical) == field.dtype and logical == "NONE":
        low, high = float(told.min), float(told.max)
        return (low, high) if low <= high else None  # not if one of them is NaN
    if kind == "M" and logical in ("TIMESTAMP", "DATE"):
        return _dates(told, json.loads(stored.logical_type.to_json()), field)
    if kind in "if" and logical == "DECIMAL":
        if physical not in _PHYSICAL["i"] and not _COMPARES_DECIMALS.match(program):
            return None
        as_read = int if kind == "i" else float  # rounds as readers of the column do
        return as_read(told.min), as_read(told.max)
    strings = field.is_bytes or field.dtype.type is np.void
    if strings and physical.endswith("BYTE_ARRAY") and logical in ("NONE", "STRING") and trusted:
        greatest = _after(told.max_raw)
        return None if greatest is None else (told.min_raw, greatest)
    return None


def _dates(told: Any, logical: dict[str, Any], field: Field) -> tuple[Any, Any] | None:
    unit = "D" if logical["Type"] == "Date" else _UNITS[logical["timeUnit"]]
    stored: Any = np.array([told.min_raw, told.max_raw], f"datetime64[{unit}]")
    read = stored.astype(field.dtype)
    if np.isnat(read).any() or (read.astype(stored.dtype) != stored).any():
        return None
    return read[0], read[1]


def _after(string: bytes) -> bytes | None:
    """Return a string that comes after all that begin with this one, which may have been cut."""
    kept = string.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def definition_levels(footer: bytes) -> list[list[list[int] | None]]:
    """Return for each row group and column how many values are how deep; None if unknown.

    A value that is null, or in an empty or null list, is defined less deeply than others. Newer
    programs write how many values of a column chunk are how deep, which pyarrow does not tell.
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
