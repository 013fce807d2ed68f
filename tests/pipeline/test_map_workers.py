"""Functions in other threads and processes: the same rows and random numbers, no leftovers."""

from __future__ import annotations

import gc
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import resource_tracker
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests import jobs
from tests.processes import WITH_WORKERS

pytestmark = [*WITH_WORKERS, pytest.mark.slow]


def mapped(rows: int = 60) -> rm.Dataset:
    np.save("x.npy", np.arange(rows))
    return rm.open({"x": "x.npy"})


def compressed(rows: int = 60) -> rm.Dataset:
    rm.from_arrays({"x": np.arange(rows)}).save("x.tfrecord.gz", overwrite=True)
    return rm.open("x.tfrecord.gz")


def chunked(rows: int = 60) -> rm.Dataset:
    rm.from_arrays({"x": np.arange(rows)}).save("x.h5", compression="gzip", overwrite=True)
    return rm.open("x.h5")


def augmented(ds: rm.Dataset, workers: Any) -> rm.Stream:
    return ds.map(jobs.augment, workers=workers).batch(7).map(jobs.summed)


def filtered(ds: rm.Dataset, workers: Any) -> rm.Stream:
    rows = ds.map(jobs.augment, workers=workers).filter(jobs.is_even)
    return rows.batch(7, pad="longest").map(jobs.summed)


def bucketed(ds: rm.Dataset, workers: Any) -> rm.Stream:
    rows = ds.shuffle(seed=1, window=16).map(jobs.augment, workers=workers)
    return rows.bucket("tokens", [2]).batch(5).map(jobs.summed)


def plain(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: column.tolist() for name, column in batch.items()}


CASES = list(itertools.product([mapped, compressed, chunked], [augmented, filtered, bucketed]))


@pytest.mark.parametrize(
    ("source", "chain", "kind"),
    [
        *((source, chain, "threads:3") for source, chain in CASES),
        # Processes start slowly: each case once, and each kind with every source and chain.
        *((mapped, augmented, "fork:3"), (compressed, bucketed, "fork:3")),
        *((chunked, filtered, "fork:3"), (mapped, filtered, 1), (compressed, augmented, 1)),
        *((chunked, bucketed, 1), (mapped, bucketed, "spawn:2"), (compressed, filtered, "spawn:2")),
        (chunked, augmented, "spawn:2"),
    ],
)
def test_every_kind_of_worker_gives_the_same_batches(
    source: Callable[[], rm.Dataset], chain: Callable[..., rm.Stream], kind: Any
) -> None:
    expected = [plain(batch) for batch in chain(source(), None)]
    train = chain(source(), kind)
    for epoch in range(2):
        train.epoch = 0
        assert [plain(batch) for batch in train] == expected, f"epoch {epoch}"


@pytest.mark.usefixtures("real_spawn")
def test_new_interpreters_give_the_same_batches() -> None:
    expected = [plain(batch) for batch in filtered(chunked(), None)]
    assert [plain(batch) for batch in filtered(chunked(), "spawn:2")] == expected


@pytest.mark.parametrize("kind", ["threads:3", "fork:2", "spawn:1"])
def test_a_run_with_workers_resumes_from_its_state(kind: Any) -> None:
    train = bucketed(mapped(), kind)
    batches = iter(train)
    for _ in range(4):
        next(batches)
    state = json.loads(json.dumps(train.state()))
    rest = [plain(batch) for batch in batches]
    again = bucketed(mapped(), None).restore(state)
    assert [plain(batch) for batch in again] == rest


@pytest.mark.parametrize("kind", ["threads:3", 1, "spawn:1"])
def test_an_exception_names_the_row_and_the_file_and_shows_the_line(kind: Any) -> None:
    with pytest.raises(rm.MapError, match=r"row 13 of x\.npy: .*unlucky.*thirteen") as error:
        list(mapped().map(jobs.unlucky, workers=kind).batch(4))
    if str(kind).startswith("threads"):
        assert isinstance(error.value.__cause__, ValueError)
    else:
        assert any("the user's own line" in note for note in error.value.__notes__)
    assert error.value.cause_type == "ValueError"


@pytest.mark.parametrize("kind", ["fork:2", "spawn:2"])
def test_a_killed_worker_is_an_error_and_leaves_nothing_behind(kind: str) -> None:
    resource_tracker.ensure_running()  # the first spawned process starts it, and it stays
    shared, files = jobs.shared_memory(), len(os.listdir("/proc/self/fd"))
    with pytest.raises(rm.WorkerDiedError, match="signal 9|SIGKILL|killed"):
        list(mapped().map(jobs.dies_at_thirteen, workers=kind).batch(4))
    gc.collect()  # the traceback of the error
    assert jobs.shared_memory() <= shared
    assert len(os.listdir("/proc/self/fd")) <= files


def test_leaving_the_loop_ends_the_workers() -> None:
    before = _children()
    for batch in mapped().map(jobs.augment, workers=2).batch(4):
        assert len(batch["x"]) == 4
        started = set(_children()) - set(before)
        assert len(started) == 2
        break
    jobs.until(lambda: not started & set(_children()))


def _children() -> list[str]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return file.read().split()


_PROGRAM = """
import numpy as np, recmap as rm
np.save("x.npy", np.arange(100_000))
def slow(row):
    return {"x": row["data"]}
for batch in rm.open("x.npy").map(slow, workers=2).batch(8).repeat():
    print("going", flush=True)
"""


def test_an_interrupt_ends_the_program_and_its_workers_at_once() -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "going\n"
    os.killpg(program.pid, signal.SIGINT)
    _, errors = program.communicate(timeout=600)
    assert program.returncode != 0
    assert errors.count("KeyboardInterrupt") == 1
    jobs.until(lambda: not _group_lives(program.pid))


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_rows_in_memory_work_in_processes_too() -> None:
    ds = rm.from_arrays({"x": np.arange(30)})
    expected = [plain(batch) for batch in augmented(ds, None)]
    for kind in ("fork:2", "spawn:2"):
        assert [plain(batch) for batch in augmented(ds, kind)] == expected


def test_functions_that_cannot_be_sent_to_a_process_are_refused_by_name() -> None:
    with pytest.raises(rm.OptionError, match="fork:"):
        list(mapped().map(lambda row: row, workers="spawn:2").batch(4))
