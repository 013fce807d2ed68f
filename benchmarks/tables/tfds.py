"""Folders of TFDS."""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.report import Table, compare

__all__ = ["measure"]

_NOTE = (
    "A folder of TFDS, one shard, to NumPy arrays, every CRC checked. recmap opens the folder "
    "within the time and reads batches of {batch} rows. tensorflow_datasets builds its dataset "
    "before the clock starts: tfds.as_numpy(builder.as_dataset(split)), row by row as in its "
    "guide, and of batches of {batch}."
)
_TARGET = 10.0


def measure(bench: Bench) -> Table:
    workload = bench.workloads["4KB"]
    table = Table("TFDS folders", _NOTE.format(batch=workload.batch))
    maker = bench.worker("tfds")
    if maker.missing:
        table.note += " Not measured: tensorflow_datasets is not installed."
        return table
    source, rows = bench.source(workload), workload.tuned_rows
    maker.call("make", source=f"{source}/values.npy", path=f"{source}/tfds", rows=rows)
    path = f"{source}/tfds/rows/1.0.0"
    entrants = bench.entrants(
        "recmap", "recmap", "read", path=path, batch=workload.batch, checked=True
    )
    entrants += bench.entrants("tfds", "tfds.as_numpy", "read", path=path, checked=True)
    entrants += bench.entrants(
        "tfds", "tfds.as_numpy, batches", "read", path=path, batch=workload.batch, checked=True
    )
    timings = bench.race(f"tfds {workload.title}", entrants, workload.row_bytes)
    ours = timings.pop("recmap")
    table.rows = [compare(workload.title, ours, peer, _TARGET) for peer in timings.values()]
    return table
