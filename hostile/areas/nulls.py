"""Nulls in every kind of column, format and verb, compared with None in plain lists."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

import recmap as rm
from hostile.case import Case

__all__ = ["case"]

Rows = list[dict[str, Any]]

_ENDINGS = ["", ".parquet", ".arrow", ".tfrecord", ".tfrecord.gz", ".npz", ".h5", ".zarr"]
_KINDS: dict[str, tuple[pa.DataType, Callable[[Case], Any]]] = {
    "int": (pa.int64(), lambda case: case.between(-3, 3)),
    "small": (pa.uint8(), lambda case: case.between(0, 255)),
    "bool": (pa.bool_(), lambda case: case.chance(0.5)),
    "float": (pa.float32(), lambda case: float(case.between(0, 9))),
    "double": (pa.float64(), lambda case: case.between(0, 9) / 7),
    "text": (pa.string(), lambda case: case.pick(["", "a", "bé"])),
    "bytes": (pa.binary(), lambda case: case.pick([b"", b"\xff", b"abc"])),
    "half": (pa.float16(), lambda case: case.between(0, 9) / 4),
}


def case(case: Case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rm.SlowOrderWarning)
        _case(case)


def _case(case: Case) -> None:
    ending = case.pick(_ENDINGS)
    nested = ending in ("", ".parquet", ".arrow")
    table = _table(case, case.pick([1, 2, 7, 40]), items=".tfrecord" not in ending, nested=nested)
    case.note(f"{ending or 'a table'} of {table.schema!r}".replace("\n", ", "))
    ds, rows = _opened(case, table, ending), table.to_pylist()
    _check(ds, rows)
    for _ in range(case.between(1, 3)):
        verb = case.pick(_VERBS)
        changed = verb(case, ds, rows)
        if changed is not None:
            ds, rows = changed
            case.note(f"{verb.__name__}: {len(rows)} rows")
            _check(ds, rows)
    _check_training(ds)


def _table(case: Case, rows: int, *, items: bool, nested: bool) -> pa.Table:
    columns = {"id": pa.array(range(rows), pa.int64())}
    for number in range(case.between(1, 3)):
        name = case.pick(list(_KINDS))
        kind, value = _KINDS[name]
        form = case.pick(
            ["one", "one", "list", "pair", "deep"] if nested else ["one", "list", "pair"]
        )
        null_items = items and form in ("list", "deep") and case.chance(0.5)
        share = case.pick([0, 0.1, 0.6, 1])

        def item(value: Any = value, nulls: bool = null_items) -> Any:
            return None if nulls and case.chance(0.3) else value(case)

        def row(form: str = form, item: Any = item) -> Any:
            if form == "one":
                return item()
            if form == "deep":
                return [
                    [item() for _ in range(case.between(0, 2))] for _ in range(case.between(0, 2))
                ]
            return [item() for _ in range(2 if form == "pair" else case.between(0, 3))]

        types = {"one": kind, "list": pa.list_(kind), "pair": pa.list_(kind, 2)}
        values = [None if case.chance(share) else row() for _ in range(rows)]
        columns[f"{name}{number}"] = pa.array(values, types.get(form, pa.list_(pa.list_(kind))))
    return pa.table(columns)


def _opened(case: Case, table: pa.Table, ending: str) -> rm.Dataset:
    path = case.path("x" + ending)
    if not ending:
        return rm.open(pl.from_arrow(table) if case.chance(0.3) else table)
    rm.open(table).save(path, shards=1, options=_options(case, ending))
    return rm.open(path)


def _options(case: Case, ending: str) -> dict[str, Any]:
    if ending in (".parquet", ".arrow") and case.chance(0.5):
        return {"row_group_rows": case.between(1, 5)}
    return case.pick([{}, {"index": False}]) if ".tfrecord" in ending else {}


def plain(value: Any) -> Any:
    if isinstance(value, rm.Ragged | list) or (isinstance(value, np.ndarray) and value.ndim):
        return [plain(each) for each in value]
    return value.item() if isinstance(value, np.generic | np.ndarray) else value


def _check(ds: rm.Dataset, rows: Rows, *, ordered: bool = True) -> None:
    found = [{name: plain(value) for name, value in row.items()} for row in ds]
    if not ordered:
        found, rows = sorted(found, key=repr), sorted(rows, key=repr)
    _same(found, [{name: plain(row[name]) for name in ds.schema} for row in rows])
    for name, field in ds.schema.items():
        if not field.has_nulls and any(_has_null(row[name]) for row in rows):
            raise AssertionError(f"{name!r} is {field}, but has nulls")
    if rows and ordered:
        _same({n: plain(v) for n, v in ds[-1].items()}, {n: plain(rows[-1][n]) for n in ds.schema})
        _same(
            {n: plain(list(c)) for n, c in ds[[len(rows) - 1, 0]].items()},
            {n: [plain(rows[i][n]) for i in (-1, 0)] for n in ds.schema},
        )


def _same(found: Any, wanted: Any) -> None:
    if found != wanted:
        raise AssertionError(f"{found!r:.1500}\nnot {wanted!r:.1500}")


def _has_null(value: Any) -> bool:
    return value is None or (isinstance(value, list) and any(map(_has_null, value)))


def _check_training(ds: rm.Dataset) -> None:
    """Batches refuse nulls, and have what is left when they are gone."""
    nullable = [name for name, field in ds.schema.items() if field.has_nulls]
    for name in nullable:
        try:
            next(iter(ds.select(name).batch(2)), None)
        except rm.ColumnError as e:
            if "fill_null" not in str(e) or "drop_null" not in str(e):
                raise AssertionError("no advice") from e
        else:
            raise AssertionError(f"a batch of {ds.schema[name]}")
    kept = ds.drop_null(*nullable)
    if len(kept):
        batch = next(iter(kept.batch(len(kept))))
        _same(plain(list(batch["id"])), plain(list(kept[:]["id"])))


def _plain_rows(rows: Any, ds: rm.Dataset) -> Rows:
    return [{name: plain(row[name]) for name in ds.schema} for row in rows]


def _with_floats(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row whose numbers are floats: the model has 0 where a float is masked."""
    return {name: float(v) if isinstance(v, int) else v for name, v in row.items()}


