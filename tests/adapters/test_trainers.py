"""Trainers on several ranks, killed in the middle of an epoch and resumed: every row once.

All cases run in one script, which imports the trainers once: trainer_ranks.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import recmap as rm
from tests.numbered import flat, ids

pytestmark = pytest.mark.slow

ROWS, BATCH, EPOCHS = 48, 4, 3
ELASTIC = [
    "ddp",
    "stateful",
    "stateful_worker",
    "loader_workers",
    "distributed_checkpoint",
    "accelerated",
    "keras_fit",
]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run everything, and return the folder of what was logged."""
    folder = tmp_path_factory.mktemp("trainers")
    script = [sys.executable, "-m", "tests.adapters.trainer_ranks", str(folder)]
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"}
    environment["KERAS_BACKEND"] = "torch"
    done = subprocess.run(
        script, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


def steps(path: Path, name: str, rank: int) -> list[list[int]]:
    """Return the rows of each step that a rank has logged."""
    failed = path / f"{name}-{rank}.error"
    assert not failed.exists(), failed.read_text()
    lines = (path / f"{name}-{rank}.log").read_text().splitlines()
    return [json.loads(line)[1] for line in lines]


def of_epoch(path: Path, name: str, ranks: int, epoch: int) -> list[int]:
    """Return the rows of an epoch on all ranks."""
    logged = [
        json.loads(line)
        for rank in range(ranks)
        for line in (path / f"{name}-{rank}.log").read_text().splitlines()
    ]
    return [number for at, numbers in logged if at == epoch for number in numbers]


def uninterrupted(rank: int) -> list[list[int]]:
    train = rm.from_arrays({"id": np.arange(ROWS)}).shuffle(seed=1).batch(BATCH).shard(rank, 2)
    return [step for _ in range(EPOCHS) for step in ids(train)]


def refusal(path: Path, name: str) -> str:
    return (path / f"{name}-0.error").read_text().rstrip().splitlines()[-1]


@pytest.mark.parametrize("case", [*ELASTIC, "stateful_workers"])
def test_as_many_ranks_continue_where_they_were_killed(logs: Path, case: str) -> None:
    for rank in range(2):
        assert (
            steps(logs / case, "killed", rank) + steps(logs / case, "resumed", rank)
        ) == uninterrupted(rank)


@pytest.mark.parametrize("case", ELASTIC)
def test_other_ranks_read_the_rest_of_the_epoch_once(logs: Path, case: str) -> None:
    path = logs / case / "other"
    for rank in range(2):
        assert steps(path, "two", rank)
    for epoch in range(EPOCHS):
        parts = [of_epoch(path, name, n, epoch) for name, n in (("killed", 2), ("one", 1))]
        assert sorted(flat([*parts, of_epoch(path, "two", 2, epoch)])) == list(range(ROWS))


def test_several_workers_are_refused_other_ranks_in_the_middle_of_an_epoch(logs: Path) -> None:
    assert "with 2 ranks" in refusal(logs / "stateful_workers" / "other", "one")


@pytest.mark.parametrize("case", ["lightning_fit", "lightning_on_device"])
def test_lightning_continues_where_it_was_killed(logs: Path, case: str) -> None:
    path = logs / "lightning"
    for rank in range(2):
        assert steps(path, "killed", rank) + steps(path, case, rank) == uninterrupted(rank)


def test_lightning_is_refused_other_ranks_in_the_middle_of_an_epoch(logs: Path) -> None:
    assert "Lightning counts the batches" in refusal(logs / "lightning", "fewer")


def test_lightning_is_told_to_leave_out_a_loader(logs: Path) -> None:
    path = logs / "lightning_loader"
    assert "return the stream itself" in (path / "warned").read_text()
    assert "rows would come twice, and others never" in refusal(path, "resumed")


def test_accelerate_is_told_not_to_prepare_the_stream(logs: Path) -> None:
    for case in ("accelerate_sharded_and_prepared", "accelerate_state_ahead"):
        assert "register_for_checkpointing(train)" in refusal(logs / case, "refused")


def test_accelerate_is_said_not_to_save_where_a_prepared_loader_is(logs: Path) -> None:
    path = logs / "accelerate_prepared_alone"
    assert steps(path, "resumed", 0) == steps(path, "saved", 0)  # the epoch again
    assert "register_for_checkpointing(train)" in (path / "warned").read_text()
    path = logs / "accelerate_stateful_prepared"
    assert "register_for_checkpointing(train)" in refusal(path, "resumed")


def test_the_trainer_of_transformers_continues_with_rows(logs: Path) -> None:
    path = logs / "hugging_face"
    for rank in range(2):
        whole = steps(path / "whole", "whole", rank)
        assert steps(path, "killed", rank) + steps(path, "resumed", rank) == whole


def test_the_trainer_of_transformers_continues_if_a_step_has_as_many_rows(logs: Path) -> None:
    path = logs / "hugging_face"
    assert "a step had a different number of rows" in refusal(path / "other", "hugging_face")
    whole = [steps(path / "whole", "whole", rank)[9:] for rank in range(2)]
    one = steps(path / "other", "hugging_face_larger_batches", 0)
    assert [a + b for a, b in zip(*whole, strict=True)] == one


def test_the_trainer_of_transformers_is_refused_batches(logs: Path) -> None:
    assert "train_dataset=ds.to_torch()" in refusal(logs / "hugging_face_batches", "refused")
