"""gzip files, read and written."""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.report import Row, Table, compare
from benchmarks.workloads import MB, Workload

__all__ = ["measure"]

_NOTE = (
    "A pass in batches over one gzip file, every CRC checked, as in the table Read; and arrays "
    "in memory written to a gzip file, each at its default level."
)


def measure(bench: Bench) -> Table:
    chosen = [bench.workloads[name] for name in ("4KB", "tokens")]
    reads = [row for w in chosen for row in _rows(bench, w)]
    return Table("gzip", _NOTE, reads + _writes(bench, bench.workloads["4KB"]))


def _writes(bench: Bench, workload: Workload) -> list[Row]:
    source, rows = bench.source(workload), int(min(workload.rows, 64 * MB / workload.row_bytes))
    entrants = bench.entrants(
        "recmap", "recmap", "write_gzip",
        source=source, form="raw", rows=rows, path=bench.scratch("recmap"),
    )  # fmt: skip
    entrants += bench.entrants(
        "tensorflow", "TensorFlow, loop", "loop_write",
        source=source, form="raw", rows=rows // 8, path=bench.scratch("tf"), compression="GZIP",
    )  # fmt: skip
    timings = bench.race(f"gzip write {workload.title}", entrants, workload.row_bytes)
    ours = timings.pop("recmap")
    return [compare(f"{workload.title}, write", ours, p, 5.0) for p in timings.values()]


def _rows(bench: Bench, workload: Workload) -> list[Row]:
    form, rows = workload.forms[0], int(min(workload.tuned_rows, 64 * MB / workload.row_bytes))
    path, batch = bench.file(workload, form, rows, compression="gzip"), workload.batch
    entrants = bench.entrants("recmap", "recmap", "read", path=path, batch=batch, checked=True)
    entrants += bench.entrants(
        "tensorflow", "TensorFlow, tuned", "tuned_read",
        path=path, form=form, width=workload.width, rows=rows, batch=batch, compression="GZIP",
        checked=True,
    )  # fmt: skip
    timings = bench.race(f"gzip {workload.title}", entrants, workload.row_bytes)
    ours = timings.pop("recmap")
    return [compare(f"{workload.title}, read", ours, p, 1.5) for p in timings.values()]
