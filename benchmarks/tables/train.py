"""Exactly shuffled batches for training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench
from benchmarks.report import Goal, Row, Table, compare, reach
from benchmarks.tables.peer_files import shufflers, tar_files
from benchmarks.timing import Entrant
from benchmarks.workloads import Workload

__all__ = ["measure"]

_NOTE = (
    "An epoch of shuffled batches of {batches} rows of float32, from an .npy file in the page "
    "cache; files are opened and datasets made before the clock starts. recmap: "
    "rm.open(path).shuffle(seed=1).batch(n), an exact shuffle. tf.data, generator: from_generator "
    "over a memmap, shuffle(10_000), batch, prefetch. tf.data, gather: a permutation in memory, "
    "map(numpy_function that gathers a batch, num_parallel_calls=2), prefetch. DataLoader: a "
    "Dataset of one row of a memmap at a time, shuffle=True, in 0 and 2 worker processes, which "
    "are started before the clock; by batches: the same with a BatchSampler and one gather per "
    "batch. Grain: ArrayRecord with one record per row, shuffle, batch, and the number of "
    "reading threads that a trial found fastest. Lance: take of a batch. datasets: shuffle(seed), "
    "then as in the table Read. ArrayRecord: read(numbers) of a batch. WebDataset: "
    "shuffle(10_000), and the rest as in the table Read. Slow loaders get fewer rows, the first "
    'ones. The rows "TFRecord" shuffle the same rows in a TFRecord file, every CRC checked, and '
    'those of "tar" shuffle them in tar files with a member for each row, all of them where '
    "WebDataset reads the first ones: with the keys of the rows, as text, or the arrays alone. "
    "Targets in rows/s and GB/s are for two cores of Neoverse-N1."
)
_WITH_TARGET = ("tf.data", "DataLoader", "Grain")
_TARGETS = {"40B": 5.0, "4KB": 5.0, "200KB": 2.0}
_GOALS = {"40B": Goal(40e6, "rows/s"), "4KB": Goal(10, "GB/s")}
_TFRECORD_GOALS = {"40B": Goal(20e6, "rows/s"), "4KB": Goal(8, "GB/s")}
_TFRECORD = "recmap, TFRecord"
_TAR, _ARRAYS = "recmap, tar", "recmap, tar, arrays alone"
_TAR_TARGET = 0.7
_BATCHES = {"40B": 1024, "4KB": 256, "200KB": 32}
# Batches for loaders that read row by row, and for slower ones: about a second of work.
_LOOP_BATCHES = 32
_SLOW_BATCHES = 4
_QUEUED_BATCHES = 512


def measure(bench: Bench) -> Table:
    chosen = [replace(bench.workloads[name], batch=_BATCHES[name]) for name in _TARGETS]
    note = _NOTE.format(batches=" / ".join(str(w.batch) for w in chosen))
    return Table("Training batches", note, [row for w in chosen for row in _rows(bench, w)])


def _rows(bench: Bench, workload: Workload) -> list[Row]:
    entrants = _entrants(bench, workload)
    timings = bench.race(f"train {workload.title}", entrants, workload.row_bytes)
    ours, target = timings.pop("recmap"), _TARGETS[workload.name]
    records = timings.pop(_TFRECORD, None)
    samples, arrays = timings.pop(_TAR, None), timings.pop(_ARRAYS, None)
    rows = [
        compare(workload.title, ours, peer, target if peer.name.startswith(_WITH_TARGET) else None)
        for peer in timings.values()
    ]
    if workload.name in _GOALS:
        rows.append(reach(workload.title, ours, _GOALS[workload.name]))
    if records is not None:
        goal = _TFRECORD_GOALS[workload.name]
        rows.append(reach(f"{workload.title}, TFRecord", records, goal))
    if samples is not None and arrays is not None:
        case, plain = f"{workload.title}, tar", replace(ours, name="recmap, .npy")
        rows.append(compare(case, samples, timings["WebDataset"]))
        rows.append(compare(case, samples, plain, _TAR_TARGET))
        rows.append(compare(f"{case}, arrays alone", arrays, plain, _TAR_TARGET))
    return rows


def _entrants(bench: Bench, workload: Workload) -> list[Entrant]:
    path = str(Path(bench.source(workload), "values.npy"))
    whole: dict[str, Any] = {"path": path, "batch": workload.batch, "checked": True}
    few = min(workload.rows, _LOOP_BATCHES * workload.batch)
    fewest = min(workload.rows, _SLOW_BATCHES * workload.batch)
    entrants = bench.entrants("training", "recmap", "train", **whole)
    entrants += bench.entrants(
        "tf training", "tf.data, generator", "train_generator", rows=fewest, **whole
    )
    entrants += bench.entrants("tf training", "tf.data, gather", "train_gather", **whole)
    for workers in (0, 2):
        entrants += bench.entrants(
            "torch", f"DataLoader, {workers} workers", "train_rows",
            rows=few, workers=workers, **whole,
        )  # fmt: skip
    # Batches that cross processes are slow, so there are fewer.
    some = min(workload.rows, _QUEUED_BATCHES * workload.batch)
    for workers, rows in ((0, workload.rows), (2, some)):
        entrants += bench.entrants(
            "torch", f"DataLoader by batches, {workers} workers", "train_batches",
            rows=rows, workers=workers, **whole,
        )  # fmt: skip
    if workload.name in _TFRECORD_GOALS:
        records = bench.file(workload, "float")
        entrants += bench.entrants(
            "training", _TFRECORD, "train",
            path=records, batch=workload.batch, column="x", checked=True,
        )  # fmt: skip
    if folder := tar_files(bench, workload, workload.rows):
        for name, alone in ((_TAR, False), (_ARRAYS, True)):
            entrants += bench.entrants(
                "training", name, "train",
                path=f"{folder}/*.tar", batch=workload.batch, column="npy", alone=alone,
                checked=True,
            )  # fmt: skip
    entrants += _grain(bench, workload, path, fewest)
    return entrants + shufflers(bench, workload, few)


def _grain(bench: Bench, workload: Workload, path: str, rows: int) -> list[Entrant]:
    worker = bench.worker("grain")
    if worker.missing:
        return []
    records = path.replace(".npy", ".arrayrecord")
    worker.call("make", source=path, path=records, rows=rows)
    return bench.entrants(
        "grain", "Grain", "train", path=records, batch=workload.batch, checked=True
    )
