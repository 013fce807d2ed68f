"""The command line as people run it: in a pipe, and in a terminal."""

from __future__ import annotations

import errno
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Mapping

__all__ = ["run", "run_in_terminal"]

COMMAND = [sys.executable, "-m", "recmap"]


def run(*args: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Its output in pipes."""
    return subprocess.run(
        [*COMMAND, *args],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, **(env or {})},
    )


def run_in_terminal(
    *args: str, columns: int = 120, on_output: Callable[[int, bytes], None] | None = None
) -> tuple[int, str]:
    """The exit code and all that was written to the terminal. ``on_output`` is told the
    process and what it has written so far.
    """
    master, slave = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "40"}
    env.pop("NO_COLOR", None)
    with subprocess.Popen(
        [*COMMAND, *args], stdin=slave, stdout=slave, stderr=slave, env=env
    ) as process:
        os.close(slave)
        written = b""
        while piece := _read(master):
            written += piece
            if on_output is not None:
                on_output(process.pid, written)
        os.close(master)
    return process.returncode, written.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError as e:
        # Linux says so when nobody has the other end open; macOS reads nothing.
        if e.errno != errno.EIO:
            raise
        return b""
