"""TFRecord files with Examples in every wire encoding, plain and compressed, compared with
protobuf.
"""

from __future__ import annotations

import os
from pathlib import Path

import recmap as rm
from hostile import records
from hostile.case import Case
from hostile.reading import check_some_ways

__all__ = ["case"]


def case(case: Case) -> None:
    features = records.Features.draw(case)
    make = case.pick([records.record, records.record, records.sequence])
    compression = case.pick([None, None, None, "gzip", "zlib"])
    paths, all_records = [], []
    for i in range(case.pick([1, 1, 2, 4])):
        mine = [make(case, features) for _ in range(case.pick([1, 2, 20, 60]))]
        path = case.path(f"{i}.tfrecord")
        Path(path).write_bytes(records.compress(case, records.frames(mine), compression))
        paths.append(path)
        all_records += mine
    case.note(
        f"{len(all_records)} of {make.__name__}, {len(paths)} files, {compression}, {features}"
    )
    if case.chance(0.3):
        for path in paths:
            rm.index(path)
            if case.chance(0.3):
                os.utime(path, (0, 0))
    kinds: dict[str, str] = {}
    for data in all_records:
        kinds |= {key: kind for key, (kind, _) in records.parse(data).items()}
        kinds |= {key: kind for key, (kind, _) in records.parse_lists(data).items()}
    if not kinds:
        case.outcome = "refused"  # nothing but empty records: there are no columns
        return
    ds = rm.open(paths)
    if set(ds.schema) != set(kinds):
        raise AssertionError(f"columns {list(ds.schema)}, but the records hold {kinds}")
    check_some_ways(case, ds, records.expected(all_records, ds.schema))
