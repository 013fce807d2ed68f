"""Run programs in processes of a fork server, which has imported what they need."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import traceback
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

__all__ = ["run_together"]

# Seconds after which a program is taken to hang. On a busy machine some need minutes.
HANG = 600


def run_together(*programs: str) -> list[str]:
    """Run programs at the same time, and return what each prints."""
    started = [_start(program) for program in programs]
    try:
        return [_printed(connection) for _, connection in started]
    finally:
        for process, connection in started:
            process.kill()
            process.join()
            connection.close()


def _start(program: str) -> tuple[BaseProcess, Connection]:
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("forkserver").Process(
        target=_execute, args=(theirs, os.getcwd(), dict(os.environ), program)
    )
    process.start()
    theirs.close()
    return process, ours


def _printed(connection: Connection) -> str:
    assert connection.poll(HANG), "it hangs"
    try:
        failed, printed = connection.recv()
    except EOFError:
        failed, printed = True, "it was killed"
    assert not failed, printed
    return str(printed)


def _execute(
    connection: Connection, folder: str, environment: dict[str, str], program: str
) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(program, {"__name__": "__main__"})
    except BaseException:
        connection.send((True, traceback.format_exc()))
    else:
        connection.send((False, printed.getvalue()))
