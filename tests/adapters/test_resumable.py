"""Epochs and states mean the same for whatever a loop or a trainer reads."""

from __future__ import annotations

import json
import pickle
from itertools import islice, product
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.numbered import ids

ROWS = 53
PLACE = {"at": 0, "given": 0, "done": 0}


def chain() -> rm.Stream:
    return rm.from_arrays({"id": np.arange(ROWS, dtype=np.int32)}).shuffle(seed=1).batch(4)


def whole(epochs: int) -> list[list[list[int]]]:
    pipeline = chain()
    return [ids(pipeline) for _ in range(epochs)]


def saved(stream: Any) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(json.dumps(stream.state_dict()))
    return state


def all_kinds() -> list[Any]:
    """Return everything that a loop can resume, of the same rows."""
    placed = chain().to_torch(device="cpu"), chain().to_jax()
    return [chain(), chain().to_torch(), *placed]


def test_whatever_a_loop_reads_has_the_same_epochs_and_states() -> None:
    epochs = whole(3)
    for one in all_kinds():
        assert one.epoch == 0
        assert ids(one) == epochs[0]
        assert one.epoch == 1
        assert ids(islice(one, 5)) == epochs[1][:5]
        state = json.loads(json.dumps(one.state()))
        assert one.state(batches=5) == state
        for other in all_kinds():
            assert other.restore(state).epoch == 1
            assert other.state() == state
            assert ids(other) == epochs[1][5:]
            assert other.epoch == 2
            assert ids(other) == epochs[2]
            other.epoch = 1
            assert ids(other) == epochs[1]
            if hasattr(one, "state_dict"):
                assert ids(other.restore(saved(one))) == epochs[1][5:]


def test_whatever_a_trainer_reads_takes_the_states_of_the_others() -> None:
    epochs = whole(2)
    for one, other in product(all_kinds()[1:], all_kinds()[1:]):
        one.epoch = 0
        list(islice(one, 5))
        for state in (saved(one), one.state()):
            other.load_state_dict(state)
            assert saved(other) == saved(one)
            assert ids(other) == epochs[0][5:]
        other.load_state_dict(saved(one))
        other.set_epoch(1)
        assert ids(other) == epochs[1]
        one.epoch = 0
        list(islice(one, len(epochs[0])))  # does not reach the end of the iteration
        for told, expected in ((0, []), (1, epochs[1])):
            other.load_state_dict(saved(one))
            other.set_epoch(told)
            assert ids(other) == expected


def test_a_state_of_workers_is_refused_where_none_read() -> None:
    for each in all_kinds():
        state = {**saved(chain().to_torch()), "workers": 2}
        with pytest.raises(rm.OptionError, match="saved with num_workers=2"):
            ids(each.restore(state))


@pytest.mark.parametrize("kind", ["torch", "device", "jax"])
def test_a_place_that_is_chosen_in_the_middle_of_an_epoch_is_in_the_state(kind: str) -> None:
    epochs = whole(4)
    pipeline = chain()
    adapters: dict[str, Any] = {
        "torch": pipeline.to_torch,
        "device": lambda: pipeline.to_torch(device="cpu"),
        "jax": pipeline.to_jax,
    }
    one = adapters[kind]()
    list(islice(one, 5))
    begun = one.state()
    pipeline.epoch = 2
    start = {**begun, **PLACE, "epoch": 2}
    assert one.state() == pipeline.state() == start
    assert json.loads(saved(one)["state"]) == one.state()
    list(islice(one, 3))
    pipeline.restore(begun)
    assert one.state() == begun
    assert ids(one) == epochs[0][5:]
    list(islice(pipeline, 2))  # read without it
    assert one.state() == pipeline.state()
    assert ids(chain().restore(one.state())) == epochs[1][2:]


def test_the_state_of_the_pipeline_is_that_of_the_loop_when_batches_are_read_ahead() -> None:
    pipeline = chain()
    for placed in (pipeline.to_torch(device="cpu", prefetch=4), pipeline.to_jax(prefetch=4)):
        pipeline.epoch = 0
        for count, _ in enumerate(placed, 1):
            assert pipeline.state() == placed.state() == pipeline.state(batches=count)
        assert pipeline.state()["epoch"] == 1


def test_a_later_iteration_has_its_own_state_whatever_an_earlier_one_gives() -> None:
    placed = chain().to_torch(device="cpu")
    first = iter(placed)
    next(first)
    second = iter(placed)
    next(second)
    next(second)
    state = placed.state()
    next(first)
    assert placed.state() == state
    assert (state["epoch"], state["given"]) == (1, 2)


def test_copies_keep_their_place() -> None:
    placed = chain().to_torch(device="cpu")
    list(islice(placed, 3))
    copied = pickle.loads(pickle.dumps(chain().restore(placed.state())))
    assert copied.state() == placed.state()


def test_leaving_the_place_that_was_restored_warns() -> None:
    stream = chain().to_torch()
    list(stream)
    list(islice(stream, 3))
    for again in all_kinds()[1:]:
        again.load_state_dict(saved(stream))
        with pytest.warns(rm.NotResumableWarning, match="of epoch 1, is not used"):
            again.set_epoch(0)
        assert ids(again) == whole(1)[0]
        again.load_state_dict(saved(stream))
        again.set_epoch(2)  # what a limited epoch has left is not wanted
        assert ids(again) == whole(3)[2]


def test_the_end_of_a_repetition_is_not_taken_for_a_later_epoch() -> None:
    def repeated() -> Any:
        rows = rm.from_arrays({"id": np.arange(ROWS)}).shuffle(seed=1).batch(4)
        return rows.repeat(2).to_torch(device="cpu")

    one = repeated()
    list(islice(one, len(one)))  # does not reach the end of the iteration
    again = repeated()
    again.load_state_dict(saved(one))
    again.set_epoch(0)  # the rest is not asked for
    again.set_epoch(1)
    assert len(ids(again)) == len(one)
