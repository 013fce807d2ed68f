"""Arrow files and streams: those of pyarrow, whole and damaged, and those that recmap writes."""

from __future__ import annotations

import pyarrow as pa

import recmap as rm
from hostile.areas.arrow import without_masks
from hostile.arrow_tables import expected, random_table
from hostile.case import Case, NoReferenceError
from hostile.file_damage import check_damaged
from hostile.reading import check_some_ways
from hostile.table import Table

__all__ = ["case"]


def case(case: Case) -> None:
    nulls, streamed = case.chance(0.3), case.chance(0.3)
    table = random_table(case, views=True, nulls=nulls)
    if any(pa.types.is_dictionary(kind) for kind in table.schema.types):
        streamed = False  # recmap reads such a stream only in order
    path = case.path("x.arrow")
    options = pa.ipc.IpcWriteOptions(
        compression=case.pick([None, "lz4", "zstd"]),
        unify_dictionaries=not streamed,
    )
    write = pa.ipc.new_stream if streamed else pa.ipc.new_file
    try:
        with write(path, table.schema, options=options) as writer:
            writer.write_table(table, case.pick([1 + len(table) // 20, 1000]))
    except pa.ArrowException as e:
        raise NoReferenceError(str(e)) from e
    wanted = expected(table)
    ds = rm.open(path, nulls="mask")
    check_some_ways(case, ds, wanted)
    case.note("save")
    saved = case.path(case.pick(["y.arrow", "y.feather"]))
    ds.save(saved, verify=case.pick([True, "full"]))
    check_some_ways(case, rm.open(saved), wanted)
    if not nulls and case.chance(0.5):
        check_damaged(case, path, lambda: _read(path, streamed))


def _read(path: str, streamed: bool) -> Table:
    with pa.ipc.open_stream(path) if streamed else pa.ipc.open_file(path) as reader:
        table = reader.read_all()
    table.validate(full=True)
    return without_masks(expected(table))
