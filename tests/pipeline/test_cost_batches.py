"""Batches by cost: as many rows as cost at most a limit, equally many batches for each rank."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm

_ROWS, _LIMIT = 120, 40


def _dataset(rows: int = _ROWS, longest: int = 20) -> rm.Dataset:
    rng = np.random.default_rng(rows)
    lengths = rng.integers(0, longest, rows)
    tokens = rm.Ragged.from_rows([np.full(n, i, np.int32) for i, n in enumerate(lengths)])
    return rm.from_arrays({"row": np.arange(rows), "tokens": tokens, "n": lengths})


def _costs(ds: rm.Dataset) -> dict[int, int]:
    return dict(zip(ds["row"][:].tolist(), ds["n"][:].tolist(), strict=True))


def _rows(batches: Any) -> list[list[int]]:
    return [batch["row"].tolist() for batch in batches]


def _cut(
    order: list[int], costs: dict[int, int], limit: float, padded: bool, most: int = 10**9
) -> list[list[int]]:
    """Cut rows, in order, as somebody would who has them in a list."""
    made: list[list[int]] = []
    for row in order:
        with_it = [*(made[-1] if made else []), row]
        each = [costs[i] for i in with_it]
        cost = len(each) * max(each) if padded else sum(each)
        if made and cost <= limit and len(with_it) <= most:
            made[-1] = with_it
        else:
            made.append([row])
    return made


@pytest.mark.parametrize("padded", [False, True])
def test_batches_are_filled_in_order_up_to_the_limit(padded: bool) -> None:
    ds, costs = _dataset(), _costs(_dataset())
    pad: Any = "longest" if padded else None
    for cost in ("tokens", "n", lambda lengths: lengths["tokens"], lambda lengths: lengths["n"]):
        for size in (None, 3):
            made = ds.batch(size, cost=cost, limit=_LIMIT, pad=pad)
            wanted = _cut(list(range(_ROWS)), costs, _LIMIT, padded, size or 10**9)
            assert _rows(made) == wanted
            assert len(made) == len(wanted)
    held = [b["tokens"].size for b in ds.batch(cost="tokens", limit=_LIMIT, pad="longest")]
    assert max(held) <= _LIMIT


def test_padding_counts_only_if_it_is_asked_for() -> None:
    ds, costs, every = _dataset(), _costs(_dataset()), list(range(_ROWS))
    given = ds.batch(cost="n", limit=_LIMIT, pad="longest", padded=False)
    assert _rows(given) == _cut(every, costs, _LIMIT, padded=False)
    given = ds.batch(cost="n", limit=_LIMIT, padded=True)
    assert _rows(given) == _cut(every, costs, _LIMIT, padded=True)


def test_costs_may_be_fractions() -> None:
    seconds = np.array([0.5, 0.25, 0.25, 0.75, 0.5])
    ds = rm.from_arrays({"row": np.arange(5), "seconds": seconds})
    assert _rows(ds.batch(cost="seconds", limit=1)) == [[0, 1, 2], [3], [4]]


def test_every_epoch_of_a_shuffle_is_cut_anew() -> None:
    ds, costs = _dataset(), _costs(_dataset())
    for window in (None, 16):
        train = ds.shuffle(seed=3, window=window).batch(cost="tokens", limit=_LIMIT)
        orders = ds.shuffle(seed=3, window=window).batch(_ROWS)
        for _ in range(3):
            [[*order]] = _rows(orders)
            wanted = _cut(order, costs, _LIMIT, padded=False)
            assert len(train) == len(wanted)
            assert _rows(train) == wanted


def test_rows_are_chosen_and_changed_before_they_are_cut() -> None:
    ds, costs = _dataset(), _costs(_dataset())
    kept = [i for i in range(_ROWS) if costs[i] > 4]
    doubled = {i: 2 * costs[i] for i in range(_ROWS)}
    wanted = _cut(kept, costs, _LIMIT, padded=False)
    assert _rows(ds.where("n > 4").batch(cost="tokens", limit=_LIMIT)) == wanted
    assert _rows(ds.filter(lambda r: r["n"] > 4).batch(cost="tokens", limit=_LIMIT)) == wanted
    twice = ds.map(lambda r: {"row": r["row"], "t": np.repeat(r["tokens"], 2)})
    assert _rows(twice.batch(cost="t", limit=_LIMIT)) == _cut(
        list(range(_ROWS)), doubled, _LIMIT, padded=False
    )
    for chosen in (ds.filter(lambda r: r["n"] > 4), ds.where("n > 4")):
        shuffled = chosen.shuffle(seed=1)
        [order] = _rows(shuffled.batch(_ROWS))
        made = _rows(shuffled.batch(cost="tokens", limit=_LIMIT))
        assert made == _cut(order, costs, _LIMIT, padded=False)
    with pytest.raises(rm.OptionError, match="put filter before shuffle"):
        ds.shuffle(seed=1).filter(lambda r: r["n"] > 4).batch(cost="n", limit=9)


def test_buckets_are_filled_up_to_the_limit() -> None:
    ds, costs = _dataset(), _costs(_dataset())
    for order in (list(range(_ROWS)), _rows(ds.shuffle(seed=4).batch(_ROWS))[0]):
        rows = ds if order[:2] == [0, 1] else ds.shuffle(seed=4)
        made = _rows(rows.bucket("tokens", [5, 12]).batch(cost="n", limit=_LIMIT, pad="longest"))
        assert sorted(row for batch in made for row in batch) == list(range(_ROWS))
        for low, high in ((0, 5), (5, 12), (12, 99)):
            mine = [i for i in order if low <= costs[i] < high]
            of_bucket = [batch for batch in made if low <= costs[batch[0]] < high]
            assert of_bucket == _cut(mine, costs, _LIMIT, padded=True)


@pytest.mark.parametrize("workers", [None, "threads:2", 2])
def test_workers_change_nothing(workers: Any) -> None:
    ds = _dataset()

    def chain(workers: Any) -> rm.Stream:
        rows = ds.shuffle(seed=2).map(_length_twice, workers=workers)
        return rows.batch(cost="tokens", limit=_LIMIT, pad="longest")

    assert _rows(chain(workers)) == _rows(chain(None))


def _length_twice(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "twice": 2 * row["n"]}


@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_ranks_take_equally_many_steps_and_every_row_once(world: int) -> None:
    for rows in (8, 9, 31, _ROWS):
        ds = _dataset(rows)
        costs = _costs(ds)
        for limit in (20, _LIMIT, 10_000):
            chain = ds.shuffle(seed=5).batch(cost="tokens", limit=limit)
            ranks = [chain.shard(rank, world) for rank in range(world)]
            for _ in range(2):
                counts = {len(rank) for rank in ranks}
                made = [_rows(rank) for rank in ranks]
                assert {len(each) for each in made} == counts
                assert len(counts) == 1
                assert all(sum(costs[i] for i in b) <= limit for each in made for b in each)
                assert all(b for each in made for b in each)
                assert sorted(i for each in made for b in each for i in b) == list(range(rows))


def test_even_drops_a_round_or_repeats_rows_that_a_mask_marks() -> None:
    ds = _dataset()
    chain = ds.batch(cost="tokens", limit=_LIMIT)
    whole, world = _rows(chain), 5
    assert len(whole) % world
    made = [_rows(chain.shard(rank, world, even="drop")) for rank in range(world)]
    assert [b for step in zip(*made, strict=True) for b in step] == whole[: len(whole) // 5 * 5]
    few = ds.take(3).batch(cost="tokens", limit=10_000)
    assert [_rows(few.shard(rank, 4)) for rank in range(4)] == [[[0]], [[1]], [[2]], []]
    padded = [list(few.shard(rank, 4, even="pad")) for rank in range(4)]
    assert [[b["mask"].tolist() for b in each] for each in padded] == [[[True]]] * 3 + [[[False]]]
    assert [_rows(each) for each in padded] == [[[0]], [[1]], [[2]], [[2]]]


@pytest.mark.parametrize("bucket", [False, True])
def test_a_run_resumes_after_any_batch_with_any_number_of_ranks(bucket: bool) -> None:
    ds = _dataset(16)

    def ranks(world: int) -> list[rm.Stream]:
        rows = ds.shuffle(seed=6)
        chain = (rows.bucket("n", [7]) if bucket else rows).batch(cost="tokens", limit=_LIMIT)
        return [chain.repeat(2).shard(rank, world) for rank in range(world)]

    for world, then in ((1, 4), (2, 2), (3, 1)):
        whole = [_rows(rank) for rank in ranks(world)]
        steps = len(whole[0])
        running = ranks(world)
        loops = [iter(rank) for rank in running]
        for step in range(1, steps):
            taken = [next(loop)["row"].tolist() for loop in loops]
            assert taken == [each[step - 1] for each in whole]
            state = json.loads(json.dumps(running[step % world].state()))
            rest = [_rows(rank.restore(state)) for rank in ranks(then)]
            if then == world:
                assert rest == [each[step:] for each in whole]
            left = sorted(i for each in whole for b in each[step:] for i in b)
            assert sorted(i for each in rest for b in each for i in b) == left
            # Fewer rows may be left of an epoch than there are ranks.
            assert max(map(len, rest)) - min(map(len, rest)) <= 1
            if step % 4 == 0:  # the states of all ranks say the same
                states = [rank.state() for rank in running]
                again = [_rows(rank.restore(states)) for rank in ranks(then)]
                assert again == rest


def test_ranks_that_are_not_in_step_resume_from_all_states() -> None:
    ds = _dataset(60)

    def ranks(world: int) -> list[rm.Stream]:
        chain = ds.shuffle(seed=6).batch(cost="tokens", limit=_LIMIT)
        return [chain.shard(rank, world) for rank in range(world)]

    running = ranks(3)
    taken = []
    for rank, steps in zip(running, (4, 1, 2), strict=True):
        loop = iter(rank)
        taken += [i for _ in range(steps) for i in next(loop)["row"].tolist()]
    resumed = [rank.restore([each.state() for each in running]) for rank in ranks(2)]
    rest = [_rows(rank) for rank in resumed]
    assert len({len(each) for each in rest}) == 1
    assert sorted([*taken, *(i for each in rest for b in each for i in b)]) == list(range(60))


def test_batches_can_be_left_out_and_repeated() -> None:
    ds = _dataset()
    chain = ds.shuffle(seed=8).batch(cost="tokens", limit=_LIMIT)
    first, second = _rows(chain), _rows(chain)
    assert len(first) != len(second)
    again = ds.shuffle(seed=8).batch(cost="tokens", limit=_LIMIT)
    assert _rows(again.repeat(2)) == first + second
    assert len(again.repeat(2)) == len(first) + len(second)
    assert _rows(again.repeat().take(len(first) + 2)) == first + second[:2]
    assert _rows(again.skip(2).take(3)) == first[2:5]
    assert len(again.skip(2).take(3)) == 3
    assert (
        _rows(ds.repeat(2).batch(cost="tokens", limit=_LIMIT))[0]
        == _rows(ds.batch(cost="tokens", limit=_LIMIT))[0]
    )
    with pytest.raises(rm.OptionError, match="put repeat after batch"):
        ds.repeat().batch(cost="tokens", limit=_LIMIT)


def test_loader_workers_take_turns() -> None:
    torch = pytest.importorskip("torch")
    ds = _dataset()
    chain = ds.shuffle(seed=8).batch(cost="tokens", limit=_LIMIT, pad="longest")
    wanted = _rows(ds.shuffle(seed=8).batch(cost="tokens", limit=_LIMIT))
    wanted_padded = _rows(ds.shuffle(seed=8).batch(cost="tokens", limit=_LIMIT, pad="longest"))
    assert wanted != wanted_padded
    loader = torch.utils.data.DataLoader(chain.to_torch(), batch_size=None, num_workers=2)
    assert [batch["row"].tolist() for batch in loader] == wanted_padded


def test_a_stream_is_pickled_with_its_costs() -> None:
    chain = _dataset().shuffle(seed=9).batch(cost=_tokens_twice, limit=_LIMIT)
    assert _rows(pickle.loads(pickle.dumps(chain))) == _rows(chain)


def _tokens_twice(lengths: Any) -> Any:
    return 2 * lengths["tokens"]


def test_stored_rows_make_the_batches_of_rows_in_memory(tmp_path: Path) -> None:
    ds = _dataset()
    for name in ("x.parquet", "x.tfrecord", "x.npz"):
        ds.save(tmp_path / name)
        stored = rm.open(tmp_path / name)
        for cost in ("tokens", "n", _tokens_twice):
            made = _rows(stored.batch(cost=cost, limit=_LIMIT))
            assert made == _rows(ds.batch(cost=cost, limit=_LIMIT))
    images = rm.from_arrays(
        {"image": np.array([b"not an image"] * 4), "n": np.arange(4), "row": np.arange(4)}
    )
    decoded = images.decode_image("image", 8, errors="zero").batch(cost="n", limit=3)
    assert _rows(decoded) == [[0, 1, 2], [3]]


def test_a_row_that_fits_into_no_batch_is_named() -> None:
    ds = _dataset()
    longest = int(np.argmax(ds["n"][:]))
    most = int(ds["n"][longest])
    for cost in ("tokens", "n", lambda lengths: lengths["n"]):
        for rows in (ds, ds.shuffle(seed=1)):
            chain = rows.batch(cost=cost, limit=most - 1)
            with pytest.raises(rm.DataError, match=rf"row {longest}\b.*costs {most}"):
                next(iter(chain))


def test_what_has_no_cost_is_refused() -> None:
    ds = rm.from_arrays({"x": np.zeros((3, 2)), "n": np.array([1.0, -1.0, np.nan])})
    with pytest.raises(rm.OptionError, match="the column is float64"):
        ds.batch(cost="x", limit=3)
    with pytest.raises(rm.FieldNotFoundError, match="tokens"):
        ds.batch(cost="tokens", limit=3)
    for rows, shown in ((ds.skip(1).take(1), "costs -1"), (ds.skip(2), "costs nan")):
        with pytest.raises(rm.DataError, match=shown):
            next(iter(rows.batch(cost="n", limit=3)))
    with pytest.raises(rm.MapError, match="one number for each of the"):
        next(iter(ds.batch(cost=lambda _: 3, limit=3)))
    with pytest.raises(rm.MapError, match="KeyError"):
        next(iter(ds.batch(cost=lambda lengths: lengths["y"], limit=3)))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"cost": "n"}, "go together"),
        ({"limit": 3}, "go together"),
        ({"size": 3, "padded": True}, "go together"),
        ({"cost": "n", "limit": 0}, "limit=0"),
        ({"cost": "n", "limit": "many"}, "limit='many'"),
        ({"cost": 3, "limit": 3}, "name of a column"),
        ({"cost": "n", "limit": 3, "size": [1, 2]}, "several batch sizes"),
        ({"cost": "n", "limit": 3, "size": 0}, "size"),
        ({"cost": "n", "limit": 3, "drop_last": True}, "no full size"),
        ({"cost": "n", "limit": 3, "padded": 1}, "padded"),
        ({}, "size"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(rm.OptionError, match=says):
        _dataset().batch(**options)


def test_no_rows_make_no_batches() -> None:
    ds = _dataset().take(0)
    for world in (1, 3):
        assert _rows(ds.batch(cost="tokens", limit=3).shard(0, world)) == []


def test_batches_that_are_read_together_are_those_that_are_read_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ds = _dataset(500)
    pipelines: list[Any] = [
        lambda: ds.batch(cost="tokens", limit=50),
        lambda: ds.select("row", "n").batch(cost="n", limit=50),
        lambda: ds.shuffle(seed=1).batch(cost="tokens", limit=50).shard(1, 3).repeat(2),
        lambda: ds.map(dict).batch(cost="tokens", limit=50),
    ]
    for make in pipelines:
        together = list(make())
        with monkeypatch.context() as patched:
            patched.setattr("recmap.pipeline.ready_plan._TOGETHER_BATCHES", 1)
            alone = list(make())
        assert len(together) == len(alone) > 10
        for batch, wanted in zip(together, alone, strict=True):
            assert list(batch) == list(wanted)
            for name in batch:
                assert batch[name].tolist() == wanted[name].tolist()
            if "tokens" in batch:
                assert len(batch["tokens"].values) == batch["tokens"].lengths.sum()
