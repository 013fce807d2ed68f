"""The verbs of a pipeline: what each does to rows, and what it refuses."""

from __future__ import annotations

import json
import pickle
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import recmap as rm

ROWS = 100


@pytest.fixture(params=["npy", "tfrecord", "memory", "gzip", "hdf5"])
def ds(request: pytest.FixtureRequest) -> rm.Dataset:
    """The same rows from files of several kinds: mapped, indexed, compressed, chunked."""
    given = rm.from_arrays({"x": np.arange(ROWS), "y": np.arange(ROWS * 3.0).reshape(ROWS, 3)})
    if request.param == "memory":
        return given
    if request.param == "npy":
        np.save("x.npy", np.arange(ROWS))
        np.save("y.npy", np.arange(ROWS * 3.0).reshape(ROWS, 3))
        return rm.open({"x": "x.npy", "y": "y.npy"})
    if request.param == "gzip":
        given.save("d.tfrecord.gz", compression="gzip")
        return rm.open("d.tfrecord.gz")
    if request.param == "hdf5":
        given.save("d.h5", compression="gzip")
        return rm.open("d.h5")
    given.save("d.tfrecord")
    return rm.open("d.tfrecord")


def numbers(pipeline: Any) -> list[int]:
    return [int(n) for batch in pipeline for n in np.atleast_1d(batch["x"])]


def lengths(pipeline: Any) -> list[int]:
    return [len(batch["x"]) for batch in pipeline]


def test_batches_have_all_rows_and_the_last_may_be_smaller(ds: rm.Dataset) -> None:
    assert numbers(ds.batch(32)) == list(range(ROWS))
    assert lengths(ds.batch(32)) == [32, 32, 32, 4]
    assert lengths(ds.batch(32, drop_last=True)) == [32, 32, 32]
    assert (len(ds.batch(32)), len(ds.batch(32, drop_last=True))) == (4, 3)


def test_rows_keep_their_columns_together(ds: rm.Dataset) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rm.SlowOrderWarning)
        for batch in ds.shuffle(seed=3).batch(7):
            assert np.array_equal(batch["y"][:, 0], batch["x"] * 3.0)


def test_a_shuffle_is_exact_and_new_in_every_epoch(ds: rm.Dataset) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rm.SlowOrderWarning)
        train = ds.shuffle(seed=3).batch(7)
    first, second = numbers(train), numbers(train)
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert first != second
    train.epoch = 0
    assert numbers(train) == first


def test_a_window_shuffle_has_all_rows_in_a_new_order_every_epoch(ds: rm.Dataset) -> None:
    train = ds.shuffle(seed=3, window=16).batch(7)
    first, second = numbers(train), numbers(train)
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert first != second
    assert first != list(range(ROWS))


def test_batches_may_be_written_to(ds: rm.Dataset) -> None:
    before = numbers(ds.batch(10))
    for batch in ds.batch(10):
        batch["x"] += 1
        batch["y"][:] = 0
    assert numbers(ds.batch(10)) == before


def test_reading_a_shuffle_of_compressed_rows_warns_and_saving_it_does_not() -> None:
    rm.from_arrays({"x": np.arange(50)}).save("d.tfrecord.gz")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shuffled = rm.open("d.tfrecord.gz").shuffle(seed=1)
        shuffled.save("e.npy")  # shuffles the rows on disk
    with pytest.warns(rm.SlowOrderWarning, match="window") as caught:
        shuffled.batch(4)
    assert caught[0].filename == __file__
    with pytest.warns(rm.SlowOrderWarning, match="window") as caught:
        assert numbers(shuffled) == np.load("e.npy").tolist()
    assert caught[0].filename == __file__
    with pytest.warns(rm.SlowOrderWarning, match="window"):
        rm.mix(rm.open("d.tfrecord.gz").shuffle(seed=1), rm.from_arrays({"x": np.arange(4)})).batch(
            4
        )
    with pytest.warns(rm.SlowOrderWarning, match="window"):
        rm.open("d.tfrecord.gz").pipeline().shuffle(seed=1)


@pytest.mark.slow
def test_shuffles_are_uniform_over_positions() -> None:
    places = np.zeros((8, 8), int)
    ds = rm.from_arrays({"x": np.arange(8)})
    for seed in range(320):
        order = numbers(ds.shuffle(seed=seed))
        places[np.arange(8), order] += 1
    # Expect 320 / 8 in each, within five standard deviations.
    assert abs(places - 40).max() < 30


