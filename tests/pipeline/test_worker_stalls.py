"""Functions that start threads, hang, or outlive their parent."""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.pipeline.workers import errors
from tests import jobs
from tests.jobs import pool_of
from tests.processes import WITH_WORKERS, running

pytestmark = [*WITH_WORKERS, pytest.mark.slow]


def numbers(rows: int = 20) -> rm.Dataset:
    return rm.from_arrays({"x": np.arange(rows)})


def columns(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: column.tolist() for name, column in batch.items()}


CHAINS: dict[str, Callable[[rm.Dataset, Any], rm.Stream]] = {
    "rows": lambda ds, n: ds.map(jobs.refuses_the_parent, workers=n),
    "batches": lambda ds, n: ds.map(jobs.refuses_the_parent, workers=n).batch(4),
    "functions of batches": lambda ds, n: ds.batch(4).map(jobs.whose, workers=n),
    "then shuffled": lambda ds, n: (
        ds.map(jobs.refuses_the_parent, workers=n).shuffle(seed=1).batch(4)
    ),
    "then picked": lambda ds, n: ds.map(jobs.refuses_the_parent, workers=n).select([3, 1]).batch(1),
    "then chosen": lambda ds, n: (
        ds.map(jobs.refuses_the_parent, workers=n).shuffle(seed=1).select("y")
    ),
    "then repeated": lambda ds, n: ds.map(jobs.refuses_the_parent, workers=n).repeat(2).batch(4),
    "mapped again": lambda ds, n: (
        ds.map(jobs.refuses_the_parent)
        .shuffle(seed=1)
        .map(jobs.refuses_the_parent, workers=n)
        .batch(4)
    ),
    "filtered": lambda ds, n: (
        ds.map(jobs.who, workers=n).filter(jobs.is_elsewhere).batch(4).map(jobs.whose)
    ),
    "mixed": lambda ds, n: rm.mix(
        ds.map(jobs.refuses_the_parent), ds.map(jobs.refuses_the_parent, workers=n)
    ).batch(4),
    "side by side": lambda ds, n: rm.zip(
        ds.select("x"), ds.map(jobs.refuses_the_parent, workers=n).select("y")
    ).batch(4),
    "bucketed": lambda ds, n: (
        ds.map(jobs.augment, workers=n).bucket("tokens", [2]).batch(4).map(jobs.whose)
    ),
}


