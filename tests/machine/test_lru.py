"""``Lru`` keeps what was used last."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from recmap.machine.lru import Lru


def test_the_least_recently_used_values_are_dropped() -> None:
    lru = Lru[int, str](2)
    assert lru.put(1, "a") == lru.put(2, "b") == []
    assert lru.get(1) == "a"
    assert lru.put(3, "c") == ["b"]
    assert (lru.get(2), list(lru), len(lru), 1 in lru, 2 in lru) == (None, [1, 3], 2, True, False)
    assert lru.put(1, "d") == []
    assert lru.put(4, "e", most=1) == ["c", "d"]
    assert (lru.pop(4), lru.pop(4), len(lru)) == ("e", None, 0)


def test_a_limit_in_bytes_keeps_the_last_value_whatever_its_size() -> None:
    lru = Lru[str, bytes](4, len)
    lru.put("a", b"12")
    lru.put("b", b"34")
    assert lru.put("a", b"5") == []  # replaces the two bytes
    assert lru.put("c", b"6") == []
    assert lru.put("large", b"1234567") == [b"34", b"5", b"6"]
    assert lru.shrink(0) == [b"1234567"]


def test_it_behaves_like_a_list_in_the_order_of_use() -> None:
    rng = random.Random(0)
    for size in (None, abs):
        lru, reference = Lru[int, int](12, size), list[tuple[int, int]]()
        for _ in range(2000):
            key, value = rng.randrange(20), rng.randrange(1, 9)
            found = dict(reference).get(key)
            if rng.random() < 0.5:
                assert lru.get(key) == found
                if found is None:
                    continue
                value = found
            else:
                lru.put(key, value)
            reference = [pair for pair in reference if pair[0] != key] + [(key, value)]
            while _used(reference, counted=size is None) > 12 and len(reference) > 1:
                del reference[0]
            assert list(lru) == [key for key, _ in reference]


def _used(pairs: Sequence[tuple[int, int]], counted: bool) -> int:
    return len(pairs) if counted else sum(value for _, value in pairs)


def test_threads_share_it() -> None:
    lru = Lru[int, int](8)

    def use(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(2000):
            key = rng.randrange(30)
            assert lru.get(key) in (None, key)
            lru.put(key, key)
            lru.pop(rng.randrange(30))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(use, range(4)))
    lru.put(-1, -1)
    assert len(lru) <= 8
