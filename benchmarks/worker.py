"""Processes that run jobs, one per package.

TensorFlow and the tfrecord package cannot share a process, and the threads and allocator of
one package must not disturb another.

The parent writes one line of JSON per job; the child answers each with another.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TextIO

import psutil

from benchmarks.timing import Measure

__all__ = ["Worker", "WorkerError"]

_ROOT = Path(__file__).resolve().parents[1]


class WorkerError(Exception):
    """A job failed; the message is the traceback in the worker."""


class Worker:
    """A process that runs the ``JOBS`` of one module of benchmarks/jobs.

    ``cores`` limits it to that many CPUs (Linux). ``missing`` is the name of a package that
    the module could not import; then no job can run.
    """

    def __init__(self, module: str, cores: int | None = None) -> None:
        self.module = module
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", module, str(cores or 0)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # TensorFlow logs about GPU drivers there.
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=_ROOT,
        )
        self.missing: str | None = self._answer().get("missing")

    @property
    def process(self) -> int:
        """Its number."""
        return self._process.pid

    def call(self, job: str, **options: Any) -> Measure:
        """Run a job and wait for it."""
        assert self._process.stdin is not None
        before = self._cpu_seconds()
        print(json.dumps({"job": job, "options": options}), file=self._process.stdin, flush=True)
        return replace(Measure(**self._answer()), cpu=self._cpu_seconds() - before)

    def _cpu_seconds(self) -> float:
        """Return the processor time of the process and of those that it started."""
        process = psutil.Process(self._process.pid)
        total = 0.0
        for each in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended just now
                total += sum(each.cpu_times()[:4])  # its own, and that of children that ended
        return total

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise WorkerError(f"{self.module}: the worker exited with code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(f"{self.module}: {answer['error']}")
        return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def _serve(module: str, cores: int) -> None:
    # Keep the output of libraries out of the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    try:
        imported = importlib.import_module(f"benchmarks.jobs.{module}")
    except ModuleNotFoundError as error:
        _send(answers, {"missing": error.name})
        return
    jobs: dict[str, Callable[..., Measure]] = imported.JOBS
    _send(answers, {})
    for line in sys.stdin:
        order = json.loads(line)
        gc.collect()
        try:
            _send(answers, asdict(jobs[order["job"]](**order["options"])))
        except Exception:
            _send(answers, {"error": traceback.format_exc()})


def _send(answers: TextIO, answer: dict[str, Any]) -> None:
    print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
