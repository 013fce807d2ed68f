"""The programs that train resume after a kill, with the same losses."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

# Frameworks start threads for each CPU, and all their stacks count as memory.
TWO_CPUS = (
    "import os, runpy, sys; os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2]); "
    "sys.argv = sys.argv[1:]; sys.path[0] = os.path.dirname(sys.argv[0]); "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)

# Half of the usual data in half of the usual memory, but JAX needs more to compile.
SIZES = {"train_torch.py": (240, 200), "train_keras.py": (240, 200), "train_jax.py": (360, 320)}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can limit the memory")


def command(script: str, folder: str) -> list[str]:
    size, limit = map(str, SIZES[script])
    options = ["--size", size, "--limit", limit]
    return [sys.executable, "-c", TWO_CPUS, str(EXAMPLES / script), folder, *options]


def run(script: str, folder: str) -> str:
    done = subprocess.run(command(script, folder), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_and_kill(script: str, folder: str, after: bytes) -> None:
    """Run a program, and kill it when it has printed ``after``.

    It cannot be far ahead: it waits until its output is read, and the smallest buffer of a socket
    holds only a few lines.
    """
    ours, theirs = socket.socketpair()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    with (
        ours,
        subprocess.Popen(
            command(script, folder), stdout=theirs.fileno(), stderr=subprocess.DEVNULL
        ) as process,
    ):
        theirs.close()
        printed = b""
        while after not in printed:
            output = ours.recv(64)
            assert output, printed
            printed += output
        process.kill()
    assert process.returncode == -signal.SIGKILL


def test_the_memory_is_limited() -> None:
    program = """
import numpy as np
from larger_than_memory import limit_memory
limit_memory(16)
try:
    np.ones(20_000_000, np.uint8)
except MemoryError:
    print("refused")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(EXAMPLES), *sys.path])},
    )  # fmt: skip
    assert done.stdout == "refused\n", done.stderr


@pytest.mark.parametrize("script", SIZES)
def test_a_killed_run_resumes_with_the_losses_of_a_run_that_was_not_killed(script: str) -> None:
    os.mkdir("whole")
    os.mkdir("killed")
    size, limit = re.findall(r"(\d+) MB", run(script, "whole"))
    assert int(size) > int(limit)
    os.link("whole/train.tfrecord", "killed/train.tfrecord")

    run_and_kill(script, "killed", b"\nstep 30 ")
    assert not os.path.exists("killed/losses.npy")
    printed = run(script, "killed")
    for folder in ("whole", "killed"):
        os.unlink(f"{folder}/train.tfrecord")  # pytest keeps the folder for a while

    whole, killed = np.load("whole/losses.npy"), np.load("killed/losses.npy")
    resumed = re.search(r"resumed after step (\d+)", printed)
    assert resumed is not None
    assert 0 < int(resumed[1]) < len(whole)
    assert killed.shape == whole.shape
    assert np.array_equal(killed, whole)
    assert whole[-1] < whole[0] / 10
