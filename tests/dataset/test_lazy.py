"""Verbs of rows return datasets: indexed, described, compared, saved and trained from."""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.pictures import encoded

Rows = list[dict[str, Any]]


def numbers(count: int = 40) -> rm.Dataset:
    texts = rm.Ragged.from_bytes([b"t%d" % i for i in range(count)])
    return rm.from_arrays({"x": np.arange(count), "t": texts})


def on_disk(count: int = 40) -> rm.Dataset:
    numbers(count).save("x.tfrecord", overwrite=True, progress=False)
    return rm.open("x.tfrecord")


def is_even(row: dict[str, Any]) -> bool:
    return bool(row["x"] % 2 == 0)


def is_small(row: dict[str, Any]) -> bool:
    return bool(row["x"] % 40 < 25)


def doubled(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "x": row["x"] * 2}


def jittered(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {**row, "x": row["x"] + 40 * rng.integers(5)}


def increased(columns: dict[str, Any]) -> dict[str, Any]:
    return {**columns, "x": columns["x"] + 1}


def plain(rows: Any) -> list[tuple[int, bytes]]:
    return [(int(row["x"]), bytes(row["t"])) for row in rows]


def of_batch(batch: dict[str, Any]) -> list[tuple[int, bytes]]:
    return [(int(x), bytes(t)) for x, t in zip(batch["x"], batch["t"], strict=True)]


# Each verb, and the same on a list of rows.
VERBS: list[tuple[Callable[[rm.Dataset], rm.Dataset], Callable[[Rows], Rows]]] = [
    (lambda ds: ds.filter(is_even), lambda rows: [row for row in rows if is_even(row)]),
    (
        lambda ds: ds.filter(lambda columns: columns["x"] % 40 < 25, batched=True),
        lambda rows: [row for row in rows if is_small(row)],
    ),
    (lambda ds: ds.map(doubled), lambda rows: [doubled(row) for row in rows]),
    (
        lambda ds: ds.map(increased, batched=True),
        lambda rows: [{**row, "x": row["x"] + 1} for row in rows],
    ),
    (lambda ds: ds.take(9), lambda rows: rows[:9]),
    (lambda ds: ds.skip(3), lambda rows: rows[3:]),
    (lambda ds: ds.select(slice(1, None, 2)), lambda rows: rows[1::2]),
    (lambda ds: ds.select("x", "t"), lambda rows: rows),
    (lambda ds: ds.rename({"x": "y"}).rename({"y": "x"}), lambda rows: rows),
    (lambda ds: ds.cast({"x": "int32"}), lambda rows: rows),
    (lambda ds: ds.repeat(2), lambda rows: rows * 2),
    (lambda ds: ds.shuffle(seed=5, reshuffle=False).select([]), lambda _: []),
    (lambda ds: rm.zip(ds.select("x"), ds.select("t")), lambda rows: rows),
    (
        lambda ds: ds.flat_map(lambda row: [row] * int(row["x"] % 3)),
        lambda rows: [row for row in rows for _ in range(row["x"] % 3)],
    ),
    (lambda ds: rm.concat(ds.skip(4), ds.take(2)), lambda rows: rows[4:] + rows[:2]),
]


@pytest.mark.parametrize("seed", range(12))
def test_a_chain_is_the_same_by_number_in_a_loop_and_saved(seed: int) -> None:
    rng = random.Random(seed)
    ds, rows = on_disk(), [{"x": i, "t": b"t%d" % i} for i in range(40)]
    for verb, model in rng.choices(VERBS, k=rng.randint(1, 5)):
        ds, rows = verb(ds), model(rows)
    wanted = plain(rows)
    assert isinstance(ds, rm.Dataset)
    assert plain(ds) == wanted
    assert len(ds) == len(wanted)
    assert of_batch(ds[:]) == wanted
    assert of_batch(ds.head(3)) == wanted[:3]
    places = [rng.randrange(len(wanted)) for _ in range(5)] if wanted else []
    assert of_batch(ds[places]) == [wanted[i] for i in places]
    assert plain(ds[i] for i in places) == [wanted[i] for i in places]
    assert ds["x"][:].tolist() == [x for x, _ in wanted]
    assert [x for batch in ds.batch(4) for x in batch["x"].tolist()] == [x for x, _ in wanted]
    ds.save("out.npz", progress=False)
    assert plain(rm.open("out.npz")) == wanted
    assert rm.diff("out.npz", ds).same


def test_rows_by_number_are_those_of_the_first_epoch() -> None:
    ds = on_disk()
    for chain in (
        ds.shuffle(seed=1),
        ds.shuffle(seed=1, window=8),
        ds.shuffle(seed=1).map(jittered),
        ds.filter(is_small).map(jittered).shuffle(seed=2),
        ds.map(jittered).filter(is_even),
        ds.filter(is_even).map(jittered),
        ds.shuffle(seed=3).filter(is_small).skip(2),
        rm.mix(ds, ds.take(20), weights=[0.5, 0.5], seed=2),
    ):
        first = plain(chain)
        assert of_batch(chain[:]) == first
        assert plain(chain) != first  # the second epoch
        assert plain(chain[i] for i in range(5)) == first[:5]


def test_a_filter_runs_once_for_all_that_asks_by_number() -> None:
    called: list[int] = []

    def keep(row: dict[str, Any]) -> bool:
        called.append(int(row["x"]))
        return bool(row["x"] >= 30)

    kept = on_disk(2000).filter(keep)
    assert "rows not counted yet" in repr(kept)
    assert [int(row["x"]) for row in kept.take(2)] == [30, 31]
    assert of_batch(kept.head(2)) == [(30, b"t30"), (31, b"t31")]
    assert len(called) < 2000  # a loop runs only as far as it has to
    assert len(kept) == 1970
    calls = len(called)
    assert calls >= 2000
    shuffled = kept.shuffle(seed=1)
    assert (len(kept), len(kept[5:9]["x"]), len(shuffled), len(shuffled["x"][:])) == (
        1970,
        4,
        1970,
        1970,
    )
    assert len(called) <= calls + 200  # only trials on the first rows
    assert "1,970 rows" in repr(kept)


def test_a_filter_after_repeat_keeps_rows_once_for_each_turn() -> None:
    chain = numbers().filter(is_even).repeat(2).filter(is_small)
    wanted = [x for x in range(0, 40, 2) if x < 25] * 2
    assert len(chain) == len(wanted)
    assert chain["x"][:].tolist() == wanted
    assert sorted(int(row["x"]) for row in chain.shuffle(seed=1)) == sorted(wanted)
    assert len(chain.repeat(3)) == 3 * len(wanted)


def test_a_shuffle_after_a_filter_runs_nothing_before_it_is_read() -> None:
    def never(row: dict[str, Any]) -> bool:
        raise AssertionError(row)

    chain = numbers().filter(never).shuffle(seed=1)
    assert "shuffle(seed=1)" in repr(chain)
    assert "shuffle(seed=1)" in repr(chain.batch(4))
    with pytest.raises(rm.MapError, match="filter"):
        len(chain)


# The last two are decoded many rows at a time.
@pytest.mark.parametrize("stored", ["x.tfrecord", "x.tfrecord.gz", "x.h5"])
def test_functions_see_only_the_rows_that_a_filter_keeps(stored: str) -> None:
    def checked(row: dict[str, Any]) -> dict[str, Any]:
        assert is_even(row)
        return row

    compression = "gzip" if stored != "x.tfrecord" else None
    numbers().save(stored, progress=False, compression=compression)
    chain = rm.open(stored).filter(is_even).map(checked)
    assert of_batch(chain[3:5]) == [(6, b"t6"), (8, b"t8")]
    chain.save("even.npz", progress=False)
    assert rm.open("even.npz")["x"][:].tolist() == list(range(0, 40, 2))


@pytest.mark.parametrize("stored", ["x.tfrecord", "x.tfrecord.gz"])
def test_rows_with_broken_images_have_no_number(stored: str) -> None:
    pixels = [np.full((4, 4, 3), i, np.uint8) for i in range(30)]
    images = [encoded(each, "PNG") if i % 3 else b"broken" for i, each in enumerate(pixels)]
    rm.from_arrays({"x": np.arange(30), "image": rm.Ragged.from_bytes(images)}).save(
        stored, progress=False
    )
    good = rm.open(stored).decode_image("image", (4, 4), dtype="uint8", errors="skip")
    wanted = [i for i in range(30) if i % 3]
    assert len(good) == 20
    assert [int(row["x"]) for row in good] == wanted
    assert good["x"][:].tolist() == wanted
    assert good[7:9]["image"][:, 0, 0, 0].tolist() == wanted[7:9]
    good.save("good.npz", progress=False)
    saved = rm.open("good.npz")
    assert saved["x"][:].tolist() == saved["image"][:, 0, 0, 0].tolist() == wanted


def test_a_repr_calls_no_function() -> None:
    def never(row: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError(row)

    for chain in (numbers().map(never), numbers().map(never).shuffle(seed=1)):
        assert "map(" in repr(chain)
        assert "map(" in chain._repr_html_()


@pytest.mark.parametrize("workers", [None, "threads:2", "fork:2", "spawn:2"])
def test_what_functions_make_is_saved_in_workers(workers: str | None) -> None:
    chain = on_disk(300).map(doubled, workers=workers).filter(is_even).shuffle(seed=4)
    report = chain.save("out/", shards=3, format="npz", progress=False)
    assert report.rows == 300
    assert of_batch(rm.open("out/")[:]) == of_batch(chain[:])


def test_a_conversion_of_other_functions_is_not_resumed() -> None:
    on_disk(100).map(doubled).save("out/", shards=2, progress=False)
    with pytest.raises(rm.OutputExistsError):
        on_disk(100).map(increased, batched=True).save("out/", shards=2, progress=False)
    assert rm.open("out/")["x"][7] == 14


def test_an_interrupted_save_of_a_chain_resumes() -> None:
    chain = on_disk(400).map(doubled).filter(is_small)
    chain.save("whole/", shards=4, progress=False)
    limit = {"rows": 0}

    def stop(progress: Any) -> None:
        limit["rows"] = progress.rows
        if progress.rows > 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        chain.save("out/", shards=4, progress=stop, workers="threads:1")
    chain.save("out/", shards=4, progress=False)
    for path in Path("whole").glob("data-*"):
        assert Path("out", path.name).read_bytes() == path.read_bytes()


def test_large_results_of_functions_stay_within_the_memory() -> None:
    np.save("x.npy", np.arange(200))

    def grown(row: dict[str, Any]) -> dict[str, Any]:
        size = 40_000 if row["data"] % 50 == 49 else 10
        return {"values": np.full(size, row["data"])}

    chain = rm.open("x.npy").map(grown, fields={"values": "int64[*]"})
    source = chain._opened.source
    for wanted in (400_000, 700_000):
        start = 0
        while start < 200:
            batch = source.read(start, 200, wanted)
            count = len(batch["values"])
            assert count
            assert batch["values"].nbytes <= wanted
            start += count
    with pytest.raises(rm.errors.MemoryLimitError, match="row 49 of"):
        source.read(49, 50, 200_000)
    chain.save("grown.npz", memory="64MB", progress=False)
    assert len(rm.open("grown.npz")[149]["values"]) == 40_000


def test_a_dataset_with_verbs_is_a_column_of_another() -> None:
    odd = numbers().filter(lambda row: row["x"] % 2 == 1)
    both = rm.open({"x": odd.select("x"), "y": np.arange(20)})
    assert both[19] == {"x": 39, "y": 19}


def test_files_labels_and_skipped_records_stay_known() -> None:
    ds = on_disk()
    chain = ds.shuffle(seed=1).filter(is_even)
    assert chain.files == ds.files
    assert chain.skipped == []
    assert chain.info().rows == 20
    assert chain.columns == ds.columns


def test_a_chain_is_pickled_with_what_it_found() -> None:
    chain = on_disk().filter(is_even).shuffle(seed=1)
    wanted = of_batch(chain[:])
    os.environ["RECMAP_TEST"] = "1"
    again = pickle.loads(pickle.dumps(chain))  # our own
    assert of_batch(again[:]) == wanted


def test_a_repr_shows_rows_only_if_no_column_must_be_read_to_find_them() -> None:
    lists = rm.from_arrays({"x": [7, 6, 5], "items": rm.Ragged.from_rows([[1, 2], [], [3]])})
    for chain in (
        lists.explode("items"),
        lists.sort("x"),
        lists.sort("x").rename({"x": "y"}),
        lists.sample(balance="x", seed=1),
        lists.sort("x").shuffle(seed=1),
    ):
        assert len(repr(chain).splitlines()) == 1
        chain[0]
        assert len(repr(chain).splitlines()) == 3
    for chain in (lists.sample(seed=1), lists.explode("items").skip(1)):
        len(chain)
        assert len(repr(chain).splitlines()) == 3


def test_rows_that_change_every_epoch_are_not_split() -> None:
    for chain in (numbers().shuffle(seed=1), numbers().map(jittered)):
        with pytest.raises(rm.OptionError, match="split comes before"):
            chain.split({"a": 0.5, "b": 0.5})
    parts = numbers().filter(is_even).split({"a": 0.5, "b": 0.5})
    both = [int(row["x"]) for part in parts.values() for row in part]
    assert sorted(both) == list(range(0, 40, 2))


def test_endless_rows_are_indexed_and_taken_from_but_have_no_length() -> None:
    endless = numbers().shuffle(seed=1).repeat()
    assert "endless rows" in repr(endless)
    assert of_batch(endless[40:80]) == plain(endless.skip(40).take(40))
    with pytest.raises(rm.OptionTypeError, match="no length"):
        len(endless)
    with pytest.raises(rm.OptionError):
        endless.save("out.npz", progress=False)
    assert endless.take(100).save("out.npz", progress=False).rows == 100


def test_a_dataset_as_opened_has_no_states() -> None:
    with pytest.raises(rm.OptionError, match="stream"):
        numbers().state()
    stream = numbers().pipeline()
    next(iter(stream))
    assert len(list(stream.restore(stream.state()))) == 39


def test_the_repr_names_every_step() -> None:
    ds = on_disk()
    x = ds.select("x")
    ragged = rm.from_arrays({"t": rm.Ragged.from_rows([[1], [2, 3], [4]])})
    for made, steps in (
        (ds.where("x > 2").map(doubled).filter(is_even), ["where", "map(doubled)", "filter"]),
        (ds.sort("x").skip(1).take(5).repeat(2), ["sort('x')", "skip(1)", "take(5)", "repeat(2)"]),
        (ds.flat_map(lambda row: [row]).sample(3, seed=1), ["flat_map", "sample"]),
        (ds.rename({"x": "y"}).cast({"y": "int32"}), ["rename", "cast"]),
        (
            ds.split({"a": 0.5, "b": 0.5})["b"].shuffle(seed=4),
            ["split", "['b']", "shuffle(seed=4)"],
        ),
        (ds.select([3, 1]).select(np.array([True, False])), ["select(2 rows)", "select(1 row)"]),
        (rm.concat(x.skip(1), x), ["1: skip(1)", "concat(2 parts)"]),
        (rm.mix(x, x.take(3)), ["2: take(3)", "mix"]),
        (rm.open({"x": x.shuffle(seed=1), "y": np.arange(40)}), ["1: shuffle(seed=1)", "zip"]),
        (rm.open({"y": rm.open("x.tfrecord", ["x"]).where("x < 3")}), ["where"]),
        (ragged.pack(4).map(lambda row: row).batch(2), ["pack(4)", "map", "batch(2)"]),
        (ragged.bucket("t", [2]).batch(2, pad="longest"), ["bucket", "batch(2, pad='longest')"]),
        (ds.batch(2).map(increased).shard(0, 2), ["batch(2)", "map(increased)", "shard(0, 2)"]),
    ):
        shown = repr(made).partition("\n")[0]
        places = [shown.find(step) for step in steps]
        assert -1 not in places, shown
        assert places == sorted(places), shown


def test_rows_of_any_dataset_are_chosen_by_mask_or_number() -> None:
    ds = on_disk(6)
    for chain in (ds, ds.map(doubled), ds.flat_map(lambda row: [row]), rm.concat(ds, ds).take(6)):
        x = chain["x"][:]
        mask = x >= x[4]
        for key, wanted in (
            (mask, x[mask]),
            (mask.tolist(), x[mask]),
            ([1, -1, 1], x[[1, -1, 1]]),
            (np.array([2, 0], np.uint8), x[[2, 0]]),
            ([], x[:0]),
        ):
            assert chain[key]["x"].tolist() == wanted.tolist()
            assert chain.select(key)["x"][:].tolist() == wanted.tolist()
        for key, text in ((mask[:-1], "a mask of 5 values, but"), ([6], "row 6 is out of range")):
            with pytest.raises(rm.RowNotFoundError, match=text):
                chain[key]
            with pytest.raises(rm.RowNotFoundError, match=text):
                chain.select(key)


def test_states_know_the_verbs_of_columns() -> None:
    ds = on_disk()

    def train(condition: str) -> rm.Stream:
        return rm.open({"x": ds.where(condition)}).batch(2)

    state = train("x < 10").state()
    train("x < 10").restore(state)
    with pytest.raises(rm.OptionError, match="where"):
        train("x >= 30").restore(state)


def test_a_list_of_filtered_rows_takes_one_call_per_row() -> None:
    calls: list[int] = []

    def noted(row: dict[str, Any]) -> bool:
        calls.append(int(row["x"]))
        return bool(row["x"] % 3 == 0)

    wanted = [x for x in range(40) if x % 3 == 0]
    chains: list[Callable[[rm.Dataset], rm.Dataset]] = [
        lambda ds: ds.filter(noted),
        lambda ds: ds.filter(lambda row: row["x"] < 99).map(doubled).filter(is_even),
    ]
    for number, chain in enumerate(chains):
        ds = numbers() if number == 0 else numbers().filter(noted)
        calls.clear()
        rows = [int(row["x"]) // (1 + number) for row in list(chain(ds))]
        assert rows == wanted
        assert calls.count(39) == 1, number  # the first rows are also tried


def test_states_of_filtered_rows_do_not_depend_on_what_is_remembered() -> None:
    def batches() -> rm.Stream:
        return numbers().filter(is_small).map(doubled).filter(is_even).batch(4)

    whole = [of_batch(batch) for batch in batches()]
    for taken in range(len(whole)):
        states = []
        for evaluated in (False, True):
            ds = numbers().filter(is_small).map(doubled).filter(is_even)
            if evaluated:
                assert len(ds)
            train = ds.batch(4)
            some = iter(train)
            assert [of_batch(next(some)) for _ in range(taken)] == whole[:taken]
            states.append(train.state())
            assert [of_batch(batch) for batch in train.restore(states[-1])] == whole[taken:]
        assert states[0] == states[1]
        assert [of_batch(batch) for batch in batches().restore(states[1])] == whole[taken:]


def test_rows_that_a_filter_has_found_are_taken_and_skipped_without_it() -> None:
    calls: list[int] = []

    def noted(row: dict[str, Any]) -> bool:
        calls.append(int(row["x"]))
        return bool(row["x"] % 3 == 0)

    wanted = [x for x in range(40) if x % 3 == 0]
    chains: list[tuple[Callable[[rm.Dataset], rm.Dataset], list[int]]] = [
        (lambda ds: ds.take(5), wanted[:5]),
        (lambda ds: ds.skip(5), wanted[5:]),
        (lambda ds: ds.skip(3).take(4).skip(1), wanted[4:7]),
        (lambda ds: ds.take(99).skip(99), []),
        (lambda ds: ds.take(5).filter(is_even), [x for x in wanted[:5] if x % 2 == 0]),
    ]
    for chain, rows in chains:
        for found in (False, True):
            ds = numbers().filter(noted)
            if found:
                assert len(ds) == len(wanted)
            calls.clear()
            some = chain(ds)
            assert some["x"][:].tolist() == rows
            if found and chain is not chains[-1][0]:  # which has a filter of its own
                assert not calls
        late = numbers().filter(noted)
        some = chain(late)
        assert len(late) == len(wanted)  # found after the slice was made
        assert some["x"][:].tolist() == rows
        assert [int(row["x"]) for row in some] == rows
