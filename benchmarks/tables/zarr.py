"""Zarr arrays read in order."""

from __future__ import annotations

from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.report import Row, Table, compare
from benchmarks.workloads import MB

__all__ = ["measure"]

_NOTE = (
    "One array of int32, 4 KB per row, of Zarr version 3, in chunks of {batch} rows (1 MB) with "
    "zstd: each chunk in a file of its own, or {shard} rows in a shard; opened within the time. "
    "recmap: rm.open(path).batches({batch}). zarr-python, zarrs (a codec pipeline for "
    "zarr-python) and TensorStore: array[start:stop] of {slab} rows, which gives each several "
    "chunks at a time."
)
_SHARD, _SLAB = 4096, 4096
_PEERS = ("zarrs", "tensorstore", "zarr-python")
_TARGETS = {"zarrs": 1.0}


def measure(bench: Bench) -> Table:
    batch = bench.workloads["4KB"].batch
    table = Table("Zarr", _NOTE.format(batch=batch, shard=_SHARD, slab=_SLAB))
    if bench.worker("zarr").missing:
        table.note += " Not measured: zarr is not installed."
        return table
    table.rows += _rows(bench, "zstd")
    table.rows += _rows(bench, "zstd, sharded", _SHARD)
    return table


def _rows(bench: Bench, title: str, shard: int | None = None) -> list[Row]:
    workload = bench.workloads["4KB"]
    folder = bench.source(workload)
    rows, batch = int(min(workload.rows, 256 * MB / workload.row_bytes)), workload.batch
    path = str(Path(folder, f"{'sharded' if shard else 'zstd'}.zarr"))
    bench.worker("zarr").call("make", folder=folder, path=path, rows=rows, batch=batch, shard=shard)
    entrants = bench.entrants("recmap", "recmap", "read", path=path, batch=batch, checked=True)
    for peer in _PEERS:
        entrants += bench.entrants(
            "zarr", peer, "read", path=path, slab=_SLAB, by=peer, checked=True
        )
    timings = bench.race(f"zarr {title}", entrants, workload.row_bytes)
    ours = timings.pop("recmap")
    return [compare(title, ours, peer, _TARGETS.get(name)) for name, peer in timings.items()]
