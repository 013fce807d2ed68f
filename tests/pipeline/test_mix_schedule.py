"""``rm.mix(schedule=...)``: weights that change over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm

RISING: Any = [(0, [0.9, 0.1]), (8000, [0.5, 0.5])]


def branches(*counts: int) -> list[rm.Dataset]:
    return [
        rm.from_arrays({"owner": np.full(n, i), "row": np.arange(n)}) for i, n in enumerate(counts)
    ]


def expected_rows(schedule: Any, stop: int) -> np.ndarray[Any, Any]:
    """Return how many rows of each branch the first ``stop`` positions have, by plain sums."""
    positions = [position for position, _ in schedule]
    weights = np.array([np.array(each) / sum(each) for _, each in schedule])
    middles = np.arange(stop) + 0.5
    return np.array([np.interp(middles, positions, each).cumsum() for each in weights.T]).T


@pytest.mark.parametrize(
    "schedule",
    [
        RISING,
        [(0, [1, 0]), (4000, [0, 1])],
        [(500, [1, 3]), (501, [3, 1]), (3000, [1, 1]), (3007, [9, 1])],
        [(2000, [0.3, 0.7])],
        [(0, [1, 0]), (1000, [1, 0]), (1001, [0, 1])],
    ],
)
def test_shares_follow_the_schedule(schedule: Any) -> None:
    mixed = rm.mix(*[each.repeat() for each in branches(100, 1000)], schedule=schedule, seed=3)
    rows = mixed.head(10_000)
    expected = expected_rows(schedule, 10_000)
    for branch in range(2):
        taken = np.cumsum(rows["owner"] == branch)
        # Rows are swapped within 8, and shares are constant within a 64th of a line.
        assert np.abs(taken - expected[:, branch]).max() < 12
        mine = rows["row"][rows["owner"] == branch]
        assert np.array_equal(mine, np.arange(len(mine)) % (100, 1000)[branch])


def test_constant_weights_end_like_those_of_weights() -> None:
    for until in ("first", "all"):
        plain = rm.mix(*branches(30, 100), weights=[0.5, 0.5], until=until)
        scheduled = rm.mix(*branches(30, 100), schedule=[(0, [1, 1])], until=until)
        assert len(plain) == len(scheduled)
        assert np.array_equal(plain[:]["owner"], scheduled[:]["owner"])


@pytest.mark.slow
def test_random_schedules_take_every_row_once_and_in_order() -> None:
    random = np.random.default_rng(4)
    for _ in range(25):
        counts = random.integers(0, 300, random.integers(1, 5)).tolist()
        places = np.sort(random.choice(400, random.integers(1, 5), replace=False)).tolist()
        schedule = [(place, random.integers(0, 3, len(counts)).tolist()) for place in places]
        schedule = [(p, weights if any(weights) else [1] * len(counts)) for p, weights in schedule]
        schedule[-1] = (places[-1], [1] * len(counts))
        for until in ("first", "all"):
            mixed = rm.mix(*branches(*counts), schedule=schedule, until=until, seed=1)
            rows = mixed[:]
            for branch, count in enumerate(counts):
                mine = rows["row"][rows["owner"] == branch]
                assert np.array_equal(mine, np.arange(len(mine)))
                assert until == "first" or len(mine) == count
            some = random.permutation(len(mixed))[:20]
            assert np.array_equal(mixed[some]["row"], rows["row"][some])


@pytest.mark.slow
def test_ranks_and_states_see_one_order(tmp_path: Path) -> None:
    for i, each in enumerate(branches(300, 500)):
        each.save(tmp_path / f"{i}.tfrecord")
    opened = [rm.open(tmp_path / f"{i}.tfrecord") for i in range(2)]

    def train(schedule: Any = ((0, [0.9, 0.1]), (200, [0.2, 0.8]))) -> rm.Stream:
        return rm.mix(*opened, schedule=schedule, seed=2).batch(16)

    whole = [pairs(batch) for batch in train()]
    for world in (2, 3):
        ranks = [[pairs(batch) for batch in train().shard(rank, world)] for rank in range(world)]
        dealt = sorted(pair for rank in ranks for batch in rank for pair in batch)
        assert dealt == sorted(pair for batch in whole for pair in batch)
        assert ranks[1][0] == whole[1]
    stream = train()
    states = [stream.state()]
    states += [stream.state() for _ in stream]
    for done, state in enumerate(states[:-1]):
        again = train()
        again.restore(state)
        assert [pairs(batch) for batch in again] == whole[done:]
    other = train(((0, [0.9, 0.1]), (200, [0.2, 0.8]), (210, [1, 0])))
    other.restore(states[3])
    rest = [pairs(batch) for batch in other]
    # Up to the point that was added, both schedules are the same.
    assert rest[: 200 // 16 - 3] == whole[3 : 200 // 16]
    assert {owner for batch in rest[12:] for owner, _ in batch} == {0}


def pairs(batch: dict[str, Any]) -> Sequence[tuple[int, int]]:
    return list(zip(batch["owner"].tolist(), batch["row"].tolist(), strict=True))


def test_another_schedule_is_another_conversion(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(10))
    ds = rm.open(tmp_path / "x.npy")
    rm.mix(ds, ds, schedule=[(0, [1, 2])]).save(tmp_path / "out", format="npy", shards=2)
    with pytest.raises(rm.OutputExistsError):
        rm.mix(ds, ds, schedule=[(0, [2, 1])]).save(tmp_path / "out", format="npy", shards=2)


def test_schedules_that_mean_nothing_are_refused() -> None:
    a, b = branches(3, 3)
    for schedule, words in {
        (): "increasing positions",
        ((5, (1, 1)), (0, (1, 1))): "increasing positions",
        ((0, (1, 1, 1)),): "3 weights for 2 datasets",
        ((0, (0, 0)),): "not all 0",
        ((0, (1, -1)),): "0 or more",
        ((0, (1, float("nan"))),): "0 or more",
        ((-1, (1, 1)),): "schedule=-1",
        (0.5,): "not a position",
        ((0, ("a", "b")),): "not numbers",
    }.items():
        with pytest.raises(rm.OptionError, match=words):
            rm.mix(a, b, schedule=schedule)  # type: ignore[arg-type]
    with pytest.raises(rm.OptionError, match="weights, or a schedule"):
        rm.mix(a, b, weights=[1, 1], schedule=[(0, [1, 1])])
