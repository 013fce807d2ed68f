"""Shards of Mosaic Streaming, whole and damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import recmap as rm
from hostile.case import Case
from hostile.file_damage import damage
from hostile.reading import check_some_ways
from hostile.table import Table
from tests.formats.mds_files import write_mds

__all__ = ["case"]

_NUMBERS = ["int", "uint8", "int16", "uint32", "uint64", "float16", "float32", "float64"]


def case(case: Case) -> None:
    columns: dict[str, str] = {}
    for i in range(case.between(1, 5)):
        kind = case.pick(["number", "number", "bytes", "jpeg", "fixed", "list", "free"])
        dtype = case.pick(["uint8", "int32", "float64"])
        columns[f"c{i}"] = {
            "number": case.pick(_NUMBERS), "bytes": "bytes", "jpeg": "jpeg", "free": "ndarray",
            "fixed": f"ndarray:{dtype}:2,3", "list": f"ndarray:{dtype}",
        }[kind]  # fmt: skip
    free = case.pick(["uint8", "int64", "float32"])
    counts = [case.pick([0, 1, case.between(1, 40)]) for _ in range(case.between(1, 4))]
    if not sum(counts):
        counts = [1]
    shards = [[_sample(case, columns, free) for _ in range(count)] for count in counts]
    compression = case.pick([None, None, "zstd", "gz"])
    hashes = ["sha1"] if case.chance(0.5) else []
    case.note(f"{counts} samples of {columns}, {compression}")
    folder = case.path("mds")
    write_mds(folder, columns, shards, compression, hashes)
    rows = [sample for shard in shards for sample in shard]
    table: Table = {name: [row[name] for row in rows] for name in columns}
    check_some_ways(case, rm.open(folder), table)
    if case.chance(0.5):
        names = sorted(path.name for path in Path(folder).iterdir())
        damage(case, f"{folder}/{case.pick(names)}")
        try:
            found = len(rm.open(folder)[:])
            sound = rm.verify(folder).ok
        except rm.RecmapError as e:
            case.note(f"refused: {e}")
            case.outcome = "refused"
        else:
            case.note(f"{found} columns are read, {'sound' if sound else 'damaged'}")


def _sample(case: Case, columns: dict[str, str], free: str) -> dict[str, Any]:
    return {name: _value(case, encoding, free) for name, encoding in columns.items()}


def _value(case: Case, encoding: str, free: str) -> Any:
    if encoding in ("bytes", "jpeg"):
        return case.rng.bytes(case.pick([0, 1, case.between(0, 300)]))
    if not encoding.startswith("ndarray"):
        dtype = np.dtype("int64" if encoding == "int" else encoding)
        return np.frombuffer(case.rng.bytes(dtype.itemsize), dtype)[0]
    _, *told = encoding.split(":")
    shape = (2, 3) if len(told) == 2 else (case.pick([1, 5, 300]),)
    dtype = np.dtype(told[0] if told else free)
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(case.rng.bytes(size), dtype).reshape(shape)
