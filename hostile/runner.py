"""Hands cases to worker processes, and keeps what failed."""

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

from hostile.case import Tried

__all__ = ["Report", "run"]

# A reference library that crashes on a damaged file says nothing about recmap.
_ORACLE = "oracle"
# Where a worker finds this package, wherever it is started.
_PATHS = [os.environ.get("PYTHONPATH"), str(Path(__file__).parent.parent)]


@dataclass
class Report:
    """How many cases of each area ended how, and those that failed."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    failures: list[Tried] = field(default_factory=list)

    def add(self, tried: Tried) -> None:
        self.counts.setdefault(tried.area, Counter())[tried.outcome] += 1
        if tried.outcome == "failed":
            self.failures.append(tried)


def run(
    areas: Sequence[str], seconds: float, first: int, limit: float, workers: int, keep: str
) -> Report:
    """Tries cases of the areas in turn until the time is over."""
    report, lock = Report({area: Counter() for area in areas}), threading.Lock()
    end = time.monotonic() + seconds
    cases = _cases(areas, first, keep)

    def work() -> None:
        with _Worker(limit) as worker:
            over = False
            while not over:
                with lock:
                    area, seed = next(cases)
                tried = worker.run(area, seed)
                with lock:
                    report.add(tried)
                    _keep(tried, keep)
                over = time.monotonic() >= end

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return report


def _cases(areas: Sequence[str], first: int, keep: str) -> Iterator[tuple[str, int]]:
    """Those that failed before, then new ones without end."""
    for path in sorted(Path(keep).glob("*.txt")) if os.path.isdir(keep) else ():
        area, _, number = path.stem.rpartition("-")
        if area in areas:
            yield area, int(number)
    seed = first
    while True:
        for area in areas:
            yield area, seed
        seed += 1


def _keep(tried: Tried, keep: str) -> None:
    """A failure stays until its case passes."""
    path = Path(keep, f"{tried.area}-{tried.seed}.txt")
    if tried.outcome == "failed":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(tried.detail)
    elif path.exists():
        path.unlink()


class _Worker:
    """A process that tries cases; another one is started when it dies."""

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
            if line.startswith("{"):  # a library may print, too
                answer: dict[str, str] = json.loads(line)
                return answer
        return {}

    def run(self, area: str, seed: int) -> Tried:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{area} {seed}\n")
        self._process.stdin.flush()
        answer = self._answer()
        trail = self._text("trail.txt")
        if answer:
            detail = f"{trail}\n{answer['detail']}" if answer["detail"] else ""
            return Tried(area, seed, answer["outcome"], detail)
        stack = self._text("stack.txt")
        code = self._end()
        self._start()
        outcome = "no reference" if trail.strip().endswith(_ORACLE) else "failed"
        return Tried(area, seed, outcome, f"{trail}\n{stack}\nthe process ended with {code}")

    def _text(self, name: str) -> str:
        return Path(self._root, name).read_text(encoding="utf-8", errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> int:
        """Lets the process end, and how it did."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()
        shutil.rmtree(self._root, ignore_errors=True)
        return self._process.returncode
