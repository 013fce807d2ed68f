"""Pipelines in the worker processes of PyTorch's loaders."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.frameworks import torch
from tests.numbered import double, flat, ids, numbered

ROWS = 103


@pytest.fixture
def ds() -> rm.Dataset:
    return numbered(ROWS)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_loader_give_the_batches_of_one_process(ds: rm.Dataset, method: str) -> None:
    chain = ds.shuffle(seed=1).batch(10)
    epochs = 2 if method == "fork" else 1  # and as many workers
    plain = [list(chain) for _ in range(epochs)]
    chain.epoch = 0
    loader = torch.utils.data.DataLoader(
        chain.to_torch(), batch_size=None, num_workers=epochs, multiprocessing_context=method
    )
    assert len(loader) == 11
    assert chain.state()["epoch"] == 0  # nothing was read yet
    # The second epoch has new processes, which still know that it is the second.
    for epoch in range(epochs):
        for theirs, ours in zip(loader, plain[epoch], strict=True):
            assert theirs["id"].tolist() == ours["id"].tolist()
            assert [row.tolist() for row in theirs["t"].unbind()] == ours["t"].tolist()
            assert theirs["name"] == ours["name"].tolist()
            # Spawned workers, which cost seconds to start, read for this test as well.
            with pytest.raises(rm.OptionError, match=r"state\(batches=n\).*StatefulDataLoader"):
                chain.state()
    chain.epoch = 3
    assert chain.state()["epoch"] == 3  # known again


def test_persistent_workers_continue_with_the_next_epoch(ds: rm.Dataset) -> None:
    chain = ds.shuffle(seed=1).batch(10)
    plain = [ids(chain) for _ in range(2)]
    stream = ds.shuffle(seed=1).batch(10).to_torch()
    loader = torch.utils.data.DataLoader(
        stream, batch_size=None, num_workers=2, persistent_workers=True
    )
    assert [ids(loader) for _ in range(2)] == plain
    stream.set_epoch(0)
    assert ids(loader) == plain[0]


def test_workers_share_the_rows_of_a_rank(ds: rm.Dataset) -> None:
    def make() -> rm.Stream:
        return ds.select("id").shuffle(seed=2).batch(8).shard(1, 2, even="pad")

    loader = torch.utils.data.DataLoader(make().to_torch(), batch_size=None, num_workers=2)
    assert ids(loader) == ids(make())
    assert len(loader) == len(make())


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("even", [None, "pad", "drop"])
@pytest.mark.parametrize("parts", [1, 2, 3, 20])
def test_parts_read_in_turn_make_up_the_whole(
    ds: rm.Dataset, even: Any, drop_last: bool, parts: int
) -> None:
    chain = ds.select("id").shuffle(seed=2).batch(8, drop_last=drop_last).shard(1, 2, even=even)
    whole = ids(chain)
    each = [ids(chain._feed().part(i, parts)) for i in range(parts)]
    assert [len(part) for part in each] == [len(chain._feed().part(i, parts)) for i in range(parts)]
    assert [each[i % parts][i // parts] for i in range(len(whole))] == whole
    assert sum(map(len, each)) == len(whole)


@pytest.mark.parametrize(
    "chain",
    [
        lambda ds: ds.filter(lambda row: row["id"] % 3 == 0).batch(4),
        lambda ds: ds.bucket("t", [2, 4]).batch(4, pad="longest"),
        lambda ds: ds.shuffle(seed=3, window=20).batch(7),
        lambda ds: ds.batch(8).repeat(2),
    ],
    ids=["filter", "bucket", "window", "repeat"],
)
def test_every_row_comes_once_with_workers(ds: rm.Dataset, chain: Any) -> None:
    pipeline = chain(ds.select("id", "t"))
    there = sorted(flat(ids(pipeline)))
    assert sorted(flat(ids([b for i in range(3) for b in pipeline._feed().part(i, 3)]))) == there
    pipeline.epoch = 0
    loader = torch.utils.data.DataLoader(pipeline.to_torch(), batch_size=None, num_workers=2)
    assert sorted(flat(ids(loader))) == there


def test_take_after_filter_is_refused_with_workers(ds: rm.Dataset) -> None:
    stream = ds.filter(lambda row: row["id"] > 3).take(5).batch(2).to_torch()
    assert sum(len(batch["id"]) for batch in stream) == 5
    with pytest.raises(rm.OptionError, match="num_workers=0"):
        list(torch.utils.data.DataLoader(stream, batch_size=None, num_workers=2))


def test_a_loader_can_batch_a_stream_of_filtered_rows(ds: rm.Dataset) -> None:
    stream = ds.select("id", "x").filter(lambda row: row["id"] % 2 == 1).to_torch()
    batches = list(torch.utils.data.DataLoader(stream, batch_size=10, num_workers=2))
    assert sorted(flat(ids(batches))) == list(range(1, ROWS, 2))
    with pytest.raises(TypeError, match="not known"):
        len(stream)


def test_map_starts_no_processes_inside_the_workers_of_a_loader(ds: rm.Dataset) -> None:
    chain = ds.map(double, workers=2).batch(20)
    inside = list(torch.utils.data.DataLoader(chain.to_torch(), batch_size=None, num_workers=2))
    here = list(chain.to_torch())
    assert ids(inside) == ids(here)
    assert torch.equal(inside[3]["x"], here[3]["x"])


def test_a_state_of_a_different_number_of_workers_is_refused(ds: rm.Dataset) -> None:
    stream = ds.batch(10).to_torch()
    stream.load_state_dict({**stream.state_dict(), "workers": 3})
    with pytest.raises(rm.OptionError, match="num_workers=3"):
        next(iter(stream))


RESUMED: dict[str, Any] = {
    "batches": lambda ds: ds.shuffle(seed=1).batch(7),
    "drop_last": lambda ds: ds.shuffle(seed=1).batch(7, drop_last=True),
    "window": lambda ds: ds.shuffle(seed=1, window=16).batch(7),
    "padded": lambda ds: ds.batch(7, pad="longest"),
    "rank": lambda ds: ds.shuffle(seed=1).batch(7).shard(1, 3),
    "even": lambda ds: ds.shuffle(seed=1).batch(7).shard(2, 3, even="pad"),
}


@pytest.mark.parametrize("given", [1, 4, 6])
@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("chain", RESUMED)
def test_workers_share_a_resumed_epoch_in_its_order(
    ds: rm.Dataset, chain: str, parts: int, given: int
) -> None:
    def make() -> Any:
        return RESUMED[chain](ds.select("id", "t"))

    whole = ids(make())
    begun = make()
    batches = iter(begun)
    for _ in range(min(given, len(whole) - 1)):
        next(batches)
    restored = make().restore(json.loads(json.dumps(begun.state())))
    rest = ids(batches)
    each = [ids(restored._feed().part(i, parts)) for i in range(parts)]
    assert [each[i % parts][i // parts] for i in range(len(rest))] == rest
    assert sum(map(len, each)) == len(rest)


@pytest.mark.parametrize("chain", ["filter", "bucket", "rows", "repeat"])
def test_workers_share_the_rows_of_other_resumed_epochs(ds: rm.Dataset, chain: str) -> None:
    def make() -> Any:
        rows = ds.select("id", "t").shuffle(seed=1)
        if chain == "repeat":
            return rows.batch(20).repeat(3)
        if chain == "rows":
            return rows.filter(lambda row: row["id"] % 3 > 0)
        if chain == "filter":
            return rows.filter(lambda row: row["id"] % 3 > 0).batch(4)
        return rows.bucket("t", [2, 4]).batch(4, pad="longest")

    begun = make()
    batches = iter(begun)
    for _ in range(5):
        next(batches)
    restored = make().restore(json.loads(json.dumps(begun.state())))
    parts = [batch for i in range(3) for batch in restored._feed().part(i, 3)]

    def numbers(found: Any) -> list[int]:
        return sorted(int(n) for batch in found for n in np.atleast_1d(batch["id"]))

    assert numbers(parts) == numbers(batches)


def begun(
    ds: rm.Dataset, epochs: int
) -> tuple[rm.Stream, list[list[list[int]]], Iterator[dict[str, Any]]]:
    """Return a pipeline after three batches, the rows of whole epochs, and its iterator."""
    chain = ds.select("id").shuffle(seed=1).batch(10)
    whole = [ids(chain) for _ in range(epochs)]
    chain.epoch = 0
    batches = iter(chain)
    for _ in range(3):
        next(batches)
    return chain, whole, batches


def test_a_restored_pipeline_continues_in_the_workers_of_a_loader(ds: rm.Dataset) -> None:
    chain, whole, _ = begun(ds, epochs=3)
    for persistent in (False, True):
        again = ds.select("id").shuffle(seed=1).batch(10).restore(chain.state())
        loader = torch.utils.data.DataLoader(
            again.to_torch(), batch_size=None, num_workers=2, persistent_workers=persistent
        )
        assert [ids(loader) for _ in range(3)] == [whole[0][3:], *whole[1:]]
    stream = ds.select("id").shuffle(seed=1).batch(10).restore(chain.state()).to_torch()
    stream.set_epoch(1)
    stream.set_epoch(0)
    assert ids(torch.utils.data.DataLoader(stream, batch_size=None, num_workers=2)) == whole[0]


# Workers of a fork server get pickled work, as spawned ones do, but need not import PyTorch.
@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_restore_after_to_torch_reaches_the_workers(ds: rm.Dataset, method: str) -> None:
    chain, whole, batches = begun(ds, epochs=4)
    middle = chain.state()
    assert len(ids(batches)) == len(whole[0]) - 3
    end = chain.state()

    again = ds.select("id").shuffle(seed=1).batch(10)
    stream = again.to_torch()
    loader = torch.utils.data.DataLoader(
        stream, batch_size=None, num_workers=2, multiprocessing_context=method
    )
    for _ in range(2):  # restoring the same state again counts
        again.restore(middle)
        assert [ids(loader) for _ in range(2)] == [whole[0][3:], whole[1]]
    again.restore(end)
    assert ids(loader) == whole[1]
    again.epoch = 3
    assert ids(loader) == whole[3]
    stream.set_epoch(2)
    assert [ids(loader) for _ in range(2)] == whole[2:]


def test_a_resumed_epoch_of_one_rank_is_not_shared_after_a_filter(
    ds: rm.Dataset,
) -> None:
    def make() -> Any:
        return ds.select("id").filter(lambda row: row["id"] >= 0).batch(4).shard(0, 2)

    begun = make()
    next(iter(begun))
    with pytest.raises(rm.OptionError, match="num_workers=0"):
        make().restore(begun.state())._feed().part(0, 2)


@pytest.mark.parametrize("rows", [7, 30, 44])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("parts", [2, 3, 5])
def test_parts_take_turns_from_one_epoch_to_the_next(
    rows: int, drop_last: bool, parts: int
) -> None:
    chain = numbered(rows).select("id").shuffle(seed=2).batch(4, drop_last=drop_last).repeat(3)
    whole = ids(chain)
    each = [ids(chain._feed().part(i, parts)) for i in range(parts)]
    assert [each[i % parts][i // parts] for i in range(len(whole))] == whole
    assert sum(map(len, each)) == len(whole)
    # Each continues from its own states, in any epoch.
    for part in range(parts):
        for taken in range(len(each[part]) + 1):
            mine = chain._feed().part(part, parts)
            batches = iter(mine)
            for _ in range(taken):
                next(batches)
            again = chain._feed().part(part, parts).restore(mine.state())
            if taken < len(each[part]):
                assert ids(again) == each[part][taken:]


def test_the_state_after_batches_of_workers_in_a_later_epoch_of_repeat() -> None:
    ds = numbered(20).select("id")

    def make() -> rm.Stream:
        return ds.shuffle(seed=2).batch(4).repeat(3)

    whole = ids(make())
    chain = make()
    received = ids(
        itertools.islice(
            torch.utils.data.DataLoader(chain.to_torch(), batch_size=None, num_workers=2), 8
        )
    )
    assert received == whole[:8]
    assert ids(make().restore(chain.state(batches=8))) == whole[8:]


def test_fewer_batches_than_workers_may_repeat_forever() -> None:
    chain = numbered(3).select("id").batch(4).repeat()
    loader = torch.utils.data.DataLoader(chain.to_torch(), batch_size=None, num_workers=2)
    assert ids(itertools.islice(loader, 5)) == [[0, 1, 2]] * 5
