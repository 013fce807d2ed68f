"""One random case: where it works, what it draws, and how it says what it found."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

__all__ = ["AREAS", "Case", "OracleError", "Tried", "run_case"]

#: In this order: the seed of a case is drawn with the area's place in this list.
AREAS = (
    "npy",
    "npz",
    "raw",
    "hdf5",
    "zarr",
    "tfrecord",
    "damage",
    "columns",
    "pipelines",
    "conversions",
    "kills",
)

T = TypeVar("T")


class OracleError(Exception):
    """The reference library itself could not make or read the file: the case says nothing."""


@dataclass
class Case:
    """A case of an area: everything random about it comes from ``rng``."""

    rng: np.random.Generator
    #: An empty folder of its own.
    folder: str
    #: What was done, step by step, for whoever reads a failure.
    trail: list[str] = field(default_factory=list)
    #: How the case ended: "read", "refused".
    outcome: str = "read"

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def say(self, step: str) -> None:
        """Notes a step, also where the next one kills the process."""
        self.trail.append(step)
        with open(os.path.join(self.folder, "..", "trail.txt"), "a", encoding="utf-8") as file:
            file.write(step + "\n")

    def pick(self, choices: Sequence[T]) -> T:
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def between(self, low: int, high: int) -> int:
        """A whole number from ``low`` to ``high``, both included."""
        return int(self.rng.integers(low, high + 1))


@dataclass(frozen=True)
class Tried:
    """What became of a case."""

    area: str
    seed: int
    outcome: str
    detail: str = ""


def run_case(area: str, seed: int, folder: str) -> Case:
    """Runs one case in an empty folder; raises what it raises."""
    module = import_module(f"hostile.areas.{area}")
    run: Callable[[Case], Any] = module.case
    case = Case(np.random.default_rng([AREAS.index(area), seed]), folder)
    run(case)
    return case