def _column(case: Case, ds: rm.Dataset) -> str:
    return case.pick(list(ds.schema))


def filtered(case: Case, ds: rm.Dataset, rows: Rows) -> Any:
    name = _column(case, ds)
    return ds.filter(lambda row: row[name] is None), [row for row in rows if row[name] is None]


def mapped(case: Case, ds: rm.Dataset, rows: Rows) -> Any:
    del case
    # Lists of strings that a function returns are ragged, and then may not be null later on.
    unlike = any(field.is_bytes and field.inner and field.has_nulls for field in ds.schema.values())
    return (ds.map(dict), rows) if rows and not unlike else None


def nulls_found(case: Case, ds: rm.Dataset, rows: Rows) -> Any:
    name = _column(case, ds)
    test, mask = rm.col(name).is_null(), f"{name}/is_null"
    absent = [row[name] is None or bool(row.get(mask)) for row in rows]
    wanted = case.chance(0.5)
    kept = [row for row, null in zip(rows, absent, strict=True) if null == wanted]
    return ds.where(test if wanted else ~test), kept


def compared(case: Case, ds: rm.Dataset, rows: Rows) -> Any:
    names = [name for name in ds.schema if name.startswith("int") and not ds.schema[name].shape]
    if not names:
        return None
    name = case.pick(names)
    known = [row for row in rows if row[name] is not None]
    if case.chance(0.5):
        return ds.where(~(rm.col(name) > 0)), [row for row in known if row[name] <= 0]
    return ds.where(rm.col(name) > 0), [row for row in known if row[name] > 0]


