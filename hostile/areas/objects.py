"""Objects in memory: tables of pyarrow, polars and pandas, and dicts of columns."""

from __future__ import annotations

import warnings
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa

import recmap as rm
from hostile.areas.tables import check_chosen
from hostile.arrow_tables import expected, item_fills, random_table
from hostile.case import Case, NoReferenceError
from hostile.reading import check_some_ways

__all__ = ["case"]


def case(case: Case) -> None:
    table = random_table(case, views=True, nulls=case.chance(0.7), every=True)
    path = case.path("x.arrow")
    try:
        with pa.ipc.new_file(
            path, table.schema, options=pa.ipc.IpcWriteOptions(unify_dictionaries=True)
        ) as writer:
            writer.write_table(table)
    except pa.ArrowException as e:
        raise NoReferenceError(str(e)) from e
    # A file tells its fields without reading values, which an object does not.
    fields = item_fills(table, rm.open(path, nulls="mask").schema)
    x, wanted_table = _object(case, table)
    wanted = expected(wanted_table)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds = rm.open(x, fields, nulls="mask")
    check_some_ways(case, ds, wanted)
    check_chosen(case, x, fields, wanted)


def _object(case: Case, table: pa.Table) -> tuple[Any, pa.Table]:
    """Return an object of another library, and its rows as a table of pyarrow."""
    kind = case.pick(["pyarrow", "batch", "pandas", "polars", "reader"])
    case.note(f"as {kind}")
    try:
        if kind == "polars":
            frame = pl.from_arrow(table)
            return frame, table if _is_kept(table) else _give_up("polars changes the types")
        if kind == "pandas":
            return table.to_pandas(types_mapper=pd.ArrowDtype), table
        if kind == "batch":
            whole = table.combine_chunks()
            batches = whole.to_batches()
            return (batches[0], whole) if len(batches) == 1 else (whole, whole)
    except (pa.ArrowException, pl.exceptions.PolarsError, NotImplementedError) as e:
        raise NoReferenceError(str(e)) from e
    return table, table


def _is_kept(table: pa.Table) -> bool:
    """Return whether polars has the types of a table."""
    kept = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_())
    return all(kind in (*kept, pa.large_string(), pa.string()) for kind in table.schema.types)


def _give_up(why: str) -> Any:
    raise NoReferenceError(why)
