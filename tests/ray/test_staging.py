"""A process that is killed while it renames files loses no existing file."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import recmap as rm
from recmap.ray.staging import StagedShard, staged_output


def replace(folder: str, dst: str, format: str, count: int, nth: int) -> None:
    """Replace the existing files, and be killed before the ``nth`` change to the folder."""
    os.chdir(folder)
    output = staged_output(dst, format, overwrite=True, durable=False)
    with output.staged() as stage:
        staged = []
        for i in range(count):
            path = f"{stage}/{i}.{format}"
            rm.from_arrays({"x": np.full(3, i)}).save(path)
            staged.append(StagedShard(i, path, 3, rm.Schema({"x": "int64"})))
        changes = itertools.count(1)

        def kill(event: str, _: object) -> None:
            if event in {"os.rename", "os.mkdir", "os.remove"} and next(changes) == nth:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(kill)
        output.publish(staged, stage)


def killed_at(dst: str, format: str, count: int, nth: int) -> bool:
    """Return whether the process was killed before its ``nth`` change, or finished first."""
    server = multiprocessing.get_context("forkserver")
    process = server.Process(target=replace, args=(os.getcwd(), dst, format, count, nth))
    process.start()
    process.join()
    assert process.exitcode in {0, -signal.SIGKILL}
    return process.exitcode != 0


def content(folder: str) -> dict[str, bytes]:
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in files}


def old_folder() -> str:
    """Write three old files. Two of them have names of new files, and one does not."""
    rm.from_arrays({"x": np.arange(9)}).save("out/", shards=3)
    os.rename("out/data-00002-of-00003.tfrecord", "out/data.tfrecord")
    os.unlink("out/.data-00002-of-00003.tfrecord.recmap")
    return "out/"


def old_store() -> str:
    rm.from_arrays({"x": np.arange(9)}).save("out/x.zarr")
    return "out/x.zarr"


@pytest.mark.parametrize(
    ("prepare", "format", "count"),
    [(old_folder, "tfrecord", 3), (old_store, "zarr", 1)],
)
def test_a_kill_at_any_moment_leaves_all_old_files_or_all_new_ones(
    prepare: Callable[[], str], format: str, count: int
) -> None:
    outcomes = []
    for nth in range(1, 99):
        dst = prepare()
        before = content("out")
        died = killed_at(dst, format, count, nth)
        # The next call puts things right, before it writes anything.
        with (
            pytest.raises(rm.OutputExistsError, match="overwrite=True"),
            staged_output(dst, format, overwrite=False, durable=False).staged(),
        ):
            pass
        old = content("out") == before
        if not old:
            rows = rm.open(dst)[:]["x"].tolist()
            assert rows == [i for i in range(count) for _ in range(3)]
            assert not [name for name in os.listdir("out") if "before" in name]
        outcomes.append(old)
        shutil.rmtree("out")
        if not died:
            break
    # The old files survive an early kill, and the new ones a late one.
    assert outcomes == sorted(outcomes, reverse=True)
    assert len(outcomes) > 6
    assert not outcomes[-1]


@pytest.mark.parametrize("nth", [3, 5, 7])
def test_a_conversion_after_a_kill_keeps_the_old_files(nth: int) -> None:
    dst = old_folder()
    wanted = {path.name: path.read_bytes() for path in Path(dst).glob("data*")}
    assert killed_at(dst, "tfrecord", 1, nth)
    np.save("y.npy", np.arange(4))
    with suppress(rm.OutputExistsError):
        rm.convert("y.npy", dst, shards=5)
    left = {path.name: path.read_bytes() for path in Path("out").rglob("data*")}
    assert wanted.items() <= left.items()
