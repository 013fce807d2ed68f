"""Parquet files: those of pyarrow, whole and damaged, and those that recmap writes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

import recmap as rm
from hostile.areas.arrow import without_masks
from hostile.arrow_tables import expected, random_table
from hostile.case import Case, NoReferenceError
from hostile.file_damage import check_damaged
from hostile.reading import check_some_ways
from hostile.table import Table

__all__ = ["case"]


def case(case: Case) -> None:
    nulls = case.chance(0.3)
    table = random_table(case, views=False, nulls=nulls)
    path = case.path("x.parquet")
    try:
        pq.write_table(
            table,
            path,
            compression=case.pick(["none", "snappy", "gzip", "zstd", "brotli", "lz4"]),
            row_group_size=case.pick([1 + len(table) // 20, 1000]),
            use_dictionary=case.chance(0.5),
            data_page_version=case.pick(["1.0", "2.0"]),
            write_page_index=case.chance(0.5),
            write_page_checksum=case.chance(0.5),
        )
        stored = pq.read_table(path)
    except pa.ArrowException as e:
        raise NoReferenceError(str(e)) from e
    wanted = expected(stored)
    ds = rm.open(path, nulls="mask")
    check_some_ways(case, ds, wanted)
    case.note("save")
    saved = case.path("y.parquet")
    ds.save(saved, verify=case.pick([True, "full"]))
    check_some_ways(case, rm.open(saved), wanted)
    if not nulls and case.chance(0.5):
        check_damaged(case, path, lambda: _read(path))


def _read(path: str) -> Table:
    return without_masks(expected(pq.read_table(path)))
