"""The cost of checking CRCs."""

from __future__ import annotations

from typing import Any

from benchmarks.bench import Bench
from benchmarks.report import Row, Table, compare
from benchmarks.tables.read import given_fields
from benchmarks.workloads import Workload

__all__ = ["measure"]

_NOTE = "A pass in batches with every CRC checked, against the same with verify=False."


def measure(bench: Bench) -> Table:
    chosen = [bench.workloads[name] for name in ("4KB", "256KB", "images")]
    return Table("Checked and unchecked reads", _NOTE, [_row(bench, w) for w in chosen])


def _row(bench: Bench, workload: Workload) -> Row:
    form = workload.forms[0]
    options: dict[str, Any] = {
        "path": bench.file(workload, form),
        "batch": workload.batch,
        "fields": given_fields(workload, form),
    }
    entrants = bench.entrants("recmap", "checked", "read", **options)
    entrants += bench.entrants("recmap", "verify=False", "read", verify=False, **options)
    timings = bench.race(f"checked {workload.title}", entrants, workload.row_bytes)
    return compare(
        workload.title, timings["checked"], timings["verify=False"], 1 / 1.2, " (within 20%)"
    )
