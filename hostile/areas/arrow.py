"""Tables of pyarrow, in and out."""

from __future__ import annotations

import pyarrow as pa

import recmap as rm
from hostile.arrow_tables import expected, random_table
from hostile.case import Case
from hostile.null_rows import check_nulls
from hostile.reading import check_some_ways
from hostile.table import Table

__all__ = ["case", "without_masks"]


def case(case: Case) -> None:
    table = random_table(case, views=True, nulls=case.chance(0.5))
    ds = rm.open(table, nulls="mask")
    wanted = expected(table)
    check_some_ways(case, rm.open(table, nulls="mask"), wanted)
    check_nulls(case, rm.open(table), table)
    case.note("out, and in again")
    again = rm.open(ds.to_arrow(tensors="list") if case.chance(0.5) else pa.table(ds))
    check_some_ways(case, again, wanted)


def without_masks(table: Table) -> Table:
    return {name: rows for name, rows in table.items() if not name.endswith("/is_null")}
