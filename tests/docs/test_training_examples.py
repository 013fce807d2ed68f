"""The programs that train resume after a kill, with the same losses."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
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

# Only one is really killed: it must train once more, from the start to the end.
KILLED = "train_jax.py"

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux can limit the memory"),
    pytest.mark.slow,
]


def command(script: str, folder: str) -> list[str]:
    size, limit = map(str, SIZES[script])
    options = ["--size", size, "--limit", limit]
    return [sys.executable, "-c", TWO_CPUS, str(EXAMPLES / script), folder, *options]


def run(script: str, folder: str, then: Callable[[int], object] | None = None) -> tuple[int, str]:
    """Run a program; return its exit code and what it printed.

    When it has printed step 30, it is suspended, and ``then`` is called with its process id. It
    cannot be far ahead: it waits until its output is read, and the smallest buffer of a socket
    holds only a few lines.
    """
    ours, theirs = socket.socketpair()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    with (
        ours,
        open("errors", "w+") as errors,
        subprocess.Popen(command(script, folder), stdout=theirs.fileno(), stderr=errors) as process,
    ):
        theirs.close()
        printed = b""
        while output := ours.recv(64):
            printed += output
            if then is not None and b"\nstep 30 " in printed:
                process.send_signal(signal.SIGSTOP)
                os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
                then(process.pid)
                then = None
                process.send_signal(signal.SIGCONT)
        code = process.wait()
        assert code in (0, -signal.SIGKILL), Path("errors").read_text()
    return code, printed.decode()


def copy(folder: str, to: str) -> None:
    """Copy a folder, but only link to the data, which no program changes."""
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns("train.tfrecord"))
    os.link(f"{folder}/train.tfrecord", f"{to}/train.tfrecord")


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
    if script == KILLED:
        _, printed = run(script, "whole")
        os.mkdir("killed")
        os.link("whole/train.tfrecord", "killed/train.tfrecord")
        code, _ = run(script, "killed", lambda process: os.kill(process, signal.SIGKILL))
        assert code == -signal.SIGKILL
    else:
        # A kill would leave what is there while the program is suspended.
        code, printed = run(script, "whole", lambda _: copy("whole", "killed"))
        assert code == 0
    size, limit = re.findall(r"(\d+) MB", printed)
    assert int(size) > int(limit)

    assert not os.path.exists("killed/losses.npy")
    _, printed = run(script, "killed")
    for folder in ("whole", "killed"):
        os.unlink(f"{folder}/train.tfrecord")  # pytest keeps the folder for a while

    whole, killed = np.load("whole/losses.npy"), np.load("killed/losses.npy")
    resumed = re.search(r"resumed after step (\d+)", printed)
    assert resumed is not None
    assert 0 < int(resumed[1]) < len(whole)
    assert killed.shape == whole.shape
    assert np.array_equal(killed, whole)
    assert whole[-1] < whole[0] / 10
