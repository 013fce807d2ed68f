"""If workers or their parent die, there is an error or an end, never a hang."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest

import recmap as rm
from recmap.model.schema import Batch
from recmap.pipeline.workers import worker_main
from recmap.pipeline.workers.pool import Request
from tests import jobs
from tests.jobs import pool_of
from tests.processes import PROCESSES, WITH_WORKERS, running

pytestmark = [*WITH_WORKERS, pytest.mark.slow]


def workers_of(pool: jobs.BatchPool, count: int = 2) -> list[int]:
    """Return the processes of a pool whose work returns their ids."""
    seen: set[int] = set()
    for _, batch in pool.run(jobs.requests(), ahead=9):
        seen.add(int(batch["process"][0]))
        if len(seen) == count:
            break
    return sorted(seen)


@pytest.mark.parametrize("kind", PROCESSES)
def test_a_worker_killed_while_it_waits_is_an_error(kind: str) -> None:
    with pool_of(jobs.process, kind) as pool:
        victim, _ = workers_of(pool)
        list(pool.run(jobs.requests(9), ahead=0))
        os.kill(victim, signal.SIGKILL)
        jobs.until(lambda: not jobs.alive(victim))
        with pytest.raises(rm.WorkerDiedError, match=r"SIGKILL.*memory.*fewer workers") as info:
            list(pool.run(jobs.requests(9), ahead=3))
        assert str(victim) in str(info.value)
        assert info.value.exitcode == -9


@pytest.mark.parametrize(("kind", "number"), [("fork:2", 0), ("fork:2", 1), ("spawn:2", 1)])
def test_a_worker_killed_while_the_consumer_waits_is_an_error(kind: str, number: int) -> None:
    with (
        pool_of(jobs.holding, kind) as pool,
        jobs.meanwhile(
            lambda: jobs.worker(number) > 0, lambda: os.kill(jobs.worker(number), signal.SIGKILL)
        ),
        pytest.raises(rm.WorkerDiedError, match="signal 9 .SIGKILL. while it worked"),
    ):
        next(pool.run(jobs.requests(), ahead=3))


@pytest.mark.parametrize("kind", PROCESSES)
def test_a_worker_that_crashes_or_exits_is_an_error(kind: str) -> None:
    with pytest.raises(rm.WorkerDiedError, match=r"signal 11 \(SIGSEGV\).*workers=0"):
        list(pool_of(jobs.crash, kind).run(jobs.requests(), ahead=3))
    with pytest.raises(rm.WorkerDiedError, match="exit code 3") as info:
        list(pool_of(jobs.leave, kind).run(jobs.requests(), ahead=3))
    assert info.value.exitcode == 3


def test_the_death_of_a_worker_is_noticed_even_if_its_child_lives_on() -> None:
    def work(_: Request) -> Batch:
        child = os.fork()
        if child == 0:
            jobs.until(lambda: False, 600)
        with open("child.part", "w") as file:
            file.write(str(child))
        os.rename("child.part", "child")
        os.kill(os.getpid(), signal.SIGKILL)
        return {}

    with pytest.raises(rm.WorkerDiedError, match="SIGKILL"):
        next(pool_of(work, "fork:1").run(jobs.requests(), ahead=0))
    with open("child") as file:
        os.kill(int(file.read()), signal.SIGKILL)


@pytest.mark.parametrize("kind", PROCESSES)
def test_a_pool_that_is_dropped_leaves_no_process(kind: str) -> None:
    pool = pool_of(jobs.process, kind)
    workers = workers_of(pool)
    results = pool.run(jobs.requests(), ahead=9)
    next(results)
    del pool, results
    gc.collect()
    jobs.until(lambda: not any(map(jobs.alive, workers)))


def test_a_sigterm_handler_of_the_parent_does_not_keep_workers_alive() -> None:
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with (
            pool_of(jobs.holding, "fork:2") as pool,
            jobs.meanwhile(lambda: jobs.worker(0) > 0 and jobs.worker(1) > 0, pool.close),
            pytest.raises(rm.OptionError, match="closed"),
        ):
            next(pool.run(jobs.requests(), ahead=3))
    finally:
        signal.signal(signal.SIGTERM, before)
    jobs.until(lambda: not jobs.alive(jobs.worker(0)) and not jobs.alive(jobs.worker(1)))


PROGRAM = """
import os, sys
from tests import jobs
from tests.jobs import pool_of

