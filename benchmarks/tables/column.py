"""Mapped columns, compared with np.memmap."""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.report import Row, Table, compare
from benchmarks.workloads import Workload

__all__ = ["measure"]

_NOTE = (
    'ds["x"] of a file written with align=64, against np.memmap of the same numbers in an .npy '
    "file: the sum over the column in batches, and all rows in random order, gathered in batches. "
    "Both are opened again each time, before the clock starts."
)
_ACCESS = {"column_sum": "sum", "column_gather": "random gather"}


def measure(bench: Bench) -> Table:
    chosen = [bench.workloads[name] for name in ("40B", "4KB", "256KB")]
    rows = [_row(bench, w, job, access) for w in chosen for job, access in _ACCESS.items()]
    return Table("Mapped columns", _NOTE, rows)


def _row(bench: Bench, workload: Workload, job: str, access: str) -> Row:
    case = f"{access}, {workload.title}"
    path = bench.file(workload, "float", align=64, index=True)
    entrants = bench.entrants("recmap", "recmap", job, path=path, batch=workload.batch)
    entrants += bench.entrants(
        "plain", "memmap", job,
        folder=bench.source(workload), batch=workload.batch,
    )  # fmt: skip
    timings = bench.race(f"column {case}", entrants, workload.row_bytes)
    return compare(case, timings["recmap"], timings["memmap"], 1 / 1.1, " (within 10%)")
