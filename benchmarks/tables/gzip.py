"""Compressed files."""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.report import Row, Table, compare
from benchmarks.workloads import MB, Workload

__all__ = ["measure"]

_NOTE = "A pass in batches over one gzip file, every CRC checked, as in the table of reads."


def measure(bench: Bench) -> Table:
    chosen = [bench.workloads[name] for name in ("4KB", "tokens")]
    return Table("gzip", _NOTE, [row for w in chosen for row in _rows(bench, w)])


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
    return [compare(workload.title, ours, peer) for peer in timings.values()]
