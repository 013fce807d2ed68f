"""Pipelines, compared with the same verbs on plain Python lists."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import recmap as rm

pytestmark = pytest.mark.slow

LENGTHS = 7


def dataset(rows: int) -> rm.Dataset:
    """Rows that hold their number, with a sequence whose length depends on it."""
    tokens = rm.Ragged.from_rows([np.full(i * 5 % LENGTHS, i) for i in range(rows)], np.int64)
    return rm.from_arrays({"row": np.arange(rows), "tokens": tokens})


def thirds(row: dict[str, Any]) -> bool:
    return int(row["row"]) % 3 != 1


def late(row: dict[str, Any]) -> bool:
    return int(row["row"]) % 5 > 1


def noisy(batch: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {**batch, "noise": np.full(len(batch["row"]), rng.integers(1 << 40))}


FILTERS: dict[str, Callable[[dict[str, Any]], bool]] = {"thirds": thirds, "late": late}

# A verb and its argument.
Verb = tuple[str, Any]

cuts = st.tuples(st.sampled_from(["take", "skip"]), st.integers(0, 9))
batch_cuts = st.tuples(st.sampled_from(["take", "skip"]), st.integers(0, 4))
row_verbs = st.one_of(cuts, cuts, st.tuples(st.just("filter"), st.sampled_from(["thirds", "late"])))


@st.composite
def chains(draw: Any) -> list[Verb]:
    verbs: list[Verb] = draw(st.lists(row_verbs, max_size=5))
    size, drop_last = draw(st.integers(1, 5)), draw(st.booleans())
    group = draw(st.sampled_from(["batch", "batch", "bucket", "rows"]))
    if group != "rows":
        verbs.append((group, (size, drop_last)))
    verbs += draw(st.lists(batch_cuts if group != "rows" else cuts, max_size=4))
    if draw(st.booleans()):
        verbs.append(("repeat", draw(st.integers(1, 3))))
        verbs += draw(
            st.lists(st.tuples(st.sampled_from(["take", "skip"]), st.integers(0, 12)), max_size=3)
        )
    return verbs


def built(rows: int, verbs: list[Verb]) -> Any:
    made: Any = dataset(rows).pipeline()
    for verb, argument in verbs:
        if verb == "filter":
            made = made.filter(FILTERS[argument])
        elif verb == "batch":
            made = made.batch(argument[0], drop_last=argument[1], pad={"tokens": 3})
        elif verb == "bucket":
            made = made.bucket("tokens", [3]).batch(argument[0], drop_last=argument[1])
        else:
            made = getattr(made, verb)(argument)
    return made


def modelled(rows: int, verbs: list[Verb]) -> list[Any]:
    """Apply the same verbs to a list of row numbers, or of batches of them."""
    things: list[Any] = list(range(rows))
    for verb, argument in verbs:
        if verb == "take":
            things = things[:argument]
        elif verb == "skip":
            things = things[argument:]
        elif verb == "filter":
            things = [row for row in things if FILTERS[argument]({"row": row})]
        elif verb == "repeat":
            things = things * argument
        else:
            things = grouped(things, verb, *argument)
    return things


def grouped(rows: list[int], verb: str, size: int, drop_last: bool) -> list[list[int]]:
    waiting: list[list[int]] = [[], []]
    batches = []
    for row in rows:
        bucket = int(verb == "bucket" and row * 5 % LENGTHS >= 3)
        waiting[bucket].append(row)
        if len(waiting[bucket]) == size:
            batches.append(waiting[bucket])
            waiting[bucket] = []
    return batches if drop_last else batches + [rest for rest in waiting if rest]


def seen(batch: dict[str, Any]) -> Any:
    return batch["row" if "row" in batch else "tokens"].tolist()


@settings(max_examples=100)
@given(rows=st.integers(0, 40), verbs=chains())
def test_pipelines_give_the_same_as_lists(rows: int, verbs: list[Verb]) -> None:
    expected = modelled(rows, verbs)
    pipeline = built(rows, verbs)
    assert [seen(batch) for batch in pipeline] == expected
    assert [seen(batch) for batch in pipeline] == expected  # nothing here differs by epoch
    try:
        assert len(pipeline) == len(expected)
    except TypeError:
        assert any(verb in ("filter", "bucket") for verb, _ in verbs)


@settings(max_examples=60)
@given(rows=st.integers(0, 30), verbs=chains(), data=st.data())
def test_pipelines_resume_after_any_batch(
    rows: int, verbs: list[Verb], data: st.DataObject
) -> None:
    expected = modelled(rows, verbs)
    pipeline = built(rows, verbs)
    states = [pipeline.state(), *(json.loads(json.dumps(pipeline.state())) for _ in pipeline)]
    epochs = pipeline._feed().turns
    assert pipeline.state() == states[-1] or not expected
    assert (pipeline.state()["epoch"], pipeline.state()["at"]) == (epochs, 0)
    number = data.draw(st.integers(0, len(expected)))
    again = built(rows, verbs).restore(states[number])
    if number == len(expected) > 0:
        assert again.epoch == epochs
        assert [seen(batch) for batch in again] == expected  # the next epoch, from its start
        return
    assert again.epoch < epochs
    # At first, an epoch is never empty.
    assert [seen(batch) for batch in again] == expected[number:]
    assert again.epoch == epochs
    assert [seen(batch) for batch in again] == expected


@pytest.mark.parametrize(
    "chain",
    [
        lambda ds: ds.batch(4),
        lambda ds: ds.filter(thirds).batch(4),
        lambda ds: ds.batch(4).shard(0, 2),
        lambda ds: ds.pack(8).batch(2),
        lambda ds: ds.bucket("tokens", [3]).batch(2),
    ],
    ids=["batch", "filter", "shard", "pack", "bucket"],
)
def test_take_and_skip_of_batches_compose_like_slices(chain: Any) -> None:
    def batches(made: Any) -> list[Any]:
        return [{n: c.tolist() for n, c in batch.items()} for batch in made]

    def make() -> Any:
        return chain(dataset(30))

    whole = batches(make())
    assert batches(make().take(1).skip(1)) == []
    assert batches(make().take(2).skip(1)) == whole[1:2]
    assert batches(make().skip(1).take(1).skip(1)) == []
    assert batches(make().skip(1).skip(1).take(3).take(1)) == whole[2:3]
    assert batches(make().take(0)) == []
    assert batches(make().take(0).skip(3)) == []
    assert batches(make().repeat(2).skip(1).take(len(whole))) == (whole * 2)[1 : 1 + len(whole)]
    assert batches(make().repeat().take(2 * len(whole) + 1)) == [*whole, *whole, whole[0]]


@pytest.mark.parametrize("shard", [None, (1, 2)])
def test_skipping_batches_does_not_change_the_random_numbers_of_the_others(shard: Any) -> None:
    def make() -> Any:
        made = dataset(30).map(noisy, batched=True).select("row", "noise").batch(4).map(noisy)
        return made if shard is None else made.shard(*shard)

    whole = [batch["noise"].tolist() for batch in make()]
    assert [batch["noise"].tolist() for batch in make().skip(2)] == whole[2:]


def test_take_and_skip_between_two_filters_count_what_the_first_keeps() -> None:
    rows = [seen(row) for row in dataset(30).filter(thirds).skip(2).take(6).filter(late).take(3)]
    between = [row for row in range(30) if thirds({"row": row})][2:8]
    assert rows == [row for row in between if late({"row": row})][:3]


def test_verbs_after_take_or_skip_of_a_repeated_pipeline_are_refused() -> None:
    cut = dataset(30).filter(thirds).repeat(2).take(4)
    for verb, argument in (("batch", 2), ("filter", late), ("repeat", 2)):
        with pytest.raises(rm.OptionError, match="before repeat"):
            getattr(cut, verb)(argument)
    with pytest.raises(rm.OptionError, match="before repeat"):
        dataset(30).batch(2).repeat(2).take(4).shard(0, 2)


def test_take_and_skip_between_pack_and_batch_are_refused() -> None:
    with pytest.raises(rm.OptionError, match="after batch"):
        dataset(30).pack(8).take(2)


RANKED: dict[str, Callable[[Any], Any]] = {
    "batch": lambda ds: ds.batch(4),
    "drop_last": lambda ds: ds.batch(4, drop_last=True),
    "shuffle": lambda ds: ds.shuffle(seed=1).batch(3),
    "rows": lambda ds: ds.map(lambda row: row),
    "cut": lambda ds: ds.batch(2).skip(1).take(9),
    "repeat": lambda ds: ds.batch(4).repeat(2),
    "filter": lambda ds: ds.filter(thirds).batch(3),
    "bucket": lambda ds: ds.bucket("tokens", [3]).batch(3),
    "pack": lambda ds: ds.pack(8).batch(2),
    "filtered rows": lambda ds: ds.filter(late),
}


@settings(max_examples=40)
@given(
    name=st.sampled_from(sorted(RANKED)),
    rows=st.integers(0, 33),
    world=st.integers(1, 4),
    even=st.sampled_from([None, "pad", "drop"]),
    other=st.integers(1, 4),
    data=st.data(),
)
def test_ranks_restored_from_one_state_are_in_one_epoch(
    name: str, rows: int, world: int, even: Any, other: int, data: st.DataObject
) -> None:
    unknown = name in ("filter", "bucket", "pack", "filtered rows")
    if unknown or (name == "rows" and even == "pad"):
        even = None

    def rank(index: int, count: int) -> rm.Stream:
        made: rm.Stream = RANKED[name](dataset(rows)).shard(index, count, even=even)
        return made

    turns = 2 if name == "repeat" else 1
    saver = data.draw(st.integers(0, world - 1))
    train = rank(saver, world)
    states = [train.state(), *(json.loads(json.dumps(train.state())) for _ in train)]
    end = train.state()
    # After the last batch, inside the loop and after it, every rank is in the next epoch.
    if len(states) > 1:
        assert end == states[-1]
    for count in (world, other):
        for index in range(count):
            again = rank(index, count).restore(end)
            assert again.epoch == turns
            new = rank(index, count)
            new.epoch = turns
            assert [seen(batch) for batch in again] == [seen(batch) for batch in new]
    # In the middle, all ranks are in the same epoch, whichever saved the state.
    state = data.draw(st.sampled_from(states))
    for count in (world, other):
        if unknown and (state["at"] or state["held"]):
            continue
        epochs = {rank(index, count).restore(state).epoch for index in range(count)}
        # Within the epochs of repeat, a rank that has fewer steps may be in the next one already.
        assert max(epochs) - min(epochs) <= (turns - 1 if even is None else 0)


@settings(max_examples=40)
@given(
    name=st.sampled_from(["filter", "bucket", "filtered rows", "batch", "shuffle"]),
    rows=st.integers(0, 33),
    world=st.integers(1, 4),
    steps=st.lists(st.integers(0, 12), min_size=4, max_size=4),
    other=st.integers(1, 4),
)
def test_ranks_restored_from_all_states_are_in_one_epoch_and_miss_no_row(
    name: str, rows: int, world: int, steps: list[int], other: int
) -> None:
    had: list[int] = []
    states = []
    for index in range(world):
        train = RANKED[name](dataset(rows)).shard(index, world)
        for _, batch in zip(range(steps[index]), train, strict=False):
            had += np.atleast_1d(batch["row"]).tolist()
        states.append(train.state())
    for count in (world, other):
        ranks = [
            RANKED[name](dataset(rows)).shard(index, count).restore(states)
            for index in range(count)
        ]
        assert len(epoch := {train.epoch for train in ranks}) == 1
        rest = [n for train in ranks for b in train for n in np.atleast_1d(b["row"]).tolist()]
        kept = {"filter": thirds, "filtered rows": late}.get(name, lambda _: True)
        wanted = [row for row in range(rows) if kept({"row": row})]
        assert sorted(rest if epoch == {1} else had + rest) == wanted
        assert epoch == {0} or sorted(had) == wanted


def test_the_state_after_the_last_batch_is_past_epochs_without_batches() -> None:
    # The filter drops one of two rows, and this rank gets either of them.
    train = dataset(2).shuffle(seed=4).filter(thirds).shard(0, 3).batch(2).repeat(2)
    counts = set()
    for iteration in range(20):
        epochs = [train.state()["epoch"] for _ in train]
        counts.add(len(epochs))
        assert epochs[-1:] in ([], [2 * iteration + 2])
    assert counts == {0, 1, 2}


def test_an_epoch_is_over_when_the_ranks_with_rows_have_read_them() -> None:
    def rank(index: int, count: int) -> rm.Stream:
        return dataset(1).batch(4).shard(index, count)

    one, none = rank(0, 2), rank(1, 2)
    next(iter(one))
    states = [one.state(), none.state()]
    for count in (1, 2, 3):
        ranks = [rank(index, count).restore(states) for index in range(count)]
        assert [train.epoch for train in ranks] == [1] * count
        assert sum(len(batch["row"]) for train in ranks for batch in train) == 1


@pytest.mark.parametrize("chain", ["batch", "rows", "filter", "bucket"])
def test_a_rank_that_has_finished_a_redealt_epoch_stays_in_it_with_the_others(
    chain: str,
) -> None:
    def rank(index: int, count: int) -> rm.Stream:
        made: rm.Stream = RANKED[chain](dataset(64)).shard(index, count)
        return made

    def taken(train: rm.Stream, batches: int) -> list[int]:
        some = itertools.islice(train, batches)
        return [row for batch in some for row in np.atleast_1d(batch["row"]).tolist()]

    alone = rank(0, 1)
    had = taken(alone, 2)
    ranks = [rank(index, 3).restore(alone.state()) for index in range(3)]
    had += taken(ranks[0], 1) + taken(ranks[1], 100) + taken(ranks[2], 1)
    states = [train.state() for train in ranks]
    for _ in range(2):  # a state saved right after restoring is the same place
        ranks = [rank(index, 3).restore(states) for index in range(3)]
        assert [train.epoch for train in ranks] == [0, 0, 0]
        states = [json.loads(json.dumps(train.state())) for train in ranks]
    rest = [row for train in ranks for row in taken(train, 100)]
    kept = thirds if chain == "filter" else lambda _: True
    assert sorted(had + rest) == [row for row in range(64) if kept({"row": row})]
