"""Which epoch a stream gives: to one loader after another, and after its states."""

from __future__ import annotations

import copy
import json
from itertools import islice
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


def chain(rank: int = 0, world: int = 1, rows: int = ROWS) -> rm.Stream:
    return rm.from_arrays({"id": np.arange(rows)}).shuffle(seed=1).batch(4).shard(rank, world)


def whole(epochs: int) -> list[list[list[int]]]:
    pipeline = chain()
    return [ids(pipeline) for _ in range(epochs)]


def loader(stream: Any, workers: int, **how: Any) -> Any:
    return torch.utils.data.DataLoader(stream, batch_size=None, num_workers=workers, **how)


def test_every_loader_reads_a_whole_epoch_whatever_read_before() -> None:
    pipeline, epochs = chain(), whole(8)
    stream = pipeline.to_torch()
    for epoch, workers in enumerate((1, 2, 3, 0, 2)):
        torch.manual_seed(0)  # so that loaders have the same seed
        assert ids(loader(stream, workers)) == epochs[epoch]
    assert pipeline.epoch == stream.epoch == 5
    assert ids(pipeline) == epochs[5]
    assert ids(loader(pipeline.to_torch(), 2)) == epochs[6]
    assert ids(stream) == epochs[7]


def test_persistent_workers_see_what_others_have_read() -> None:
    stream, epochs = chain().to_torch(), whole(6)
    lasting = loader(stream, 2, persistent_workers=True)
    for epoch in (0, 2, 4):
        assert ids(lasting) == epochs[epoch]
        assert ids(stream if epoch else loader(stream, 1)) == epochs[epoch + 1]


def test_a_loader_that_is_broken_off_leaves_whole_epochs() -> None:
    stream, epochs = chain().to_torch(), whole(4)
    for _ in range(2):
        torch.manual_seed(0)
        begun = iter(loader(stream, 2))
        del begun
    torch.manual_seed(0)
    after = [ids(loader(stream, k)) for k in (3, 2)]
    assert after == epochs[2:]


def test_two_loaders_at_a_time_read_two_epochs() -> None:
    stream, epochs = chain().to_torch(), whole(3)
    pairs = list(zip(loader(stream, 2), loader(stream, 2), strict=True))
    assert sorted(ids(batches) for batches in zip(*pairs, strict=True)) == sorted(epochs[:2])
    assert ids(stream) == epochs[2]


def test_an_iterator_that_is_not_used_costs_no_epoch() -> None:
    for make in (chain, lambda: chain().to_torch(), lambda: chain().to_torch(device="cpu")):
        batches = make()
        for _ in range(3):
            iter(batches)
        assert ids(batches) == whole(1)[0]
        iter(batches)
        assert ids(batches) == whole(2)[1]
    pipeline = chain()
    iter(pipeline)
    assert pipeline.state()["epoch"] == pipeline.epoch == 0


def test_copies_count_for_themselves() -> None:
    stream, epochs = chain().to_torch(), whole(2)
    assert ids(stream) == epochs[0]
    copied = copy.deepcopy(stream)
    assert ids(loader(copied, 2)) == epochs[1]
    assert ids(stream) == epochs[1]


def saved(stream: Any) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(json.dumps(stream.state_dict()))
    return state


@pytest.mark.parametrize("rows", [203, 200, 3])
def test_a_state_after_an_epoch_begins_with_the_next(rows: int) -> None:
    stream = chain(rows=rows).to_torch()
    for epoch in range(3):
        assert sorted(flat(ids(stream))) == list(range(rows))
        again = chain(rows=rows).to_torch()
        again.load_state_dict(saved(stream))
        assert saved(again) == saved(stream)
        assert [len(flat(ids(again))) for _ in range(2)] == [rows, rows]
        assert again.epoch == epoch + 3


def test_after_the_last_batch_the_next_epoch_begins_unless_the_loop_says_otherwise() -> None:
    stream, epochs = chain().to_torch(), whole(2)
    list(islice(stream, len(epochs[0])))  # does not reach the end of the iteration
    for told, expected in (
        (None, epochs[1]),
        (1, epochs[1]),
        (0, []),  # this loop is still in epoch 0
    ):
        again = chain().to_torch()
        again.load_state_dict(saved(stream))
        if told is not None:
            again.set_epoch(told)
        assert ids(again) == expected
        assert ids(loader(again, 2)) == whole(3)[2 if expected else 1]


@pytest.mark.parametrize("how", ["workers", "pipeline", "stream", "epoch"])
def test_a_loaded_epoch_begins_again_once_another_was_read(how: str) -> None:
    before, epochs = chain().to_torch(), whole(3)
    list(islice(before, len(epochs[0])))  # does not reach the end of the iteration
    pipeline = chain()
    stream = pipeline.to_torch()
    stream.load_state_dict(saved(before))
    if how == "epoch":
        pipeline.epoch = 1
    else:
        others = {"workers": loader(stream, 1), "pipeline": pipeline, "stream": stream}
        assert ids(others[how]) == epochs[1]
    stream.set_epoch(0)
    assert [ids(stream), ids(stream)] == epochs[:2]


