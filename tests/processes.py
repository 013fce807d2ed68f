"""Shared by tests of worker processes: marks, and a way to run a program."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

__all__ = ["PROCESSES", "WITH_WORKERS", "running"]

PROCESSES = ["fork:2", "spawn:2"]
_numbers = itertools.count()

#: For ``pytestmark``: fail on a hang, and ignore warnings about forks.
WITH_WORKERS = [
    pytest.mark.usefixtures("in_time"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*fork.*:RuntimeWarning"),
]


@contextlib.contextmanager
def running(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program, which can import the tests, in its own session.

    On exit, kill it and everything it has started.
    """
    # Another process may be reading the same program.
    name = f"program_{next(_numbers)}.py"
    with open(name, "w") as file:
        file.write(program)
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = [root, os.environ.get("PYTHONPATH", "")]
    with subprocess.Popen(
        [sys.executable, name, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    ) as parent:
        try:
            yield parent
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(parent.pid, signal.SIGKILL)
