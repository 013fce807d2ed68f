"""TFRecord files read in batches."""

from __future__ import annotations

from typing import Any

from benchmarks.bench import Bench
from benchmarks.report import Goal, Row, Table, compare, reach
from benchmarks.tables.peer_files import readers
from benchmarks.timing import Entrant
from benchmarks.workloads import Workload

__all__ = ["given_fields", "measure"]

_NOTE = (
    "One file to NumPy batches of {batches} rows, every CRC checked (the `tfrecord` package "
    "checks none). recmap opens the file, finds its records and infers its schema within the "
    "time; there is no index file. TensorFlow's dataset is built before the clock starts. Tuned: "
    "batch, then parse_example in parallel, then prefetch, with the buffers, parallel batching "
    "and RaggedFeature or VarLenFeature that a trial found fastest. memmap: np.array of slices of "
    "the same numbers in an .npy file. The others read the same rows from their own formats, "
    "opened within the time. Lance: to_batches(columns, batch_size), one batch at a time or "
    "several, as a trial found fastest, from its default format and from an older one. datasets: "
    'with_format("numpy").iter(batch_size) of a mapped Arrow file, which has no checksums; Arrow '
    'copy: with_format("arrow"), and np.array of each batch, which would otherwise be a view of '
    "the file. ArrayRecord: read(start, stop) of uncompressed records of raw bytes, joined. "
    "WebDataset: tar files of .npy files, decode, batched, and a WebLoader of 0 or 2 workers, "
    "whichever a trial found faster, started before the clock. Targets in rows/s and GB/s are for "
    "two cores of Neoverse-N1."
)
_TUNED_TARGETS = {"40B": 40.0, "4KB": 8.0, "256KB": 8.0, "tokens": 10.0, "images": 8.0}
# A checked read is faster than a Lance scan of the same column.
_LANCE_TARGETS = {"40B": 1.0}
_GOALS = {
    "40B": Goal(75e6, "rows/s"),
    "4KB": Goal(16, "GB/s"),
    "256KB": Goal(16, "GB/s"),
    "tokens": Goal(3.84e6, "rows/s"),
}
_TITLES = {"float": "float_list", "raw": "raw bytes", "tokens": "int64_list", "image": "bytes"}


def measure(bench: Bench) -> Table:
    chosen = [bench.workloads[name] for name in _TUNED_TARGETS]
    table = Table("Read", _NOTE.format(batches=" / ".join(str(w.batch) for w in chosen)))
    for workload in chosen:
        for form in workload.forms:
            table.rows += _rows(bench, workload, form)
    return table


def given_fields(workload: Workload, form: str) -> dict[str, str] | None:
    """Return the types of what is stored as raw bytes; the rest is inferred."""
    return {"x": f"float32[{workload.width}]"} if form == "raw" else None


def _rows(bench: Bench, workload: Workload, form: str) -> list[Row]:
    case = f"{workload.title}, {_TITLES[form]}"
    timings = bench.race(f"read {case}", _entrants(bench, workload, form), workload.row_bytes)
    ours = timings.pop("recmap")
    targets = {
        "TensorFlow, tuned": _TUNED_TARGETS[workload.name],
        "memmap copy": 0.6 if workload.large else None,
        "Lance": _LANCE_TARGETS.get(workload.name),
        "Lance, format 2.0": _LANCE_TARGETS.get(workload.name),
    }
    rows = [compare(case, ours, peer, targets.get(peer.name)) for peer in timings.values()]
    if form == workload.forms[0] and workload.name in _GOALS:
        rows.append(reach(case, ours, _GOALS[workload.name]))
    return rows


def _entrants(bench: Bench, workload: Workload, form: str) -> list[Entrant]:
    path, batch = bench.file(workload, form), workload.batch
    parse: dict[str, Any] = {"path": path, "form": form, "batch": batch, "checked": True}
    fields = given_fields(workload, form)
    entrants = bench.entrants(
        "recmap", "recmap", "read", path=path, batch=batch, fields=fields, checked=True
    )
    entrants += bench.entrants(
        "plain", "memmap copy", "read", folder=bench.source(workload), batch=batch, checked=True
    )
    entrants += bench.entrants(
        "tensorflow", "TensorFlow, tuned", "tuned_read",
        width=workload.width, rows=workload.tuned_rows, **parse,
    )  # fmt: skip
    # Questions on the web parse floats that were stored as raw bytes.
    if form != "float":
        entrants += bench.entrants(
            "tensorflow", "TensorFlow, row by row", "loop_read",
            width=workload.width, rows=workload.loop_rows, **parse,
        )  # fmt: skip
    entrants += bench.entrants(
        "tfrecord", "tfrecord package", "loop_read", rows=workload.loop_rows, **parse
    )
    # Formats of arrays are read once, beside the form that has arrays of its own.
    return entrants + (readers(bench, workload) if form == "float" else [])
