"""DLIO, which runs the data loading of known training jobs, without the training."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.timing import Clock, Measure

for _package in ("dlio_benchmark", "dftracer", "mpi4py"):
    importlib.import_module(_package)

__all__ = ["JOBS"]

_READERS = "benchmarks.jobs.dlio_readers"
# What each workload reads with recmap: options of DLIO.
_WITH_RECMAP = {
    "npz": {"reader_classname": f"{_READERS}.MemberReader"},
    "tfrecord": {
        "data_loader_classname": f"{_READERS}.BatchLoader",
        "data_loader_sampler": "iterative",
    },
}
_ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
# Open MPI refuses to run as root without these.
_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# Makes an index that only DALI reads, and comes with it.
_INDEXER = "tfrecord2idx"


def make(workload: str, path: str, files: int, **dataset: int) -> Measure:
    """Let DLIO write the files of a workload."""
    with tempfile.TemporaryDirectory() as folder:
        indexer = Path(folder, _INDEXER)
        indexer.write_text('#!/bin/sh\n: > "$2"\n')
        indexer.chmod(0o755)
        options = {f"dataset.{name}": value for name, value in dataset.items()}
        with Clock() as clock:
            _run(workload, path, files, folder, generate=True, **options)
    return Measure(clock.seconds, files)


def train(
    workload: str, path: str, files: int, samples: int, batch: int, epochs: int, reader: str = ""
) -> Measure:
    """Run a workload, and return its fastest epoch. ``reader`` is a format to read with recmap."""
    readers = _WITH_RECMAP[reader] if reader else {}
    options = {f"reader.{name}": value for name, value in readers.items()}
    with tempfile.TemporaryDirectory() as folder:
        _run(
            workload, path, files, folder, generate=False,
            **{"reader.batch_size": batch, "dataset.num_samples_per_file": samples // files},
            **{"train.epochs": epochs}, **options,
        )  # fmt: skip
        report = json.loads(Path(folder, "summary.json").read_text())
    rate = max(report["metric"]["train_throughput_samples_per_second"])
    return Measure(samples / rate, samples)


def _run(
    workload: str, path: str, files: int, folder: str, *, generate: bool, **options: int | str
) -> None:
    settings = {
        "workflow.generate_data": generate,
        "workflow.train": not generate,
        "workflow.checkpoint": False,
        "dataset.data_folder": path,
        "dataset.num_files_train": files,
        "reader.read_threads": 2,
        "train.computation_time": 0,
        **options,
    }
    given = [f"++workload.{name}={value}" for name, value in settings.items()]
    done = subprocess.run(
        [
            sys.executable, "-m", "dlio_benchmark.main", f"workload={workload}",
            f"hydra.run.dir={folder}", *given,
        ],
        capture_output=True,
        check=False,
        text=True,
        env={**os.environ, **_ENVIRONMENT, **_AS_ROOT, "PATH": f"{folder}:{os.environ['PATH']}"},
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{workload}: {done.stderr or done.stdout}")


JOBS = {"make": make, "train": train}
