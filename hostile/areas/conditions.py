"""Random conditions on random columns: ``where``, compared with Python's own evaluation by row."""

from __future__ import annotations

import math
import operator
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import recmap as rm
from hostile.case import Case, NoReferenceError

__all__ = ["case"]

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_WORDS = ["", "a", "ab", "abc", "b", "ba", "é", "éa", "z" * 40, "a\0", "z" * 39 + "é", "\U0001f600"]
_DATES = ["1969-12-31", "1970-01-01T00:00:01", "2024-02-29", "2024-02-29T12:00:00.5", "2262-04-12",
          "0001-01-01", "9999-12-31T23:59"]  # fmt: skip
_KINDS = ["?", "i1", "u1", "i4", "u8", "i8", "f2", "f4", "f8", ">i2", ">f4", "text", "bytes",
          "V2", "M8[D]", "M8[s]", "M8[us]"]  # fmt: skip


def case(case: Case) -> None:
    rows = case.pick([0, 1, 2, 7, 30, 200])
    kinds = {f"c{i}": case.pick(_KINDS) for i in range(case.between(1, 3))}
    columns = {name: [_drawn(case, kind) for _ in range(rows)] for name, kind in kinds.items()}
    if case.chance(0.4):
        for values in columns.values():  # row groups whose ranges tell them apart
            values.sort(key=_sorting)
    ds = _stored(case, columns, kinds)
    case.note(f"{rows} rows of {ds.schema}")
    for _ in range(6):
        condition = _condition(case, kinds, columns, case.between(0, 3))
        case.note(repr(condition.expression))
        found = [i for i in range(rows) if condition.truth({n: c[i] for n, c in columns.items()})]
        _compare(case, ds, condition.expression, found)


@dataclass(frozen=True)
class _Condition:
    """A condition of recmap, and the same for a row of Python values: True, False or None."""

    expression: Any
    truth: Callable[[dict[str, Any]], bool | None]


def _drawn(case: Case, kind: str) -> Any:
    """Return a value of a kind of column, of few that are near each other."""
    if kind in ("text", "bytes"):
        word = case.pick(_WORDS)
        return word if kind == "text" else word.encode()
    if kind == "V2":
        return bytes(case.rng.integers(97, 100, 2, dtype=np.uint8))
    dtype = np.dtype(kind)
    if dtype.kind == "M":
        return np.datetime64(case.pick(_DATES)).astype(dtype)
    if dtype.kind == "b":
        return case.chance(0.5)
    if dtype.kind == "f":
        found = case.pick([0.1, -0.0, 0.0, 1.5, math.inf, -math.inf, math.nan, 65504.0, 3.0, -7.25])
        return float(dtype.type(found))
    limits = np.iinfo(dtype)
    near = case.pick([limits.min, limits.max, 0])
    return min(max(near + case.between(-3, 3), int(limits.min)), int(limits.max))


def _sorting(value: Any) -> Any:
    return (value != value, value)  # noqa: PLR0124  # NaN comes last


def _stored(case: Case, columns: dict[str, list[Any]], kinds: dict[str, str]) -> Any:
    how = case.pick(["memory", ".npz", ".tfrecord", ".h5", ".zarr", ".arrow", *[".parquet"] * 4])
    if how == ".parquet" and case.chance(0.7):
        return _parquet(case, columns, kinds)
    made = {name: _column(values, kinds[name]) for name, values in columns.items()}
    rows = len(next(iter(columns.values())))
    ds = rm.from_arrays({**made, "row": np.arange(rows)})
    if how == "memory":
        return ds
    options: dict[str, Any] = {}
    if how == ".parquet":
        options = {"options": {"row_group_rows": case.between(1, 9)}}
    try:
        ds.save(case.path(f"x{how}"), **options)
        case.note(how)
        return rm.open(case.path(f"x{how}"))
    except rm.ColumnError as e:
        raise NoReferenceError(str(e)) from e


def _column(values: list[Any], kind: str) -> Any:
    if kind == "text":
        return rm.Ragged.from_text(values)
    if kind == "bytes":
        return rm.Ragged.from_bytes(values)
    return np.array(values, kind)


