"""The programs in examples/: recmap's answer to a question, and the usual one.

Each runs in a fork of a process that has imported what they need. So TensorFlow is imported
once, and the memory measured is that of the program alone.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.timing import Measure

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

# The scripts import each other by name.
_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path[:0] = [str(_EXAMPLES), str(_EXAMPLES / "usual")]

for _package in ("PIL.Image", "h5py", "keras", "tensorflow"):
    importlib.import_module(_package)
# Load now what recmap loads on first use.
_recmap = importlib.import_module("recmap")
for _name in _recmap.__all__:
    getattr(_recmap, _name)

__all__ = ["JOBS"]


def run(script: str, function: str, folder: str, rows: int | None = None) -> Measure:
    """Run a function of a script on a folder; ``rows`` is for those that make the data."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    given = (folder,) if rows is None else (folder, rows)
    child = multiprocessing.get_context("fork").Process(
        target=_measured, args=(sender, script, function, given)
    )
    child.start()
    sender.close()
    measured: Measure | None
    measured, error = receiver.recv()
    child.join()
    if measured is None:
        raise RuntimeError(error)
    return measured


def _measured(sender: Connection, script: str, function: str, given: tuple[object, ...]) -> None:
    try:
        work = getattr(importlib.import_module(script), function)
        cost = importlib.import_module("cost").Cost()
        with cost:
            kept = work(*given)  # kept alive while its memory is measured
        del kept
        sender.send((Measure(cost.seconds, 0, peak=cost.peak), ""))
    except Exception:
        sender.send((None, f"{script}.{function}: {traceback.format_exc()}"))


JOBS = {"run": run}
