"""Two processes of JAX make global arrays, are killed, and resume with the state of one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from benchmarks.seaweedfs import free_ports
from tests.numbered import ids

pytestmark = pytest.mark.slow

ROWS, BATCH, EPOCHS = 48, 4, 3


def run(name: str, world: int, folder: Path) -> list[int]:
    """Run some processes; return their exit codes."""
    port = str(free_ports(1)[0])
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "tests.adapters.jax_ranks", name]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(world), port, str(folder)],
            env={**os.environ, "PYTHONPATH": paths},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    errors = [rank.communicate()[1] for rank in ranks]
    codes = [rank.returncode for rank in ranks]
    assert set(codes) <= {0, -signal.SIGKILL}, errors
    return codes


def steps(folder: Path, name: str, rank: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{name}-{rank}.log").read_text().splitlines()]


def test_killed_processes_resume_with_as_many_and_with_fewer(tmp_path: Path) -> None:
    two, one = tmp_path / "two", tmp_path / "one"
    two.mkdir()
    assert run("killed", 2, two) == [-signal.SIGKILL] * 2
    shutil.copytree(two, one)
    assert run("resumed", 2, two) == [0, 0]
    assert run("alone", 1, one) == [0]
    seen = []
    for rank in range(2):
        train = rm.from_arrays({"id": np.arange(ROWS)}).shuffle(seed=1).batch(BATCH).shard(rank, 2)
        whole = [step for _ in range(EPOCHS) for step in ids(train)]
        killed = steps(two, "killed", rank)
        logged = [*killed, *steps(two, "resumed", rank)]
        assert [step["own"] for step in logged] == whole
        assert all(step["global"] == [2 * BATCH] for step in logged)
        seen += killed
    seen += steps(one, "alone", 0)
    for epoch in range(EPOCHS):
        rows = [number for step in seen if step["epoch"] == epoch for number in step["own"]]
        assert sorted(rows) == list(range(ROWS))
