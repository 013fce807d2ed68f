"""The seeded scheduler: the same seed gives the same order, and finds what an order breaks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from queue import Empty
from typing import Any

import pytest

from recmap.machine import threads as real_threads
from tests.schedule import Schedule, StuckError

#: A module that uses threads, with the classes that a schedule gives it.
threads: Any = real_threads


def started(*works: Callable[[], None]) -> list[Any]:
    return [threads.start_thread(work, name=f"thread {i}") for i, work in enumerate(works)]


def lost_update(seed: int) -> tuple[int, list[tuple[int, str]]]:
    """Count to 4 in two threads, with a lock around reading and one around writing."""
    with Schedule(seed) as schedule:
        lock, total = threads.threading.Lock(), [0]

        def count() -> None:
            for _ in range(2):
                with lock:
                    seen = total[0]
                with lock:
                    total[0] = seen + 1

        for thread in started(count, count):
            thread.join()
    return total[0], schedule.trace


def test_a_lost_update_is_found_and_played_again() -> None:
    totals = {seed: lost_update(seed) for seed in range(20)}
    assert {total for total, _ in totals.values()} > {2, 4}
    assert len({tuple(trace) for _, trace in totals.values()}) > 10
    for seed, found in totals.items():
        assert lost_update(seed) == found


def test_a_deadlock_says_where_every_thread_waits() -> None:
    def crossed(seed: int) -> None:
        with Schedule(seed):
            a, b = threads.threading.Lock(), threads.threading.RLock()

            def take(first: Any, second: Any) -> None:
                with first, second:
                    pass

            for thread in started(lambda: take(a, b), lambda: take(b, a)):
                thread.join()

    said = {}
    for seed in range(10):
        with suppress(StuckError):
            crossed(seed)
            continue
        with pytest.raises(StuckError) as stuck:
            crossed(seed)
        said[seed] = str(stuck.value)
    assert 0 < len(said) < 10
    for seed, text in said.items():
        waits = "main at Thread.join, thread 0 at RLock.acquire, thread 1 at Lock.acquire"
        assert text == f"seed {seed}: every thread waits: {waits}"


def test_timeouts_pass_only_if_nothing_else_can_go_on() -> None:
    with Schedule(1):
        event, queue = threads.threading.Event(), threads.SimpleQueue()
        for thread in started(event.set):
            assert event.wait(0.001)
            thread.join(0.001)
            assert not thread.is_alive()
        with pytest.raises(Empty):
            queue.get(timeout=1000)
        with pytest.raises(StuckError, match=r"main at SimpleQueue\.get"):
            queue.get()


def test_everything_is_as_before_afterwards() -> None:
    before = threads.SimpleQueue, threads.threading, threads.threading.Lock
    with Schedule(1):
        assert threads.SimpleQueue is not before[0]
        waiting = started(threads.SimpleQueue().get)
    assert not waiting[0].is_alive()
    assert (threads.SimpleQueue, threads.threading, threads.threading.Lock) == before
