"""Two processes of JAX: global arrays, and a state that resumes both."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROWS, SAVED_AFTER = 48, 3


def test_processes_make_global_arrays_and_resume_with_the_state_of_one(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "tests.adapters.jax_ranks"]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), port, str(tmp_path)],
            env={**os.environ, "PYTHONPATH": paths},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    errors = [rank.communicate()[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], errors
    logs = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    steps = [step for log in logs for step in log["whole"]]
    assert sorted(number for step in steps for number in step["own"]) == list(range(ROWS))
    for step in steps:
        assert step["global"] == [len(step["own"]) * 2]
    for log in logs:
        assert log["rest"] == log["whole"][SAVED_AFTER:]
