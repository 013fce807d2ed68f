"""Files that are larger than memory, read from disk: in order, and in random order."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.bench import Bench
from benchmarks.memory_limit import MemoryLimit
from benchmarks.report import Row, Table, compare
from benchmarks.timing import Entrant
from benchmarks.workloads import MB

__all__ = ["measure"]

_NOTE = (
    "Rows of 4 KB of float32 in files of {file} GB, read in processes that may have {limit} GB of "
    "memory together with their pages in the page cache (a control group of Linux, as containers "
    "have). Before each run, the file is dropped from the page cache, so it is read from disk; how "
    "fast depends on the disk and its read-ahead ({ahead}). Shuffled: batches of {batch} rows, for "
    "{seconds} seconds; all rows are numbered, and none may come twice. recmap: "
    "rm.open(path).shuffle(seed=1).batch(n). memmap: a permutation in memory, and one gather per "
    "batch. DataLoader: the same in 2 worker processes. In order: all rows, in batches of "
    "{long_batch} rows, each copied into the same memory, from rm.open on; memmap: the same of a "
    "mapped array. TFRecord: with an index, every CRC checked. pread: the bytes of the same file "
    "alone, in random rows or in blocks of 1 MB in order, by as many threads (1 to 64) as a trial "
    "found fastest. The last row is the peak of the anonymous memory of recmap's process above "
    "that of a new one after its imports, in a separate shuffle."
)
_GB = 1024 * MB
_SIZE, _LIMIT, _SECONDS = 6 * _GB, 2 * _GB, 10
_QUICK_SIZE, _QUICK_SECONDS = 3 * _GB, 2
_ROUNDS = 3
_BATCH, _LONG_BATCH = 256, 1024
_WIDTH = 1024
_PREAD_ROWS = 100_000
_TFRECORD = 0.9  # of pread, in order
_SHUFFLED, _IN_ORDER = "", ", in order"
# The module of benchmarks/jobs that each entrant is in, and its job, by what it reads.
_JOBS = {
    "recmap": ("training", {_SHUFFLED: "shuffle_larger", _IN_ORDER: "read_larger"}),
    "memmap": ("plain", {_SHUFFLED: "shuffle_larger", _IN_ORDER: "read_larger"}),
    "DataLoader, 2 workers": ("torch", {_SHUFFLED: "shuffle_larger"}),
    "pread": ("system reads", {_SHUFFLED: "at_random", _IN_ORDER: "in_order"}),
}


def measure(bench: Bench) -> Table:
    size = _QUICK_SIZE if bench.quick else _SIZE
    seconds = _QUICK_SECONDS if bench.quick else _SECONDS
    note = _NOTE.format(
        batch=_BATCH, long_batch=_LONG_BATCH, file=size // _GB, limit=_LIMIT // _GB,
        seconds=seconds, ahead=_read_ahead(bench.folder),
    )  # fmt: skip
    try:
        limit = MemoryLimit(_LIMIT)
    except OSError:
        return Table("Larger than memory", f"{note} Not measured: this needs root on Linux.")
    with limit:
        return Table("Larger than memory", note, [*_rows(bench, limit, size, seconds)])


def _rows(bench: Bench, limit: MemoryLimit, size: int, seconds: float) -> Iterator[Row]:
    title = f"4 KB rows, {size // _GB} GB in {_LIMIT // _GB} GB of memory"
    npy, tfrecord = (str(bench.folder / f"larger.{form}") for form in ("npy", "tfrecord"))
    bench.worker("plain").call("number_rows", path=npy, rows=size // (4 * _WIDTH), width=_WIDTH)
    bench.worker("training").call("convert", source=npy, path=tfrecord)
    race = functools.partial(_race, bench, limit, title, seconds)
    yield from race(_SHUFFLED, npy, ("memmap", "DataLoader, 2 workers", "pread"))
    yield from race(_IN_ORDER, npy, ("memmap", "pread"))
    yield from race(_SHUFFLED, tfrecord, ("pread",))
    yield from race(_IN_ORDER, tfrecord, ("pread",), _TFRECORD)
    with _worker(bench, limit, "training") as fresh:
        options = {"path": npy, "batch": _BATCH, "seconds": seconds, "watch": True}
        peak = fresh.call("shuffle_larger", **options).peak
    yield Row(f"{title}: memory", f"{peak / MB:.1f} MB", "", "", None)
    for path in (npy, tfrecord):
        Path(path).unlink()


def _race(
    bench: Bench,
    limit: MemoryLimit,
    title: str,
    seconds: float,
    order: str,
    path: str,
    peers: tuple[str, ...],
    target: float | None = None,
) -> Iterator[Row]:
    case = title + order + (", TFRecord" if path.endswith(".tfrecord") else "")
    with contextlib.ExitStack() as stack:
        entrants = []
        for name in ("recmap", *peers):
            module, jobs = _JOBS[name]
            worker = stack.enter_context(_worker(bench, limit, module))
            if not worker.missing:
                options = _options(name, order, seconds)
                entrants.append(Entrant(name, worker, jobs[order], {"path": path} | options))
        timings = bench.race(f"larger {case}", entrants, 4 * _WIDTH, rounds=_ROUNDS)
    ours = timings.pop("recmap")
    for peer in timings.values():
        yield compare(case, ours, peer, target)


def _options(name: str, order: str, seconds: float) -> dict[str, Any]:
    if name == "pread":
        row = {"row_bytes": 4 * _WIDTH}
        return row if order == _IN_ORDER else row | {"rows": _PREAD_ROWS}
    options: dict[str, Any] = {"batch": _LONG_BATCH if order == _IN_ORDER else _BATCH}
    if order == _SHUFFLED:
        options["seconds"] = seconds
    if name.startswith("DataLoader"):
        options["workers"] = 2
    return options


@contextlib.contextmanager
def _worker(bench: Bench, limit: MemoryLimit, module: str) -> Iterator[Any]:
    """Start a process whose memory is limited, and end it."""
    worker = bench.fresh_worker(name=module)
    try:
        limit.add(worker.process)
        yield worker
    finally:
        worker.close()


def _read_ahead(folder: Path) -> str:
    """Say how much the system reads around a page that a program touches."""
    device = folder.stat().st_dev
    for place in ("queue", "../queue"):
        file = Path(f"/sys/dev/block/{device >> 8}:{device & 255}/{place}/read_ahead_kb")
        with contextlib.suppress(OSError):
            return f"{int(file.read_text()):,} KB here"
    return "unknown here"
