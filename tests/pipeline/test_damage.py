"""Pipelines over damaged files: the rows before the damage come first, then the error."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests import wire

RECORDS = [wire.frame(wire.example(a=wire.int64_list(i))) for i in range(100)]
PACK: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "zlib": zlib.compress,
}
DAMAGES = ["data", "length", "cut", "kind"]
Chain = Callable[[Any], Any]
CHAINS: dict[str, Chain] = {
    "batch": lambda ds: ds.batch(8),
    "batch of one": lambda ds: ds.batch(1),
    "large batch": lambda ds: ds.batch(1000),
    "select": lambda ds: ds.select("a").batch(8),
    "map": lambda ds: ds.map(lambda row: {"a": row["a"]}).batch(8),
    "map rows": lambda ds: ds.map(lambda row: {"a": row["a"]}),
    "map of batches": lambda ds: ds.batch(8).map(lambda batch: {"a": batch["a"]}),
    "filter": lambda ds: ds.filter(lambda row: row["a"] >= 0).batch(8),
    "filter rows": lambda ds: ds.filter(lambda row: row["a"] >= 0),
    "filter, map of batches": lambda ds: (
        ds.filter(lambda row: row["a"] >= 0).batch(8).map(lambda batch: {"a": batch["a"]})
    ),
    "threads": lambda ds: ds.batch(8).prefetch(4, threads=2),
    "not ahead": lambda ds: ds.batch(8).prefetch(0),
    "repeat": lambda ds: ds.batch(8).repeat(2),
    "epochs": lambda ds: ds.batch(8).run(epochs=2),
}


def damaged(how: str, at: int) -> bytes:
    """Return the records; record ``at`` is the first bad one."""
    records = list(RECORDS)
    if how == "data":
        records[at] = wire.frame(b"x" * 20)[:-1] + b"?"
    elif how == "length":
        records[at] = b"?" + records[at][1:]
    elif how == "cut":
        return b"".join(records[:at]) + records[at][:-3]
    else:
        records[at] = wire.frame(wire.example(a=wire.float_list(0.5)))
    return b"".join(records)


def values(made: Iterable[Any]) -> Iterator[int]:
    for each in made:
        yield from np.atleast_1d(each["a"]).tolist()


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("how", DAMAGES)
def test_all_rows_before_the_damage_come_before_the_error(how: str, chain: str) -> None:
    # Every two of chain, damage, packing and place meet.
    first = list(CHAINS).index(chain) + DAMAGES.index(how)
    for number, pack in enumerate(PACK):
        at = (1, 48, 99)[(first + number) % 3]
        Path("x.tfrecord").write_bytes(PACK[pack](damaged(how, at)))
        ds = rm.open("x.tfrecord", {"a": "int64"})
        seen: list[int] = []
        with pytest.raises(rm.DataError, match=r"x\.tfrecord"):
            seen.extend(values(CHAINS[chain](ds)))
        assert seen == list(range(at))


@pytest.mark.parametrize("chain", CHAINS)
def test_all_rows_of_a_truncated_stream_come_before_the_error(chain: str) -> None:
    Path("x.tfrecord").write_bytes(gzip.compress(b"".join(RECORDS))[:-4])
    seen: list[int] = []
    with pytest.raises(rm.CompressionError):
        seen.extend(values(CHAINS[chain](rm.open("x.tfrecord"))))
    assert seen == list(range(100))


@pytest.mark.parametrize("pack", PACK)
@pytest.mark.parametrize("how", ["data", "length", "cut"])
def test_rows_of_earlier_files_come_before_the_error(how: str, pack: str) -> None:
    for name in ("a", "b", "c"):
        Path(f"{name}.tfrecord").write_bytes(PACK[pack](b"".join(RECORDS)))
    Path("b.tfrecord").write_bytes(PACK[pack](damaged(how, 30)))
    ds = rm.open(["a.tfrecord", "b.tfrecord", "c.tfrecord"])
    seen: list[int] = []
    with pytest.raises(rm.DataError, match=r"b\.tfrecord"):
        seen.extend(values(ds.batch(16)))
    assert seen == [*range(100), *range(30)]


def test_a_dropped_last_batch_does_not_hide_the_damage() -> None:
    Path("x.tfrecord").write_bytes(damaged("cut", 25))
    for chain in (
        rm.open("x.tfrecord").batch(10, drop_last=True),
        rm.open("x.tfrecord").filter(lambda row: row["a"] >= 0).batch(10, drop_last=True),
    ):
        seen: list[int] = []
        with pytest.raises(rm.CorruptRecordError):
            seen.extend(values(chain))
        assert seen == list(range(20))


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


CUTS: dict[str, Chain] = {
    "skip": lambda ds: ds.skip(5).batch(8),
    "take": lambda ds: ds.skip(5).take(50).batch(8),
    "rows": lambda ds: ds.skip(5).take(50),
    "of a map": lambda ds: ds.map(same).skip(5).batch(8),
    "of a map, chosen": lambda ds: ds.map(same).skip(5).select("a").batch(8),
    "then a map": lambda ds: ds.skip(5).map(same).batch(8),
    "then a filter": lambda ds: ds.skip(5).filter(lambda row: row["a"] >= 0).batch(8),
    "twice": lambda ds: ds.skip(2).take(60).skip(3).take(70).batch(8),
    "in processes": lambda ds: ds.skip(5).map(same, workers="fork:2").batch(8),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*fork.*:RuntimeWarning")
@pytest.mark.parametrize("chain", CUTS)
@pytest.mark.parametrize("pack", PACK)
@pytest.mark.parametrize("how", ["data", "length", "cut"])
def test_sliced_rows_before_the_damage_come_before_the_error(
    how: str, pack: str, chain: str
) -> None:
    Path("x.tfrecord").write_bytes(PACK[pack](damaged(how, 25)))
    seen: list[int] = []
    with pytest.raises(rm.DataError, match=r"x\.tfrecord"):
        seen.extend(values(CUTS[chain](rm.open("x.tfrecord"))))
    assert seen == list(range(5, 25))


@pytest.mark.parametrize("pack", PACK)
def test_rows_taken_before_the_damage_raise_nothing(pack: str) -> None:
    Path("x.tfrecord").write_bytes(PACK[pack](damaged("cut", 25)))
    ds = rm.open("x.tfrecord")
    for count in (0, 1, 20, 25):
        assert list(values(ds.take(count))) == list(range(count))
        assert list(values(ds.map(same).take(count))) == list(range(count))
    assert len(ds.take(25).batch(4)) == 7
    shuffled = ds.take(25).shuffle(seed=1, window=100).batch(4)
    assert sorted(values(shuffled)) == list(range(25))
    ranks = [ds.skip(5).take(20).batch(4).shard(rank, 2) for rank in range(2)]
    assert sorted(value for rank in ranks for value in values(rank)) == list(range(5, 25))


@pytest.mark.parametrize("pack", PACK)
def test_the_damage_cannot_be_skipped(pack: str) -> None:
    Path("x.tfrecord").write_bytes(PACK[pack](damaged("cut", 25)))
    for skipped in (25, 26, 1000):
        with pytest.raises(rm.DataError):
            list(rm.open("x.tfrecord").skip(skipped).batch(4))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*fork.*:RuntimeWarning")
@pytest.mark.parametrize("pack", PACK)
@pytest.mark.parametrize("workers", ["fork:2", "spawn:1"])
def test_workers_yield_the_rows_before_the_damage(workers: str, pack: str) -> None:
    Path("x.tfrecord").write_bytes(PACK[pack](damaged("cut", 25)))
    seen: list[int] = []
    with pytest.raises(rm.DataError):
        seen.extend(values(rm.open("x.tfrecord").map(same, workers=workers).batch(8)))
    assert seen == list(range(25))


@pytest.mark.parametrize("pack", PACK)
def test_verbs_that_need_all_rows_raise_at_once(pack: str) -> None:
    Path("x.tfrecord").write_bytes(PACK[pack](damaged("cut", 25)))
    ds = rm.open("x.tfrecord")
    with pytest.raises(rm.DataError):
        len(ds.batch(4))
    with pytest.raises(rm.DataError):
        next(iter(ds.shuffle(seed=1, window=100).batch(4)))
    with pytest.raises(rm.DataError):
        next(iter(ds.batch(4).shard(0, 2)))


def test_batches_before_the_damage_can_be_taken() -> None:
    Path("x.tfrecord").write_bytes(damaged("cut", 25))
    taken = rm.open("x.tfrecord").batch(5).take(5)
    assert list(values(taken)) == list(range(25))
    assert len(taken) == 5


@pytest.mark.parametrize("pack", PACK)
def test_a_state_before_the_damage_resumes_there(pack: str) -> None:
    Path("x.tfrecord").write_bytes(PACK[pack](damaged("cut", 25)))
    train = rm.open("x.tfrecord").batch(4)
    batches = iter(train)
    first = [next(batches)["a"].tolist() for _ in range(2)]
    state = train.state()
    again = rm.open("x.tfrecord").batch(4).restore(state)
    seen = [value for batch in first for value in batch]
    with pytest.raises(rm.DataError):
        seen.extend(values(again))
    assert seen == list(range(25))
