"""A batch is freed as soon as the loop drops it: nothing in a pipeline keeps it alive."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import recmap as rm

ROWS = 40


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


def odd(row: dict[str, Any]) -> bool:
    return bool(row["i"] % 2)


def memory() -> rm.Dataset:
    # Rows are large, so that batches are read one by one.
    return rm.from_arrays({"i": np.arange(ROWS), "x": np.zeros((ROWS, 1 << 17))})


def compressed() -> rm.Dataset:
    rm.from_arrays({"i": np.arange(ROWS), "x": np.zeros((ROWS, 512))}).save("d.tfrecord.gz")
    return rm.open("d.tfrecord.gz")


def ragged() -> rm.Dataset:
    rows = rm.Ragged.from_rows([np.ones(500 + i) for i in range(ROWS)])
    return rm.from_arrays({"i": np.arange(ROWS), "x": rows})


def sequences() -> rm.Dataset:
    ragged().save("d.tfrecord")
    return rm.open("d.tfrecord")


CHAINS: dict[str, Callable[[], rm.Stream]] = {
    "in order": lambda: memory().batch(8),
    "small, read together": lambda: rm.from_arrays({"x": np.arange(ROWS)}).batch(4),
    "without threads": lambda: memory().batch(8).prefetch(0),
    "shuffled": lambda: memory().shuffle(seed=1).batch(8),
    "shuffled by windows": lambda: memory().shuffle(seed=1, window=16).batch(8),
    "compressed": lambda: compressed().batch(8),
    "mapped": lambda: memory().map(same).batch(8),
    "mapped in threads": lambda: memory().map(same, workers="threads:2").batch(8),
    "mapped in processes": lambda: memory().map(same, workers=2).batch(8),
    "mapped as batches": lambda: memory().batch(8).map(same),
    "filtered": lambda: memory().filter(odd).batch(4),
    "filtered and mapped": lambda: memory().filter(odd).batch(4).map(same),
    "filtered and cut": lambda: memory().filter(odd).batch(4).skip(1).take(3),
    "padded": lambda: ragged().batch(8, pad="longest"),
    "padded while read": lambda: sequences().batch(8, pad="longest"),
    "buckets": lambda: ragged().bucket("x", [520]).batch(4, pad="longest"),
    "packed": lambda: ragged().pack(4096, ["x"]).batch(2),
}


def gone(batches: Iterator[Any], array: Callable[[Any], Any]) -> list[bool]:
    """Return, for each batch, whether it was freed when the loop dropped it."""
    found = []
    for batch in batches:
        seen = weakref.ref(array(batch))
        del batch
        found.append(seen() is None)
    return found


@pytest.fixture(autouse=True)
def _no_garbage_collector() -> Iterator[None]:
    """Disable the garbage collector: batches must be freed without it."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("chain", CHAINS)
def test_a_batch_is_freed_when_the_loop_drops_it(chain: str) -> None:
    found = gone(iter(CHAINS[chain]()), lambda batch: batch["x"])
    assert len(found) >= 3
    assert all(found)


def test_a_batch_of_several_epochs_is_freed() -> None:
    assert all(gone(memory().batch(8).run(epochs=2), lambda batch: batch["x"]))


def test_a_batch_is_freed_when_a_framework_drops_it() -> None:
    train = rm.from_arrays({"x": np.zeros((ROWS, 1 << 17), "float32")}).batch(8)
    assert all(gone(iter(train.to_torch()), lambda batch: batch["x"]))
    assert all(gone(iter(train.to_jax(prefetch=0)), lambda batch: batch["x"]))


def test_tensorflow_asks_for_a_batch_after_the_previous_one_is_freed() -> None:
    made: list[weakref.ref[Any]] = []
    kept: list[bool] = []

    def odd_place(batch: dict[str, Any]) -> dict[str, Any]:
        kept.append(any(seen() is not None for seen in made))
        # TensorFlow only shares memory that begins on a cache line, so it copies this.
        x = np.zeros(len(batch["i"]) * (1 << 15) + 1, "float32")[1:].reshape(len(batch["i"]), -1)
        made.append(weakref.ref(x))
        return {"x": x}

    train = memory().select("i").batch(8).map(odd_place).prefetch(0)
    batches = train.to_tf()
    made.clear()  # the first was a sample
    kept.clear()
    assert len(list(batches)) == 5
    assert kept == [False] * 5


@pytest.fixture
def _slow_threads() -> Iterator[None]:
    """Interrupt threads at every line, long enough for other threads to continue."""
    never = threading.Event()

    def interrupted(*_: object) -> Callable[..., Any]:
        never.wait(0.001)
        return interrupted

    threading.settrace(interrupted)
    yield
    threading.settrace(None)


@pytest.mark.usefixtures("_slow_threads")
@pytest.mark.parametrize("workers", [None, "threads:2"])
def test_a_batch_is_freed_wherever_the_thread_that_made_it_is_interrupted(
    workers: str | None,
) -> None:
    train = rm.from_arrays({"x": np.zeros((3, 1 << 17))}).batch(1).prefetch(1)
    train = train if workers is None else train.map(same, workers=workers)
    assert gone(iter(train), lambda batch: batch["x"]) == [True] * 3
