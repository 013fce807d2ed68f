"""Runs cases in worker processes, and keeps those that failed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from hostile.case import READING_REFERENCE, Result

__all__ = ["Report", "run"]

# A worker must find this package from any folder.
_PATHS = [os.environ.get("PYTHONPATH"), str(Path(__file__).parent.parent)]


@dataclass
class Report:
    """The number of cases by area and outcome, and those that failed."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    failures: list[Result] = field(default_factory=list)

    def add(self, result: Result) -> None:
        self.counts.setdefault(result.area, Counter())[result.outcome] += 1
        if result.outcome == "failed":
            self.failures.append(result)


def run(
    areas: Sequence[str], seconds: float, first: int, limit: float, workers: int, keep: str
) -> Report:
    """Run cases of the areas in turn until the time is up."""
    report, lock = Report({area: Counter() for area in areas}), threading.Lock()
    end = time.monotonic() + seconds
    cases = _cases(areas, first, keep)

    def work() -> None:
        with _Worker(limit) as worker:
            over = False
            while not over:
                with lock:
                    area, seed = next(cases)
                result = worker.run(area, seed)
                with lock:
                    report.add(result)
                    _keep(result, keep)
                over = time.monotonic() >= end

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return report


def _cases(areas: Sequence[str], first: int, keep: str) -> Iterator[tuple[str, int]]:
    """Yield the cases that failed before, then new ones forever."""
    for path in sorted(Path(keep).glob("*.txt")) if os.path.isdir(keep) else ():
        area, _, number = path.stem.rpartition("-")
        if area in areas:
            yield area, int(number)
    seed = first
    while True:
        for area in areas:
            yield area, seed
        seed += 1


def _keep(result: Result, keep: str) -> None:
    """Keep a failure until its case passes."""
    path = Path(keep, f"{result.area}-{result.seed}.txt")
    if result.outcome == "failed":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(result.detail.encode(errors="backslashreplace"))
    elif path.exists():
        path.unlink()


class _Worker:
    """A process that runs cases; if it dies, another one is started."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hostile.worker", str(self._limit)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, _PATHS))},
        )
        self._root = self._answer()["root"]

    def _answer(self) -> dict[str, str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):  # libraries may print other lines
                answer: dict[str, str] = json.loads(line)
                return answer
        return {}

    def run(self, area: str, seed: int) -> Result:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{area} {seed}\n")
        self._process.stdin.flush()
        answer = self._answer()
        log = self._text("log.txt")
        if answer:
            detail = f"{log}\n{answer['detail']}" if answer["detail"] else ""
            return Result(area, seed, answer["outcome"], detail)
        stack = self._text("stack.txt")
        code = self._end()
        self._start()
        outcome = "no reference" if log.strip().endswith(READING_REFERENCE) else "failed"
        return Result(area, seed, outcome, f"{log}\n{stack}\nthe process exited with code {code}")

    def _text(self, name: str) -> str:
        return Path(self._root, name).read_text(encoding="utf-8", errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> int:
        """End the process, and return its exit code."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()
        shutil.rmtree(self._root, ignore_errors=True)
        return self._process.returncode
