"""Orbax saves the state of to_jax() as JSON beside the model."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.numbered import ids

pytestmark = pytest.mark.slow


def batches() -> Any:
    return rm.from_arrays({"id": np.arange(48, dtype=np.int32)}).shuffle(seed=1).batch(4).to_jax()


def test_orbax_resumes_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    import orbax.checkpoint as ocp  # slow to import

    train = batches()
    assert len(list(islice(train, 3))) == 3
    with ocp.CheckpointManager(tmp_path) as manager:
        model = ocp.args.StandardSave({"w": np.zeros(3)})
        data = ocp.args.JsonSave(train.state())
        manager.save(3, args=ocp.args.Composite(model=model, data=data))
    with ocp.CheckpointManager(tmp_path) as manager:
        saved = manager.restore(3, args=ocp.args.Composite(data=ocp.args.JsonRestore()))
    assert ids(batches().restore(saved["data"])) == ids(batches())[3:]
