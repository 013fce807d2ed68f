"""Files that are replaced or rewritten while they are read, and folders that are half written."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

import recmap as rm
from hostile.case import Case

__all__ = ["case"]

# Rows of the new version are larger by this.
_NEW = 10**6
_SUFFIXES = (
    ".npy",
    ".npz",
    ".h5",
    ".tfrecord",
    ".tfrecord.gz",
    ".tfrecord.zlib",
    ".parquet",
    ".arrow",
    ".zarr",
)
_CONVERT = """
import sys, recmap as rm
src, dst, shards, workers = sys.argv[1:]
print("begun", flush=True)
try:
    rm.convert(src, dst, shards=int(shards), workers=workers, overwrite=True, memory="20MB")
except rm.RecmapError as e:
    sys.exit(f"RecmapError: {e}")
"""


def case(case: Case) -> None:
    kind = case.pick(["replaced", "replaced", "rewritten", "half"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        {"replaced": _replaced, "rewritten": _rewritten, "half": _half}[kind](case)


def _save(path: str, values: npt.NDArray[Any], **options: Any) -> None:
    rm.from_arrays({"x": values}).save(path, **options)


def _versions(case: Case, rows: int, suffix: str) -> tuple[str, str]:
    """Write two versions of a file, and return their paths."""
    paths = case.path(f"x{suffix}"), case.path(f"new/x{suffix}")
    for path, first in zip(paths, (0, _NEW), strict=True):
        _save(path, np.arange(rows) + first)
    return paths


def _one_version(values: npt.NDArray[Any], what: str) -> str:
    new = values >= _NEW
    if new.any() and not new.all():
        raise AssertionError(f"{what}: {new.sum()} of {len(values)} rows are of the new version")
    return "new" if new.any() else "old"


def _replaced(case: Case) -> None:
    """Rename another file over one that is being read: all rows are old, or it is an error."""
    rows, suffix = case.pick([50, 5000, 100_000]), case.pick(_SUFFIXES)
    path, new = _versions(case, rows, suffix)
    ds = rm.open(path)
    name, read = case.pick(list(_READS.items()))
    before = case.chance(0.5)
    case.note(f"{rows} rows, {suffix}, {name}, {'before' if before else 'after'} the first batch")
    seen: list[npt.NDArray[Any]] = []
    try:
        if before:
            _put_in_place(new, path)
        for values in read(ds, case):
            seen.append(np.asarray(values))
            if len(seen) == 1 and not before:
                _put_in_place(new, path)
    except rm.FileChangedError as e:
        case.note(f"refused: {e}")
        case.outcome = "refused"
    if seen and _one_version(np.concatenate(seen), name) == "new":
        raise AssertionError(f"{name}: rows of a file that was not there when it was opened")


def _put_in_place(new: str, path: str) -> None:
    if os.path.isdir(path):
        os.rename(path, f"{path}.old")
    os.rename(new, path)


def _batches(ds: Any, case: Case) -> Iterator[Any]:
    return (batch["x"] for batch in ds.batches(case.between(1, 999)))


def _gathered(ds: Any, case: Case) -> Iterator[Any]:
    order = case.rng.permutation(len(ds))
    return (ds[order[start : start + 500]]["x"] for start in range(0, min(len(ds), 5000), 500))


def _pipeline(ds: Any, case: Case) -> Iterator[Any]:
    workers = case.pick(["threads:2", "fork:2", "spawn:1"])
    case.note(workers)
    return (batch["x"] for batch in ds.shuffle(seed=1).map(_same, workers=workers).batch(100))


def _pickled(ds: Any, case: Case) -> Iterator[Any]:
    return _batches(pickle.loads(pickle.dumps(ds)), case)


def _same(row: Any) -> Any:
    return row


_READS: dict[str, Callable[[Any, Case], Iterator[Any]]] = {
    "batches": _batches,
    "gathered": _gathered,
    "pipeline": _pipeline,
    "pickled": _pickled,
}


def _start(src: str, dst: str, shards: int, workers: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _CONVERT, src, dst, str(shards), workers]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def _rewritten(case: Case) -> None:
    """Write other bytes into the input of a conversion: the output has rows of one version."""
    path, new = _versions(case, case.pick([5000, 400_000]), case.pick(_SUFFIXES[:-1]))
    shards, dst = case.pick([1, 3]), case.path("out/")
    workers = case.pick(["threads:1", "threads:2", "processes:2"])
    case.note(f"{path}, {shards} shards, {workers}")
    process = _start(path, dst, shards, workers)
    time.sleep(float(case.rng.random() ** 2) * 0.5)
    with open(new, "rb") as other, open(path, "r+b") as file:
        file.write(other.read())
        file.truncate()
    _, text = process.communicate()
    if process.returncode:
        if "RecmapError" not in text:
            raise AssertionError(f"exit {process.returncode}: {text[-800:]}")
        case.note(text.strip())
        case.outcome = "refused"
        return
    # A .npy file that was rewritten before it was opened has no name for its column.
    (values,) = rm.open(dst)[:].values()
    _one_version(values, "converted")


def _half(case: Case) -> None:
    """Kill an overwrite: the folder has rows of one version, or says that it is not whole."""
    path, new = _versions(case, case.pick([5000, 200_000]), ".npy")
    dst, format = case.path("out/"), case.pick(["tfrecord", "npy", "zarr", "parquet"])
    _save(dst, rm.open(path)[:]["x"], format=format, shards=4)
    process = _start(new, dst, case.pick([3, 4]), "threads:1")
    time.sleep(float(case.rng.random() ** 2))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    try:
        case.note(_one_version(rm.open(dst)[:]["x"], "folder"))
    except rm.UnfinishedOutputError:
        case.outcome = "refused"
    rm.convert(new, dst, format=format, shards=2, overwrite=True)
    if _one_version(rm.open(dst)[:]["x"], "folder") != "new":
        raise AssertionError("the next conversion did not replace the folder")
    left = [name for name in os.listdir(dst) if name.endswith(".tmp") or ".done-" in name]
    if left:
        raise AssertionError(f"left behind: {left}")
