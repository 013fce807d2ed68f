"""Arrays written to TFRecord files."""

from __future__ import annotations

from typing import Any

from benchmarks.bench import Bench
from benchmarks.report import Row, Table, compare
from benchmarks.timing import Entrant
from benchmarks.workloads import Workload

__all__ = ["measure"]

_NOTE = (
    "Arrays in memory to one file. `write()` puts the bytes of the same finished file into a new "
    "one, 1 MB at a time. fsync is never called. TensorFlow's loop and the `tfrecord` package make "
    "one Example per row. GB/s count the values of the rows as they are in memory."
)
_TITLES = {"float": "float_list", "raw": "raw bytes", "tokens": "int64_list", "image": "bytes"}
# A float_list is filled one Python float at a time.
_FLOAT_LOOP_SHARE = 8


def measure(bench: Bench) -> Table:
    table = Table("Write", _NOTE)
    for name in ("40B", "4KB", "256KB", "tokens", "images"):
        workload = bench.workloads[name]
        for form in workload.forms:
            table.rows += _rows(bench, workload, form)
    return table


def _rows(bench: Bench, workload: Workload, form: str) -> list[Row]:
    case = f"{workload.title}, {_TITLES[form]}"
    timings = bench.race(f"write {case}", _entrants(bench, workload, form), workload.row_bytes)
    ours = timings.pop("recmap")
    targets = {"write()": 0.8 if workload.large else None}
    if workload.name == "40B":
        targets["TensorFlow, loop"] = 200
    return [compare(case, ours, peer, targets.get(peer.name)) for peer in timings.values()]


def _entrants(bench: Bench, workload: Workload, form: str) -> list[Entrant]:
    source, rows = bench.source(workload), workload.rows
    finished = bench.file(workload, form)
    loop_rows = workload.loop_rows
    if form == "float" and workload.large:
        loop_rows = max(1, loop_rows // _FLOAT_LOOP_SHARE)
    loop: dict[str, Any] = {"source": source, "form": form, "rows": loop_rows}
    return [
        *bench.entrants(
            "recmap", "recmap", "write",
            source=source, form=form, rows=rows, path=bench.scratch("recmap"),
        ),
        *bench.entrants(
            "plain", "write()", "write", source=finished, rows=rows, path=bench.scratch("plain")
        ),
        *bench.entrants(
            "tensorflow", "TensorFlow, loop", "loop_write", path=bench.scratch("tf"), **loop
        ),
        *bench.entrants(
            "tfrecord", "tfrecord package", "loop_write", path=bench.scratch("package"), **loop
        ),
    ]  # fmt: skip
