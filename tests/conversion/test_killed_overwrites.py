"""An overwrite that is killed at any rename or removal: old rows, new rows, or an error."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.local.temporary import Process, acting_for, temporary_path, this_process
from tests.processes import WITH_WORKERS

pytestmark = [*WITH_WORKERS, pytest.mark.slow]

OLD, NEW = np.arange(300), np.arange(300) + 1_000_000
CALLS = ("rename", "replace", "unlink", "rmdir")


def killed(work: Callable[[], object], at: int) -> bool:
    """Run in a new process that is killed before its call number ``at``; False if it makes fewer.

    Calls are those that change the names of files.
    """
    child = os.fork()
    if child == 0:
        made = 0

        def counted(call: Callable[..., Any]) -> Callable[..., Any]:
            def instead(*args: Any, **options: Any) -> Any:
                nonlocal made
                made += 1
                if made == at:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*args, **options)

            return instead

        for name in CALLS:
            setattr(os, name, counted(getattr(os, name)))
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def rows(path: str, **options: Any) -> str:
    """Tell what a reader sees."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            values = rm.open(path, **options)[:]["x"]
    except (rm.UnfinishedOutputError, rm.MissingShardsWarning):
        return "refused"
    for name, expected in (("old", OLD), ("new", NEW)):
        if np.array_equal(values, expected):
            return name
    raise AssertionError(f"{len(values)} rows, {(values >= 1_000_000).sum()} of them new")


def hidden(folder: str) -> list[str]:
    """Return what is left besides data, indexes and manifests."""
    every = [name for _, folders, files in os.walk(folder) for name in (*folders, *files)]
    return [name for name in every if name.endswith(".tmp") or ".done-" in name]


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("out/", {"format": "tfrecord", "shards": 3}),
        ("out/", {"format": "raw", "shards": 3}),
        ("out/x.h5", {}),
        ("out/x.zarr", {}),
        ("out", {"format": "tfds", "options": {"name": "out", "split": "train"}, "shards": 2}),
    ],
)
def test_an_overwrite_killed_anywhere_is_never_half_new(path: str, options: Any) -> None:
    tfds = options.get("format") == "tfds"
    several = "shards" in options and not tfds
    read = "out/out/1.0.0" if tfds else path
    split = {"split": "train"} if tfds else {}
    rm.from_arrays({"x": NEW}).save("new.h5")

    def overwrite(**changed: Any) -> None:
        rm.convert("new.h5", path, overwrite=True, workers=1, **{**options, **changed})

    at, seen = 0, set()
    while True:
        at += 1 if at < 12 else 5
        shutil.rmtree("out", ignore_errors=True)
        rm.from_arrays({"x": OLD}).save(path, **options)
        if not killed(overwrite, at):
            break
        seen.add(rows(read, **split))
        # The same conversion, or one with another number of files, leaves nothing behind.
        overwrite(**({"shards": 4} if several and at % 2 else {}))
        assert rows(read, **split) == "new"
        assert hidden("out") == []
    assert at > 2
    assert seen <= {"old", "new", "refused"}


def test_lists_of_shards_without_a_manifest_are_removed_by_the_next_run() -> None:
    rm.from_arrays({"x": OLD}).save("old.npy")
    at, left = 0, 0
    while True:
        at += 1
        shutil.rmtree("out", ignore_errors=True)
        os.mkdir("out")
        if not killed(lambda: rm.convert("old.npy", "out/x.h5"), at):
            break
        left += bool(hidden("out"))
        try:
            rm.convert("old.npy", "out/x.h5")
        except rm.OutputExistsError:  # it was complete
            assert len(rm.open("out/x.h5")) == 300
        assert hidden("out") == []
    assert left


def test_half_a_description_is_removed_by_a_run_with_another_number_of_shards() -> None:
    rm.from_arrays({"x": OLD}).save("old.npy")
    rm.convert("old.npy", "out/", format="raw", shards=2)
    ended = subprocess.Popen(["true"])
    ended.wait()
    with acting_for(Process(this_process().machine, ended.pid, "01234567")):
        half = Path(temporary_path("out/data-00000-of-00002.bin.recmap.json"))
    half.write_text("{")
    rm.convert("old.npy", "out/", format="raw", shards=3, overwrite=True)
    assert hidden("out") == []
    assert rows("out/") == "old"