def workers(pool):
    seen = set()
    for _, batch in pool.run(jobs.requests(), ahead=9):
        seen.add(int(batch["process"][0]))
        if len(seen) == 2:
            return seen

if __name__ == "__main__":
    one = pool_of(jobs.process, sys.argv[1])
    two = pool_of(jobs.process, sys.argv[1])
    print(*workers(one), *workers(two), flush=True)
    {then}
"""
WORK_ON = "for _ in zip(one.run(jobs.requests(), 9), two.run(jobs.requests(), 9)): pass"


@contextlib.contextmanager
def program(kind: str, then: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Run a program that prints the ids of its workers, and then does something."""
    with running(PROGRAM.replace("{then}", then), kind) as parent:
        assert parent.stdout is not None
        yield parent, [int(process) for process in parent.stdout.readline().split()]


# A fork of the program that lives on, with everything that was open in it.
FORK = "os.fork() or jobs.until(lambda: False, 600)\n    "


@pytest.mark.parametrize(
    ("kind", "then"),
    [
        *(("fork:2", WORK_ON), ("fork:2", "input()"), ("fork:2", FORK + WORK_ON)),
        ("spawn:2", FORK + WORK_ON),
    ],
)
def test_workers_end_when_their_parent_is_killed(kind: str, then: str) -> None:
    with program(kind, then) as (parent, workers):
        assert len(workers) == 4
        assert all(map(jobs.alive, workers))
        parent.kill()
        jobs.until(lambda: not any(map(jobs.alive, workers)))


@pytest.mark.parametrize("kind", PROCESSES)
def test_ctrl_c_ends_the_consumer_and_the_workers(kind: str) -> None:
    with program(kind, WORK_ON) as (parent, workers):
        os.killpg(parent.pid, signal.SIGINT)
        _, told = parent.communicate()
        assert parent.returncode == -signal.SIGINT
        assert told.count("KeyboardInterrupt") == 1
        assert told.count("Traceback") == 1
        jobs.until(lambda: not any(map(jobs.alive, workers)))


@pytest.mark.parametrize(
    ("kind", "then"),
    [
        ("fork:2", "next(one.run(jobs.requests(), 9))"),
        ("fork:2", "raise SystemExit(0)"),
        ("spawn:2", "next(one.run(jobs.requests(), 9))"),
    ],
)
def test_a_program_that_ends_without_closing_ends_its_workers(kind: str, then: str) -> None:
    with program(kind, then) as (parent, workers):
        _, told = parent.communicate()
        assert (parent.returncode, told) == (0, "")
        jobs.until(lambda: not any(map(jobs.alive, workers)))


@pytest.mark.parametrize("size", [10, 1_000_000])  # the pipe to a new process holds 64 KB
def test_a_program_without_a_guard_is_told_so(size: int) -> None:
    unguarded = """
import sys
import numpy as np, recmap as rm
from tests.jobs import who
ds = rm.from_arrays({"x": np.arange(int(sys.argv[1]))})
next(iter(ds.map(who, workers="spawn:2").batch(5)))
"""
    with running(unguarded, str(size)) as parent:
        _, told = parent.communicate()
        assert parent.returncode == 1
    last = told.splitlines()[-1]
    assert "WorkerDiedError" in last
    assert "while it started" in last
    assert 'if __name__ == "__main__":' in last


@pytest.mark.parametrize("code", [1, 3])
def test_a_worker_that_exits_at_work_is_not_told_of_a_guard(code: int) -> None:
    with pytest.raises(rm.WorkerDiedError, match=f"exit code {code} while it worked") as info:
        next(pool_of(partial(jobs.leave_with, code), "spawn:1").run(jobs.requests(), ahead=0))
    assert "__main__" not in str(info.value)