@pytest.mark.parametrize("count", [0, 5, None])
def test_a_state_of_what_the_pipeline_read_is_not_of_the_epoch_before(count: int | None) -> None:
    pipeline, epochs = chain(), whole(2)
    stream = pipeline.to_torch()
    list(islice(stream, 3))
    if count == 0:
        pipeline.epoch = 1
    else:
        list(islice(pipeline, count))
    again = chain().to_torch()
    again.load_state_dict(saved(stream))
    with pytest.warns(rm.NotResumableWarning, match="is not used"):
        again.set_epoch(0)
    assert ids(again) == epochs[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_loader_gives_the_empty_rest_of_an_epoch(workers: int) -> None:
    def load() -> Any:
        return stateful_dataloader.StatefulDataLoader(
            chain().to_torch(), batch_size=None, num_workers=workers
        )

    epochs, first = whole(2), load()
    for _ in zip(range(len(epochs[0])), first, strict=False):
        pass
    state = first.state_dict()
    again = load()
    again.load_state_dict(state)
    assert [ids(again), ids(again)] == [[], epochs[1]]


def test_set_epoch_keeps_a_position_in_that_epoch() -> None:
    stream, epochs = chain().to_torch(), whole(3)
    ids(stream)
    list(islice(stream, 5))
    state = saved(stream)
    for workers in (0, 2):
        again = chain().to_torch()
        again.load_state_dict(state)
        for epoch, expected in ((1, epochs[1][5:]), (2, epochs[2]), (1, epochs[1])):
            again.set_epoch(epoch)
            assert ids(loader(again, workers)) == expected
    placed = chain().restore(state).to_torch(device="cpu")
    placed.set_epoch(1)
    assert ids(placed) == epochs[1][5:]


def test_a_trainer_that_counts_batches_tells_the_sampler_the_epoch() -> None:
    """As Lightning does: it peeks, tells the sampler, and takes as many batches as there are."""
    epochs = whole(3)
    stream = chain().to_torch()
    iter(stream)
    assert stream.batch_sampler is None  # asked for before a validation epoch
    for epoch in range(2):
        stream.sampler.set_epoch(epoch)
        assert ids(islice(stream, len(stream))) == epochs[epoch]
    again = chain().to_torch()
    again.load_state_dict(saved(stream))
    again.sampler.set_epoch(2)
    assert ids(again) == epochs[2]


def stateful(rank: int, world: int, workers: int) -> Any:
    return stateful_dataloader.StatefulDataLoader(
        chain(rank, world).to_torch(), batch_size=None, num_workers=workers
    )


def begun(world: int, workers: int, steps: int) -> tuple[list[int], dict[str, Any]]:
    """Return the rows that all ranks have read after some steps, and the state of rank 0."""
    seen, states = [], []
    for rank in range(world):
        first = stateful(rank, world, workers)
        seen += flat(ids(batch for _, batch in zip(range(steps), first, strict=False)))
        states.append(first.state_dict())
    return seen, states[0]


def resumed(world: int, workers: int, state: dict[str, Any]) -> list[int]:
    rows = []
    for rank in range(world):
        again = stateful(rank, world, workers)
        again.load_state_dict(state)
        rows += flat(ids(again))
    return rows


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 3)])
def test_a_stateful_loader_continues_on_other_ranks(before: int, after: int) -> None:
    for workers, steps in ((0, 1), (0, 4), (1, 3)):
        seen, state = begun(before, workers, steps)
        assert sorted(seen + resumed(after, workers, state)) == list(range(ROWS))


def test_states_of_several_workers_are_refused_on_other_ranks() -> None:
    seen, state = begun(2, 2, 3)
    with pytest.raises(rm.OptionError, match=r"with 2 ranks.*state\(batches=n\).*one worker"):
        resumed(3, 2, state)
    assert sorted(seen + resumed(2, 2, state)) == list(range(ROWS))


def test_a_stateful_loader_continues_on_other_ranks_after_an_epoch() -> None:
    first = stateful(0, 2, 2)
    list(first)
    seen = []
    for rank in range(3):
        again = stateful(rank, 3, 2)
        again.load_state_dict(first.state_dict())
        seen += flat(ids(again))
    assert sorted(seen) == list(range(ROWS))


def test_what_is_no_state_is_refused() -> None:
    stream = chain().to_torch()
    good = saved(stream)
    bad: list[Any] = [{}, {"state": 1}, {**good, "workers": "2"}, {**good, "epoch": -1}, []]
    for wrong in bad:
        with pytest.raises(rm.OptionError, match="load_state_dict"):
            stream.load_state_dict(wrong)
