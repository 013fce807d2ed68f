"""Verbs before save: what they choose is what is read, and they are part of the conversion."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recmap as rm
from recmap.conversion import budget, external_shuffle
from recmap.conversion.external_shuffle import _Bucketed

COLUMNS: dict[str, Any] = {
    "a": np.arange(3000),
    "b": np.arange(3000) / 4,
    "r": rm.Ragged.from_rows([[i] * (i % 3) for i in range(3000)]),
}
Verb = Callable[[rm.Dataset], rm.Dataset]
shuffle: Verb = lambda ds: ds.shuffle(seed=7)  # noqa: E731
OTHERS: list[Verb] = [
    lambda ds: ds.select("a", "r"),
    lambda ds: ds.rename({"a": "z"}),
    lambda ds: ds.cast({"a": "int16"}),
    lambda ds: ds.cast({"a": "float64"}).rename({"a": "z"}).select("r", "z"),
]


@pytest.fixture
def buckets(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the shuffles that are done on disk."""
    made: list[Any] = []

    class Noted(_Bucketed):
        def __init__(self, *args: Any) -> None:
            made.append(args[1])
            super().__init__(*args)

    monkeypatch.setattr(external_shuffle, "_Bucketed", Noted)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x.tfrecord.gz", "x.parquet"])
def test_rows_that_are_read_together_are_shuffled_on_disk_wherever_the_shuffle_is(
    buckets: list[Any], name: str
) -> None:
    rm.from_arrays(COLUMNS).save(name)
    order = rm.from_arrays(COLUMNS).shuffle(seed=7)["a"][:]
    for number, verb in enumerate(OTHERS):
        before, after = f"before{number}.tfrecord", f"after{number}.tfrecord"
        shuffle(verb(rm.open(name))).save(before)
        verb(shuffle(rm.open(name))).save(after)
        assert len(buckets) == 2 * (number + 1)
        assert Path(before).read_bytes() == Path(after).read_bytes()
        read = rm.open(after)
        assert (read["z" if "z" in read else "a"][:] == order).all()


def test_rows_that_are_read_alone_are_shuffled_without_a_copy(buckets: list[Any]) -> None:
    rm.from_arrays(COLUMNS).save("x.tfrecord")
    shuffle(rm.open("x.tfrecord")).save("y.npz")
    assert buckets == []
    wanted = rm.from_arrays(COLUMNS).shuffle(seed=7)
    assert rm.open("y.npz")[:]["a"].tolist() == wanted[:]["a"].tolist()


def test_selected_rows_of_a_mapped_file_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "_TIMED_FROM", 1)
    np.save("x.npy", np.zeros((4000, 10)))
    ds = rm.open("x.npy").rename({"data": "x"})
    for each in (ds, ds.select("x"), ds.skip(1), ds.select(slice(0, 3999))):
        assert "read in place" in each.save("y.tfrecord", overwrite=True).explanation


def test_columns_of_rows_that_are_read_once_can_be_selected() -> None:
    batches = ({"a": np.arange(3) + i, "b": np.arange(3)} for i in (0, 3))
    rm.from_batches(batches).select("a").rename({"a": "c"}).save("x.npz")
    assert rm.open("x.npz")[:]["c"].tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(rm.OptionError, match="read only once"):
        rm.from_batches([{"a": np.arange(3)}]).shuffle(seed=1)


def stopped(ds: rm.Dataset) -> None:
    """Save, and stop after the first of three shards."""

    def stop(_: Any) -> None:
        if [name for name in os.listdir("out") if name.endswith("-of-00003.tfrecord")]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ds.save("out/", shards=3, workers=1, progress=stop)


def add(row: dict[str, Any], number: int) -> dict[str, Any]:
    return {"a": row["a"] + number}


def defined(body: str) -> Any:
    names: dict[str, Any] = {}
    exec(f"def f(row):\n    return {{'a': row['a'] {body}}}", names)
    return names["f"]


def closed(number: int, factors: list[int]) -> Any:
    return lambda row: {"a": row["a"] * factors[0] + number}


