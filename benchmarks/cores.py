"""``--cores``: the same work on 1, 2, 4, 8 ... CPUs of one machine."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench
from benchmarks.report import Goal, count, grid
from benchmarks.timing import Entrant
from benchmarks.workloads import MB, Workload

__all__ = ["NOTE", "cpu_counts", "measure", "table"]

NOTE = (
    "The same work in new processes that may use only so many CPUs (sched_setaffinity, as taskset "
    "does), in turns; the best run of each. Files are in the page cache and have no index; they "
    "were opened before and read once, except where a case says otherwise, and in verify and "
    "images. Every CRC is checked. A read is 262,144 rows of 40 B, 4,096 of 4 KB or 65,536 "
    "sequences of 10 to 200 int64; a batch is 65,536 rows of 40 B, 1,024 of 4 KB, 128 images, or "
    "as many as the name says. Shuffles are exact. GB/s count the values in memory."
)
_SIZE, _QUICK_SIZE = 2048 * MB, 64 * MB
# An image takes as long as so many bytes of rows, or longer.
_IMAGE_WORTH, _DIFFERENT_IMAGES = 2 * MB, 64
_IMAGE_SIZE = 224
# The targets are for this many.
_TARGET_CPUS = 16


@dataclass(frozen=True)
class Case:
    """Work to measure: a job of a worker. ``target`` is for 16 CPUs."""

    title: str
    worker: str
    job: str
    prepare: Callable[[Bench, int], tuple[dict[str, Any], float]]
    target: Goal | None = None
    checked: bool = True


def cpu_counts() -> list[int]:
    """Return 1, 2, 4, 8 ... up to the CPUs that this process may use, and their number."""
    most = len(os.sched_getaffinity(0))
    return sorted({1 << n for n in range(most.bit_length())} | {most})


def measure(bench: Bench, counts: list[int], size: int | None = None) -> list[dict[str, Any]]:
    """Measure every case on each number of CPUs; files have about ``size`` bytes of values."""
    size = size or (_QUICK_SIZE if bench.quick else _SIZE)
    return [_measured(bench, case, counts, size) for case in _cases()]


def _measured(bench: Bench, case: Case, counts: list[int], size: int) -> dict[str, Any]:
    options, row_bytes = case.prepare(bench, size)
    workers = {n: bench.fresh_worker(n, case.worker) for n in counts}
    try:
        entrants = [
            Entrant(str(n), worker, case.job, options, case.checked)
            for n, worker in workers.items()
        ]
        timings = bench.race(f"cores {case.title}", entrants, row_bytes)
    finally:
        for worker in workers.values():
            worker.close()
    return {
        "case": case.title,
        "row_bytes": row_bytes,
        "rows_per_second": {name: timing.rows_per_second for name, timing in timings.items()},
        "target": None if case.target is None else asdict(case.target),
    }


def table(measured: list[dict[str, Any]]) -> str:
    """Return rows a second by number of CPUs, as Markdown."""
    counts = list(measured[0]["rows_per_second"])
    header = ["case", *(f"{n} CPU" if n == "1" else f"{n} CPUs" for n in counts)]
    header += [
        f"GB/s on {counts[-1]}",
        f"{counts[-1]} to {counts[0]}",
        f"target, {_TARGET_CPUS} CPUs",
        "",
    ]
    return grid(header, [_cells(each) for each in measured])


def _cells(each: dict[str, Any]) -> list[str]:
    rates: dict[str, float] = each["rows_per_second"]
    first, *_, last = [*rates.values()] * 2 if len(rates) == 1 else rates.values()
    most = f"{last * each['row_bytes'] / 1e9:.3g}"
    cells = [f"{count(rate)} rows/s" for rate in rates.values()]
    return [each["case"], *cells, most, f"{last / first:.1f}x", *_verdict(each)]


def _verdict(each: dict[str, Any]) -> tuple[str, str]:
    reached = each["rows_per_second"].get(str(_TARGET_CPUS))
    if each["target"] is None:
        return "", ""
    goal = Goal(**each["target"])
    if reached is None:
        return str(goal), ""
    return str(goal), "met" if goal.met(reached, each["row_bytes"]) else "**missed**"


def _cases() -> Iterator[Case]:
    short, long = _records("40B", 1 << 18), _records("4KB", 4096)
    yield Case("read 40 B rows", "recmap", "read_again", short, Goal(500e6, "rows/s"))
    yield Case("open and read 40 B rows", "recmap", "read", short)
    yield Case("read 4 KB rows", "recmap", "read_again", long, Goal(45, "GB/s"))
    yield Case("open and read 4 KB rows", "recmap", "read", long)
    verified = _records("4KB", None)
    yield Case("verify 4 KB rows", "recmap", "verify", verified, Goal(70, "GB/s"), checked=False)
    # What takes longer gets fewer bytes.
    sequences = _records("tokens", 1 << 16, share=0.5)
    yield Case("read sequences", "recmap", "read_again", sequences, Goal(12e6, "rows/s"))
    padded = _records("text", 256, share=0.5)
    yield Case("padded batches of 256", "training", "pad_again", padded, Goal(10e6, "rows/s"))
    for name, title, batch, share, npy, tfrecord in (
        ("40B", "40 B", 1 << 16, 0.25, Goal(200e6, "rows/s"), Goal(100e6, "rows/s")),
        ("4KB", "4 KB", 1024, 1, Goal(45, "GB/s"), Goal(35, "GB/s")),
    ):
        yield Case(
            f"shuffle {title} rows, .npy", "training", "train", _arrays(name, batch, share), npy
        )
        yield Case(
            f"shuffle {title} rows, TFRecord", "training", "train",
            _records(name, batch, share, column="x"), tfrecord,
        )  # fmt: skip
    if importlib.util.find_spec("PIL"):
        yield Case("images, 500x375 to 224x224", "training", "images", _images)


def _rows(workload: Workload, size: float) -> int:
    return int(size / workload.row_bytes)


def _records(
    name: str, batch: int | None, share: float = 1, **options: Any
) -> Callable[[Bench, int], tuple[dict[str, Any], float]]:
    def prepare(bench: Bench, size: int) -> tuple[dict[str, Any], float]:
        workload = bench.workloads[name]
        path = bench.file(workload, workload.forms[0], _rows(workload, size * share))
        batches = {} if batch is None else {"batch": batch}
        return {"path": path, **batches, **options}, workload.row_bytes

    return prepare


def _arrays(
    name: str, batch: int, share: float
) -> Callable[[Bench, int], tuple[dict[str, Any], float]]:
    def prepare(bench: Bench, size: int) -> tuple[dict[str, Any], float]:
        workload = bench.workloads[name]
        path = bench.npy(workload, _rows(workload, size * share))
        return {"path": path, "batch": batch}, workload.row_bytes

    return prepare


def _images(bench: Bench, size: int) -> tuple[dict[str, Any], float]:
    path = str(Path(bench.folder, "cores.tfrecord"))
    rows = max(size // _IMAGE_WORTH, 128)
    bench.worker("training").call(
        "make_images", path=path, rows=rows, width=500, height=375, different=_DIFFERENT_IMAGES
    )
    return {"path": path, "batch": 128, "size": _IMAGE_SIZE}, 4 * _IMAGE_SIZE * _IMAGE_SIZE * 3
