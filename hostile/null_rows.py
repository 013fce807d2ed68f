"""Rows with nulls as plain values of Python, to compare what pyarrow and recmap read."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

import recmap as rm
from hostile.arrow_tables import column_rows
from hostile.case import Case

__all__ = ["check_nulls"]


def check_nulls(case: Case, ds: rm.Dataset, table: pa.Table) -> None:
    """Compare the rows of a dataset with what pyarrow has, nulls included."""
    wanted = {path: list(map(_plain, rows)) for path, rows in column_rows(table).items()}
    _compare("schema", set(ds.schema), set(wanted))
    count = len(table)
    for row in {case.between(0, count - 1) for _ in range(5)} if count else set():
        _compare(f"row {row}", _row(ds[row]), {path: rows[row] for path, rows in wanted.items()})
    start = case.between(0, count)
    _compare("slice", _columns(ds[start:]), {p: rows[start:] for p, rows in wanted.items()})
    some = [case.between(0, count - 1) for _ in range(4)] if count else []
    _compare("rows", _columns(ds[some]), {p: [rows[i] for i in some] for p, rows in wanted.items()})
    for path, field in ds.schema.items():
        found = rows_with_nulls(wanted[path])
        if found and not field.has_nulls and field.dtype.kind not in "mM":
            raise AssertionError(f"{path!r} is {field}, but has nulls")
        kept = [value for value in wanted[path] if not _has_null(value)]
        if field.has_nulls and case.chance(0.3):
            dropped = ds.drop_null(path)
            _compare(f"drop_null {path}", [_plain(v) for v in dropped[:][path]], kept)
            if dropped.schema[path].has_nulls:
                raise AssertionError(f"drop_null: {dropped.schema[path]}")


def rows_with_nulls(rows: list[Any]) -> int:
    return sum(map(_has_null, rows))


def _has_null(value: Any) -> bool:
    return value is None or (isinstance(value, list) and any(map(_has_null, value)))


def _row(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in row.items()}


def _columns(batch: dict[str, Any]) -> dict[str, list[Any]]:
    return {name: [_plain(row) for row in column] for name, column in batch.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, rm.Ragged | list) or (isinstance(value, np.ndarray) and value.ndim):
        return [_plain(item) for item in value]
    if isinstance(value, np.datetime64 | np.timedelta64):
        return None if np.isnat(value) else int(value.view(np.int64))
    if isinstance(value, np.void):
        return value.tobytes()
    if isinstance(value, Decimal):
        return int(value)
    if isinstance(value, np.generic):
        return value.item()
    return value


def _compare(what: str, found: Any, wanted: Any) -> None:
    # NaN does not equal itself, but its text does.
    if repr(found) != repr(wanted) and _sorted(found) != _sorted(wanted):
        raise AssertionError(f"{what}: {found!r:.2000}\nnot {wanted!r:.2000}")


def _sorted(value: Any) -> str:
    if isinstance(value, dict):
        return repr(sorted((name, repr(each)) for name, each in value.items()))
    return repr(sorted(value)) if isinstance(value, set) else repr(value)
