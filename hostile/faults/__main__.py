"""``python -m hostile.faults``: disturb every call of every operation, and print what was found.

    python -m hostile.faults                              all operations, all calls
    python -m hostile.faults --local                      none that needs a store
    python -m hostile.faults --only "overwrite.*zarr"     operations whose name this pattern matches
    python -m hostile.faults --only "file: npy" --call 17 the faults of one call only
    python -m hostile.faults --points 3                   a few faults of each, the same every time
    python -m hostile.faults --points 0                   none, only counts

The exit code is 1 if anything does not hold, other than what known.py lists.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hostile.faults.examine import Examination, Point, Result
from hostile.faults.known import is_known
from hostile.faults.operations import OPERATIONS, Operation
from hostile.faults.store import Store, running_server

__all__ = ["main"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hostile.faults", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--only", default="", help="operations whose name this pattern matches")
    parser.add_argument("--local", action="store_true", help="none that needs a store")
    parser.add_argument("--call", type=int, help="only the call or request with this number")
    parser.add_argument("--points", type=int, help="at most so many faults of each operation")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    chosen = [
        operation
        for operation in OPERATIONS.values()
        if re.search(asked.only, operation.name) and not (asked.local and operation.in_store)
    ]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults-") as folder, _server(chosen, folder) as server:
        results = _run_all(chosen, folder, server, asked)
    _print(results, time.monotonic() - begun)
    return 1 if any(result.failed - result.known for result in results) else 0


@contextmanager
def _server(chosen: Sequence[Operation], folder: str) -> Iterator[str]:
    """Run a store if an operation needs one, and yield its URL."""
    if not any(operation.in_store for operation in chosen):
        yield ""
        return
    with running_server(Path(folder, "server")) as url:
        yield url


def _run_all(
    chosen: Sequence[Operation], folder: str, server: str, asked: argparse.Namespace
) -> list[Result]:
    """Examine operations, several at a time."""
    waiting = iter(enumerate(chosen))
    results: dict[int, Result] = {}
    lock = threading.Lock()

    def work(place: str) -> None:
        os.makedirs(place)
        store = Store(server) if server else None
        while True:
            with lock:
                number, operation = next(waiting, (-1, None))
            if operation is None:
                return
            examination = Examination(operation, place, store if operation.in_store else None)
            for point in _selected(list(examination.points()), number, asked):
                for problem in examination.examine(point):
                    _note(f"{operation.name}, {point}: {problem}", point, examination.result)
            results[number] = examination.result

    places = [os.path.join(folder, str(number)) for number in range(asked.workers)]
    threads = [threading.Thread(target=work, args=(place,)) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(results) < len(chosen):
        raise RuntimeError("not all operations could be examined")
    return [results[number] for number in sorted(results)]


def _selected(points: list[Point], number: int, asked: argparse.Namespace) -> list[Point]:
    """Return the points to examine: all, those of a call, or a few that are spread evenly."""
    if asked.call is not None:
        points = [point for point in points if point.number == asked.call]
    if asked.points is None or len(points) <= asked.points:
        return points
    if asked.points == 0:
        return []
    # Others for each operation, so that together they are of all kinds.
    step = len(points) / asked.points
    return [points[int(step * i + number) % len(points)] for i in range(asked.points)]


def _note(problem: str, point: Point, result: Result) -> None:
    known = is_known(problem)
    (result.known if known else result.failed).add(point)
    print(f"{'known: ' if known else ''}{problem}", flush=True)


def _print(results: list[Result], seconds: float) -> None:
    """Print a line for each kind of operation."""
    heads = ("calls", "requests", "faults", "tried", "known", "failed")
    print(f"{'operation':<46}" + "".join(f"{head:>9}" for head in heads))
    for kind in dict.fromkeys(result.kind for result in results):
        some = [result for result in results if result.kind == kind]
        _print_line(kind if len(some) == 1 else f"{kind} ({len(some)} formats)", some)
    _print_line(f"all, in {seconds:,.0f} s", results)


def _counts(result: Result) -> list[int]:
    known, failed = len(result.known - result.failed), len(result.failed)
    calls, requests = len(result.calls), len(result.requests)
    return [calls, requests, result.faults, result.tried, known, failed]


def _print_line(name: str, results: Sequence[Result]) -> None:
    counts = map(_counts, results)
    sums = map(sum, zip(*counts, strict=True))
    print(f"{name:<46}" + "".join(f"{each:>9,}" for each in sums))


if __name__ == "__main__":
    sys.exit(main())
