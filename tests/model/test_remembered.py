"""What takes long is computed once, by one thread, and pickled."""

from __future__ import annotations

import contextlib
import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from recmap.model.remembered import Remembered

_calls: list[int] = []


def compute(key: int) -> list[int]:
    _calls.append(key)
    return [key] * 3


def test_threads_wait_for_the_one_that_computes() -> None:
    _calls.clear()
    value, ready = Remembered(compute, 5), Barrier(4)

    def ask(_: int) -> list[int]:
        ready.wait()
        return value.at(5)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(ask, range(4)))
    assert all(each is found[0] for each in found)
    assert _calls == [5]


def test_the_last_few_are_kept() -> None:
    _calls.clear()
    value = Remembered(compute, 0, keep=2)
    assert [value.at(key)[0] for key in (0, 1, 0, 1, 2, 1, 0)] == [0, 1, 0, 1, 2, 1, 0]
    assert _calls == [0, 1, 2, 0]


def test_a_copy_has_the_value_and_does_not_compute_it() -> None:
    _calls.clear()
    sent = pickle.dumps([Remembered(compute, 1, only=True), Remembered(compute, 2)])
    assert _calls == [1, 2]
    one, other = pickle.loads(sent)
    assert (one.at(1), other.at(2)) == ([1] * 3, [2] * 3)
    assert _calls == [1, 2]
    assert other.at(7) == [7] * 3


def test_what_is_not_pickled_is_computed_again() -> None:
    _calls.clear()
    copied = pickle.loads(pickle.dumps(Remembered(compute, 1, pickled=False)))
    assert _calls == []
    assert copied.at(1) == copied.at(1) == [1] * 3
    assert _calls == [1]


def test_a_failure_is_not_remembered() -> None:
    tries: list[int] = []

    def once_in_two(key: int) -> int:
        tries.append(key)
        if len(tries) == 1:
            raise ValueError(key)
        return key

    value = Remembered(once_in_two, 0)
    with contextlib.suppress(ValueError):
        value.at(3)
    assert value.at(3) == 3