def simple(n: int = 20) -> rm.Dataset:
    return rm.from_arrays({"x": np.arange(n)})


def test_repeat_before_batch_joins_epochs_and_after_it_does_not() -> None:
    assert lengths(simple(5).repeat(2).batch(3)) == [3, 3, 3, 1]
    assert lengths(simple(5).batch(3).repeat(2)) == [3, 2, 3, 2]
    assert len(simple(5).repeat(2).batch(3)) == len(simple(5).batch(3).repeat(2)) == 4


def test_each_repetition_has_its_own_order() -> None:
    both = numbers(simple().shuffle(seed=1).repeat(2))
    assert both[:20] != both[20:]
    assert sorted(both[:20]) == sorted(both[20:])
    assert numbers(simple().shuffle(seed=1).batch(20).repeat(2)) == both


def test_rows_may_repeat_without_end() -> None:
    endless = iter(simple(3).shuffle(seed=1).repeat().batch(2))
    seen = Counter(int(n) for _ in range(6) for n in next(endless)["x"])
    assert seen == {0: 4, 1: 4, 2: 4}
    endless = iter(simple(3).batch(2).repeat())
    assert [next(endless)["x"].tolist() for _ in range(3)] == [[0, 1], [2], [0, 1]]
    with pytest.raises(TypeError, match="repeats forever"):
        len(simple(3).repeat().batch(2))


def test_take_and_skip_count_rows_before_batch_and_batches_after() -> None:
    assert numbers(simple().skip(3).take(4)) == [3, 4, 5, 6]
    assert numbers(simple().batch(3).skip(1).take(2)) == [3, 4, 5, 6, 7, 8]
    assert numbers(simple().take(50)) == list(range(20))
    assert numbers(simple().skip(50)) == []
    assert numbers(simple().filter(lambda row: row["x"] > 4).skip(1).take(2)) == [6, 7]
    odd = simple().filter(lambda row: row["x"] % 2 == 1).batch(2).skip(1).take(2)
    assert numbers(odd) == [5, 7, 9, 11]


def test_filter_by_rows_and_by_mask() -> None:
    assert numbers(simple().filter(lambda row: row["x"] < 3).batch(2)) == [0, 1, 2]
    assert numbers(simple().filter(lambda b: b["x"] < 3, batched=True).batch(2)) == [0, 1, 2]
    with pytest.raises(rm.MapError, match="a mask"):
        numbers(simple().filter(lambda b: b["x"], batched=True))


def test_buckets_hold_rows_of_similar_length() -> None:
    tokens = rm.Ragged.from_rows([np.zeros(i % 12) for i in range(100)])
    ds = rm.from_arrays({"x": np.arange(100), "t": tokens})
    sizes = []
    for batch in ds.bucket("t", [4, 8]).batch([8, 4, 2], pad="longest"):
        longest = batch["t"].shape[1]
        sizes.append((longest > 3) + (longest > 7))
    seen = numbers(ds.bucket("t", [4, 8]).batch([8, 4, 2]))
    assert sorted(seen) == list(range(100))
    assert set(sizes) == {0, 1, 2}


def test_rows_may_be_bucketed_by_a_function() -> None:
    by = simple(10).bucket(lambda row: int(row["x"]) % 2, [1]).batch(3)
    assert [batch["x"].tolist() for batch in by] == [[0, 2, 4], [1, 3, 5], [6, 8], [7, 9]]


def test_packs_join_sequences_of_all_rows() -> None:
    tokens = rm.Ragged.from_rows([np.full(1 + i % 5, i) for i in range(60)])
    packed = rm.from_arrays({"t": tokens}).pack(16).batch(4)
    found = np.concatenate([b["t"][b["segments"] > 0] for b in packed])
    assert sorted(found.tolist()) == sorted(tokens.values.tolist())
    assert packed.schema["t"] == rm.Field("int64", 16)


