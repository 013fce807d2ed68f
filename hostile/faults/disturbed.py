"""Run steps of an operation in a process of its own, with a fault in the first of them.

Processes are forked from one that has imported everything, with ``calls.c`` preloaded.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import gc
import multiprocessing
import os
import shutil
import subprocess
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import recmap as rm
from hostile.faults.operations import OPERATIONS, Site

__all__ = ["FAULTS", "Fault", "Outcome", "run_steps"]

#: The faults of a call, and their numbers in calls.c.
FAULTS = {
    "EIO": errno.EIO,
    "ENOSPC": errno.ENOSPC,
    "killed before": -1,
    "killed after": -2,
    "killed within": -3,
    "short": -4,
}
#: Seconds after which a step counts as hanging.
_PATIENCE = 60.0
_SOURCE = Path(__file__).with_name("calls.c")


@dataclass(frozen=True)
class Fault:
    """A fault of the call with this number, from 1. Without a ``kind``, calls are only counted."""

    number: int = 0
    kind: str = ""


@dataclass(frozen=True)
class Outcome:
    """How a step ended: with a value, or an error."""

    step: str
    value: Any = None
    #: The error, its class, and where it was raised.
    error: str = ""
    kind: str = ""
    trace: str = ""
    #: Whether the error is one of recmap's, or of the system with the name of a file.
    ours: bool = False
    #: Files below the site that the step left open.
    left_open: tuple[str, ...] = ()


def run_steps(
    operation: str,
    site: Site,
    steps: Sequence[str],
    fault: Fault | None,
    log: str,
    started: Callable[[int], None] = lambda _: None,
    disturbed: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """Run steps in one process, and return how they ended, up to where it was killed.

    Calls of the first step are written to ``log``. ``started`` is called with the number of the
    process, and ``disturbed`` at the end of the first step.
    """
    ours, theirs = _context().Pipe()
    process = _context().Process(
        target=_perform, args=(operation, site, steps, fault, log, theirs), daemon=True
    )
    process.start()
    theirs.close()
    started(process.pid or 0)
    outcomes: list[Outcome] = []
    try:
        while len(outcomes) < len(steps):
            if not ours.poll(_PATIENCE):
                outcomes.append(Outcome(steps[len(outcomes)], error="it hangs", kind="Hang"))
                process.kill()
                break
            outcomes.append(ours.recv())
            if len(outcomes) == 1:
                disturbed()
            ours.send("go on")
    except (EOFError, OSError):
        disturbed()  # it was killed
    process.join()
    ours.close()
    return outcomes


@lru_cache(maxsize=1)
def _context() -> Any:
    """Return what starts processes, with the library preloaded."""
    os.environ["LD_PRELOAD"] = _library()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["hostile.faults.preloaded"])
    return context


@lru_cache(maxsize=1)
def _library() -> str:
    """Compile calls.c, once for each version of it."""
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = folder / "calls.so"
    compiler = os.environ.get("CC", "cc")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", library, _SOURCE, "-ldl"], check=True
    )
    return str(library)


def _perform(
    operation: str,
    site: Site,
    steps: Sequence[str],
    fault: Fault | None,
    log: str,
    answers: Connection,
) -> None:
    warnings.simplefilter("ignore")
    os.environ["TMPDIR"] = tempfile.tempdir = os.path.join(site.folder, "tmp")
    os.environ["RECMAP_CACHE"] = os.path.join(site.folder, "cache")
    # The library is in this process already, so this finds it and loads nothing.
    calls = ctypes.CDLL(os.environ["LD_PRELOAD"])
    for number, step in enumerate(steps):
        if number == 0 and fault is not None:
            kind = FAULTS.get(fault.kind, 0)
            calls.faults_arm(
                site.folder.encode(), log.encode(), ctypes.c_long(fault.number), ctypes.c_int(kind)
            )
        outcome = _step(operation, step, site)
        calls.faults_disarm()
        answers.send(outcome)
        answers.recv()


def _step(operation: str, step: str, site: Site) -> Outcome:
    act = getattr(OPERATIONS[operation], step)
    try:
        value = act(site) if act is not None else None
    except Exception as e:
        ours = isinstance(e, rm.RecmapError) or (isinstance(e, OSError) and bool(e.filename))
        failed = Outcome(step, None, str(e), type(e).__name__, traceback.format_exc(), ours)
    else:
        return Outcome(step, value)
    gc.collect()
    return replace(failed, left_open=tuple(_open_files(os.path.join(site.folder, "out"))))


def _open_files(folder: str) -> Iterator[str]:
    """Yield the files of a folder that this process has open."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            path = os.readlink(f"/proc/self/fd/{name}")
            if path.startswith(f"{folder}/"):
                yield os.path.relpath(path, folder)
