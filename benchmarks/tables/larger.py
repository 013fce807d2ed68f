"""Shuffled batches of a file that is larger than memory."""

from __future__ import annotations

import contextlib
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.memory_limit import MemoryLimit
from benchmarks.report import Row, Table, compare
from benchmarks.timing import Entrant
from benchmarks.workloads import MB

__all__ = ["measure"]

_NOTE = (
    "Shuffled batches of {batch} rows of float32, from an .npy file of {file} GB, for {seconds} "
    "seconds, in processes that may have {limit} GB of memory together with their pages in the "
    "page cache (a control group of Linux, as containers have). Before each run, the file is "
    "dropped from the page cache, so it is read from disk; how fast depends on the disk and its "
    "read-ahead ({ahead}). recmap: rm.open(path).shuffle(seed=1).batch(n). memmap: a permutation "
    "in memory, and one gather per batch. DataLoader: the same in 2 worker processes. All rows "
    "are numbered, and none may come twice. The last row is the peak of the anonymous memory of "
    "recmap's process above that of a new one after its imports, in a separate run."
)
_GB = 1024 * MB
_SIZE, _LIMIT, _SECONDS = 6 * _GB, 2 * _GB, 10
_QUICK_SIZE, _QUICK_SECONDS = 3 * _GB, 2
_ROUNDS = 3
_BATCH = 256
_WIDTH = 1024
# The module of benchmarks/jobs that each entrant is in, and its options.
_ENTRANTS = {
    "recmap": ("training", {}),
    "memmap": ("plain", {}),
    "DataLoader, 2 workers": ("torch", {"workers": 2}),
}


def measure(bench: Bench) -> Table:
    size = _QUICK_SIZE if bench.quick else _SIZE
    seconds = _QUICK_SECONDS if bench.quick else _SECONDS
    note = _NOTE.format(
        batch=_BATCH, file=size // _GB, limit=_LIMIT // _GB, seconds=seconds,
        ahead=_read_ahead(bench.folder),
    )  # fmt: skip
    try:
        limit = MemoryLimit(_LIMIT)
    except OSError:
        return Table("Larger than memory", f"{note} Not measured: this needs root on Linux.")
    with limit:
        return Table("Larger than memory", note, _rows(bench, limit, size, seconds))


def _rows(bench: Bench, limit: MemoryLimit, size: int, seconds: float) -> list[Row]:
    case = f"4 KB rows, {size // _GB} GB in {_LIMIT // _GB} GB of memory"
    path = str(bench.folder / "larger.npy")
    bench.worker("plain").call("number_rows", path=path, rows=size // (4 * _WIDTH), width=_WIDTH)
    options = {"path": path, "batch": _BATCH, "seconds": seconds}
    with contextlib.ExitStack() as stack:
        entrants = []
        for name, (module, own) in _ENTRANTS.items():
            worker = bench.fresh_worker(name=module)
            stack.callback(worker.close)
            limit.add(worker.process)
            if not worker.missing:
                entrants.append(Entrant(name, worker, "shuffle_larger", options | own))
        timings = bench.race(f"larger {case}", entrants, 4 * _WIDTH, rounds=_ROUNDS)
        fresh = bench.fresh_worker(name="training")
        stack.callback(fresh.close)
        limit.add(fresh.process)
        peak = fresh.call("shuffle_larger", **options, watch=True).peak
    Path(path).unlink()
    ours = timings.pop("recmap")
    rows = [compare(case, ours, peer) for peer in timings.values()]
    return [*rows, Row(f"{case}: memory", f"{peak / MB:.1f} MB", "", "", None)]


def _read_ahead(folder: Path) -> str:
    """Say how much the system reads around a page that a program touches."""
    device = folder.stat().st_dev
    for place in ("queue", "../queue"):
        file = Path(f"/sys/dev/block/{device >> 8}:{device & 255}/{place}/read_ahead_kb")
        with contextlib.suppress(OSError):
            return f"{int(file.read_text()):,} KB here"
    return "unknown here"