def test_a_mix_keeps_its_weights_and_the_order_of_each() -> None:
    a, b = (rm.from_arrays({"x": np.arange(n) + n}) for n in (10_000, 20_000))
    mixed = np.array(numbers(rm.mix(a, b, weights=[0.25, 0.75]).batch(1000)))
    of_a = mixed < 20_000
    assert np.array_equal(mixed[of_a], np.arange(of_a.sum()) + 10_000)
    assert np.array_equal(mixed[~of_a], np.arange((~of_a).sum()) + 20_000)
    shares = of_a[: len(of_a) // 1000 * 1000].reshape(-1, 1000).mean(axis=1)
    assert abs(of_a.mean() - 0.25) < 0.01
    assert abs(shares - 0.25).max() < 0.07


def test_a_mix_ends_with_the_first_or_with_all() -> None:
    a, b = simple(10), rm.from_arrays({"x": np.arange(90) + 1000})
    assert sorted(numbers(rm.mix(a, b))) == sorted([*range(10), *range(1000, 1090)])
    everything = numbers(rm.mix(a, b, weights=[0.5, 0.5], until="all"))
    assert sorted(everything) == sorted([*range(10), *range(1000, 1090)])
    first = numbers(rm.mix(a, b, weights=[0.5, 0.5]))
    assert sum(n < 1000 for n in first) == 10
    with pytest.raises(rm.FieldMismatchError, match="dataset 2"):
        rm.mix(a, rm.from_arrays({"y": np.arange(3)}))


def test_zip_puts_rows_side_by_side() -> None:
    both = rm.zip(
        simple(4), rm.from_arrays({"y": np.arange(4) * 10}).shuffle(seed=0).shuffle(seed=0)
    )
    assert list(both.schema) == ["x", "y"]
    with pytest.raises(rm.DataError, match="same number of rows"):
        rm.zip(simple(4), rm.from_arrays({"y": np.arange(3)}))
    with pytest.raises(rm.FieldMismatchError, match="'x'"):
        rm.zip(simple(4), simple(4))


@pytest.mark.parametrize("world", [1, 2, 3, 7])
@pytest.mark.parametrize("rows", [0, 1, 5, 20, 43])
def test_ranks_share_rows_and_take_equal_steps_with_pad_and_drop(rows: int, world: int) -> None:
    chain = simple(rows).shuffle(seed=1).batch(4)
    parts = [chain.shard(rank, world) for rank in range(world)]
    seen = [numbers(part) for part in parts]
    assert sorted(n for part in seen for n in part) == list(range(rows))
    assert max(map(len, seen)) - min(map(len, seen)) <= 1

    padded = [list(chain.shard(rank, world, even="pad")) for rank in range(world)]
    assert len({tuple(len(b["x"]) for b in part) for part in padded}) == 1
    real = [int(n) for part in padded for b in part for n in b["x"][b["mask"]]]
    assert sorted(real) == list(range(rows))

    dropped = [list(chain.shard(rank, world, even="drop")) for rank in range(world)]
    assert len({tuple(len(b["x"]) for b in part) for part in dropped}) == 1
    kept = [int(n) for part in dropped for b in part for n in b["x"]]
    assert len(kept) == len(set(kept)) == rows - rows % world
    for rank in range(world):
        assert len(parts[rank]) == len(list(parts[rank]))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda ds: ds.batch(0), "1 or more"),
        (lambda ds: ds.batch(-1), "1 or more"),
        (lambda ds: ds.batch(2).batch(2), "batches already"),
        (lambda ds: ds.batch(2).shuffle(seed=1), "comes before batch"),
        (lambda ds: ds.batch(2).filter(bool), "comes before batch"),
        (
            lambda ds: ds.shuffle(seed=2).filter(bool).shuffle(seed=1),
            "put shuffle before it",
        ),
        (lambda ds: ds.shard(0, 2).shuffle(seed=1), "shuffle comes before shard"),
        (lambda ds: ds.shard(2, 2), "0 to count - 1"),
        (lambda ds: ds.shard(0, 2).shard(0, 2), "already"),
        (lambda ds: ds.filter(bool).batch(2).shard(0, 2, even="pad"), "ranks may differ"),
        (lambda ds: ds.shuffle(seed=-1), "0 or more"),
        (lambda ds: ds.shuffle(seed=1, window=1), "2 rows or more"),
        (lambda ds: ds.repeat(-1), "0 or more"),
        (lambda ds: ds.repeat().repeat(), "endless rows"),
        (lambda ds: ds.map(3), "not a function"),
        (lambda ds: ds.map(bool, workers="many"), "threads:4"),
        (lambda ds: ds.batch(2, lengths=True), "give pad="),
        (lambda ds: list(ds.bucket("x", [1])), "followed by batch"),
        (lambda ds: list(ds.pack(4)), "no column to pack|followed by batch"),
        (lambda _: rm.mix(), "nothing to mix"),
        (lambda ds: rm.mix(ds, ds, weights=[1.0]), "1 weights for 2"),
        (lambda ds: rm.mix(ds, ds.repeat()), "need weights"),
        (lambda ds: ds.batch(2, pad={"x": 3}), "x"),
        (lambda ds: ds.prefetch(memory="lots"), "lots"),
    ],
)
def test_invalid_arguments_are_refused_by_the_verb(wrong: Any, said: str) -> None:
    with pytest.raises((rm.OptionError, rm.ColumnError), match=said):
        made = wrong(simple())
        list(made)


