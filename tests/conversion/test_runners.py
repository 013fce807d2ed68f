"""workers="processes:2": the same bytes and errors as threads, and nothing is left behind."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import recmap as rm
from recmap.model.progress import Progress
from tests.forked import run_program

pytestmark = pytest.mark.slow

ROWS = 3000


@pytest.fixture(autouse=True)
def data() -> None:
    rng = np.random.default_rng(1)
    words = [rng.bytes(n) for n in rng.integers(0, 40, ROWS)]
    rm.from_arrays({"x": rng.random((ROWS, 20)), "word": words}).save("in.tfrecord")


def contents(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).glob("*.tfrecord*")}


@pytest.mark.parametrize("workers", ["processes:2", "fork:3", "spawn:2", "threads:2"])
def test_processes_write_the_same_bytes_as_threads(workers: str) -> None:
    rm.convert("in.tfrecord", "a/", shards=5)
    report = rm.convert("in.tfrecord", "b/", shards=5, workers=workers, verify="full")
    assert (report.rows, len(report.files)) == (ROWS, 5)
    assert contents("a") == contents("b")
    assert rm.convert("in.tfrecord", "b/", shards=5, workers=workers).resumed == 5


@pytest.mark.usefixtures("real_spawn")
def test_new_interpreters_write_the_same_bytes_as_threads() -> None:
    rm.convert("in.tfrecord", "a/", shards=2)
    rm.convert("in.tfrecord", "b/", shards=2, workers="spawn:2")
    assert contents("a") == contents("b")
    assert rm.verify("b/", workers="spawn:2").ok


def test_processes_shuffle_as_threads_do() -> None:
    rm.open("in.tfrecord").shuffle(seed=5).save("a/", shards=3)
    rm.open("in.tfrecord").shuffle(seed=5).save("b/", shards=3, workers="processes:2")
    assert contents("a") == contents("b")


def test_progress_counts_the_rows_of_all_processes() -> None:
    told: list[Progress] = []
    rm.convert("in.tfrecord", "b/", shards=4, workers="processes:2", progress=told.append)
    assert (told[-1].rows, told[-1].total_rows) == (ROWS, ROWS)


def test_an_error_in_a_process_is_the_same_as_in_a_thread() -> None:
    ds = rm.open("in.tfrecord").cast({"x": "int8"})
    with pytest.raises(rm.FieldMismatchError) as here:
        ds.save("b/", shards=3)
    with pytest.raises(rm.FieldMismatchError) as there:
        ds.save("b/", shards=3, workers="processes:2")
    assert there.value.field == here.value.field == "x"
    assert "would lose values" in str(there.value)
    assert there.value.options == here.value.options
    assert not Path("b").exists() or os.listdir("b") == []


def test_the_memory_is_divided_among_the_processes() -> None:
    report = rm.convert("in.tfrecord", "b/", shards=2, memory="100MB", workers="processes:2")
    assert report.explanation.startswith("memory 50 MB: 1 file at a time")
    assert "2 processes" in report.explanation
    message = 'memory="1kB" is too little, because it is 500 B for each of 2 processes'
    with pytest.raises(rm.MemoryLimitError, match=message):
        rm.convert("in.tfrecord", "c/", shards=2, memory="1kB", workers="processes:2")


def test_lambdas_and_closures_reach_forked_processes_but_not_spawned_ones() -> None:
    factor = 2.0
    ds = rm.open("in.tfrecord").take(50)
    ds.map(lambda row: {"x": row["x"] * factor}, workers="fork:2").save("a/", shards=2)
    assert np.array_equal(rm.open("a/")["x"][:], ds["x"][:] * factor)
    with pytest.raises(rm.OptionError, match="use a function of a module"):
        ds.map(lambda row: {"x": row["x"]}, workers="spawn:2").save("b/", shards=2)
    assert not Path("b").exists() or os.listdir("b") == []


def test_rows_that_can_be_read_only_once_are_refused() -> None:
    with pytest.raises(rm.OptionError, match="save them to a file first"):
        rm.from_batches([{"x": np.arange(3)}]).save("x.npy", workers="processes:2")


PROGRAM = """
import os, signal, sys, time
import multiprocessing
import recmap as rm

def watch(progress):
    if progress.rows and not os.path.exists("seen"):
        open("seen", "w").close()
        pids = [child.pid for child in multiprocessing.active_children()]
        print(*pids, flush=True)
        {act}

rm.convert("in.tfrecord", "b/", shards=40, workers="processes:2", compression="gzip",
           options={{"index": False}}, progress=watch)
"""


def run(act: str) -> tuple[int, str, list[int]]:
    done = run_program(PROGRAM.format(act=act))
    return done.returncode, done.stderr, [int(pid) for pid in done.stdout.split()]


def ended(pids: list[int]) -> bool:
    for _ in range(1200):
        if not any(os.path.exists(f"/proc/{pid}") for pid in pids):
            return True
        time.sleep(0.05)
    return False


def leftovers() -> list[str]:
    return [name for name in os.listdir("b") if name.endswith(".tmp")]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_an_interrupt_leaves_no_process_and_no_temporary_file() -> None:
    code, err, pids = run("os.kill(os.getpid(), signal.SIGINT)")
    assert code == -signal.SIGINT or "KeyboardInterrupt" in err
    assert len(pids) == 2
    assert ended(pids)
    assert not Path("b").exists() or leftovers() == []
    rm.convert("in.tfrecord", "b/", shards=40, compression="gzip", options={"index": False})
    assert len(rm.open("b/")) == ROWS


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_killed_process_is_an_error_that_says_so() -> None:
    code, err, pids = run("os.kill(pids[0], signal.SIGKILL)")
    assert code == 1
    assert re.search(r"WorkerDiedError: process \d of the conversion ended with exit code -9", err)
    assert ended(pids)
    assert not Path("b").exists() or leftovers() == []


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_processes_end_with_a_killed_parent_and_the_next_call_cleans_up() -> None:
    code, _, pids = run("os.kill(os.getpid(), signal.SIGKILL)")
    assert code == -signal.SIGKILL
    assert ended(pids)
    rm.convert("in.tfrecord", "b/", shards=40, compression="gzip", options={"index": False})
    assert leftovers() == []
    assert len(rm.open("b/")) == ROWS
