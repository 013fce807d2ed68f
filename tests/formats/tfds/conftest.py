"""Datasets that ``tensorflow_datasets`` wrote, made once for all tests of a run."""

from __future__ import annotations

import fcntl
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_MAKE = Path(__file__).with_name("make_datasets.py")


def _run(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, _MAKE, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(scope="session")
def tfds_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Return a folder of datasets. Workers of one run share it."""
    base = tmp_path_factory.getbasetemp()
    root = base if worker_id == "master" else base.parent
    folder = root / "tfds"
    with open(root / "tfds.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # importing TensorFlow twice would take longer
        if not (folder / "expected.pickle").exists():
            folder.mkdir(exist_ok=True)
            _run(str(folder))
    return folder


@pytest.fixture(scope="session")
def expected(tfds_folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the rows that ``tensorflow_datasets`` reads, by dataset and split."""
    with open(tfds_folder / "expected.pickle", "rb") as file:
        found: dict[str, list[dict[str, Any]]] = pickle.load(file)
    return found


@pytest.fixture
def read_with_tfds(tmp_path: Path) -> Callable[..., dict[str, list[dict[str, Any]]]]:
    """Return a function that reads folders, given as ``FOLDER:SPLIT``."""

    def read(*specs: str) -> dict[str, list[dict[str, Any]]]:
        out = tmp_path / "read.pickle"
        _run("--read", str(out), *specs)
        with open(out, "rb") as file:
            found: dict[str, list[dict[str, Any]]] = pickle.load(file)
        return found

    return read
