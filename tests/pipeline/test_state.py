"""What holds for any pipeline: every row once, a reproducible order, and resuming anywhere."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import recmap as rm
from recmap.pipeline.sharding import Remaining, Share

pytestmark = pytest.mark.slow


def dataset(rows: int) -> rm.Dataset:
    """Rows that hold their number, with a sequence whose length depends on it."""
    lengths = [(i * 7) % 9 for i in range(rows)]
    tokens = rm.Ragged.from_rows([np.full(n, i) for i, n in enumerate(lengths)], np.int64)
    return rm.from_arrays({"row": np.arange(rows), "tokens": tokens})


def with_noise(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {**row, "noise": int(rng.integers(1 << 40))}


def batch_noise(batch: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {**batch, "together": rng.integers(1 << 40, size=len(batch["row"]))}


def keeps(row: dict[str, Any]) -> bool:
    return int(row["row"]) % 3 != 1


@dataclass(frozen=True)
class Chain:
    """A pipeline that can be built several times."""

    rows: int
    skip: int
    order: str
    mapped: bool
    together: bool
    filtered: bool
    group: str
    size: int
    drop_last: bool
    repeat_before: int
    repeat_after: int
    skip_batches: int
    shard: tuple[int, int] = (0, 1)

    def build(self) -> rm.Stream:
        p: rm.Stream = dataset(self.rows).skip(self.skip)
        if self.order == "exact":
            p = p.shuffle(seed=3)
        elif self.order == "window":
            p = p.shuffle(seed=3, window=8)
        elif self.order == "mixed":
            p = rm.mix(
                p.shuffle(seed=1), dataset(9).shuffle(seed=2), weights=[0.7, 0.3], until="all"
            )
        if self.repeat_before != 1:
            p = p.repeat(self.repeat_before)
        p = p.map(with_noise) if self.mapped else p
        p = p.map(batch_noise, batched=True) if self.together else p
        p = p.filter(keeps) if self.filtered else p
        if self.group == "batch":
            p = p.batch(self.size, drop_last=self.drop_last, pad={"tokens": 4})
        elif self.group == "bucket":
            p = p.bucket("tokens", [3, 6]).batch(self.size, drop_last=self.drop_last)
        elif self.group == "pack":
            p = p.pack(12, ["tokens"], long="split").batch(self.size, drop_last=self.drop_last)
        if self.skip_batches:
            p = p.skip(self.skip_batches)
        if self.repeat_after != 1:
            p = p.repeat(self.repeat_after)
        index, count = self.shard
        return p.shard(index, count) if count > 1 else p


chains = st.builds(
    Chain,
    rows=st.integers(0, 50),
    skip=st.integers(0, 3),
    order=st.sampled_from(["file", "exact", "window", "mixed"]),
    mapped=st.booleans(),
    together=st.booleans(),
    filtered=st.booleans(),
    group=st.sampled_from(["rows", "batch", "bucket", "pack"]),
    size=st.integers(1, 6),
    drop_last=st.booleans(),
    repeat_before=st.sampled_from([1, 1, 2]),
    repeat_after=st.sampled_from([1, 1, 2]),
    skip_batches=st.sampled_from([0, 0, 2]),
)


def plain(batch: dict[str, Any]) -> dict[str, Any]:
    return {n: c.tolist() if hasattr(c, "tolist") else c for n, c in batch.items()}


def row_numbers(batch: dict[str, Any]) -> list[int]:
    return [int(number) for number in np.atleast_1d(batch["row"])]


@settings(max_examples=40)
@given(chain=chains, cut=st.integers(0, 30), epoch=st.integers(0, 2))
def test_a_restored_pipeline_gives_the_same_rest(chain: Chain, cut: int, epoch: int) -> None:
    undisturbed = chain.build()
    undisturbed.epoch = epoch
    expected = [plain(batch) for _ in range(2) for batch in undisturbed]

    stopped = chain.build()
    stopped.epoch = epoch
    first: list[Any] = []
    state = ""
    for batch in stopped:
        if len(first) == cut:
            break
        first.append(plain(batch))
        state = json.dumps(stopped.state())
    if not first or len(first) < cut:
        return
    resumed = chain.build().restore(json.loads(state))
    rest = []
    while resumed.epoch < epoch + 2 * (resumed._plan.repeat or 1):
        rest += [plain(batch) for batch in resumed]
    assert first + rest == expected


@settings(max_examples=40)
@given(chain=chains, world=st.integers(1, 4))
def test_every_row_goes_to_exactly_one_rank(chain: Chain, world: int) -> None:
    chain = replace(chain, drop_last=False, skip_batches=0, order="exact")
    if chain.group == "pack":
        chain = replace(chain, group="bucket")
    kept = [i for i in range(chain.skip, chain.rows) if not chain.filtered or i % 3 != 1]
    times = chain.repeat_before * chain.repeat_after
    seen = [
        number
        for rank in range(world)
        for batch in replace(chain, shard=(rank, world)).build()
        for number in row_numbers(batch)
    ]
    assert sorted(seen) == sorted(kept * times)


@settings(max_examples=40)
@given(
    chain=chains,
    worlds=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    steps=st.lists(st.integers(0, 4), min_size=3, max_size=3),
    apart=st.booleans(),
)
def test_a_run_resumes_with_other_ranks_and_every_row_comes_once(
    chain: Chain, worlds: list[int], steps: list[int], apart: bool
) -> None:
    """With ``apart``, the ranks have taken different numbers of steps."""
    chain = replace(chain, drop_last=False, skip_batches=0, repeat_after=1, order="exact")
    if chain.group == "pack":
        chain = replace(chain, group="bucket")
    seen: list[int] = []
    states: list[dict[str, Any]] = []
    in_step = chain.group in ("rows", "batch") and not chain.filtered and not apart
    for turn, world in enumerate(worlds):
        last = turn == len(worlds) - 1
        ranks = [replace(chain, shard=(rank, world)).build() for rank in range(world)]
        for pipeline in ranks:
            if states:
                # If all ranks are in step, the state of the first tells what all have taken.
                pipeline.restore(states[0] if in_step else states)
        states = []
        for rank, pipeline in enumerate(ranks):
            most = steps[turn % 3] + (rank if apart else 0)
            taken = 0
            # A rank that has finished the epoch would begin the next.
            batches = iter(pipeline) if pipeline.epoch == 0 else iter(())
            while last or taken < most:
                batch = next(batches, None)
                if batch is None:
                    break
                seen += row_numbers(batch)
                taken += 1
            states.append(json.loads(json.dumps(pipeline.state())))
    kept = [i for i in range(chain.skip, chain.rows) if not chain.filtered or i % 3 != 1]
    assert sorted(seen) == sorted(kept * chain.repeat_before)


@settings(max_examples=40)
@given(
    total=st.integers(0, 60),
    world=st.integers(1, 5),
    block=st.integers(1, 7),
    data=st.data(),
)
def test_a_redealt_share_loses_and_repeats_no_row(
    total: int, world: int, block: int, data: st.DataObject
) -> None:
    left = Remaining(total)
    taken_all: list[int] = []
    for _ in range(3):
        shares = [Share(left, rank, world, block) for rank in range(world)]
        dealt = np.concatenate([share.positions(0, len(share)) for share in shares])
        assert sorted(dealt.tolist() + taken_all) == list(range(total))
        counts = [data.draw(st.integers(0, len(share))) for share in shares]
        for share, count in zip(shares, counts, strict=True):
            taken_all += share.positions(0, count).tolist()
        left = shares[0].remaining(counts, [])
        world = data.draw(st.integers(1, 5))
        block = data.draw(st.integers(1, 7))


def test_a_state_is_small_and_plain_json() -> None:
    train = dataset(1000).shuffle(seed=1).batch(8)
    for _ in zip(range(20), train, strict=False):
        pass
    assert len(json.dumps(train.state())) < 600


def test_other_ranks_need_all_states_after_a_filter() -> None:
    train = dataset(30).filter(keeps).batch(2).shard(0, 2)
    next(iter(train))
    with pytest.raises(rm.OptionError, match="states of all"):
        dataset(30).filter(keeps).batch(2).shard(0, 3).restore(train.state())


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("filtered", [False, True])
def test_ranks_in_different_epochs_of_repeat_resume_on_any_ranks(
    world: int, filtered: bool
) -> None:
    def ranks(count: int) -> list[rm.Stream]:
        rows = rm.from_arrays({"x": np.arange(41)}).shuffle(seed=1)
        if filtered:
            rows = rows.filter(lambda row: row["x"] % 5 > 0)
        return [rows.batch(3).shard(rank, count).repeat(4) for rank in range(count)]

    wanted = {n: 4 for n in range(41) if n % 5 or not filtered}
    for steps in ((9, 13), (2, 20), (7, 7), (0, 26)):
        before, seen = ranks(2), Counter[int]()
        for rank, taken in zip(before, steps, strict=True):
            seen.update(int(n) for batch in islice(rank, taken) for n in batch["x"])
        states = json.loads(json.dumps([rank.state() for rank in before]))
        # Once more, from the middle of what was dealt again.
        between = [rank.restore(states) for rank in ranks(3)]
        for rank in between:
            seen.update(int(n) for batch in islice(rank, 2) for n in batch["x"])
        states = json.loads(json.dumps([rank.state() for rank in between]))
        for rank in ranks(world):
            restored = rank.restore(states)
            counted = None if filtered else restored._feed().left()
            rest = list(restored)
            assert counted in (None, len(rest))
            seen.update(int(n) for batch in rest for n in batch["x"])
        assert seen == wanted


def test_one_state_is_enough_for_ranks_in_step_that_differ_in_steps_per_epoch() -> None:
    def ranks(count: int) -> list[rm.Stream]:
        rows = rm.from_arrays({"x": np.arange(38)}).shuffle(seed=1)
        return [rows.batch(3).shard(rank, count).repeat(4) for rank in range(count)]

    assert len({len(rank) for rank in ranks(4)}) > 1
    for steps in (3, 5, 9, 11):
        for old in range(4):
            before, seen = ranks(4), Counter[int]()
            for rank in before:
                seen.update(int(n) for batch in islice(rank, steps) for n in batch["x"])
            for rank in ranks(3):
                rest = rank.restore(before[old].state())
                seen.update(int(n) for batch in rest for n in batch["x"])
            assert seen == dict.fromkeys(range(38), 4)
