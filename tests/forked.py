"""Run programs in processes of a fork server, which has imported what they need.

A new interpreter takes half a second to import NumPy and recmap, and thousands of tests share two
CPUs.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import traceback
import types
from collections.abc import Mapping
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from recmap.native import _core

__all__ = ["QuickSpawn", "run_program", "run_together", "start_program"]

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
    process = _Process(target=_execute, args=(theirs, program))
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


def _execute(connection: Connection, program: str) -> None:
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(program, {"__name__": "__main__"})
    except BaseException:
        connection.send((True, traceback.format_exc()))
    else:
        connection.send((False, printed.getvalue()))


def run_program(
    program: str, *arguments: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Do what ``python -c`` does with a program and its arguments, with its output in files.

    Its standard input is empty.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = [os.path.join(folder, name) for name in ("out", "err")]
        process = _Process(target=_run_as_main, args=(program, arguments, files, dict(env or {})))
        process.start()
        process.join(HANG)
        process.kill()
        process.join()
        out, err = (Path(file).read_text(encoding="utf-8") for file in files)
    assert process.exitcode is not None
    return subprocess.CompletedProcess(["-c", *arguments], process.exitcode, out, err)


def start_program(program: str) -> BaseProcess:
    """Start a program whose output nobody reads."""
    process = _Process(target=_run_as_main, args=(program, (), [os.devnull] * 2, {}))
    process.start()
    return process


def _run_as_main(
    program: str, arguments: tuple[str, ...], files: list[str], env: dict[str, str]
) -> None:
    os.environ.update(env)
    tempfile.tempdir = None  # TMPDIR may be another
    for descriptor, file in enumerate(files, 1):
        opened = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(opened, descriptor)
        os.close(opened)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # the fork server blocks it
    sys.argv = ["-c", *arguments]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        exec(compile(program, "<string>", "exec"), main.__dict__)
    except SystemExit:
        raise
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
    finally:
        atexit._run_exitfuncs()


class _Process(ForkServerProcess):
    """A process with the environment that this one has when it starts it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _new, (type(self), dict(os.environ)), self.__dict__


class _SpawnedProcess(_Process):
    pass


def _new(kind: type[_Process], environment: dict[str, str]) -> _Process:
    os.environ.clear()
    os.environ.update(environment)
    if kind is _SpawnedProcess:
        # Its parent is the fork server.
        end = _core.end_with_parent
        _core.end_with_parent = lambda _: end(os.getppid())  # type: ignore[assignment]
    return kind.__new__(kind)


class QuickSpawn(ForkServerContext):
    """Starts processes as "spawn" does: they get what is pickled, and nothing else of this one."""

    _name = "spawn"
    Process = _SpawnedProcess
