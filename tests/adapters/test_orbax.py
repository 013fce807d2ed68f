"""Orbax saves the state of to_jax() as JSON beside the model."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.numbered import flat, ids

pytestmark = pytest.mark.slow


def batches(rank: int = 0, world: int = 1) -> Any:
    ds = rm.from_arrays({"id": np.arange(48, dtype=np.int32)})
    return ds.shuffle(seed=1).batch(4).shard(rank, world).to_jax()


def saved_and_restored(folder: Path, train: Any) -> Any:
    import orbax.checkpoint as ocp  # slow to import

    with ocp.CheckpointManager(folder) as manager:
        model = ocp.args.StandardSave({"w": np.zeros(3)})
        data = ocp.args.JsonSave(train.state())
        manager.save(3, args=ocp.args.Composite(model=model, data=data))
    with ocp.CheckpointManager(folder) as manager:
        saved = manager.restore(3, args=ocp.args.Composite(data=ocp.args.JsonRestore()))
    return saved["data"]


def test_orbax_resumes_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    train = batches()
    assert len(list(islice(train, 3))) == 3
    state = saved_and_restored(tmp_path, train)
    assert ids(batches().restore(state)) == ids(batches())[3:]


def test_orbax_resumes_with_other_ranks(tmp_path: Path) -> None:
    seen = [number for rank in range(2) for number in flat(ids(batches(rank, 2))[:2])]
    train = batches(0, 2)
    assert len(list(islice(train, 2))) == 2
    one = batches().restore(saved_and_restored(tmp_path / "two", train))
    seen += flat(ids(islice(one, 3)))
    state = saved_and_restored(tmp_path / "one", one)
    seen += [number for rank in range(2) for number in flat(ids(batches(rank, 2).restore(state)))]
    assert sorted(seen) == list(range(48))