def test_rows_that_come_only_once_are_refused() -> None:
    once = rm.from_batches([{"x": np.arange(3)}])
    with pytest.raises(rm.OptionError, match="save them first"):
        once.batch(2)


def test_a_dataset_without_rows_gives_no_batches() -> None:
    empty = simple(0)
    assert list(empty.shuffle(seed=1).map(lambda row: row).batch(3)) == []
    assert list(empty.repeat().batch(3)) == []
    assert list(empty) == []


def test_two_iterations_at_once_do_not_disturb_each_other() -> None:
    train = simple().batch(5)
    pairs = list(zip(iter(train), iter(train), strict=True))
    assert all(np.array_equal(a["x"], b["x"]) for a, b in pairs)


def test_timings_tell_where_the_time_went() -> None:
    train = simple(1000).map(lambda row: {"x": row["x"]}).batch(100)
    list(train)
    stats = train.timings()
    assert [stage.name.split()[0] for stage in stats.stages] == ["read", "map"]
    assert (stats.batches, stats.rows, stats.bytes) == (10, 1000, 8000)
    assert 0 <= stats.waited <= 1
    assert all(stage.working > 0 for stage in stats.stages)
    assert stats.verdict.startswith("input-bound")
    assert "rows/s" in str(stats)


def test_timings_include_reading_in_order() -> None:
    rm.from_arrays({"x": np.arange(1000)}).save("d.tfrecord.gz")
    train = rm.open("d.tfrecord.gz").batch(100)
    list(train)
    (read,) = train.timings().stages
    assert read.working > 0.0001


def test_prefetch_stays_within_its_memory() -> None:
    np.save("wide.npy", np.zeros((64, 1 << 17)))  # rows of 1 MB
    ahead = 0

    def watch(batch: dict[str, Any]) -> dict[str, Any]:
        nonlocal ahead
        ahead += 1
        return batch

    ds = rm.open("wide.npy").map(watch, batched=True).batch(4).prefetch(16, memory="12MB")
    batches = iter(ds)
    next(batches)
    del batches
    # The sample, the batch that the loop has, and two of 4 MB in 12 MB.
    assert ahead <= 5


def test_a_state_can_be_saved_as_json_at_any_time() -> None:
    train = simple().shuffle(seed=1).batch(3)
    json.dumps(train.state())
    for _ in train:
        json.dumps(train.state())


def test_the_mask_of_padding_survives_functions_of_batches() -> None:
    chain = simple(5).batch(2).map(lambda b: {"x": b["x"] * 2})
    parts = [list(chain.shard(rank, 2, even="pad")) for rank in range(2)]
    real = sorted(int(n) for part in parts for b in part for n in b["x"][b["mask"]])
    assert real == [0, 2, 4, 6, 8]
    summed = simple(5).batch(2).map(lambda b: {"x": b["x"].sum(keepdims=True)})
    with pytest.raises(rm.MapError, match="changed the number of rows"):
        list(summed.shard(0, 2, even="pad"))


