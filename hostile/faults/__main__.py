"""``python -m hostile.faults``: disturb every call of every operation, and print what was found.

    python -m hostile.faults                        all operations, all calls
    python -m hostile.faults --only "overwrite"     operations whose name this pattern matches
    python -m hostile.faults --every 10             each tenth point only
    python -m hostile.faults --only "convert to npy" --call 17   the faults of one call only

The exit code is 1 if anything does not hold.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hostile.faults.examine import Examination, Result
from hostile.faults.operations import OPERATIONS, Operation
from hostile.faults.store import Store, running_stores

__all__ = ["main"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hostile.faults", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--only", default="", help="operations whose name this pattern matches")
    parser.add_argument("--every", type=int, default=1, help="only each n-th point of an operation")
    parser.add_argument("--local", action="store_true", help="no operations in a store")
    parser.add_argument(
        "--call", type=int, help="only faults of the call or request of this number"
    )
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
    return 1 if any(result.problems for result in results) else 0


@contextmanager
def _server(chosen: list[Operation], folder: str) -> Iterator[str]:
    """Run a store if an operation needs one, and yield its URL."""
    if not any(operation.in_store for operation in chosen):
        yield ""
        return
    with running_stores(Path(folder, "server")) as url:
        yield url


def _run_all(
    chosen: list[Operation], folder: str, server: str, asked: argparse.Namespace
) -> list[Result]:
    """Examine operations, several at a time."""
    waiting = iter(enumerate(chosen))
    results: dict[int, Result] = {}
    lock = threading.Lock()

    def work(place: str) -> None:
        store = Store(server) if server else None
        while True:
            with lock:
                number, operation = next(waiting, (-1, None))
            if operation is None:
                break
            os.makedirs(place, exist_ok=True)
            examination = Examination(operation, place, store if operation.in_store else None)
            for at, point in enumerate(examination.points()):
                if (at + number) % asked.every == 0 and asked.call in (None, point.number):
                    examination.examine(point)
            results[number] = examination.result
            for at, problem in examination.result.problems:
                print(f"{operation.name}, {at}: {problem}", flush=True)
        if store is not None:
            store.close()

    threads = [
        threading.Thread(target=work, args=(os.path.join(folder, str(i)),))
        for i in range(asked.workers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[number] for number in sorted(results)]


def _print(results: list[Result], seconds: float) -> None:
    print(f"{'operation':<44}{'calls':>7}{'requests':>10}{'faults':>8}{'failures':>10}")
    for result in results:
        calls, requests = result.calls.total(), result.requests.total()
        failures = len({point for point, _ in result.problems})
        print(f"{result.operation:<44}{calls:>7}{requests:>10}{result.points:>8}{failures:>10}")
    points = sum(result.points for result in results)
    failures = sum(len({point for point, _ in result.problems}) for result in results)
    print(f"{points:,} faults in {seconds:,.0f} s, {failures:,} failures")


if __name__ == "__main__":
    sys.exit(main())
