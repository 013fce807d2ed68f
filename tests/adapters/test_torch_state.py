"""States while the workers of a loader read: no checkpoint silently starts over."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.frameworks import stateful_dataloader, torch
from tests.numbered import flat, ids

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning:torchdata"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]

ROWS = 53


def chain(name: str = "batches") -> rm.Stream:
    rows = rm.from_arrays({"id": np.arange(ROWS)})
    made: dict[str, Any] = {
        "batches": lambda: rows.shuffle(seed=1).batch(5),
        "drop_last": lambda: rows.shuffle(seed=1).batch(5, drop_last=True),
        "rank": lambda: rows.shuffle(seed=1).batch(5).shard(1, 2),
        "repeat": lambda: rows.batch(9).repeat(2),
        "cut": lambda: rows.batch(5).skip(2).take(7),
        "filter": lambda: rows.filter(lambda row: row["id"] % 3 > 0).batch(4),
    }
    chosen: rm.Stream = made[name]()
    return chosen


def test_state_is_refused_while_workers_read() -> None:
    pipeline = chain()
    loader = torch.utils.data.DataLoader(
        pipeline.to_torch(), batch_size=None, num_workers=2, multiprocessing_context="fork"
    )
    assert pipeline.state()["epoch"] == 0  # nothing was read yet
    for _, _ in zip(range(2), loader, strict=False):
        pass
    with pytest.raises(rm.OptionError, match=r"state\(batches=n\).*StatefulDataLoader") as refused:
        pipeline.state()
    assert "num_workers=0" in str(refused.value)
    pipeline.epoch = 3
    assert pipeline.state()["epoch"] == 3  # known again


@pytest.mark.parametrize("name", ["batches", "drop_last", "rank", "repeat", "cut"])
@pytest.mark.parametrize("persistent", [False, True])
def test_the_state_after_n_batches_of_workers_is_that_of_one_process(
    name: str, persistent: bool
) -> None:
    alone, pipeline = chain(name), chain(name)
    loader = torch.utils.data.DataLoader(
        pipeline.to_torch(), batch_size=None, num_workers=2, persistent_workers=persistent
    )
    for _ in range(2):  # epochs
        theirs = ids(loader)
        for count, batch in enumerate(alone, 1):
            assert batch["id"].tolist() == theirs[count - 1]
            assert pipeline.state(batches=count) == alone.state()
        with pytest.raises(rm.OptionError, match="in this iteration"):
            pipeline.state(batches=len(theirs) + 1)


def test_the_state_after_n_batches_of_a_restored_pipeline() -> None:
    alone = chain()
    batches = iter(alone)
    for _ in range(3):
        next(batches)
    restored = chain().restore(alone.state())
    loader = torch.utils.data.DataLoader(restored.to_torch(), batch_size=None, num_workers=2)
    rest = ids(loader)
    for count, batch in enumerate(batches, 1):
        assert batch["id"].tolist() == rest[count - 1]
        assert restored.state(batches=count) == alone.state()


def test_batches_that_cannot_be_counted_are_refused() -> None:
    pipeline = chain("filter")
    list(torch.utils.data.DataLoader(pipeline.to_torch(), batch_size=None, num_workers=2))
    for batches in (None, 1):
        with pytest.raises(rm.OptionError, match="use the state_dict"):
            pipeline.state(batches=batches)


@pytest.mark.parametrize("workers", [0, 2])
def test_state_is_refused_when_rows_are_read_by_number(workers: int) -> None:
    pipeline = rm.from_arrays({"id": np.arange(ROWS)}).shuffle(seed=1)
    loader = torch.utils.data.DataLoader(pipeline.to_torch(), batch_size=8, num_workers=workers)
    assert len(flat(ids(loader))) == ROWS
    with pytest.raises(rm.OptionError, match="by number.*StatefulDataLoader"):
        pipeline.state()


# Workers start slowly: every chain without them, and each number of them once.
@pytest.mark.parametrize(
    ("name", "workers"),
    [("batches", 0), ("repeat", 0), ("filter", 0), ("batches", 1), ("filter", 2), ("repeat", 3)],
)
def test_a_stateful_loader_continues_in_any_epoch(name: str, workers: int) -> None:
    def load(**how: Any) -> Any:
        return stateful_dataloader.StatefulDataLoader(
            chain(name).to_torch(), batch_size=None, num_workers=workers, **how
        )

    whole = load()
    epochs = [ids(whole) for _ in range(2)]
    batches = [batch for epoch in epochs for batch in epoch]
    for count in (1, 4, len(epochs[0]) - 1, len(epochs[0]), len(epochs[0]) + 2):
        how: dict[str, Any] = {"snapshot_every_n_steps": 1 + count % 3}
        if workers:
            how["persistent_workers"] = count % 2 == 0
            how["prefetch_factor"] = 1 + count % 2
        loader, taken = load(**how), 0
        while taken < count:
            for _ in loader:
                taken += 1
                if taken == count:
                    break
        state = json.loads(json.dumps(loader.state_dict()))
        again = load(**how)
        again.load_state_dict(state)
        rest = ids(again)
        if not rest or len(rest) + count < len(batches):
            rest += ids(again)
        assert rest == batches[count:]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_loader_continues_with_the_next_epoch_after_a_whole_one(workers: int) -> None:
    loader = stateful_dataloader.StatefulDataLoader(
        chain().to_torch(), batch_size=None, num_workers=workers
    )
    epochs = [ids(loader)]
    state = loader.state_dict()
    epochs.append(ids(loader))
    again = stateful_dataloader.StatefulDataLoader(
        chain().to_torch(), batch_size=None, num_workers=workers
    )
    again.load_state_dict(state)
    assert ids(again) == epochs[1]
