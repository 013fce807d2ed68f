"""A benchmark run: its folder, its workers, and the timings of its races."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.machine import IdleWait
from benchmarks.timing import SAME_VALUES, Entrant, Timing, race
from benchmarks.worker import Worker
from benchmarks.workloads import Workload, make, workloads

__all__ = ["Bench"]

# The modules of benchmarks/jobs by worker.
_MODULES = {
    "recmap": "recmap_files",
    "plain": "numpy_and_system",
    "system reads": "system_reads",
    "h5py": "h5py_files",
    "zarr": "zarr_arrays",
    "tensorflow": "tensorflow_files",
    "tfrecord": "tfrecord_package",
    "training": "recmap_training",
    "verbs": "recmap_verbs",
    "tf training": "tensorflow_training",
    "torch": "torch_training",
    "torch device": "torch_device",
    "torch loader": "torch_device",  # apart from recmap: it forks
    "jax device": "jax_device",
    "grain": "grain_training",
    "ray": "ray_cluster",
    "lance": "lance_files",
    "datasets": "hugging_face_datasets",
    "array_record": "array_record_files",
    "rapidgzip": "rapidgzip_streams",
    "pyarrow": "pyarrow_files",
    "tfds": "tfds_folders",
    "webdataset": "webdataset_shards",
    "spdl": "spdl_images",
    "simplejpeg": "simplejpeg_images",
    "questions": "example_programs",
    "stores": "recmap_stores",
    "obstore": "obstore_gets",
    "s3fs": "s3fs_gets",
    "litdata": "litdata_chunks",
    "dlio": "dlio_workloads",
    # One process each: the frameworks must not disturb each other.
    "adapter plain_iterator": "recmap_training",
    "adapter to_tf": "recmap_training",
    "adapter to_torch": "recmap_training",
}


class Bench:
    """What the tables share. Files are made in ``folder`` when they are first needed."""

    def __init__(self, folder: Path, quick: bool, rounds: int, idle: IdleWait) -> None:
        self.folder = folder
        self.quick = quick
        self.rounds = rounds
        self.idle = idle
        self.workloads = workloads(quick)
        self.races: list[dict[str, Any]] = []
        self._workers: dict[str, Worker] = {}

    def worker(self, name: str) -> Worker:
        """Return the worker of that name, and start it if needed."""
        if name not in self._workers:
            self._workers[name] = Worker(_MODULES[name])
        return self._workers[name]

    def fresh_worker(self, cores: int | None = None, name: str = "recmap") -> Worker:
        """Start a new worker; the caller closes it."""
        return Worker(_MODULES[name], cores)

    def entrants(
        self, worker: str, name: str, job: str, checked: bool = False, **options: Any
    ) -> list[Entrant]:
        """Return one entrant, or none if its package is not installed."""
        runner = self.worker(worker)
        return [] if runner.missing else [Entrant(name, runner, job, options, checked)]

    def race(
        self,
        case: str,
        entrants: Sequence[Entrant],
        row_bytes: float,
        tolerance: float = SAME_VALUES,
        rounds: int | None = None,
    ) -> dict[str, Timing]:
        """Run a race and return the timings by entrant; they are kept for the raw numbers.

        Fewer ``rounds`` than others are for races that take long.
        """
        self.idle.flush()
        begin = time.perf_counter()
        timings = race(
            entrants, row_bytes, min(rounds or self.rounds, self.rounds), self.idle, tolerance
        )
        print(f"{case}: {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)
        self.races.append(
            {
                "case": case,
                "entrants": [asdict(timing) for timing in timings.values()],
            }
        )
        return timings

    def source(self, workload: Workload) -> str:
        """Return the folder with the values of a workload."""
        folder = self.folder / workload.name
        if not folder.exists():
            make(workload, folder)
        return str(folder)

    def file(self, workload: Workload, form: str, rows: int | None = None, **options: Any) -> str:
        """Return a TFRecord file of a workload, without an index unless ``index=True``."""
        rows = rows or workload.rows
        parts = [form, str(rows), *(f"{key}-{value}" for key, value in options.items())]
        path = Path(self.source(workload), "_".join(parts) + ".tfrecord")
        if not path.exists():
            self.worker("recmap").call(
                "make", source=str(path.parent), form=form, path=str(path), rows=rows, **options
            )
        return str(path)

    def npy(self, workload: Workload, rows: int) -> str:
        """Return an .npy file of a workload with more rows: its own, repeated."""
        path = Path(self.source(workload), f"{rows}.npy")
        if not path.exists():
            self.worker("plain").call(
                "repeat", source=str(path.parent / "values.npy"), path=str(path), rows=rows
            )
        return str(path)

    def shards(self, workload: Workload, form: str, count: int) -> str:
        """Return a pattern for the TFRecord files of a workload."""
        folder = Path(self.source(workload), f"{form}_in_{count}")
        if not folder.exists():
            folder.mkdir()
            self.worker("recmap").call(
                "make",
                source=str(folder.parent),
                form=form,
                path=str(folder / "rows.tfrecord"),
                rows=workload.rows,
                shards=count,
            )
        return str(folder / "*.tfrecord")

    def scratch(self, name: str) -> str:
        """Return a path for a file that a job writes and deletes."""
        return str(self.folder / f"scratch-{name}.tfrecord")

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers.values():
            worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
