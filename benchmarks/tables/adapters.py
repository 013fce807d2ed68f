"""The cost of the adapters: to_torch() and to_tf()."""

from __future__ import annotations

from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.report import Table, compare

__all__ = ["measure"]

_NOTE = (
    "An epoch of shuffled batches of 1 MB (256 rows of 4 KB) from an .npy file, as tensors, "
    "compared with the plain iterator of the same pipeline. Each in its own process; datasets are "
    "made before the clock starts."
)
_OVERHEAD = 0.15


def measure(bench: Bench) -> Table:
    workload = bench.workloads["4KB"]
    path = str(Path(bench.source(workload), "values.npy"))
    entrants = [
        entrant
        for job in ("plain_iterator", "to_torch", "to_tf")
        for entrant in bench.entrants(f"adapter {job}", job, job, path=path, batch=workload.batch)
    ]
    timings = bench.race("adapters", entrants, workload.row_bytes)
    iterator = timings.pop("plain_iterator")
    iterator.name = "plain iterator"
    rows = [
        compare(f"{name}()", timing, iterator, 1 / (1 + _OVERHEAD), " (within 15%)")
        for name, timing in timings.items()
    ]
    return Table("Adapters", _NOTE, rows)
