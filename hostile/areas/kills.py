"""Conversions that are killed, raced, or whose input shrinks while they run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

import recmap as rm
from hostile.case import Case
from hostile.table import assert_same

__all__ = ["case"]

CONVERT = """
import sys, recmap as rm
src, dst, shards, overwrite = sys.argv[1:]
print("begun", flush=True)
try:
    rm.convert(src, dst, shards=int(shards) or None, overwrite=overwrite == "1", memory="40MB")
except rm.RecmapError as e:
    sys.exit(f"RecmapError: {e}")
"""
SUFFIXES = (".tfrecord", ".tfrecord.gz", ".npz", ".h5", ".zarr", ".npy", ".bin")


def case(case: Case) -> None:
    rows = case.pick([1000, 20_000, 60_000])
    columns: dict[str, npt.NDArray[Any]] = {
        "n": np.arange(rows),
        "x": case.rng.random((rows, 16), np.float32),
    }
    src = case.path("src" + case.pick([".npz", ".h5", ".tfrecord"]))
    rm.from_arrays(columns).save(src)
    suffix = case.pick(SUFFIXES)
    shards = case.pick([0, 0, 4])
    dst = case.path("out/") + (f"part{suffix}" if shards else f"x{suffix}")
    kind = case.pick(["killed", "killed", "raced", "shrunk"])
    case.note(f"{kind}: {rows} rows of {src} to {dst}, {shards} shards")
    {"killed": _killed, "raced": _raced, "shrunk": _shrunk}[kind](case, src, dst, shards)
    if kind == "shrunk":
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _check(dst, columns)


def _start(src: str, dst: str, shards: int, overwrite: bool) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CONVERT, src, dst, str(shards), str(int(overwrite))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def _killed(case: Case, src: str, dst: str, shards: int) -> None:
    """Kill a conversion at random moments; afterwards the same call finishes it."""
    older = case.chance(0.4)
    if older:
        rm.open(src).select(slice(0, 100)).save(dst, shards=shards or None, memory="40MB")
    for _ in range(case.between(1, 3)):
        process = _start(src, dst, shards, older)
        time.sleep(float(case.rng.random() ** 2))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if older:
            for path in _data_files(os.path.dirname(dst)):
                len(rm.open(path))  # old or new, but complete
    try:
        rm.convert(src, dst, shards=shards or None, overwrite=older, memory="40MB")
    except rm.OutputExistsError as e:
        # It had finished before the kill. A single file has no manifest that would say so.
        case.note(f"finished: {e}")


def _raced(case: Case, src: str, dst: str, shards: int) -> None:
    """Run two conversions to the same place: one may be refused."""
    both = [_start(src, dst, shards, overwrite=False) for _ in range(2)]
    ends = [(process.communicate()[1], process.returncode) for process in both]
    for text, code in ends:
        if code and "RecmapError" not in text:
            raise AssertionError(f"exit {code}: {text[-800:]}")
    if all(code for _, code in ends):
        case.note("both were refused")
        rm.convert(src, dst, shards=shards or None, memory="40MB")


def _shrunk(case: Case, src: str, dst: str, shards: int) -> None:
    """Truncate the input while it is read: that is an error, not a crash."""
    process = _start(src, dst, shards, overwrite=False)
    time.sleep(float(case.rng.random() ** 3) * 0.3)
    os.truncate(src, case.between(0, os.path.getsize(src)))
    _, text = process.communicate()
    if process.returncode < 0 or (process.returncode and "RecmapError" not in text):
        raise AssertionError(f"exit {process.returncode}: {text[-800:]}")


def _check(dst: str, columns: dict[str, npt.NDArray[Any]]) -> None:
    folder = os.path.dirname(dst)
    left = [name for name in os.listdir(folder) if name.endswith(".tmp")]
    if left:
        raise AssertionError(f"left behind: {left}")
    ds = rm.open(_data_files(folder))
    for name, column in columns.items():
        assert_same(ds[:][name], list(column), name)


def _data_files(folder: str) -> list[str]:
    """Return the files that hold rows: no manifests, indexes or temporary files."""
    return sorted(
        os.path.join(folder, name)
        for name in os.listdir(folder)
        if not name.startswith((".", "_")) and not name.endswith(".recmap.json")
    )
