"""One random case: its folder, its random choices, and its log."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

__all__ = ["AREAS", "READING_REFERENCE", "Case", "NoReferenceError", "Result", "run_case"]

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
    "arrow",
    "parquet",
    "arrow_file",
    "shown",
    "changes",
    "saves",
    "schedules",
    "loaders",
    "cached",
    "tables",
    "objects",
    "conditions",
    "sample",
    "explode",
    "windows",
    "joined",
    "nulls",
    "audio",
    "images",
    "webdataset",
    "tokens",
    "safetensors",
    "array_record",
    "text",
    "mds",
    "episodes",
    "anndata",
    "netcdf",
    "labels",
    "device_crops",
    "splits",
    "stats",
)

#: The last line of a log while the reference library reads. If it crashes on a damaged file, recmap
#: is not to blame.
READING_REFERENCE = "reading with the reference library"

T = TypeVar("T")


class NoReferenceError(Exception):
    """The reference library could not make or read the file, so the case proves nothing."""


@dataclass
class Case:
    """A case of an area. Everything random about it comes from ``rng``."""

    rng: np.random.Generator
    #: An empty folder for its files.
    folder: str
    #: What was done, to explain a failure.
    log: list[str] = field(default_factory=list)
    #: How the case ended: "read" or "refused".
    outcome: str = "read"

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def note(self, action: str) -> None:
        """Log an action, to a file as well, because the next one may kill the process."""
        self.log.append(action)
        with open(os.path.join(self.folder, "..", "log.txt"), "ab") as file:
            file.write(f"{action}\n".encode(errors="backslashreplace"))

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
    """Run one case in an empty folder; raise what it raises."""
    module = import_module(f"hostile.areas.{area}")
    run: Callable[[Case], Any] = module.case
    case = Case(np.random.default_rng([AREAS.index(area), seed]), folder)
    run(case)
    return case
