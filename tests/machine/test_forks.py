"""What processes inherit from their parent is not deleted there."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.processes import WITH_WORKERS

pytestmark = WITH_WORKERS


class InACycle:
    """Notes if another process deletes it, where a library may wait for threads of its own."""

    def __init__(self) -> None:
        self.itself, self.process = self, os.getpid()

    def __del__(self) -> None:
        Path("here" if os.getpid() == self.process else "elsewhere").touch()


@pytest.fixture(autouse=True)
def _garbage() -> Iterator[None]:
    gc.disable()
    try:
        InACycle()
        yield
        gc.collect()
    finally:
        gc.enable()


def collected(row: dict[str, Any]) -> dict[str, Any]:
    if multiprocessing.parent_process() is not None:
        gc.collect()
    return row


def check_garbage() -> None:
    assert not Path("elsewhere").exists()
    gc.collect()
    assert Path("here").exists()


def test_workers_do_not_delete_what_they_inherit() -> None:
    ds = rm.from_arrays({"x": np.arange(20)})
    assert len(next(iter(ds.map(collected, workers="fork:2").batch(20)))["x"]) == 20
    check_garbage()


def test_processes_that_save_do_not_delete_what_they_inherit() -> None:
    ds = rm.from_arrays({"x": np.arange(20)}).map(collected)
    ds.save("out/", shards=2, workers="fork:2", progress=False, overwrite=True)
    assert rm.verify("out", workers="fork:2").ok
    check_garbage()


def test_workers_collect_their_own_garbage() -> None:
    ds = rm.from_arrays({"x": np.arange(2)})
    mapped = ds.map(lambda row: {**row, "on": gc.isenabled()}, workers="fork:1")
    assert next(iter(mapped.batch(2)))["on"].all()
