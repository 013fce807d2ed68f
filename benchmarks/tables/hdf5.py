"""HDF5 files read in batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.bench import Bench
from benchmarks.report import Row, Table, compare
from benchmarks.workloads import MB

__all__ = ["measure"]

_NOTE = (
    "One dataset of int32, 4 KB per row, in batches of 256 rows: in chunks of 256 rows with gzip "
    "or lzf and shuffle, and contiguous, where recmap gives views of the mapped file; the memmap "
    "copy in the table Read is the limit for readers that copy. Shuffled: exact shuffles of the "
    "gzip file; with cache(), which holds the decoded rows in memory here and is filled before "
    "the clock starts. Unfiltered: the same chunks without filters, compared with recmap on an "
    ".npy file of the same rows; in order, every batch is copied into the same memory. "
    "DataLoader: a Dataset of one row of h5py at a time, shuffle=True, in 2 worker processes, of "
    "the first rows."
)
_CONTIGUOUS = "contiguous"
_OF_NPY = 0.7
_SHUFFLED_ROWS = 512  # each takes a worker a chunk


def measure(bench: Bench) -> Table:
    table = Table("HDF5", _NOTE)
    for title, compression, target in (
        ("gzip and shuffle", "gzip", 2.0),
        ("lzf and shuffle", "lzf", 2.0),
        ("unfiltered chunks", None, 2.0),
        (_CONTIGUOUS, None, None),
    ):
        table.rows += _rows(bench, title, compression, target)
    table.rows += _unfiltered(bench)
    table.rows += _shuffled(bench)
    return table


def _rows(bench: Bench, title: str, compression: str | None, target: float | None) -> list[Row]:
    workload = bench.workloads["4KB"]
    folder = bench.source(workload)
    rows, batch = int(min(workload.rows, 128 * MB / workload.row_bytes)), workload.batch
    path = _path(folder, title)
    maker = bench.worker("h5py")
    if maker.missing:
        return []
    maker.call(
        "make",
        folder=folder, path=path, rows=rows, batch=batch, compression=compression,
        chunked=title != _CONTIGUOUS,
    )  # fmt: skip
    entrants = bench.entrants("recmap", "recmap", "read", path=path, batch=batch, checked=True)
    entrants += bench.entrants("h5py", "h5py", "read", path=path, batch=batch, checked=True)
    timings = bench.race(f"hdf5 {title}", entrants, workload.row_bytes)
    ours = timings.pop("recmap")
    return [compare(title, ours, peer, target) for peer in timings.values()]


def _path(folder: str, title: str) -> str:
    return str(Path(folder, f"{title.replace(' ', '-')}.h5"))


def _unfiltered(bench: Bench) -> list[Row]:
    """Compare chunks that are bytes of the file with an .npy file."""
    workload = bench.workloads["4KB"]
    if bench.worker("h5py").missing:
        return []
    path = _path(bench.source(workload), "unfiltered chunks")
    npy = path.replace(".h5", ".npy")
    bench.worker("training").call("convert", source=path, path=npy)
    files = {"recmap": path, "recmap, .npy": npy}
    rows = []
    for order, job in (("in order", "read_copies"), ("shuffled", "train")):
        entrants = []
        for name, file in files.items():
            entrants += bench.entrants(
                "training", name, job, path=file, batch=workload.batch, column="x"
            )
        timings = bench.race(f"hdf5 unfiltered {order}", entrants, workload.row_bytes)
        case = f"unfiltered chunks, {order}"
        rows.append(compare(case, timings["recmap"], timings["recmap, .npy"], _OF_NPY))
    return rows


def _shuffled(bench: Bench) -> list[Row]:
    workload = bench.workloads["4KB"]
    path = _path(bench.source(workload), "gzip and shuffle")
    if bench.worker("h5py").missing or bench.worker("torch").missing:
        return []
    options: dict[str, Any] = {"path": path, "batch": workload.batch, "column": "x"}
    entrants = bench.entrants("training", "recmap", "train", True, **options)
    entrants += bench.entrants("training", "recmap, cache()", "train", True, cache="1GB", **options)
    entrants += bench.entrants(
        "torch", "DataLoader over h5py, 2 workers", "train_h5py_rows",
        path=path, batch=workload.batch, rows=_SHUFFLED_ROWS, workers=2, checked=True,
    )  # fmt: skip
    timings = bench.race("hdf5 shuffled", entrants, workload.row_bytes)
    theirs = timings.pop("DataLoader over h5py, 2 workers")
    titles = {"recmap": "gzip, shuffled", "recmap, cache()": "gzip, shuffled, cache()"}
    return [compare(titles[name], ours, theirs) for name, ours in timings.items()]