UNIMPORTABLE = """
import numpy as np, recmap as rm
exec('def f(row): return row', globals())
ds = rm.from_arrays({"x": np.arange(9)})
next(iter(ds.map(f, workers="spawn:2").batch(5)))
"""


def test_a_function_that_a_spawned_worker_cannot_import_is_named() -> None:
    # As in a REPL: there is no main module for the workers to import.
    with running(f"import sys\ndel sys.modules['__main__'].__file__\n{UNIMPORTABLE}") as parent:
        _, told = parent.communicate()
        assert parent.returncode == 1
    last = next(line for line in told.splitlines() if "OptionError: " in line)
    assert "Can't get attribute 'f'" in last
    assert "define the function in a module" in last
    assert "fork:N" in last
    assert "WorkerDiedError" not in told
    assert "if __name__" not in told


class _Picky:
    """Work that can be unpickled only where an exception is no obstacle."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __call__(self, request: Request) -> Batch:
        return {"x": request.positions}

    def __reduce__(self) -> tuple[Callable[[type[BaseException]], None], tuple[object, ...]]:
        return raise_it, (self.error,)


def raise_it(error: type[BaseException]) -> None:
    raise error("not here")


@pytest.mark.parametrize("error", [ImportError, EOFError, SystemExit, ConnectionResetError])
def test_any_exception_while_the_work_is_unpickled_reaches_the_consumer(
    error: type[BaseException],
) -> None:
    with pytest.raises(rm.OptionError, match=f"cannot import.*{error.__name__}: not here"):
        next(pool_of(_Picky(error), "spawn:2").run(jobs.requests(), ahead=3))


def test_a_fork_that_exits_early_is_not_told_of_a_guard() -> None:
    parent = os.getpid()

    def leave_early(*_: object) -> None:
        if os.getpid() != parent:
            os._exit(1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_main, "_set_signals", leave_early)
        with pytest.raises(rm.WorkerDiedError, match="exit code 1 while it started") as info:
            next(pool_of(jobs.process, "fork:1").run(jobs.requests(), ahead=0))
    assert "__main__" not in str(info.value)


def test_an_interrupt_while_spawned_workers_start_ends_them() -> None:
    # The main module takes forever in a worker, and the work does not fit into the socket.
    program = """
import os, sys, time
from functools import partial
if __name__ != "__main__":
    open(f"starting-{os.getpid()}", "w").close()
    time.sleep(600)
from tests import jobs
from tests.jobs import pool_of
pool_of(partial(jobs.echo, bytes(1 << 22)), "spawn:2")
"""

    def starting() -> list[int]:
        return [int(n.partition("-")[2]) for n in os.listdir() if n.startswith("starting-")]

    with running(program) as parent:
        jobs.until(lambda: len(starting()) == 2)
        os.killpg(parent.pid, signal.SIGINT)
        _, told = parent.communicate()
        assert parent.returncode == -signal.SIGINT
        assert told.count("KeyboardInterrupt") == 1
        jobs.until(lambda: not any(map(jobs.alive, starting())))


def test_an_interrupt_while_the_consumer_waits_closes_the_pool() -> None:
    with pool_of(jobs.holding, "fork:2") as pool:
        with (
            jobs.meanwhile(lambda: jobs.worker(0) > 0, lambda: os.kill(os.getpid(), signal.SIGINT)),
            pytest.raises(KeyboardInterrupt),
        ):
            next(pool.run(jobs.requests(), ahead=3))
        with pytest.raises(rm.OptionError, match="closed"):
            next(pool.run(jobs.requests(), ahead=3))
    jobs.until(lambda: not jobs.alive(jobs.worker(0)))


def test_an_interrupted_source_is_not_waited_for() -> None:
    def interrupted() -> Iterator[Request]:
        yield Request(0, 0, np.arange(3))
        raise KeyboardInterrupt

    with pool_of(jobs.holding, "fork:2") as pool:
        with pytest.raises(KeyboardInterrupt):
            next(pool.run(interrupted(), ahead=3))
