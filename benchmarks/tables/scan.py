"""Finding the records of a file without an index."""

from __future__ import annotations

import os

from benchmarks.bench import Bench
from benchmarks.report import Row, Table, compare
from benchmarks.timing import Entrant
from benchmarks.workloads import Workload

__all__ = ["measure"]

_NOTE = "rm.open and len of one file without an index, on two CPUs against one."


def measure(bench: Bench) -> Table:
    table = Table("Index scan", _NOTE)
    if not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2:
        table.note += " Not measured: this machine has one CPU, or cannot limit a process."
        return table
    table.rows = [_row(bench, bench.workloads[name]) for name in ("short", "4KB")]
    return table


def _row(bench: Bench, workload: Workload) -> Row:
    options = {"path": bench.file(workload, workload.forms[0])}
    one, two = bench.fresh_worker(cores=1), bench.fresh_worker(cores=2)
    try:
        entrants = [
            Entrant("one CPU", one, "scan", options),
            Entrant("two CPUs", two, "scan", options),
        ]
        timings = bench.race(f"scan {workload.title}", entrants, workload.row_bytes)
    finally:
        one.close()
        two.close()
    return compare(workload.title, timings["two CPUs"], timings["one CPU"])
