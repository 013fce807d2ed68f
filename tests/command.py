"""Runs the command line as users do: in a program, in a pipe, and in a terminal."""

from __future__ import annotations

import errno
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Mapping

from tests.forked import run_program

__all__ = ["run", "run_in_new_interpreter", "run_in_terminal"]

COMMAND = [sys.executable, "-m", "recmap"]


def run(*args: str) -> subprocess.CompletedProcess[str]:
    """Run the command with its output in files."""
    return run_program("import sys, recmap.cli; sys.exit(recmap.cli.main())", *args)


def run_in_new_interpreter(
    *args: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command with its output in pipes."""
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
    """Run the command in a terminal; return the exit code and everything it wrote.

    ``on_output`` gets the process id and the output so far.
    """
    master, slave = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "40"}
    env.pop("NO_COLOR", None)
    with subprocess.Popen(
        [*COMMAND, *args], stdin=slave, stdout=slave, stderr=slave, env=env
    ) as process:
        os.close(slave)
        written = b""
        while data := _read(master):
            written += data
            if on_output is not None:
                on_output(process.pid, written)
        os.close(master)
    return process.returncode, written.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError as e:
        # Linux raises this when the other end is closed; macOS reads nothing.
        if e.errno != errno.EIO:
            raise
        return b""
