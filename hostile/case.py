"""One random case: its folder, its random choices, and its log."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

__all__ = ["AREAS", "Case", "OracleError", "Result", "run_case"]

#: The position in this list is part of the seed of a case: append only.
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
    """The reference library could not make or read the file, so the case proves nothing."""


@dataclass
class Case:
    """A case of an area. Everything random about it comes from ``rng``."""

    rng: np.random.Generator
    #: An empty folder of its own.
    folder: str
    #: What was done, for the reader of a failure.
    log: list[str] = field(default_factory=list)
    #: How the case ended: "read" or "refused".
    outcome: str = "read"

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def note(self, action: str) -> None:
        """Log an action, also to a file, in case the next one kills the process."""
        self.log.append(action)
        with open(os.path.join(self.folder, "..", "log.txt"), "a", encoding="utf-8") as file:
            file.write(action + "\n")

    def pick(self, choices: Sequence[T]) -> T:
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def between(self, low: int, high: int) -> int:
        """Draw a whole number from ``low`` to ``high``, both included."""
        return int(self.rng.integers(low, high + 1))


@dataclass(frozen=True)
class Result:
    """The result of a case."""

    area: str
    seed: int
    outcome: str
    detail: str = ""


def run_case(area: str, seed: int, folder: str) -> Case:
    """Run one case in an empty folder, and let its errors through."""
    module = import_module(f"hostile.areas.{area}")
    run: Callable[[Case], Any] = module.case
    case = Case(np.random.default_rng([AREAS.index(area), seed]), folder)
    run(case)
    return case
