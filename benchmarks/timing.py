"""Races: several entrants do the same work in turns, and the best run of each counts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from benchmarks.machine import IdleWait

__all__ = [
    "SAME_VALUES",
    "Clock",
    "DifferentDataError",
    "Entrant",
    "Measure",
    "Runner",
    "Timing",
    "fastest",
    "race",
]

_Choice = TypeVar("_Choice")

# How far the sums of the same values may differ, relative to them.
SAME_VALUES = 1e-6

# A fast entrant repeats its run within a turn until this many seconds have passed.
_TURN_SECONDS = 0.3
_TURN_RUNS = 4


class DifferentDataError(Exception):
    """Two entrants of a race read different values."""


@dataclass(frozen=True)
class Measure:
    """One run of a job.

    ``check`` is the sum of the values it read, if asked for. ``cpu`` is the processor time, in
    seconds, of the job's process and those that it started. ``memory`` has the memory in use, as
    pairs of seconds and bytes; ``peak`` is its maximum.
    """

    seconds: float
    rows: int
    check: float | None = None
    cpu: float = 0.0
    peak: int = 0
    memory: list[tuple[float, int]] = field(default_factory=list)


class Clock:
    """Measure a ``with`` block."""

    seconds = 0.0

    def __enter__(self) -> Self:
        self._begin = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.seconds = time.perf_counter() - self._begin


class Runner(Protocol):
    """Runs jobs by name, as a worker process does."""

    def call(self, job: str, **options: Any) -> Measure: ...


@dataclass(frozen=True)
class Entrant:
    """A participant in a race: a job, its options, and the worker that runs it.

    With ``checked``, its first run, which is not timed, sums what it reads.
    """

    name: str
    runner: Runner
    job: str
    options: dict[str, Any]
    checked: bool = False


@dataclass
class Timing:
    """All timed runs of one entrant. ``row_bytes`` is the size of a row's values in memory."""

    name: str
    row_bytes: float
    runs: list[Measure] = field(default_factory=list)

    @property
    def best(self) -> Measure:
        # Jobs that end after some time differ in their rows.
        return max(self.runs, key=lambda run: run.rows / run.seconds)

    @property
    def rows_per_second(self) -> float:
        return self.best.rows / self.best.seconds

    @property
    def bytes_per_second(self) -> float:
        return self.rows_per_second * self.row_bytes

    @property
    def cpu_per_gigabyte(self) -> float:
        """Processor time in seconds, of all runs: that of a short one is only known roughly."""
        rows = sum(run.rows for run in self.runs)
        return sum(run.cpu for run in self.runs) / (rows * self.row_bytes / 1e9)


def fastest(choices: Iterable[_Choice], run: Callable[[_Choice], Measure]) -> _Choice:
    """Return the choice that is fastest, in the better of two runs each."""
    return min(choices, key=lambda choice: min(run(choice).seconds for _ in range(2)))


def race(
    entrants: Sequence[Entrant],
    row_bytes: float,
    rounds: int,
    idle: IdleWait,
    tolerance: float = SAME_VALUES,
) -> dict[str, Timing]:
    """Run the entrants in turns, so that a disturbance of the machine affects all of them.

    The first run of each is a warm-up. Entrants that read the same number of rows must read
    the same values: sums may differ by ``tolerance``, relative to them.
    """
    timings = {entrant.name: Timing(entrant.name, row_bytes) for entrant in entrants}
    _warm_up(entrants, tolerance)
    for turn in range(rounds):
        # Change the order, so that no entrant always follows the same one.
        shift = turn % len(entrants)
        for entrant in (*entrants[shift:], *entrants[:shift]):
            idle.wait()
            timings[entrant.name].runs += _turn(entrant)
    return timings


def _warm_up(entrants: Sequence[Entrant], tolerance: float) -> None:
    seen: dict[int, tuple[str, float]] = {}
    for entrant in entrants:
        options = entrant.options | ({"check": True} if entrant.checked else {})
        run = entrant.runner.call(entrant.job, **options)
        if run.check is None:
            continue
        name, check = seen.setdefault(run.rows, (entrant.name, run.check))
        if not math.isclose(check, run.check, rel_tol=tolerance):
            raise DifferentDataError(
                f"{entrant.name} read {run.rows:,} rows of sum {run.check}, {name} of sum {check}"
            )


def _turn(entrant: Entrant) -> list[Measure]:
    runs: list[Measure] = []
    while len(runs) < _TURN_RUNS and sum(run.seconds for run in runs) < _TURN_SECONDS:
        runs.append(entrant.runner.call(entrant.job, **entrant.options))
    return runs
