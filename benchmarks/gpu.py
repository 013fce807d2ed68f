"""``--gpu``: batches from files to a GPU, compared with the link itself and with a DataLoader."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

from benchmarks.bench import Bench
from benchmarks.report import Goal, Row, Table, compare
from benchmarks.timing import Entrant, Timing
from benchmarks.workloads import MB

__all__ = ["find_gpu", "measure"]

_NOTE = (
    "An epoch of batches of rows of 4 KB as float32 tensors on the GPU; files are in the page "
    "cache and opened before the clock starts, which stops when the last batch has arrived. "
    'recmap: to_torch(device="cuda", prefetch=2), shuffled exactly from an .npy file, or in order '
    "from a TFRecord file with every CRC checked; every batch is hashed on the GPU before the "
    "measurement, and compared. Pinned copy: one page-locked batch, copied again and again, the "
    "limit of the link. DataLoader: one gather of a memmap per batch, pin_memory=True, "
    'to("cuda", non_blocking=True), with the number of workers that a trial found fastest. '
    "Without a device: the same pipeline, as NumPy arrays."
)
_SIZE, _QUICK_SIZE = 4096 * MB, 64 * MB
_BATCHES = (16 * MB, 64 * MB)
# With 16 CPUs and a link of 55 GB/s; shuffled, and in order.
_TARGETS = {True: Goal(40, "GB/s"), False: Goal(30, "GB/s")}


def find_gpu() -> str | None:
    """Return the name of the GPU that PyTorch uses, or None if there is none."""
    program = (
        "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    print(found.stderr, end="", file=sys.stderr)
    return found.stdout.strip() or None


def measure(
    bench: Bench, device: str = "cuda", size: int | None = None, batches: tuple[int, ...] = _BATCHES
) -> Table:
    """Measure batches of each size, in bytes, to ``device``."""
    size = size or (_QUICK_SIZE if bench.quick else _SIZE)
    jax = _jax_device(bench, device)
    table = Table("Batches to a GPU", _NOTE)
    for batch_bytes in batches:
        for shuffled in (True, False):
            table.rows += _rows(bench, device, jax, size, batch_bytes, shuffled)
    return table


def _jax_device(bench: Bench, device: str) -> str | None:
    """Return what JAX calls the device, or None if JAX does not use it."""
    platform = {"cuda": "gpu"}.get(device, device)
    worker = bench.worker("jax device")
    if worker.missing:
        return None
    return platform if worker.call("devices", platform=platform).rows else None


def _rows(
    bench: Bench, device: str, jax: str | None, size: int, batch_bytes: int, shuffled: bool
) -> list[Row]:
    workload = bench.workloads["4KB"]
    rows, batch = int(size / workload.row_bytes), int(batch_bytes / workload.row_bytes)
    path = bench.npy(workload, rows) if shuffled else bench.file(workload, "float", rows)
    files: dict[str, Any] = {"path": path, "batch": batch, "checked": True}
    ordered: dict[str, Any] = {**files, "shuffled": shuffled}
    entrants = bench.entrants("torch device", "recmap", "recmap_batches", device=device, **ordered)
    entrants += bench.entrants(
        "torch device", "pinned copy", "pinned_copy",
        rows=rows, batch=batch, width=workload.width, device=device,
    )  # fmt: skip
    if shuffled:
        entrants += bench.entrants(
            "torch loader", "DataLoader", "loader_batches", device=device, **files
        )
    entrants += bench.entrants(
        "torch device", "recmap, without a device", "host_batches", **ordered
    )
    if jax is not None:
        entrants += bench.entrants(
            "jax device", "recmap, to_jax()", "recmap_batches", device=jax, **ordered
        )
    return _compared(bench, entrants, batch_bytes, shuffled)


def _compared(bench: Bench, entrants: list[Entrant], batch_bytes: int, shuffled: bool) -> list[Row]:
    way = ".npy, shuffled" if shuffled else "TFRecord, checked"
    case = f"{way}, batches of {batch_bytes // MB} MB"
    timings = bench.race(f"gpu {case}", entrants, bench.workloads["4KB"].row_bytes)
    ours = timings.pop("recmap")
    return [_row(case, ours, peer, _TARGETS[shuffled]) for peer in timings.values()]


def _row(case: str, ours: Timing, peer: Timing, target: Goal) -> Row:
    row = compare(case, ours, peer)
    if peer.name != "pinned copy":
        return row
    met = target.met(ours.rows_per_second, ours.row_bytes)
    return replace(row, target=str(target), met=met)
