"""Peak memory of a pass over a file."""

from __future__ import annotations

import sys
from dataclasses import asdict

from benchmarks.bench import Bench
from benchmarks.report import Row, Table
from benchmarks.workloads import MB, Workload

__all__ = ["measure"]

_NOTE = (
    "Peak of RssAnon during a pass in batches over a file without an index, above that of a "
    "new process after its imports; sampled every millisecond."
)
_LIMIT = 100 * MB
_SIZES, _QUICK_SIZES = (64 * MB, 512 * MB, 2048 * MB), (64 * MB, 256 * MB)
# Bytes per record, about: its length, its CRCs, and the encoding of its one feature.
_OVERHEAD = 38


def measure(bench: Bench) -> Table:
    table = Table("Memory", _NOTE)
    if sys.platform != "linux":
        table.note += " Not measured: only Linux reports it."
        return table
    for name in ("4KB", "short"):
        for size in _QUICK_SIZES if bench.quick else _SIZES:
            table.rows.append(_row(bench, bench.workloads[name], size))
    return table


def _row(bench: Bench, workload: Workload, size: int) -> Row:
    rows = int(size / (workload.row_bytes + _OVERHEAD))
    path = bench.file(workload, workload.forms[0], rows)
    worker = bench.fresh_worker()
    try:
        run = worker.call("peak_memory", path=path, batch=workload.batch)
    finally:
        worker.close()
    case = f"{workload.title}, file of {size // MB:,} MB"
    bench.races.append({"case": f"memory {case}", **asdict(run)})
    peak = f"{run.peak / MB:.1f} MB"
    return Row(case, peak, "", "", None, f"< {_LIMIT // MB} MB", run.peak < _LIMIT)
