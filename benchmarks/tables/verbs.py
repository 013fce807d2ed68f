"""Verbs of rows: finding, drawing, saving and caching."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench import Bench
from benchmarks.report import Row, Table, compare
from benchmarks.tasks import CROP, SHAPE
from benchmarks.timing import Entrant
from benchmarks.workloads import MB

__all__ = ["measure"]

_NOTE = (
    "where: the rows of a file with one of 1,000 labels, from rm.open on. NumPy: "
    "np.flatnonzero(x == 3) of a mapped .npy file. datasets: filter of batches of NumPy arrays, "
    "in one process and in two, not cached. Lance: a scan for row numbers with a filter. A "
    "TFRecord file with its index is compared with reading the column of labels of the same file; "
    "its rows hold {width} floats, too. sample: an epoch of draws, compared with an epoch of "
    "shuffle of the same .npy file of 4 KB rows, in batches of {batch}. map and save: a NumPy "
    "function of images (see Augmentation) in 2 worker processes, saved as four .npy files, "
    "which are not verified, compared with iterating over the same batches; fsync is never called. "
    "cache: an epoch of "
    'rm.open("x.h5").cache().shuffle(seed=1), an exact shuffle of 4 KB rows in chunks with gzip '
    "and shuffle, in batches of {batch}. The first epoch, which fills the cache, is compared with "
    "a pass in order over the same file and an epoch of shuffle of an .npy file of the same size; "
    "later epochs with that shuffle alone."
)
_WIDTH, _BATCH, _IMAGES = 256, 256, 32
_LABEL = 3


def measure(bench: Bench) -> Table:
    rows = [*_where(bench), *_where_in_records(bench), *_sample(bench), *_save(bench)]
    rows += _cache(bench)
    return Table("Verbs", _NOTE.format(width=_WIDTH, batch=_BATCH), rows)


def _where(bench: Bench) -> list[Row]:
    count = 1_000_000 if bench.quick else 100_000_000
    path = str(bench.folder / "labels.npy")
    bench.worker("verbs").call("make_labels", path=path, rows=count)
    found: dict[str, Any] = {"path": path, "value": _LABEL}
    entrants = [
        *bench.entrants("verbs", "recmap", "where", column="data", **found),
        *bench.entrants("plain", "NumPy", "find", **found),
    ]
    entrants += _peer(bench, "lance", "Lance", path)
    entrants += _peer(bench, "datasets", "datasets", path, processes=1)
    entrants += _peer(bench, "datasets", "datasets, 2 processes", path, processes=2)
    timings = bench.race("where, integers", entrants, 4)
    ours = timings.pop("recmap")
    targets = {"NumPy": 0.7, "Lance": 1.0}
    case = f"where, {count:,} integers"
    return [compare(case, ours, each, targets.get(each.name, 10)) for each in timings.values()]


def _peer(bench: Bench, worker: str, name: str, labels: str, **options: Any) -> list[Entrant]:
    runner, path = bench.worker(worker), str(bench.folder / f"labels.{worker}")
    if runner.missing is None:
        runner.call("make_labels", source=labels, path=path)
    return bench.entrants(worker, name, "find", path=path, value=_LABEL, **options)


def _where_in_records(bench: Bench) -> list[Row]:
    count = 20_000 if bench.quick else 500_000
    path = str(bench.folder / "labelled.tfrecord")
    bench.worker("verbs").call("make_labelled", path=path, rows=count, width=_WIDTH)
    entrants = [
        *bench.entrants("verbs", "where", "where", path=path, column="label", value=_LABEL),
        *bench.entrants("verbs", "reading the column", "read_column", path=path, column="label"),
    ]
    timings = bench.race("where, TFRecord", entrants, 4 * _WIDTH + 8)
    return [compare("where, TFRecord", timings["where"], timings["reading the column"], 1.0)]


def _sample(bench: Bench) -> list[Row]:
    path = str(Path(bench.source(bench.workloads["4KB"]), "values.npy"))
    entrants = [
        entrant
        for verb in ("shuffle", "sample", "weights")
        for entrant in bench.entrants("verbs", verb, "draw", path=path, batch=_BATCH, verb=verb)
    ]
    timings = bench.race("sample", entrants, bench.workloads["4KB"].row_bytes)
    shuffle = timings.pop("shuffle")
    titles = {"sample": "sample, every row alike", "weights": "sample by weights"}
    return [compare(titles[name], each, shuffle, 0.8) for name, each in timings.items()]


def _save(bench: Bench) -> list[Row]:
    path = bench.folder / "frames.npy"
    count = 128 if bench.quick else 4096
    np.save(path, np.random.default_rng(0).random((count, *SHAPE), np.float32))
    output = str(bench.folder / "mapped")
    entrants = [
        *bench.entrants("verbs", "saved", "map_and_save", path=str(path), output=output, workers=2),
        *bench.entrants(
            "verbs", "iterating", "map_and_iterate", path=str(path), batch=_IMAGES, workers=2
        ),
    ]
    timings = bench.race("map and save", entrants, 4 * CROP * CROP * SHAPE[2])
    return [compare("map and save", timings["saved"], timings["iterating"], 0.9)]


def _cache(bench: Bench) -> list[Row]:
    workload = bench.workloads["4KB"]
    folder = bench.source(workload)
    rows = int(min(workload.rows, 128 * MB / workload.row_bytes))
    path, array = str(bench.folder / "cached.h5"), str(Path(folder, "values.npy"))
    maker = bench.worker("h5py")
    if maker.missing:
        return []
    maker.call("make", folder=folder, path=path, rows=rows, batch=_BATCH, compression="gzip")
    cached: dict[str, Any] = {"path": path, "batch": _BATCH, "cache": str(bench.folder / "cache")}
    plain: dict[str, Any] = {"path": path, "array": array, "batch": _BATCH}
    entrants = [
        *bench.entrants("verbs", "first", "cached_epoch", first=True, **cached),
        *bench.entrants("verbs", "in order, then .npy", "separate", in_order=True, **plain),
        *bench.entrants("verbs", "later", "cached_epoch", first=False, **cached),
        *bench.entrants("verbs", ".npy", "separate", in_order=False, **plain),
    ]
    timings = bench.race("cache", entrants, workload.row_bytes)
    return [
        compare("cache, first epoch", timings["first"], timings["in order, then .npy"], 0.67),
        compare("cache, later epochs", timings["later"], timings[".npy"], 0.9),
    ]