def test_take_and_skip_start_over_in_every_repetition() -> None:
    def every(row: dict[str, Any]) -> bool:
        return bool(row["x"] >= 0)

    plain = simple(10).batch(2).take(3).repeat(2)
    left = simple(10).filter(every).batch(2).take(3).repeat(2)
    dealt = simple(10).shard(0, 1).batch(2).take(3).repeat(2)
    expected = [0, 1, 2, 3, 4, 5] * 2
    assert numbers(plain) == numbers(left) == numbers(dealt) == expected
    assert numbers(simple(6).filter(every).batch(2).skip(1).repeat(2)) == [2, 3, 4, 5] * 2
    assert len(plain) == len(dealt) == 6


@pytest.mark.parametrize(
    "chain",
    [
        lambda: simple(3).batch(4, drop_last=True).repeat(),
        lambda: simple(3).filter(lambda row: row["x"] < 0).batch(2).repeat(),
        lambda: simple(3).batch(4).shard(3, 4).repeat(),
    ],
)
def test_repeating_no_batches_without_end_is_an_error(chain: Any) -> None:
    with pytest.raises(rm.OptionError, match="an epoch has no batches"):
        next(iter(chain()))


def test_datasets_and_pipelines_can_be_pickled() -> None:
    np.save("x.npy", np.arange(10))
    train = rm.open({"x": "x.npy"}).shuffle(seed=1).batch(3)
    expected = numbers(train)
    again = pickle.loads(pickle.dumps(train))
    again.epoch = 0
    assert numbers(again) == expected
    assert again.state() == train.state()
    assert len(pickle.loads(pickle.dumps(rm.open("x.npy")))) == 10
    assert numbers(pickle.loads(pickle.dumps(simple(3)))) == [0, 1, 2]


def test_the_state_after_the_last_batch_is_the_next_epoch() -> None:
    def chain() -> rm.Stream:
        return simple(6).filter(lambda row: row["x"] < 4).batch(2)

    train = chain()
    list(train)
    again = chain().restore(train.state())
    assert again.epoch == 1
    assert numbers(again) == [0, 1, 2, 3]


def test_one_state_is_enough_for_all_ranks_in_step() -> None:
    def ranks(world: int) -> list[rm.Stream]:
        return [simple(1200).shuffle(seed=1).shard(rank, world) for rank in range(world)]

    before, seen = ranks(2), []
    for rank in before:
        rows = iter(rank)
        seen += [int(next(rows)["x"]) for _ in range(10)]
    for world in (2, 3):
        rest = [n for rank in ranks(world) for n in numbers(rank.restore(before[0].state()))]
        assert sorted(seen + rest) == list(range(1200))


def test_values_that_are_not_states_are_refused() -> None:
    for wrong in ("text", None, [], [1], {"version": 0}):
        with pytest.raises(rm.OptionError, match="state"):
            simple().batch(2).restore(wrong)  # type: ignore[arg-type]


def test_states_of_different_runs_do_not_fit_together() -> None:
    a, b = (simple(40).batch(2).shard(rank, 2) for rank in range(2))
    next(iter(a))
    first = a.state()
    list(b)
    second = {**b.state(), "epoch": 5}
    with pytest.raises(rm.OptionError, match="not of one moment"):
        simple(40).batch(2).shard(0, 3).restore([first, second])


def test_a_column_that_a_function_does_not_make_is_named_with_the_verb() -> None:
    def made() -> rm.Dataset:
        ds = rm.from_arrays({"x": np.arange(6)})
        return ds.map(lambda row: {"image": row["x"], "tokens": [1] * int(row["x"])})

    chains: dict[str, Callable[[rm.Dataset], Any]] = {
        "select": lambda ds: ds.select("imag"),
        "select after batch": lambda ds: ds.batch(2).select("imag"),
        "decode_image": lambda ds: ds.decode_image("imag"),
        "pad": lambda ds: ds.batch(2, pad={"imag": 3}),
        "bucket": lambda ds: ds.bucket("imag", [2]).batch(2),
        "pack": lambda ds: ds.pack(4, ["imag"]).batch(2),
    }
    for verb, chain in chains.items():
        named = verb.split()[0] if verb not in ("bucket", "pack") else ""
        with pytest.raises(rm.RecmapError, match=rf"{named}.*'imag'.*did you mean 'image'"):
            list(chain(made()))
        tried = made()
        assert list(tried.schema) == ["image", "tokens"]
        if verb != "select after batch":  # functions of batches may make other columns
            with pytest.raises(rm.RecmapError, match="did you mean 'image'"):
                chain(tried)
