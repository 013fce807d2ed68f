"""Epochs and states mean the same for whatever a loop or a trainer reads."""

from __future__ import annotations

import json
from itertools import islice, product
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.numbered import ids

ROWS = 53


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
