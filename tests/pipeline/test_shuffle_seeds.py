"""Seeds of a shuffle: given by name, or drawn and kept."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import recmap as rm


def dataset() -> rm.Dataset:
    return rm.from_arrays({"x": np.arange(50)})


def numbers(batches: Any) -> list[int]:
    return [n for batch in batches for n in np.atleast_1d(batch["x"]).tolist()]


@pytest.mark.parametrize("given", [(1000,), (7, 8), ("x",)], ids=str)
def test_a_buffer_size_is_refused_with_a_remedy(given: tuple[Any, ...]) -> None:
    with pytest.raises(rm.OptionError, match=r"exact and needs no buffer; write shuffle\(\)") as e:
        dataset().shuffle(*given)
    assert f"shuffle(seed={given[0]!r})" in str(e.value)


@pytest.mark.parametrize("window", [None, 16])
def test_a_state_restores_a_drawn_seed(window: int | None) -> None:
    train = dataset().shuffle(window=window).batch(4)
    batches = iter(train)
    had = [next(batches) for _ in range(3)]
    state = json.loads(json.dumps(train.state()))
    again = dataset().shuffle(window=window).batch(4).restore(state)
    rest = numbers(again)
    assert rest == numbers(batches)
    assert sorted(numbers(had) + rest) == list(range(50))
    assert numbers(again) == numbers(train)  # the next epoch, too


def test_drawn_seeds_differ_and_are_shown() -> None:
    a, b = dataset().shuffle(), dataset().shuffle()
    assert numbers(a) != numbers(b)
    seed = a.state()["verbs"][0].removeprefix("shuffle(seed=").removesuffix(")")
    assert seed in repr(a)
    a.epoch = 0
    assert numbers(dataset().shuffle(seed=int(seed))) == numbers(a)


def test_a_state_does_not_replace_an_explicit_seed() -> None:
    state = dataset().shuffle(seed=3).batch(4).state()
    dataset().shuffle().batch(4).restore(state)
    drawn = dataset().shuffle().batch(4).state()
    with pytest.raises(rm.OptionError, match=r"shuffle\(seed=3\) now"):
        dataset().shuffle(seed=3).batch(4).restore(drawn)


def test_ranks_need_an_explicit_seed() -> None:
    for chain in (dataset().shuffle(), rm.mix(dataset().shuffle(), dataset())):
        with pytest.raises(rm.OptionError, match=r"give all the same one: shuffle\(seed="):
            chain.batch(4).shard(0, 2)
    dataset().shuffle().batch(4).shard(0, 1)


@pytest.mark.parametrize("window", [None, 16])
def test_reshuffle_false_gives_all_epochs_one_order(window: int | None) -> None:
    train = dataset().shuffle(seed=1, window=window, reshuffle=False)
    first = numbers(train)
    assert first == numbers(train) != sorted(first)
    assert first == numbers(dataset().shuffle(seed=1, window=window))
    with pytest.raises(rm.OptionError, match="reshuffle=3"):
        dataset().shuffle(seed=1, reshuffle=3)  # type: ignore[arg-type]
