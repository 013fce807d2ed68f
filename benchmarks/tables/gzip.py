"""gzip files, read and written."""

from __future__ import annotations

import os
import shutil
import subprocess

from benchmarks.bench import Bench
from benchmarks.report import Row, Table, compare
from benchmarks.workloads import MB, Workload

__all__ = ["measure"]

_NOTE = (
    "A pass in batches over one gzip file, every CRC checked, as in the table Read; and arrays "
    "in memory written to a gzip file, each at its default level. One stream: the same records, "
    "compressed by gzip at its default level. Indexed: the rows were counted before, which leaves "
    "an index next to the file. First pass: without an index; reading rows in order once does not "
    "leave one. rapidgzip only inflates. Members are what recmap writes."
)


def measure(bench: Bench) -> Table:
    chosen = [bench.workloads[name] for name in ("4KB", "tokens")]
    reads = [row for w in chosen for row in _rows(bench, w)]
    rows = bench.workloads["4KB"]
    return Table("gzip", _NOTE, reads + _streams(bench, rows) + _writes(bench, rows))


def _streams(bench: Bench, workload: Workload) -> list[Row]:
    """Read one stream, in a first pass and with an index, and the members that recmap writes."""
    rows, batch = int(min(workload.rows, 128 * MB / workload.row_bytes)), workload.batch
    members = bench.file(workload, "float", rows, compression="gzip")
    stream, indexed = _compressed(bench.file(workload, "float", rows))
    bench.worker("recmap").call("count", path=indexed)
    entrants = bench.entrants("recmap", "indexed", "read", path=indexed, batch=batch, checked=True)
    entrants += bench.entrants(
        "recmap", "first pass", "read_first", path=stream, batch=batch, checked=True
    )
    entrants += bench.entrants(
        "recmap", "recmap, members", "read", path=members, batch=batch, checked=True
    )
    entrants += bench.entrants("rapidgzip", "rapidgzip", "inflate", path=stream, rows=rows)
    timings = bench.race(f"gzip {workload.title}, one stream", entrants, workload.row_bytes)
    ours = {name: timings.pop(name) for name in ("indexed", "first pass")}
    case = f"{workload.title}, one stream"
    found = [compare(f"{case}, indexed", ours["indexed"], timings.pop("recmap, members"), 0.8)]
    for peer in timings.values():
        found += [compare(f"{case}, {name}", each, peer) for name, each in ours.items()]
    return found


def _compressed(path: str) -> tuple[str, str]:
    """Compress a file as one gzip stream, twice: one is for readers that have an index."""
    stream, indexed = f"{path}-stream.gz", f"{path}-indexed.gz"
    if not os.path.exists(indexed):
        with open(stream, "wb") as out:
            subprocess.run(["gzip", "-c", path], stdout=out, check=True)
        shutil.copyfile(stream, indexed)
    return stream, indexed


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
