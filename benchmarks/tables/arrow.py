"""TFRecord files as Arrow batches."""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.report import Row, Table, compare
from benchmarks.workloads import Workload

__all__ = ["measure"]

_NOTE = (
    "One TFRecord file as a stream of Arrow batches, every CRC checked: "
    "pyarrow.RecordBatchReader.from_stream(ds), which polars, DuckDB and pandas read in the same "
    "way, against ds.batches, which has the same rows as NumPy arrays. Both open the file within "
    "the time."
)
_TARGET = 0.9


def measure(bench: Bench) -> Table:
    table = Table("Arrow", _NOTE)
    if bench.worker("pyarrow").missing:
        table.note += " Not measured: pyarrow is not installed."
        return table
    table.rows = [_row(bench, bench.workloads[name]) for name in ("40B", "4KB", "tokens")]
    return table


def _row(bench: Bench, workload: Workload) -> Row:
    path = bench.file(workload, workload.forms[0])
    entrants = bench.entrants("pyarrow", "recmap", "stream", path=path)
    entrants += bench.entrants("recmap", "ds.batches", "read", path=path, batch=workload.batch)
    timings = bench.race(f"arrow {workload.title}", entrants, workload.row_bytes)
    return compare(workload.title, timings["recmap"], timings["ds.batches"], _TARGET)