class Adds:
    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return add(row, self.number)

    def method(self, row: dict[str, Any]) -> dict[str, Any]:
        return self(row)


def different() -> Iterator[tuple[Verb, Verb, Verb]]:
    """Yield verbs, the same ones made again, and ones that are different."""

    def mapped(make: Callable[[int], Any], one: int, other: int) -> tuple[Verb, Verb, Verb]:
        return tuple(lambda ds, n=n: ds.map(make(n)) for n in (one, one, other))  # type: ignore[return-value]

    yield mapped(lambda n: closed(n, [2]), 1, 2)
    yield mapped(lambda n: closed(1, [n]), 1, 2)
    yield mapped(lambda n: partial(add, number=n), 1, 2)
    yield mapped(Adds, 1, 2)
    yield mapped(lambda n: Adds(n).method, 1, 2)
    yield mapped(lambda n: defined(f"+ {n}"), 1, 2)
    yield tuple(lambda ds, n=n: ds.where(rm.col("a") > n) for n in (5, 5, 6))  # type: ignore[misc]
    yield tuple(lambda ds, n=n: ds.filter(lambda row: row["a"] != n) for n in (5, 5, 6))  # type: ignore[misc]
    yield tuple(lambda ds, n=n: ds.shuffle(seed=n) for n in (5, 5, 6))  # type: ignore[misc]


@pytest.mark.slow
def test_only_a_conversion_by_the_same_verbs_resumes() -> None:
    rm.from_arrays({"a": np.arange(30)}).save("x.tfrecord")
    for first, again, other in different():
        stopped(first(rm.open("x.tfrecord")))
        with pytest.raises(rm.OutputExistsError, match="made by another conversion"):
            other(rm.open("x.tfrecord")).save("out/", shards=3)
        report = again(rm.open("x.tfrecord")).save("out/", shards=3)
        assert report.resumed >= 1
        wanted = [row["a"] for row in first(rm.open("x.tfrecord"))]
        assert rm.open("out/")["a"][:].tolist() == wanted
        other(rm.open("x.tfrecord")).save("out/", shards=3, overwrite=True)
        for name in os.listdir("out"):
            os.remove(f"out/{name}")


def test_an_interrupted_shuffle_without_a_seed_resumes_in_its_order() -> None:
    rm.from_arrays({"a": np.arange(30)}).save("x.tfrecord")
    verbs: list[Verb] = [
        lambda ds: ds.shuffle(),
        lambda ds: ds.select("a").shuffle().rename({"a": "b"}),
        lambda ds: ds.sample(30, replace=False),
    ]
    for verb in verbs:
        first, again = verb(rm.open("x.tfrecord")), verb(rm.open("x.tfrecord"))
        wanted = [next(iter(row.values())) for row in first]
        stopped(first)
        assert again.save("out/", shards=3).resumed >= 1
        assert [next(iter(row.values())) for row in rm.open("out/")] == wanted
        for name in os.listdir("out"):
            os.remove(f"out/{name}")


@pytest.mark.parametrize(
    "lists",
    [[[1, None], None, []], [[["a"], None], None, []], [[[[1]]], [], [[]]]],
    ids=["nulls", "null strings", "three levels"],
)
def test_lists_that_records_cannot_hold_are_shuffled(lists: list[Any]) -> None:
    pq.write_table(pa.table({"l": lists * 3, "id": list(range(9))}), "x.parquet")
    rm.open("x.parquet").shuffle(seed=1).save("y.parquet")
    found = rm.open("y.parquet").to_arrow().to_pylist()
    assert [row["id"] for row in found] != list(range(9))
    found.sort(key=lambda row: int(row["id"]))
    assert found == [{"l": row, "id": number} for number, row in enumerate(lists * 3)]


def test_a_column_may_have_the_name_of_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_shuffle, "_can_gather", lambda _: False)
    name = external_shuffle._POSITION
    pq.write_table(pa.table({name: [7, 8, 9]}), "x.parquet")
    rm.open("x.parquet").shuffle(seed=1).save("y.parquet")
    assert sorted(rm.open("y.parquet")[name][:].tolist()) == [7, 8, 9]
