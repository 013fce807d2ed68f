"""The user's functions in a pipeline: what they get, may return, and draw at random."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import recmap as rm


def numbers(pipeline: Any) -> list[int]:
    return [int(n) for batch in pipeline for n in np.atleast_1d(batch["x"])]


def simple(n: int = 20) -> rm.Dataset:
    return rm.from_arrays({"x": np.arange(n)})


def test_map_on_rows_and_on_batches() -> None:
    assert numbers(simple(4).map(lambda row: {"x": row["x"] + 1})) == [1, 2, 3, 4]
    assert numbers(simple(4).map(lambda b: {"x": b["x"] + 1}, batched=True)) == [1, 2, 3, 4]
    assert numbers(simple(4).batch(3).map(lambda b: {"x": b["x"].sum(keepdims=True)})) == [3, 3]


def test_map_gives_the_same_rows_before_and_after_shuffle() -> None:
    def double(row: dict[str, Any]) -> dict[str, Any]:
        return {"x": row["x"] * 2}

    assert numbers(simple().map(double).shuffle(seed=1)) == numbers(
        simple().shuffle(seed=1).map(double)
    )


def test_a_function_that_fails_says_where() -> None:
    np.save("x.npy", np.arange(20))

    def fails(row: dict[str, Any]) -> dict[str, Any]:
        if row["data"] == 13:
            raise ValueError("unlucky")
        return row

    said = r"row 13 of x\.npy: map .*fails failed: ValueError: unlucky"
    with pytest.raises(rm.MapError, match=said) as error:
        list(rm.open("x.npy").map(fails).shuffle(seed=1).batch(4))
    assert isinstance(error.value.__cause__, ValueError)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda _: None, "returned NoneType; return a dict"),
        (lambda row: {"x": row["x"]} if row["x"] < 9 else {}, "returned no 'x'"),
        (lambda row: {"x": row["x"]} | ({"z": 1} if row["x"] > 9 else {}), "added 'z'"),
        (lambda row: {"x": np.zeros(2 if row["x"] < 9 else 3)}, r"shape \[3\].*columns="),
        (lambda row: {"x": 1 if row["x"] < 9 else 1.5}, "is float64.*cast it"),
    ],
)
def test_rows_of_other_types_are_refused_with_a_remedy(made: Any, said: str) -> None:
    with pytest.raises(rm.MapError, match=said):
        list(simple().map(made).batch(4))


def test_fields_give_the_types_of_the_result() -> None:
    varied = simple(6).map(lambda row: {"t": np.zeros(int(row["x"]))}, columns={"t": "float64[*]"})
    assert varied.schema == {"t": "float64[*]"}
    assert next(iter(varied.batch(6)))["t"].lengths.tolist() == [0, 1, 2, 3, 4, 5]


def test_ragged_columns_stay_ragged_if_the_first_rows_have_equal_lengths() -> None:
    rows = [[1, 2]] * 8 + [[3]]
    ds = rm.from_arrays({"t": rm.Ragged.from_rows(rows)}).map(lambda row: {"t": row["t"] * 2})
    assert next(iter(ds.batch(9)))["t"].tolist()[-1] == [6]


def test_random_numbers_belong_to_rows_not_to_places_in_batches() -> None:
    def draw(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {"x": row["x"], "r": rng.random(3)}

    one = {int(r["x"]): r["r"].tolist() for r in simple().map(draw)}
    batched = simple().map(draw).batch(7)
    two = {int(x): r.tolist() for b in batched for x, r in zip(b["x"], b["r"], strict=True)}
    assert one == two
    assert len({tuple(r) for r in one.values()}) == 20
    other_epoch = {int(x): r.tolist() for b in batched for x, r in zip(b["x"], b["r"], strict=True)}
    assert all(one[x] != other_epoch[x] for x in one)
    other_seed = {int(r["x"]): r["r"].tolist() for r in simple().map(draw, seed=1)}
    assert all(one[x] != other_seed[x] for x in one)


def test_two_functions_draw_different_random_numbers() -> None:
    def a(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {**row, "a": rng.random()}

    def b(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {**row, "b": rng.random()}

    assert all(row["a"] != row["b"] for row in simple().map(a).map(b))


def test_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(rm.MapError, match="int64, which does not fit int32"):
        list(simple(3).map(lambda _: {"t": 3_000_000_000}, columns={"t": "int32"}))
    with pytest.raises(rm.MapError, match="float64, which does not fit uint8"):
        list(simple(3).map(lambda r: {"t": [0.9] * int(r["x"])}, columns={"t": "uint8[*]"}))
    assert [r["t"] for r in simple(2).map(lambda _: {"t": 7}, columns={"t": "uint8"})] == [7, 7]
    assert [r["t"] for r in simple(1).map(lambda _: {"t": 0.1}, columns={"t": "float32"})] == [
        np.float32(0.1)
    ]


def test_fields_may_name_only_some_columns() -> None:
    made = simple(5).map(
        lambda r: {"x": r["x"], "t": np.ones(int(r["x"]))}, columns={"t": "float64[*]"}
    )
    assert made.schema == {"x": "int64", "t": "float64[*]"}


def test_a_function_may_return_the_same_array_every_time() -> None:
    scratch = np.zeros(2)

    def fill(row: dict[str, Any]) -> dict[str, Any]:
        scratch[:] = row["x"]
        return {"y": scratch}

    assert next(iter(simple(4).map(fill).batch(4)))["y"].tolist() == [[i, i] for i in range(4)]


def test_functions_run_in_the_thread_of_the_loop_unless_others_are_allowed() -> None:
    threads = set()

    def note(row: dict[str, Any]) -> dict[str, Any]:
        threads.add(threading.get_ident())
        return row

    list(simple().map(note).shuffle(seed=1).batch(4))
    list(rm.mix(simple().map(note)).batch(4).take(2))
    assert threads == {threading.get_ident()}


def test_nothing_is_called_before_the_loop_begins() -> None:
    def never(_: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError("called")

    assert len(simple().map(never).shuffle(seed=1).take(5).batch(2)) == 3


def test_functions_of_batches_are_tried_on_a_whole_batch() -> None:
    shaped = simple(16).batch(8, drop_last=True).map(lambda b: {"x": b["x"].reshape(2, 4)})
    assert shaped.schema == {"x": "int64[4]"}
    assert [batch["x"].shape for batch in shaped] == [(2, 4), (2, 4)]
    named = simple(4).batch(2).map(lambda b: {"z": b["x"] * 0.5})
    assert named.schema == {"z": "float64"}
    assert list(named.select("z").schema) == ["z"]


def test_functions_of_blocks_are_not_called_without_rows() -> None:
    late = simple(20).filter(lambda row: row["x"] >= 10)
    made = late.map(lambda b: {"y": np.array([[v, v.max()] for v in b["x"]])}, batched=True)
    assert [row["y"].tolist() for row in made][:2] == [[10, 10], [11, 11]]


def test_batches_draw_different_random_numbers_on_every_rank() -> None:
    def draw(batch: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {**batch, "r": rng.random(len(batch["x"]))}

    drawn = [
        float(batch["r"][0])
        for rank in range(2)
        for batch in simple(40).filter(lambda row: row["x"] >= 0).batch(4).map(draw).shard(rank, 2)
    ]
    assert len(set(drawn)) == len(drawn) == 10


def test_branches_of_a_zip_draw_different_random_numbers() -> None:
    a = simple(3).map(lambda _, rng: {"a": rng.random()})
    b = simple(3).map(lambda _, rng: {"b": rng.random()})
    assert all(row["a"] != row["b"] for row in rm.zip(a, b))


def test_strings_keep_their_values() -> None:
    made = simple(2).map(lambda _: {"t": [b"a\0", b"b"], "u": "é"})
    assert next(iter(made))["t"].tolist() == [b"a\0", b"b"]
    assert next(iter(made))["u"] == "é"
    with pytest.raises(rm.MapError, match="int among strings"):
        list(simple(6).map(lambda row: {"t": "a" if row["x"] < 5 else 5}).batch(6))


@pytest.mark.parametrize("join", ["zip", "mix", "zip of zips"])
def test_branches_draw_different_random_numbers_before_a_shuffle_too(join: str) -> None:
    def side(name: str) -> rm.Stream:
        def draw(_: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
            return {name: rng.random()}

        return simple(50).map(draw).shuffle(seed=1).take(40).repeat(1)

    if join == "mix":
        drawn = [row["a"].item() for row in rm.mix(side("a"), side("a"))]
    else:
        both = rm.zip(side("a"), side("b"))
        if join == "zip of zips":
            both = rm.zip(both, rm.zip(side("c").select("c"), side("d").shuffle(seed=2, window=8)))
        drawn = [value.item() for row in both for value in row.values()]
    assert len(set(drawn)) == len(drawn)


def test_the_first_branch_of_a_zip_draws_the_same_numbers_as_alone() -> None:
    def draw(_: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {"a": rng.random()}

    alone = simple().map(draw).shuffle(seed=1)
    beside = rm.zip(simple().map(draw).shuffle(seed=1), simple())
    assert [row["a"] for row in beside] == [row["a"] for row in alone]


@pytest.mark.parametrize(
    "value", [3.5, True, 1 + 2j, b"ab", "text", np.datetime64("2026-01-01"), np.float16(2)]
)
def test_a_function_may_return_arrays_without_axes(value: Any) -> None:
    ds = rm.from_arrays({"x": np.arange(3)})
    found = next(iter(ds.map(lambda _: {"y": np.array(value)}).batch(3)))["y"]
    assert list(found) == list(next(iter(ds.map(lambda _: {"y": value}).batch(3)))["y"])
    with pytest.raises(rm.RecmapError):
        list(ds.map(lambda _: {"y": np.array(None)}).batch(3))
    with pytest.raises(rm.RecmapError, match="a value for every row"):
        list(ds.batch(3).map(lambda _: {"y": np.array(value)}))