def exploded(case: Case, ds: rm.Dataset, rows: Rows) -> Any:
    names = [name for name, field in ds.schema.items() if field.shape]
    if not names:
        return None
    name = case.pick(names)
    divided = [{**row, name: item} for row in rows for item in row[name] or ()]
    return ds.explode(name), divided


def filled(case: Case, ds: rm.Dataset, rows: Rows) -> Any:
    names = [name for name, field in ds.schema.items() if field.has_nulls]
    if not names:
        return None
    name = case.pick(names)
    field = ds.schema[name]
    value: Any = ("x" if field.is_text else b"x") if field.is_bytes else 1

    def fill(row: Any, ragged: int) -> Any:
        if row is None:
            return [] if ragged else [value] * 2 if field.shape and not field.ragged else value
        return [fill(item, ragged - 1) for item in row] if ragged else row

    full = [{**row, name: fill(row[name], field.ragged)} for row in rows]
    return ds.fill_null({name: value}), full


def dropped(case: Case, ds: rm.Dataset, rows: Rows) -> Any:
    name = _column(case, ds)
    return ds.drop_null(name), [row for row in rows if not _has_null(row[name])]


def masked(case: Case, ds: rm.Dataset, rows: Rows) -> Any:
    names = [n for n, f in ds.schema.items() if f.nullable and not f.null_items]
    if not names:
        return None
    name = case.pick(names)
    field = ds.schema[name]
    zero: Any = ("" if field.is_text else b"") if field.is_bytes else 0
    empty: Any = [] if field.ragged else [zero] * 2 if field.shape else zero
    marked = [
        {**row, name: empty if null else row[name], f"{name}/is_null": null}
        for row in rows
        for null in [row[name] is None]
    ]
    return ds.mask_null(name), marked


def cut(case: Case, ds: rm.Dataset, rows: Rows) -> Any:
    stop = case.between(0, len(rows))
    return ds.take(stop), rows[:stop]


def reordered(case: Case, ds: rm.Dataset, rows: Rows) -> Any:
    """Shuffle or sort, which are not compared row by row, and go back to the order of before."""
    verb = case.pick(["shuffle", "sort", "split", "sample", "concat", "by"])
    if verb == "split":
        parts = ds.split({"a": 0.5, "b": 0.5}, seed=case.between(0, 9))
        _check(rm.mix(parts["a"], parts["b"], until="all"), rows, ordered=False)
    elif verb == "sample":
        known = [repr(_with_floats(row)) for row in _plain_rows(rows, ds)]
        drawn = ds.sample(5, seed=case.between(0, 9)) if rows else []
        if any(repr(_with_floats(row)) not in known for row in _plain_rows(drawn, ds)):
            raise AssertionError("a row that is not one of the dataset")
    elif verb == "concat":
        _check(rm.concat(ds, ds.take(2)), [*rows, *rows[:2]])
    elif verb == "by":
        name = case.pick([n for n, f in ds.schema.items() if not f.shape])
        parts = ds.split({"a": 0.5, "b": 0.5}, by=name)
        keys = [{repr(plain(row[name])) for row in part} for part in parts.values()]
        _same(keys[0] & keys[1], set())
        _check(rm.concat(*parts.values()), rows, ordered=False)
    elif verb == "shuffle":
        _check(ds.shuffle(seed=case.between(0, 9)), rows, ordered=False)
    else:
        name = case.pick([n for n, f in ds.schema.items() if not f.shape])
        ordered = ds.sort(name)
        _check(ordered, rows, ordered=False)
        found = [plain(row[name]) for row in ordered]
        there = [key for key in found if key is not None]
        _same(found, sorted(there) + [None] * (len(found) - len(there)))
    return None


_VERBS = [
    filtered, mapped, nulls_found, compared, exploded, filled, dropped, masked, cut, reordered
]  # fmt: skip