@pytest.mark.parametrize(
    ("chain", "kind"),
    [*((chain, "fork:1") for chain in CHAINS), ("then chosen", "spawn:1")],
)
def test_functions_of_worker_processes_are_never_called_in_the_parent(
    chain: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECMAP_TEST_PARENT", str(os.getpid()))
    train = CHAINS[chain](numbers(), kind)
    assert train.schema
    assert "map" in repr(train)
    with contextlib.suppress(TypeError):
        len(train)
    for batch in (*train, *train):
        for name in {"process", "by"} & set(batch):
            assert os.getpid() not in np.unique(batch[name])


@pytest.mark.parametrize("kind", ["fork:2", "spawn:1", "threads:2"])
def test_the_schema_does_not_depend_on_where_functions_are_tried(kind: str) -> None:
    def chain(workers: Any) -> rm.Stream:
        rows = numbers().map(jobs.augment, workers=workers, columns={"x": "int32"})
        return rows.batch(6, pad="longest", lengths=True).map(jobs.summed).shard(0, 3, even="pad")

    here, elsewhere = chain(None), chain(kind)
    assert here.schema == elsewhere.schema
    for name, column in here._feed().sample().items():
        jobs.same(elsewhere._feed().sample()[name], column)
    assert [columns(batch) for batch in elsewhere] == [columns(batch) for batch in here]


@pytest.mark.parametrize("kind", ["fork:2", "spawn:1"])
def test_functions_that_change_the_number_of_rows_are_tried_in_a_worker(kind: str) -> None:
    here, there = (numbers().batch(6).map(jobs.halves, workers=n) for n in (None, kind))
    assert here.schema == there.schema
    assert [columns(batch) for batch in there] == [columns(batch) for batch in here]


def test_an_error_in_the_first_rows_names_the_row_and_shows_the_line() -> None:
    def bad(_: dict[str, Any]) -> dict[str, Any]:
        raise ValueError("no good")  # the user's own line

    train = numbers().map(bad, workers=2)
    with pytest.raises(rm.MapError, match="row 0: .*no good") as error:
        _ = train.schema
    assert any("the user's own line" in note for note in error.value.__notes__)


def test_only_the_functions_of_map_must_be_picklable() -> None:
    train = numbers().map(jobs.augment, workers="spawn:1")
    batches = train.bucket(lambda row: len(row["tokens"]), [2]).batch(4)
    assert sum(len(batch["x"]) for batch in batches) == 20


def test_a_run_resumed_in_the_middle_of_a_bucket_calls_nothing_in_the_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RECMAP_TEST_PARENT", str(os.getpid()))

    def lists() -> rm.Stream:
        ds = rm.from_arrays({"x": rm.Ragged.from_rows([[1] * (i % 5) for i in range(30)])})
        return ds.map(elsewhere, workers=2).bucket("x", [2]).batch(4)

    def elsewhere(row: dict[str, Any]) -> dict[str, Any]:
        assert os.getpid() != int(os.environ["RECMAP_TEST_PARENT"])
        return row

    train = lists()
    batches = iter(train)
    for _ in range(3):
        next(batches)
    state = train.state()
    rest = [columns(batch) for batch in batches]
    assert [columns(batch) for batch in lists().restore(state)] == rest


def parallel(row: dict[str, Any]) -> dict[str, Any]:
    """Do what OpenMP divides among several threads."""
    import torch  # here: spawned processes import this module

    x = torch.from_numpy(row["x"])
    return {"sum": (x + torch.relu(x) * 2).sum(dim=0).numpy()}


def tensors() -> rm.Dataset:
    return rm.from_arrays({"x": np.random.default_rng(0).random((8, 400, 400), np.float32)})


@pytest.fixture
def _two_threads() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_two_threads")
def test_a_function_of_torch_works_in_forked_processes() -> None:
    expected = np.stack([parallel(row)["sum"] for row in tensors()])  # which starts threads
    train = tensors().map(parallel, workers=2).batch(4)
    assert train.schema["sum"] == rm.Field("float32", (400,))
    for _ in range(2):
        for _batch in train:
            parallel({"x": np.ones((400, 400), np.float32)})  # as a training loop does
        found = np.concatenate([batch["sum"] for batch in train])
        np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.usefixtures("_two_threads")
def test_a_function_of_batches_of_torch_works_in_forked_processes() -> None:
    train = tensors().batch(4).map(parallel, workers=2)
    assert sum(len(batch["sum"]) for batch in train) == 800


@pytest.mark.parametrize("kind", ["fork:2", "spawn:2", "threads:2"])
def test_a_warning_shows_the_stacks_of_workers_that_hang(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "PATIENCE", 1.0)
    told: list[str] = []

    def told_of(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if category is not rm.StalledWorkersWarning or os.path.exists("go"):
            return  # JAX warns of every fork once a test has used it
        told.append(str(message))
        if "in stuck" in told[-1]:
            open("go", "w").close()  # lets the workers continue

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", told_of)
        with pool_of(jobs.stuck, kind) as pool:
            assert len(list(pool.run(jobs.requests(5), ahead=3))) == 5
    assert "no worker has answered for" in told[-1]
    assert "jobs.py" in told[-1]
    assert "worker_main.py" not in told[-1]
    assert {"fork:2": "spawn:2", "spawn:2": "threads:2", "threads:2": "workers=2"}[kind] in told[-1]


def test_a_worker_that_has_not_begun_is_reported_and_not_harmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(errors, "PATIENCE", 0.5)
    with open("slow_module.py", "w") as file:
        file.write(
            "import os, time\n"
            "while not os.path.exists('go'): time.sleep(0.01)\n"
            "def work(request): return {'x': request.positions}\n"
        )
    open("go", "w").close()
    monkeypatch.syspath_prepend(os.getcwd())
    import slow_module  # type: ignore[import-not-found]

    os.unlink("go")

    def told_of(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if category is not rm.StalledWorkersWarning or os.path.exists("go"):
            return
        assert "has not started" in str(message)
        open("go", "w").close()

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", told_of)
        with pool_of(slow_module.work, "spawn:1") as pool:
            assert len(list(pool.run(jobs.requests(2), ahead=3))) == 2
    assert os.path.exists("go")


PROGRAM = """
import ctypes, os, sys, threading
import numpy as np
import recmap as rm

libc = ctypes.PyDLL(None)  # which keeps the interpreter lock

def sleeps(row):
    open(f"worker-{os.getpid()}", "w").close()
    import time
    time.sleep(600)

def calls(row):
    open(f"worker-{os.getpid()}", "w").close()
    libc.sleep(600)

def spins(row):
    open(f"worker-{os.getpid()}", "w").close()
    while True:
        pass

def train():
    ds = rm.from_arrays({"x": np.arange(100)})
    fields = {"x": "int64"}
    list(ds.map(globals()[sys.argv[2]], workers=sys.argv[1], columns=fields).batch(4))

if __name__ == "__main__":
    if sys.argv[3] == "thread":
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
    else:
        train()
"""


@pytest.mark.parametrize(
    ("kind", "work", "where"),
    [
        *(("fork:2", work, where) for work in ("calls", "spins") for where in ("main", "thread")),
        *(
            ("fork:2", "sleeps", "main"),
            ("spawn:1", "calls", "main"),
            ("spawn:1", "spins", "thread"),
        ),
    ],
)
def test_workers_in_the_middle_of_work_end_when_their_parent_is_killed(
    kind: str, work: str, where: str
) -> None:
    shared = jobs.shared_memory()
    with running(PROGRAM, kind, work, where) as parent:
        workers: list[int] = []

        def working() -> bool:
            names = [name for name in os.listdir() if name.startswith("worker-")]
            workers[:] = [int(name.removeprefix("worker-")) for name in names]
            return bool(workers)

        jobs.until(working)
        parent.kill()
        jobs.until(lambda: not any(map(jobs.alive, workers)))
    assert jobs.shared_memory() <= shared


def test_workers_outlive_the_thread_that_started_them() -> None:
    pools: list[Any] = []
    thread = threading.Thread(target=lambda: pools.append(pool_of(jobs.process, "fork:2")))
    thread.start()
    thread.join()
    with pools.pop() as pool:
        assert len(list(pool.run(jobs.requests(50), ahead=3))) == 50
