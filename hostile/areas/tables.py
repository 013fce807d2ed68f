"""Tables of every type with nulls on every level, in every kind of file, and their columns."""

from __future__ import annotations

import warnings
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import recmap as rm
from hostile.arrow_tables import expected, item_fills, random_table
from hostile.case import Case, NoReferenceError
from hostile.null_rows import check_nulls
from hostile.reading import check_some_ways
from hostile.table import Table

__all__ = ["case", "check_chosen"]


def case(case: Case) -> None:
    table = random_table(case, views=False, nulls=case.chance(0.8), every=True)
    path = case.path(case.pick(["x.parquet", "x.arrow", "x.arrows"]))
    stored = _written(case, table, path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fields = item_fills(stored, rm.open(path, nulls="mask").schema)
        ds = rm.open(path, fields, nulls="mask")
        kept = rm.open(path)
    check_nulls(case, kept, stored)
    wanted = expected(stored)
    check_some_ways(case, ds, wanted)
    check_chosen(case, path, fields, wanted)
    case.note("verify")
    found = rm.verify(path)
    if not found.ok or found.records != len(stored):
        raise AssertionError(f"a sound table: {found}")
    saved = case.path(case.pick(["y.parquet", "y.arrow", "y.npz", "y.zarr"]))
    case.note(f"save {saved}")
    ds.save(saved, verify=case.pick([True, "full"]))
    check_some_ways(case, rm.open(saved), wanted)
    _save_nulls(case, kept, stored)


def _save_nulls(case: Case, kept: rm.Dataset, stored: pa.Table) -> None:
    """Save nulls in a format that has them, or with masks, and compare."""
    saved = case.path(case.pick(["z.parquet", "z.arrow", "z.npz", "z.zarr"]))
    case.note(f"save nulls {saved}")
    deep = any(field.null_items and field.ragged > 1 for field in kept.schema.values())
    if deep and saved.endswith(("z", "zarr")):
        return
    kept.save(saved, verify=case.pick([True, "full"]))
    check_nulls(case, rm.open(saved), stored)


def check_chosen(case: Case, x: Any, fields: dict[Any, Any], wanted: Table) -> None:
    """Choose some columns, in every way that there is, which come with their masks."""
    plain = [name for name in wanted if not name.endswith("/is_null")]
    names = [name for name in plain if case.chance(0.5)] or plain[:1]
    masks = [f"{name}/is_null" for name in names if f"{name}/is_null" in wanted]
    some = {name: wanted[name] for name in [*names, *masks]}
    case.note(f"choose {names}")
    chosen = {name: fields.get(name) for name in names}
    check_some_ways(case, rm.open(x, chosen, nulls="mask"), some, 1)
    selected = rm.open(x, fields, nulls="mask").select(*names)
    found = set(selected.schema)
    # There may be a mask for nulls outside of a slice.
    if not set(some) <= found <= set(some) | {f"{name}/is_null" for name in names}:
        raise AssertionError(f"select({names}) has {list(selected.schema)}")


def _written(case: Case, table: pa.Table, path: str) -> pa.Table:
    size = case.pick([1 + len(table) // 20, 1000])
    try:
        if path.endswith(".parquet"):
            pq.write_table(
                table,
                path,
                row_group_size=size,
                use_dictionary=case.chance(0.5),
                store_schema=case.chance(0.8),
            )
            return pq.read_table(path)
        make = pa.ipc.new_file if path.endswith(".arrow") else pa.ipc.new_stream
        options = pa.ipc.IpcWriteOptions(
            compression=case.pick([None, None, "lz4", "zstd"]),
            use_legacy_format=case.chance(0.2) and path.endswith(".arrows"),
        )
        with make(path, table.schema, options=options) as writer:
            writer.write_table(table, size)
    except pa.ArrowException as e:
        raise NoReferenceError(str(e)) from e
    return table
