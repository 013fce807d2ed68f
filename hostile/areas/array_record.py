"""ArrayRecord files: those of its package, whole and damaged, and those that recmap writes."""

from __future__ import annotations

from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter

import recmap as rm
from hostile.case import Case
from hostile.file_damage import check_damaged
from hostile.reading import check_some_ways
from hostile.table import Table

__all__ = ["case"]


def case(case: Case) -> None:
    count = case.pick([1, 2, case.between(3, 300)])
    records = [case.rng.bytes(case.pick([0, 1, case.between(0, 200), 5000])) for _ in range(count)]
    group = case.pick([1, 1, 4, 50])
    packing = case.pick(["", ",uncompressed", ",zstd:3", ",brotli:2"])
    path = case.path("x.array_record")
    case.note(f"{count} records, group_size:{group}{packing}")
    writer = ArrayRecordWriter(path, f"group_size:{group}{packing}")
    for record in records:
        writer.write(record)
    writer.close()
    ds = rm.open(path)
    check_some_ways(case, ds, {"record": list(records)})
    saved = case.path("y.array_record")
    ds.save(saved, verify=case.pick([True, "full"]), options={"group_size": case.pick([1, 3])})
    if _read(saved)["record"] != records:
        raise AssertionError("the package reads other records")
    if case.chance(0.5):
        check_damaged(case, path, lambda: _read(path))


def _read(path: str) -> Table:
    reader = ArrayRecordReader(path)
    if not reader.ok():
        raise ValueError("damaged")
    return {"record": list(reader.read_all()) if reader.num_records() else []}
