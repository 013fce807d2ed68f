"""A Ray cluster: Ray's own readers and writers, and recmap's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.bench import Bench
from benchmarks.report import Row, Table, compare
from benchmarks.timing import Entrant
from benchmarks.workloads import Workload

__all__ = ["measure"]

_NOTE = (
    "One cluster on all CPUs of this machine, the same files. Reading: rm.ray.read and Ray's "
    "read_tfrecords or read_numpy, then iter_batches of 4,096 rows as NumPy; rows "
    "in memory: iter_batches alone, on rows that Ray loaded before the clock starts. Writing: "
    "rows in the cluster's memory, with rm.ray.write and write_tfrecords. Ray's TFRecord readers "
    "and writers handle one Example at a time, so they get fewer rows. The last two convert one "
    'large file to eight with rm.convert(engine="ray"), with two tasks at a time and with one; '
    "fsync is never called."
)
_SHARDS = 8
# Starting a Ray job takes a while: enough rows that it does not matter.
_PEER_TIMES = 2


def measure(bench: Bench) -> Table:
    table = Table("Ray", _NOTE)
    if bench.worker("ray").missing:
        table.note += " Not measured: Ray is not installed."
        return table
    converted: list[Row] = []
    for name in ("40B", "4KB"):
        workload = bench.workloads[name]
        target = 10.0 if name == "40B" else None
        table.rows += _read(bench, workload, "read_tfrecords", target)
        table.rows += _read(bench, workload, "read_numpy", target)
        table.rows += _write(bench, workload, target)
        converted += _convert(bench, workload)
    table.rows += converted
    return table


def _read(bench: Bench, workload: Workload, peer: str, target: float | None) -> list[Row]:
    if peer == "read_numpy":
        path = small = str(Path(bench.source(workload), "values.npy"))
    else:
        path = bench.file(workload, "float")
        small = bench.file(workload, "float", _PEER_TIMES * workload.loop_rows)
    entrants = [
        *bench.entrants("ray", "recmap", "read", path=path, by="recmap"),
        *bench.entrants("ray", f"Ray, {peer}", "read", path=small, by=peer),
    ]
    if peer == "read_numpy":
        entrants += bench.entrants("ray", "Ray, rows in memory", "read", path=path, by="memory")
    case = f"{workload.title}, read {'.npy' if peer == 'read_numpy' else 'TFRecord'}"
    return _compared(bench, case, entrants, workload, {f"Ray, {peer}": target})


def _write(bench: Bench, workload: Workload, target: float | None) -> list[Row]:
    path = str(Path(bench.source(workload), "values.npy"))
    out = str(bench.folder / "ray-out")
    entrants = [
        *bench.entrants(
            "ray", "recmap", "write", path=path, out=out, rows=workload.rows, by="recmap"
        ),
        *bench.entrants(
            "ray", "Ray, write_tfrecords", "write",
            path=path, out=out, rows=_PEER_TIMES * workload.loop_rows, by="ray",
        ),
    ]  # fmt: skip
    targets = {"Ray, write_tfrecords": target}
    return _compared(bench, f"{workload.title}, write TFRecord", entrants, workload, targets)


def _convert(bench: Bench, workload: Workload) -> list[Row]:
    path, out = bench.file(workload, "float", 4 * workload.rows), str(bench.folder / "ray-out")
    options: dict[str, Any] = {"path": path, "out": out, "shards": _SHARDS}
    entrants = [
        *bench.entrants("ray", "recmap", "convert", workers=2, **options),
        *bench.entrants("ray", "recmap, 1 task", "convert", workers=1, **options),
    ]
    return _compared(bench, f"{workload.title}, one file to eight", entrants, workload, {})


def _compared(
    bench: Bench,
    case: str,
    entrants: list[Entrant],
    workload: Workload,
    targets: dict[str, float | None],
) -> list[Row]:
    timings = bench.race(f"ray {case}", entrants, workload.row_bytes)
    ours = timings.pop("recmap")
    return [compare(case, ours, peer, targets.get(name)) for name, peer in timings.items()]
