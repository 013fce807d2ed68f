"""Rows split into parts for training and validation."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import recmap as rm

SHARES = {"train": 0.8, "val": 0.2}


def rows_of(part: rm.Dataset) -> list[int]:
    return [int(row) for batch in part.batches(7) for row in batch["x"]]


def dataset(rows: int) -> rm.Dataset:
    return rm.from_arrays({"x": np.arange(rows), "y": np.arange(rows) % 3})


@settings(max_examples=60)
@given(
    rows=st.integers(0, 3000),
    cuts=st.lists(st.integers(0, 1000), min_size=1, max_size=4),
    seed=st.integers(0, 9),
)
def test_parts_are_disjoint_and_of_exact_size(rows: int, cuts: list[int], seed: int) -> None:
    total = max(sum(cuts), 1)
    shares = {str(i): cut / total for i, cut in enumerate(cuts)}
    parts = dataset(rows).split(shares, seed=seed)
    found = [row for part in parts.values() for row in rows_of(part)]
    assert len(found) == len(set(found))
    assert len(found) == (rows if sum(cuts) else 0)
    for name, part in parts.items():
        assert abs(len(part) - rows * shares[name]) < 1
        assert len(rows_of(part)) == len(part)


def test_the_seed_determines_the_split() -> None:
    first, again = (rows_of(dataset(5000).split(SHARES, seed=3)["val"]) for _ in range(2))
    assert first == again
    assert first != rows_of(dataset(5000).split(SHARES, seed=4)["val"])
    assert len(first) == 1000


def test_parts_may_be_numbers_of_rows_and_leave_rows_out() -> None:
    parts = dataset(100).split({"a": 10, "b": 25})
    assert {name: len(part) for name, part in parts.items()} == {"a": 10, "b": 25}
    assert not set(rows_of(parts["a"])) & set(rows_of(parts["b"]))
    assert len(dataset(100).split({"a": 0.25})["a"]) == 25


@settings(max_examples=50)
@given(
    values=st.lists(st.integers(0, 6), max_size=300),
    cut=st.sampled_from([(0.8, 0.2), (0.5, 0.25, 0.25), (0.7, 0.1), (0.33, 0.33, 0.34)]),
)
def test_stratify_keeps_the_shares_of_every_class(values: list[int], cut: Any) -> None:
    ds = rm.from_arrays({"x": np.arange(len(values)), "y": np.array(values, np.int64)})
    shares = {str(i): share for i, share in enumerate(cut)}
    parts, plain = ds.split(shares, stratify="y"), ds.split(shares)
    found = [row for part in parts.values() for row in rows_of(part)]
    assert len(found) == len(set(found))
    for name, part in parts.items():
        assert len(part) == len(plain[name])
        for label in set(values):
            mine = sum(values[row] == label for row in rows_of(part))
            assert abs(mine - values.count(label) * shares[name]) < 1 + 1e-6


@pytest.mark.parametrize("kind", [np.int64, np.float32, bytes])
def test_split_by_keeps_equal_values_together_even_after_rows_are_appended(kind: Any) -> None:
    def grown(rows: int) -> rm.Dataset:
        users = np.arange(rows) % 400
        column: Any = [b"%d" % user for user in users] if kind is bytes else users.astype(kind)
        return rm.from_arrays({"x": np.arange(rows), "user": column})

    parts = grown(2000).split(SHARES, by="user")
    users = {name: {row % 400 for row in rows_of(part)} for name, part in parts.items()}
    assert not users["train"] & users["val"]
    assert len(users["train"] | users["val"]) == 400
    assert 40 < len(users["val"]) < 120
    more = grown(2600).split(SHARES, by="user")
    for name, part in parts.items():
        assert set(rows_of(part)) == {row for row in rows_of(more[name]) if row < 2000}


ZERO, NAN = -0.0, float("nan")


@pytest.mark.parametrize(
    ("column", "groups"),
    [
        (np.array([0.0, ZERO, NAN, -NAN, 1.5] * 20, np.float16), [0, 0, 1, 1, 2]),
        (np.array([0.0, ZERO, NAN, -NAN, 1.5] * 20, np.longdouble), [0, 0, 1, 1, 2]),
        (np.array([0.0, complex(ZERO, ZERO), complex(0, ZERO), 1j] * 20), [0, 0, 0, 1]),
        (np.array([[0.0, NAN], [ZERO, NAN], [1, 0]] * 20, ">f4"), [0, 0, 1]),
        (np.array(["NaT", "2020-01-01"] * 20, "M8[s]"), [0, 1]),
        (np.array([True, False] * 20), [0, 1]),
        (rm.Ragged.from_rows([[0.0], [ZERO], [], [0.0, 0.0]] * 20), [0, 0, 1, 2]),
        ([[b"a\0", b"b"], [b"a", b"\0b"], [b""], []] * 20, [0, 1, 2, 3]),
    ],
    ids=["float16", "longdouble", "complex", "vectors", "dates", "bools", "ragged", "lists"],
)
def test_equal_values_share_a_part_and_a_class(column: Any, groups: list[int]) -> None:
    rows = len(column)
    group = np.resize(groups, rows)
    ds = rm.from_arrays({"x": np.arange(rows), "c": column})
    for seed in range(20):
        parts = ds.split({"a": 0.5, "b": 0.5}, seed=seed, by="c")
        a, b = ({int(group[row]) for row in rows_of(part)} for part in parts.values())
        assert not a & b
    for part in ds.split({"a": 0.5, "b": 0.5}, stratify="c").values():
        counts = np.bincount(group[rows_of(part)])
        assert counts.tolist() == (np.bincount(group) // 2).tolist()


@pytest.mark.parametrize("name", ["x.npy", "x.tfrecord", "x.tfrecord.gz", "x.h5", "x.npz"])
@pytest.mark.parametrize(
    "how", [{}, {"by": "x"}, {"stratify": "y"}, {"by": "x", "stratify": "y"}], ids=str
)
def test_parts_of_files_work_like_any_dataset(name: str, how: Any) -> None:
    ds = dataset(500)
    if name == "x.npy":
        np.save(name, np.arange(500))
        ds = rm.open({"x": name, "y": np.arange(500) % 3})
    else:
        ds.save(name)
        ds = rm.open(name)
    parts = ds.split(SHARES, seed=1, **how)
    train, val = rows_of(parts["train"]), rows_of(parts["val"])
    assert sorted(train + val) == list(range(500))
    assert parts["val"][3]["x"] == val[3]
    assert parts["val"][2:5]["x"].tolist() == val[2:5]
    assert parts["val"][[4, 1]]["x"].tolist() == [val[4], val[1]]
    assert list(parts["val"]["x"][:]) == val
    parts["val"].save("val.npz")
    assert rm.open("val.npz")["x"][:].tolist() == val
    again = pickle.loads(pickle.dumps(parts["val"]))
    assert rows_of(again) == val
    assert parts["val"].info().rows == len(val)
    shuffled = parts["train"].select("x").batch(32)
    assert sorted(n for batch in shuffled for n in batch["x"].tolist()) == sorted(train)


def test_a_state_of_another_part_is_refused() -> None:
    halves = dataset(100).split({"a": 0.5, "b": 0.5})
    train = halves["a"].batch(5)
    next(iter(train))
    state = json.loads(json.dumps(train.state()))
    halves["a"].batch(5).restore(state)
    with pytest.raises(rm.OptionError, match="restore"):
        halves["b"].batch(5).restore(state)


@pytest.mark.parametrize(
    ("parts", "how", "said"),
    [
        ({}, {}, "shares of the parts"),
        ([0.8, 0.2], {}, "shares of the parts"),
        ({"a": 0.8, "b": 0.3}, {}, "come to"),
        ({"a": 80, "b": 30}, {}, "come to 110 of 100"),
        ({"a": -0.1}, {}, "neither"),
        ({"a": True}, {}, "neither"),
        ({"a": float("nan")}, {}, "neither"),
        ({"a": 0.5, "b": 3}, {}, "for all parts"),
        ({"a": 3}, {"by": "y"}, "take shares"),
        ({"a": 0.5}, {"by": "z"}, "z"),
        ({"a": 0.5}, {"seed": -1}, "0 or more"),
    ],
    ids=str,
)
def test_invalid_splits_are_refused(parts: Any, how: Any, said: str) -> None:
    with pytest.raises(rm.RecmapError, match=said):
        dataset(100).split(parts, **how)


@pytest.mark.slow
@settings(max_examples=80)
@given(
    pairs=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3)), max_size=120),
    shares=st.sampled_from([(0.8, 0.2), (0.7, 0.2, 0.1), (0.5, 0.0, 0.25), (1.0,)]),
    seed=st.integers(0, 3),
)
def test_groups_stay_whole_while_classes_are_balanced(
    pairs: list[tuple[int, int]], shares: tuple[float, ...], seed: int
) -> None:
    given = np.array(pairs, np.int64).reshape(-1, 2)
    columns = {"x": np.arange(len(given)), "group": given[:, 0], "label": given[:, 1]}
    parts = {str(number): share for number, share in enumerate(shares)}
    how: dict[str, Any] = {"by": "group", "stratify": "label", "seed": seed}
    made = rm.from_arrays(columns).split(parts, **how)
    found = {name: rows_of(part) for name, part in made.items()}
    every = [row for rows in found.values() for row in rows]
    assert len(set(every)) == len(every)
    if sum(shares) == 1:
        assert len(every) == len(given)
    assert not [name for name, rows in found.items() if rows and not parts[name]]
    groups = [set(given[rows, 0].tolist()) for rows in found.values()]
    assert sum(map(len, groups)) == len(set().union(*groups))
    # The order of rows does not matter, only what they hold.
    order = np.random.default_rng(seed).permutation(len(given))
    mixed = rm.from_arrays({name: column[order] for name, column in columns.items()})
    again = {name: sorted(rows_of(part)) for name, part in mixed.split(parts, **how).items()}
    assert again == {name: sorted(rows) for name, rows in found.items()}


def test_many_groups_are_balanced_by_class_almost_exactly() -> None:
    rng = np.random.default_rng(1)
    patient = rng.integers(0, 3000, 20_000)
    label = (rng.random(20_000) < 0.05 + 0.3 * (patient % 5 == 0)).astype(np.int64)
    ds = rm.from_arrays({"patient": patient, "label": label})
    parts = ds.split({"train": 0.8, "val": 0.1}, by="patient", stratify="label", seed=3)
    for name, share in (("train", 0.8), ("val", 0.1)):
        shares = np.bincount(parts[name]["label"][:]) / np.bincount(label)
        assert abs(shares - share).max() < 0.005
    assert not set(parts["train"]["patient"][:]) & set(parts["val"]["patient"][:])
    other = ds.split({"train": 0.8}, by="patient", stratify="label", seed=4)
    assert set(other["train"]["patient"][:]) != set(parts["train"]["patient"][:])
