"""ds.flat_map: any number of rows for every row."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.model.progress import Progress

Row = dict[str, Any]


def on_disk(rows: int = 12) -> rm.Dataset:
    names = [b"n%d" % i for i in range(rows)]
    rm.from_arrays({"x": np.arange(rows), "name": names}).save("x.tfrecord", overwrite=True)
    return rm.open("x.tfrecord")


def parts(row: Row) -> list[Row]:
    """Return 0 to 3 rows with values of every kind."""
    count = int(row["x"]) * 7 % 4
    return [
        {"x": row["x"], "i": i, "text": "é" * i, "items": list(range(i)), "pair": np.full(2, i)}
        for i in range(count)
    ]


def yielded(row: Row) -> Iterator[Row]:
    pair = np.empty(2, np.int64)
    for each in parts(row):
        pair[:] = each["pair"]  # the same array every time
        yield {**each, "pair": pair}


def crops(row: Row, rng: np.random.Generator) -> list[Row]:
    return [{"x": row["x"], "i": i, "crop": rng.integers(1000)} for i in range(2)]


def model(rows: int = 12) -> list[tuple[int, int]]:
    return [(x, i) for x in range(rows) for i in range(x * 7 % 4)]


def pairs(batch: Any) -> list[tuple[int, int]]:
    return list(zip(batch["x"].tolist(), batch["i"].tolist(), strict=True))


@pytest.mark.parametrize("fn", [parts, yielded])
def test_rows_are_read_like_any_others(fn: Any) -> None:
    ds, wanted = on_disk(), model()
    made = ds.flat_map(fn)
    assert "flat_map" in repr(made)
    assert "rows not counted yet" in repr(made)
    assert [str(made.schema[n]) for n in ("i", "text", "items", "pair")] == [
        "int64",
        "text",
        "int64[*]",
        "int64[2]",
    ]
    assert len(made) == len(wanted)
    assert pairs(made[:]) == wanted
    assert made["pair"][:].tolist() == [[i, i] for _, i in wanted]
    assert made["items"][:].tolist() == [list(range(i)) for _, i in wanted]
    for number in (0, 3, -1):
        assert (made[number]["x"], made[number]["text"]) == (
            wanted[number][0],
            "é" * wanted[number][1],
        )
    assert pairs(made[[5, 0, 5, -2]]) == [wanted[n] for n in (5, 0, 5, -2)]
    assert [(int(row["x"]), int(row["i"])) for row in made] == wanted
    assert [p for batch in made.batch(2) for p in pairs(batch)] == wanted
    assert sorted(pairs(made.shuffle(seed=1)[:])) == wanted
    assert pairs(made.filter(lambda row: row["i"] == 1)[:]) == [p for p in wanted if p[1] == 1]
    assert pairs(pickle.loads(pickle.dumps(made))[:]) == wanted
    assert pairs(rm.concat(made, made)[:]) == wanted * 2
    assert made.flat_map(lambda row: [row] * 2)["x"][:4].tolist() == [1, 1, 1, 1]
    made.save("out/", format="npz", shards=3)
    assert rm.diff("out/", made).same


@pytest.mark.slow
def test_states_ranks_and_workers() -> None:
    ds = on_disk()
    made = ds.flat_map(parts)
    whole = [pairs(batch) for batch in made.shuffle(seed=2).batch(3)]
    train = made.shuffle(seed=2).batch(3)
    batches = iter(train)
    for taken in range(len(whole)):
        state = json.loads(json.dumps(train.state()))
        again = made.shuffle(seed=2).batch(3).restore(state)
        assert [pairs(batch) for batch in again] == whole[taken:]
        next(batches)
    ranks = [[pairs(b) for b in made.batch(2).shard(rank, 3)] for rank in range(3)]
    assert sorted(p for rank in ranks for batch in rank for p in batch) == model()
    for workers in ("threads:2", 2):
        beside = ds.flat_map(parts, workers=workers)
        assert [p for batch in beside.batch(5) for p in pairs(batch)] == model()
        assert len(beside) == len(model())
    made.save("out.npz", workers=2)
    assert pairs(rm.open("out.npz")[:]) == model()


def test_a_function_with_an_rng_draws_new_numbers_in_every_epoch() -> None:
    made = on_disk().flat_map(crops, seed=3)
    one, two = ([int(row["crop"]) for row in made] for _ in range(2))
    assert one != two
    assert made["crop"][:].tolist() == one
    assert len(set(one)) > 15


def test_rows_are_counted_once_with_progress() -> None:
    called: list[int] = []
    seen: list[Progress] = []

    def doubled(row: Row) -> list[Row]:
        called.append(int(row["x"]))
        return [row, row]

    made = on_disk(500).flat_map(doubled, progress=seen.append)
    assert made.columns == ["x", "name"]
    assert len(called) <= 8  # tried on the first rows
    assert (len(made), len(made.skip(2)), len(made.shuffle(seed=1))) == (1000, 998, 1000)
    assert len(called) < 520
    assert seen[-1].rows == 500
    called.clear()
    assert [len(batch["x"]) for batch in made.batch(1)] == [1] * 1000
    assert len(called) < 520  # a row that is in two batches is made once


def test_empty_results() -> None:
    nothing = on_disk().flat_map(lambda _: [])
    assert (len(nothing), nothing.columns, nothing[:]["x"].tolist()) == (0, ["x", "name"], [])
    late = on_disk(3000).flat_map(lambda row: [{"y": 1.5}] if row["x"] > 2990 else [])
    with pytest.raises(rm.OptionError, match="nothing of the first 1,024 rows.*columns="):
        len(late.schema)
    late = rm.open("x.tfrecord").flat_map(
        lambda row: [{"y": 1.5}] if row["x"] > 2990 else [], columns={"y": "float32"}
    )
    assert late["y"][:].tolist() == [1.5] * 9


def test_wrong_results_are_refused_with_the_row() -> None:
    ds = on_disk()
    for fn, text in (
        (lambda _: None, "row 0 of x.tfrecord: .*returned NoneType; return a list"),
        (lambda row: row, "returned a dict; return a list of dicts"),
        (lambda _: "ab", "returned str"),
        (lambda _: [1], "int in its list"),
        (lambda row: [row] if row["x"] < 8 else [{"x": 1}], "row 8 .*no 'name'"),
        (lambda row: [row] if row["x"] < 8 else [{**row, "y": 1}], "row 8 .*added 'y'"),
        (lambda row: [{"x": 1 if row["x"] < 8 else 0.5}], "row 8 .*float64, which does not fit"),
        (lambda row: [{"x": 1 // (8 - row["x"])}], "row 8 .*failed: FloatingPointError"),
    ):
        with pytest.raises(rm.MapError, match=text), np.errstate(divide="raise"):
            ds.flat_map(fn)[:]
    turns = iter(range(10**6))
    unsteady = ds.flat_map(lambda row: [row] * (next(turns) % 3 + 1))
    unsteady[:]
    next(turns)
    with pytest.raises(rm.MapError, match="the same number each time"):
        unsteady[:]
    with pytest.raises(rm.OptionError, match="before shuffle"):
        ds.shuffle(seed=1).flat_map(parts)
    with pytest.raises(rm.OptionError, match="before repeat"):
        ds.repeat().flat_map(parts)
    with pytest.raises(rm.OptionError, match="not a function"):
        ds.flat_map(3)  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_first_epoch_calls_the_function_once_for_each_row() -> None:
    called: list[int] = []

    def times(row: dict[str, Any]) -> list[dict[str, Any]]:
        called.append(int(row["x"]))
        return [{"x": row["x"], "k": k} for k in range(int(row["x"]) % 4)]

    count = 500
    wanted = [(x, k) for x in range(count) for k in range(x % 4)]
    chains: list[tuple[Callable[[rm.Dataset], Any], list[tuple[int, int]]]] = [
        (lambda ds: ds.batch(7), wanted),
        (lambda ds: ds.batch(1000), wanted),
        (lambda ds: ds.skip(3).batch(7), wanted[3:]),
        (lambda ds: ds.prefetch(2).batch(7), wanted),
        (lambda ds: ds.filter(lambda row: row["k"] < 2).batch(7), [w for w in wanted if w[1] < 2]),
    ]
    for chain, rows in chains:
        called.clear()
        made = chain(rm.from_arrays({"x": np.arange(count)}).flat_map(times))
        first = next(iter(made))
        assert len(called) < (100 if len(first["x"]) < 100 else 2 * count)
        called.clear()
        made = chain(rm.from_arrays({"x": np.arange(count)}).flat_map(times))
        for _ in range(2):  # what is found in the first epoch is known in the second
            found = [
                pair for b in made for pair in zip(b["x"].tolist(), b["k"].tolist(), strict=True)
            ]
            assert found == rows
        tried = 8  # the first four, to see the types
        assert len(called) <= 2 * count + tried + 20  # rows of two batches, made for each
        assert sorted({*called}) == list(range(count))


def test_rows_that_were_made_early_and_not_kept_are_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("recmap.dataset.flat_map._TOGETHER", 8)
    monkeypatch.setattr("recmap.dataset.flat_map._HELD_BYTES", 2000)
    wanted = [(x, i) for x in range(100) for i in range(4)]
    made = rm.from_arrays({"x": np.arange(100)}).flat_map(
        lambda row: [{"x": row["x"], "i": i} for i in range(4)]
    )
    # The first read makes more rows than are kept, the second needs fewer of those that are, so
    # that the third keeps rows again.
    for start, stop in ((0, 160), (100, 200), (100, 250), (240, 400), (0, 400)):
        assert pairs(made.take(stop)[np.arange(start, stop)]) == wanted[start:stop]
