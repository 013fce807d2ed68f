"""Folders of TFDS."""

from __future__ import annotations

import sys
from dataclasses import asdict

from benchmarks.bench import Bench
from benchmarks.report import Row, Table, compare
from benchmarks.workloads import MB

__all__ = ["measure"]

_NOTE = (
    "A folder of TFDS, one shard, to NumPy arrays, every CRC checked. recmap opens the folder "
    "within the time and reads batches of {batch} rows. tensorflow_datasets builds its dataset "
    "before the clock starts: tfds.as_numpy(builder.as_dataset(split)), row by row as in its "
    "guide, and of batches of {batch}. RLDS: peak of RssAnon while all steps of all episodes are "
    "read in random order, in batches of 256, in a new process; "
    "tfds: flat_map over the steps, and shuffle with a buffer for all of them."
)
_TARGET = 10.0
# Bytes of all steps; numbers in a step, steps in a batch, and the most that memory may grow.
_EPISODES, _QUICK_EPISODES = (64 * MB, 256 * MB), (4 * MB,)
_WIDTH, _BATCH, _LIMIT = 1024, 256, 100 * MB


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
    if sys.platform == "linux":  # only Linux reports the memory
        table.rows += [_steps(bench, size) for size in _QUICK_EPISODES if bench.quick]
        table.rows += [_steps(bench, size) for size in _EPISODES if not bench.quick]
    return table


def _steps(bench: Bench, size: int) -> Row:
    """Compare the memory of a shuffle of all steps of all episodes."""
    case = f"RLDS steps, {size // MB:,} MB, shuffled: memory"
    steps, folder = size // (4 * _WIDTH), str(bench.folder / f"episodes-{size}")
    bench.worker("tfds").call("make_episodes", path=folder, steps=steps, width=_WIDTH)
    path, peaks = f"{folder}/episodes/1.0.0", []
    for name, options in (("recmap", {}), ("tfds", {"steps": steps})):
        worker = bench.fresh_worker(name=name)
        try:
            run = worker.call("shuffle_steps", path=path, batch=_BATCH, **options)
        finally:
            worker.close()
        bench.races.append({"case": f"{case}, {name}", **asdict(run)})
        peaks.append(run.peak)
    ours, theirs = peaks
    shown = f"{ours / MB:.1f} MB", "tfds", f"{theirs / MB:.1f} MB"
    target = f"< {_LIMIT // MB} MB"
    return Row(case, *shown, theirs / max(1, ours), target, ours < _LIMIT)
