"""Datasets that ``tensorflow_datasets`` wrote, made once for all tests of a run."""

from __future__ import annotations

import fcntl
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def tfds_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Return a folder of datasets. Workers of one run share it."""
    base = tmp_path_factory.getbasetemp()
    root = base if worker_id == "master" else base.parent
    folder = root / "tfds"
    with open(root / "tfds.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "expected.pickle").exists():
            from tests.formats.tfds import make_datasets

            folder.mkdir(exist_ok=True)
            make_datasets.write(str(folder))
    return folder


@pytest.fixture(scope="session")
def expected(tfds_folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the rows that ``tensorflow_datasets`` reads, by dataset and split."""
    with open(tfds_folder / "expected.pickle", "rb") as file:
        found: dict[str, list[dict[str, Any]]] = pickle.load(file)
    return found


@pytest.fixture
def read_with_tfds() -> Callable[..., dict[str, list[dict[str, Any]]]]:
    """Return a function that reads folders, given as ``FOLDER:SPLIT``."""
    from tests.formats.tfds import make_datasets

    def read(*specs: str) -> dict[str, list[dict[str, Any]]]:
        return {each: make_datasets.read(*each.rsplit(":", 1)) for each in specs}

    return read
