"""Pipelines give the same batches in whatever order their threads run.

Every order is drawn from a seed. A failure names it; CONTRIBUTING.md says how to play it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.machine import threads
from recmap.pipeline.workers.pool import OrderedPool
from tests.buckets import HttpFolder
from tests.frameworks import torch
from tests.schedule import Schedule

SEEDS = range(8)
ROWS = 24
Chain = Callable[..., rm.Stream]


def double(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "x": row["x"] * 2}


def fail_at_13(row: dict[str, Any]) -> dict[str, Any]:
    if row["x"] == 13:
        raise ValueError("unlucky")
    return row


def negate(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "x": -batch["x"]}


def odd(row: dict[str, Any]) -> bool:
    return bool(row["x"] % 4)


CHAINS: dict[str, Chain] = {
    "plain": lambda _: rm.open("x.tfrecord").shuffle(seed=1).batch(3, pad="longest"),
    "map": lambda workers: (
        rm.open("x.npz").shuffle(seed=1).map(double, workers=workers).batch(4).prefetch(3)
    ),
    "compressed": lambda workers: (
        rm.open("x.tfrecord.gz").map(double, workers=workers).batch(3).map(negate).prefetch(2)
    ),
    "filter": lambda workers: (
        rm.open("x.tfrecord").filter(odd).map(double, workers=workers).take(11).batch(2).map(negate)
    ),
    "pack": lambda workers: (
        rm.open("x.tfrecord").repeat(2).pack(6).map(double_tokens, workers=workers).batch(2)
    ),
    "bucket": lambda workers: (
        rm.open("x.tfrecord").bucket("t", [2]).batch(3, pad="longest").map(negate, workers=workers)
    ),
    "failing": lambda workers: (
        rm.open("x.npz").map(fail_at_13, workers=workers).batch(3).map(negate).prefetch(4)
    ),
}


def double_tokens(row: dict[str, Any]) -> dict[str, Any]:
    return {"t": row["t"] * 2}


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tokens = rm.Ragged.from_rows([np.full(1 + i % 4, i) for i in range(ROWS)])
    for name in ("x.tfrecord", "x.tfrecord.gz", "x.npz"):
        rm.from_arrays({"x": np.arange(ROWS), "t": tokens}).save(name)


def taken(pipeline: Any, most: int = 1000) -> list[Any]:
    """Return the batches, and the error that ends them, if one does."""
    batches: list[Any] = []
    given = iter(pipeline)
    try:
        while len(batches) < most:
            batches.append({name: column.tolist() for name, column in next(given).items()})
    except StopIteration:
        pass
    except rm.RecmapError as e:
        batches.append(type(e))
    given.close()
    return batches


@pytest.mark.parametrize("name", CHAINS)
def test_batches_do_not_depend_on_the_order_of_threads(name: str) -> None:
    chain = CHAINS[name]
    expected = taken(chain(None).prefetch(0))
    assert len(expected) > 4
    for seed in SEEDS:
        with Schedule(seed):
            assert taken(chain("threads:3")) == expected, f"seed {seed}"


@pytest.mark.parametrize("name", CHAINS)
def test_a_run_goes_on_from_where_it_was_broken_off(name: str) -> None:
    chain = CHAINS[name]
    expected = taken(chain(None).prefetch(0))
    for seed in SEEDS:
        cut = 5 * seed % len(expected)
        with Schedule(seed):
            stopped = chain("threads:2")
            assert taken(stopped, cut) == expected[:cut], f"seed {seed}"
            again = chain("threads:3").restore(json.loads(json.dumps(stopped.state())))
            assert taken(again) == expected[cut:], f"seed {seed}"


def test_rows_of_a_store_do_not_depend_on_the_order_of_threads(http_folder: HttpFolder) -> None:
    http_folder.put("x.tfrecord", Path("x.tfrecord").read_bytes())

    def chain() -> rm.Stream:
        ds = rm.open(f"{http_folder.url}/x.tfrecord", storage=http_folder.storage)
        return ds.shuffle(seed=1).map(double, workers="threads:2").batch(4)

    expected = taken(rm.open("x.tfrecord").shuffle(seed=1).map(double).batch(4))
    for seed in range(5):
        with Schedule(seed) as schedule:
            assert taken(chain(), 2) == expected[:2], f"seed {seed}"
            assert taken(chain()) == expected, f"seed {seed}"
        assert len({thread for thread, _ in schedule.trace}) > 3


def test_a_planted_race_is_found_and_played_again(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = CHAINS["map"]
    expected = taken(chain(None).prefetch(0))
    fill = OrderedPool._fill

    def first_done_first(self: Any, pending: Any, *more: Any) -> bool:
        filled = fill(self, pending, *more)
        done = [number for number, (_, answer) in enumerate(pending) if answer.done()]
        pending.rotate(-done[0] if done else 0)
        return filled

    monkeypatch.setattr(OrderedPool, "_fill", first_done_first)

    def run(seed: int) -> tuple[list[Any], list[tuple[int, str]]]:
        with Schedule(seed) as schedule:
            return taken(chain("threads:3")), schedule.trace

    found = [seed for seed in range(60) if run(seed)[0] != expected]
    assert 0 < len(found) < 60
    assert run(found[0]) == run(found[0])


def test_threads_do_not_overwrite_what_a_function_keeps() -> None:
    scheduled: Any = threads
    row_scratch, batch_scratch = np.zeros(2), np.zeros(ROWS)

    def chains() -> list[rm.Stream]:
        lock = scheduled.threading.Lock()

        def of_row(row: dict[str, Any]) -> dict[str, Any]:
            row_scratch[:] = row["x"]
            with lock:  # another thread may go on here
                return {"y": row_scratch}

        def of_batch(batch: dict[str, Any]) -> dict[str, Any]:
            made = batch_scratch[: len(batch["x"])]
            made[:] = batch["x"]
            with lock:
                return {"y": made}

        ds = rm.open("x.npz")
        return [
            ds.map(of_row, workers="threads:3").batch(2),
            ds.batch(2).map(of_batch, workers="threads:3"),
            ds.map(of_batch, batched=True, workers="threads:3").batch(2),
        ]

    for seed in range(5):
        with Schedule(seed):
            for pipeline in chains():
                rows = [row for batch in list(pipeline) for row in batch["y"].reshape(2, -1)[:, 0]]
                assert rows == list(range(ROWS)), f"seed {seed}"


def test_threads_do_not_overwrite_lists_tensors_and_dicts_that_a_function_keeps() -> None:
    scheduled: Any = threads
    scratch: dict[str, Any] = {"list": [0, 0], "tensor": torch.zeros(2), "view": torch.zeros(4)}

    def chains(kind: str) -> list[rm.Stream]:
        lock = scheduled.threading.Lock()
        kept: dict[str, Any] = {}

        def fn(given: dict[str, Any]) -> dict[str, Any]:
            x = np.broadcast_to(given["x"], 2).tolist()
            if kind == "dict":
                kept["y"] = x
            else:
                scratch[kind][:2] = x if kind == "list" else torch.tensor(x)
            with lock:  # another thread may go on here
                if kind == "dict":
                    return kept
                return {"y": scratch[kind][:2] if kind == "view" else scratch[kind]}

        ds = rm.open("x.npz")
        return [ds.map(fn, workers="threads:3").batch(2), ds.batch(2).map(fn, workers="threads:3")]

    for kind in ("dict", *scratch):
        for seed in range(3):
            with Schedule(seed):
                for pipeline in chains(kind):
                    rows = [row for batch in pipeline for row in batch["y"].reshape(2, -1)[:, 0]]
                    assert rows == list(range(ROWS)), f"{kind}, seed {seed}"


def test_a_function_that_stands_twice_does_not_overwrite_what_it_keeps() -> None:
    scheduled: Any = threads
    scratch = np.zeros(1)

    def chains() -> list[rm.Stream]:
        lock = scheduled.threading.Lock()

        def more(row: dict[str, Any]) -> dict[str, Any]:
            scratch[:] = row["x"] + 1
            with lock:  # another thread may go on here
                return {"x": scratch}

        ds = rm.open("x.npz").map(lambda row: {"x": np.array([float(row["x"])])})
        once = ds.map(more, workers="threads:3")
        return [
            once.map(more).batch(2),
            once.skip(0).map(more).batch(2),  # skip begins with rows that are made by number
            rm.concat(once.take(12), once.skip(12)).map(more).batch(2),
        ]

    for seed in range(6):
        with Schedule(seed):
            for number, pipeline in enumerate(chains()):
                rows = [float(x) for batch in pipeline for x in batch["x"][:, 0]]
                assert rows == [x + 2.0 for x in range(ROWS)], f"chain {number}, seed {seed}"