def _parquet(case: Case, columns: dict[str, list[Any]], kinds: dict[str, str]) -> Any:
    """Write files with pyarrow, with nulls, in small row groups, some without statistics."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name, values in columns.items():
        if case.chance(0.5):
            columns[name] = [None if case.chance(0.2) else value for value in values]
    types = {"text": pa.string(), "bytes": pa.binary(), "V2": pa.binary(2)}
    rows = len(next(iter(columns.values())))
    table: dict[str, Any] = {"row": pa.array(range(rows), pa.int64())}
    for name, values in columns.items():
        kind = kinds[name]
        arrow = types.get(kind) or pa.from_numpy_dtype(np.dtype(kind).newbyteorder("="))
        table[name] = pa.array(_arrow_values(values, kind), arrow)
    cut = case.between(0, rows)
    statistics = case.pick([True, True, False, ["row", *list(columns)[:1]]])
    paths = []
    for i, part in enumerate([pa.table(table).slice(0, cut), pa.table(table).slice(cut)]):
        paths.append(case.path(f"{i}.parquet"))
        size = case.between(1, 9)
        pq.write_table(part, paths[-1], row_group_size=size, write_statistics=statistics)
    case.note(f"parquet of {cut} and {rows - cut} rows, statistics {statistics}")
    return rm.open(paths, nulls="mask")


def _arrow_values(values: list[Any], kind: str) -> Any:
    if kind == "f2":
        return [None if value is None else np.float16(value) for value in values]
    if np.dtype(kind if kind not in ("text", "bytes") else "i4").kind == "M":
        dtype = np.dtype(kind)
        return np.array(["NaT" if value is None else value for value in values], dtype)
    return values


def _condition(
    case: Case, kinds: dict[str, str], columns: dict[str, list[Any]], depth: int
) -> _Condition:
    if depth and case.chance(0.7):
        a = _condition(case, kinds, columns, depth - 1)
        if case.chance(0.3):
            return _Condition(~a.expression, lambda row: _not(a.truth(row)))
        b = _condition(case, kinds, columns, depth - 1)
        if case.chance(0.5):
            return _Condition(
                a.expression & b.expression, lambda row: _and(a.truth(row), b.truth(row))
            )
        return _Condition(
            a.expression | b.expression,
            lambda row: _not(_and(_not(a.truth(row)), _not(b.truth(row)))),
        )
    return _leaf(case, case.pick(list(kinds)), kinds)


def _not(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def _and(a: bool | None, b: bool | None) -> bool | None:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def _leaf(case: Case, name: str, kinds: dict[str, str]) -> _Condition:
    kind = kinds[name]
    tests = [_compared, _compared, _compared, _among, _null]
    if kind in ("text", "bytes", "V2"):
        tests += [_within]
    if kind == "?":
        tests += [_true]
    test: Callable[[Case, str, str], tuple[Any, Callable[[Any], bool]]] = case.pick(tests)
    expression, truth = test(case, name, kind)
    if test is _null:
        return _Condition(expression, lambda row: truth(row[name]))
    return _Condition(expression, lambda row: None if row[name] is None else truth(row[name]))


def _compared(case: Case, name: str, kind: str) -> tuple[Any, Callable[[Any], bool]]:
    sign, value = case.pick(list(_COMPARE)), _other(case, kind)
    compare = _COMPARE[sign]
    if case.chance(0.3):
        turned = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(sign, sign)
        expression = _COMPARE[turned](value, rm.col(name))
    else:
        expression = compare(rm.col(name), value)
    wanted = _as_column(value, kind)
    return expression, lambda found: bool(compare(found, wanted))


def _among(case: Case, name: str, kind: str) -> tuple[Any, Callable[[Any], bool]]:
    values = [_other(case, kind) for _ in range(case.pick([0, 1, 3, 20]))]
    wanted = [_as_column(value, kind) for value in values]
    given: Any = set(values) if case.chance(0.3) else values
    return rm.col(name).is_in(given), lambda found: any(found == value for value in wanted)


def _within(case: Case, name: str, kind: str) -> tuple[Any, Callable[[Any], bool]]:
    value = case.pick(["", "a", "b", "ab", "é", "zz", "zzé", "\0"])
    wanted: Any = value if kind == "text" else value.encode()
    if case.chance(0.5):
        return rm.col(name).contains(wanted), lambda found: wanted in found
    return rm.col(name).starts_with(wanted), lambda found: found.startswith(wanted)


def _null(case: Case, name: str, kind: str) -> tuple[Any, Callable[[Any], bool]]:
    del case, kind
    return rm.col(name).is_null(), lambda found: found is None


def _true(case: Case, name: str, kind: str) -> tuple[Any, Callable[[Any], bool]]:
    del case, kind
    return rm.col(name), bool


def _other(case: Case, kind: str) -> Any:
    """Return a value to compare with, which the type need not hold."""
    if kind in ("text", "bytes", "V2"):
        return _drawn(case, kind)
    dtype = np.dtype(kind)
    if dtype.kind == "M":
        day = case.pick(_DATES)
        return day if case.chance(0.5) else np.datetime64(day)
    beyond = [
        2**70,
        -(2**70),
        10**400,
        2.5,
        -0.5,
        1e300,
        -1e39,
        math.inf,
        -math.inf,
        0.1,
        300,
        2**53 + 1,
    ]
    value = case.pick(beyond) if case.chance(0.3) else _drawn(case, kind)
    return 0 if value != value else value  # noqa: PLR0124  # NaN is refused


def _as_column(value: Any, kind: str) -> Any:
    """Return a value as the column has it: floats are rounded to its type."""
    if kind in ("text", "bytes", "V2"):
        return value
    dtype = np.dtype(kind)
    if dtype.kind == "M":
        return np.datetime64(value)
    if dtype.kind != "f" or abs(value) > 1e308:
        return value
    with np.errstate(over="ignore"):
        rounded = float(dtype.type(value))
    return rounded if math.isfinite(rounded) else value


def _compare(case: Case, ds: Any, expression: Any, expected: list[int]) -> None:
    text = repr(expression)
    filtered = ds.where(text if case.chance(0.3) and "..." not in text else expression)
    if case.chance(0.3):
        case.note("some rows first")
        some = filtered.head(2)["row"].tolist()
        assert some == expected[:2], f"head: {some} instead of {expected[:2]}"
    if case.chance(0.3):
        filtered = pickle.loads(pickle.dumps(filtered))
    how = case.pick(["column", "rows", "batches", "last"])
    if how == "column":
        found = filtered["row"][:].tolist()
    elif how == "rows":
        found = [int(row["row"]) for row in filtered]
    elif how == "batches":
        found = [int(n) for batch in filtered.batches(3) for n in batch["row"]]
    else:
        order = list(reversed(range(len(filtered))))
        found = filtered[order]["row"].tolist()[::-1]
    assert found == expected, f"{how}: {found} instead of {expected}"
    assert len(filtered) == len(expected)
