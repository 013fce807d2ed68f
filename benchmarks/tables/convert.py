"""Conversion of one file to another."""

from __future__ import annotations

from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.report import Row, Table, compare
from benchmarks.workloads import Workload

__all__ = ["measure"]

_NOTE = (
    "rm.convert of an .npy file to one TFRecord file and back, rows counted and CRCs checked "
    "afterwards, against cp of the file that is read. fsync is never called. TensorFlow's loop "
    "takes rows of the same memmap one by one."
)


def measure(bench: Bench) -> Table:
    table = Table("Convert", _NOTE)
    for name in ("40B", "4KB", "256KB"):
        workload = bench.workloads[name]
        values = str(Path(bench.source(workload), "values.npy"))
        table.rows += _rows(bench, workload, "npy to TFRecord", values, ".tfrecord")
        records = bench.file(workload, "float")
        table.rows += _rows(bench, workload, "TFRecord to npy", records, ".npy")
    return table


def _rows(bench: Bench, workload: Workload, way: str, source: str, suffix: str) -> list[Row]:
    case = f"{workload.title}, {way}"
    rows = workload.rows
    entrants = bench.entrants(
        "recmap", "recmap", "convert",
        source=source, path=bench.scratch("recmap") + suffix, rows=rows,
    )  # fmt: skip
    entrants += bench.entrants(
        "plain", "cp", "copy", source=source, path=bench.scratch("cp"), rows=rows
    )
    targets = {"cp": 0.7 if workload.large else None}
    if workload.name == "40B" and suffix == ".tfrecord":
        entrants += bench.entrants(
            "tensorflow", "TensorFlow, loop", "loop_write",
            source=bench.source(workload), form="float", rows=workload.loop_rows,
            path=bench.scratch("tf"),
        )  # fmt: skip
        targets["TensorFlow, loop"] = 100
    timings = bench.race(f"convert {case}", entrants, workload.row_bytes)
    ours = timings.pop("recmap")
    return [compare(case, ours, peer, targets.get(peer.name)) for peer in timings.values()]
