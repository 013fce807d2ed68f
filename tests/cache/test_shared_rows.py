"""Rows that ``ds.cache()`` keeps, shared by processes that may be killed at any moment."""

from __future__ import annotations

import glob
import json
import os
from collections import Counter
from contextlib import ExitStack

import numpy as np
import pytest

import recmap as rm
from recmap.cache.block_cache import cache_folder
from tests.command import run
from tests.processes import WITH_WORKERS, running

pytestmark = [*WITH_WORKERS, pytest.mark.slow]

ROWS = 40
# Fills the cache; every call of the function is noted. It may wait for a line at a row.
PROGRAM = """
import os, sys
import numpy as np
import recmap as rm

def noted(row):
    with open("calls", "a") as file:
        file.write(f"{row['data']}\\n")
    if os.environ.get("WAIT_AT") == str(row["data"]):
        print("waits", flush=True)
        sys.stdin.readline()
    return {"y": row["data"] * 2, "t": str(row["data"])}

ds = rm.open("x.npy").map(noted).cache()
print(sum(row["y"].item() for row in ds.shuffle(seed=1)), flush=True)
sys.stdin.readline()
"""
TOTAL = f"{ROWS * (ROWS - 1)}\n"


@pytest.fixture(autouse=True)
def _file() -> None:
    np.save("x.npy", np.arange(ROWS))


def calls() -> list[int]:
    """How often the function was called with each row."""
    with open("calls") as file:
        counts = Counter(int(line) for line in file)
    return [counts[row] for row in range(ROWS)]


def test_one_process_fills_and_the_others_wait() -> None:
    with ExitStack() as stack:
        first, *others = [stack.enter_context(running(PROGRAM)) for _ in range(3)]
        for process in (first, *others):
            assert process.stdout is not None
            assert process.stdout.readline() == TOTAL
    # The first rows are called more often: each process tries the function on a few.
    assert calls()[-5:] == [1] * 5


def test_a_killed_fill_is_taken_over_and_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        fillers = []
        for row in ("30", "20"):
            monkeypatch.setenv("WAIT_AT", row)
            fillers.append(stack.enter_context(running(PROGRAM)))
            if len(fillers) == 1:
                assert fillers[0].stdout is not None
                assert fillers[0].stdout.readline() == "waits\n"
        monkeypatch.delenv("WAIT_AT")
        last = stack.enter_context(running(PROGRAM))
        fillers[0].kill()
        fillers[1].kill()  # while it waits, or has taken over
        assert last.stdout is not None
        assert last.stdout.readline() == TOTAL


def test_what_is_in_use_is_neither_evicted_nor_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 400_000
    for name in ("a", "b"):
        np.save(f"{name}.npy", np.random.default_rng(0).integers(0, 9, (size // 8, 1)))
    monkeypatch.setenv("RECMAP_CACHE_SIZE", "700kB")
    program = """
import sys
import recmap as rm
ds = rm.open("a.npy").cache()
print(ds[:]["data"].sum(), flush=True)
sys.stdin.readline()
print(ds.shuffle(seed=1)[:]["data"].sum(), flush=True)
"""
    with running(program) as reader:
        assert reader.stdout is not None
        assert reader.stdin is not None
        total = reader.stdout.readline()
        with pytest.warns(rm.NoCacheWarning, match="the budget of the cache is 700 kB"):
            assert len(rm.open("b.npy").cache()[:]["data"]) == size // 8
        assert "not removed" in run("cache", "clear").stdout
        shown = json.loads(run("cache", "info", "--json").stdout)
        [entry] = [each for each in shown["objects"] if each["in_use"]]
        assert entry["url"] == "rows of a.npy"
        assert entry["size"] > size
        reader.stdin.write("\n")
        reader.stdin.flush()
        assert reader.stdout.readline() == total
        reader.wait()
    # Now it makes room for another, or is cleared.
    with running(program.replace("a.npy", "b.npy")) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == total
    [kept] = glob.glob(f"{glob.escape(cache_folder().path)}/*/rows")
    assert "rows of b.npy" in run("cache", "info").stdout
    run("cache", "clear")
    assert not os.path.exists(kept)
    assert len(rm.open("b.npy").cache()[:]["data"]) == size // 8


def test_what_is_used_counts_against_the_budget() -> None:
    cached = rm.open("x.npy").map(lambda row: {"t": "x" * 10_000, **row}).cache()
    cached[0]
    folder = cache_folder()
    used = folder.used()
    folder.count(lambda: 0)
    assert used is not None
    assert used == folder.used()
    assert used > ROWS * 10_000
