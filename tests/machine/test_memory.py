"""Batches reuse the memory of freed batches, and only of those."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import numpy as np
import pytest

import recmap as rm
from recmap.machine.memory import (
    anonymous_memory,
    empty,
    give_back,
    locked_pages,
    locks_pages,
    page_locking,
)
from recmap.machine.threads import start_thread
from recmap.native import _core
from tests.jobs import until

_LARGE = (1024, 256)
_FLOAT = np.dtype("float32")


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_memory_is_reused_when_the_array_is_freed() -> None:
    first = empty(_LARGE, _FLOAT)
    where = _address(first)
    del first
    assert _address(empty(_LARGE, _FLOAT)) == where


def test_an_array_that_is_held_keeps_its_memory() -> None:
    held = empty(_LARGE, _FLOAT)
    held[:] = 7
    empty(_LARGE, _FLOAT)[:] = 1
    assert (held == 7).all()


def test_a_view_of_a_view_keeps_the_memory() -> None:
    view = empty(_LARGE, _FLOAT).reshape(-1)[10:].view(np.uint32)[::2]
    view[:] = 7
    gc.collect()
    empty(_LARGE, _FLOAT)[:] = 1
    assert (view == 7).all()


def test_a_memoryview_keeps_the_memory() -> None:
    array = empty(_LARGE, _FLOAT)
    array[:] = 7
    shared = array.data
    del array
    empty(_LARGE, _FLOAT)[:] = 1
    assert (np.asarray(shared) == 7).all()


def test_a_smaller_batch_reuses_a_buffer_but_not_a_much_larger_one() -> None:
    where = _address(empty((1024, 1024), _FLOAT))
    smaller = empty((1000, 1024), _FLOAT)
    assert _address(smaller) == where
    del smaller
    assert _address(empty((100, 1024), _FLOAT)) != where


def test_numpy_allocates_small_arrays_and_objects() -> None:
    assert empty((0, 256), _FLOAT).base is None
    assert empty((1, 256), _FLOAT).base is None
    assert empty((1 << 20,), np.dtype(object)).base is None


@pytest.mark.slow
def test_memory_that_nobody_uses_returns_to_the_system() -> None:
    held = empty((1 << 24,), _FLOAT)
    held[:] = 1  # 64 MiB
    before = anonymous_memory()
    del held
    give_back()
    assert anonymous_memory() < before - (60 << 20)
    held = empty((1 << 24,), _FLOAT)
    held[:] = 1
    before = anonymous_memory()
    del held
    until(lambda: anonymous_memory() < before - (60 << 20))


def test_an_array_that_cannot_be_allocated_raises_a_memory_error() -> None:
    with pytest.raises(MemoryError):
        empty((1 << 60,), np.dtype(np.uint8))


def test_threads_that_make_arrays_do_not_disturb_each_other() -> None:
    def work(number: int) -> bool:
        sound = True
        for i in range(50):
            array = empty((1 << 18,), _FLOAT)
            array[:] = number * 100 + i
            sound &= bool((array == number * 100 + i).all())
        return sound

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


def test_batches_of_a_mapped_file_do_not_change_while_held() -> None:
    values = np.random.default_rng(0).random((4096, 1024), np.float32)
    np.save("x.npy", values)
    train = rm.open("x.npy").shuffle(seed=1).batch(256)
    kept = np.concatenate([batch["data"] for batch in list(train)])
    assert np.array_equal(np.sort(kept, 0), np.sort(values, 0))


def test_batches_of_records_do_not_change_while_held() -> None:
    rows = [np.full(n, n) for n in range(1000)]
    with rm.TFRecordWriter("x.tfrecord") as writer:
        writer.write({"x": rm.Ragged.from_rows(rows), "y": np.ones((1000, 200), np.float32)})
    batches = list(rm.open("x.tfrecord").batches(250))
    assert all(batch["x"].values.nbytes > 1 << 18 for batch in batches[1:])
    found = [row for batch in batches for row in batch["x"]]
    assert all(np.array_equal(row, wanted) for row, wanted in zip(found, rows, strict=True))
    assert all((batch["y"] == 1).all() for batch in batches)


def test_a_slightly_larger_batch_fits() -> None:
    where = _address(empty((1000, 1001), _FLOAT))
    assert _address(empty((1000, 1010), _FLOAT)) == where


def test_memory_that_was_never_allocated_cannot_be_read() -> None:
    with pytest.raises(BufferError):
        memoryview(_core.Memory.__new__(_core.Memory))  # type: ignore[arg-type]  # on purpose


def test_threads_of_the_pools_take_no_signals() -> None:
    program = """
import os, signal, numpy as np, recmap as rm
from recmap.machine.memory import empty
from recmap.native import _core
empty((1 << 20,), np.dtype("float32"))  # a thread waits to release it
_core.permute(1 << 20, np.arange(8, dtype=np.uint32), False, np.arange(1 << 18), 4)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
os.kill(os.getpid(), signal.SIGUSR1)
print(signal.sigwait([signal.SIGUSR1]) == signal.SIGUSR1)
"""
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert run.stdout == "True\n", (run.returncode, run.stderr)


def test_pages_are_locked_for_the_thread_that_asks_and_those_it_starts() -> None:
    seen = []
    with page_locking(True):
        assert locks_pages()
        thread = start_thread(lambda: seen.append(locks_pages()), name="inside")
        assert thread is not None
        thread.join()
        outside = Thread(target=lambda: seen.append(locks_pages()))
        outside.start()
        outside.join()
    assert seen == [True, False]
    assert not locks_pages()
    with locked_pages(None):
        assert not locks_pages()
