"""Verbs read nothing: rows are counted, and functions called, when something is asked for."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests import wire
from tests.buckets import HttpFolder

COUNT = 300
RECORDS = [
    wire.frame(
        wire.example(
            x=wire.int64_list(i),
            label=wire.int64_list(i % 3),
            t=wire.int64_list(*range(i % 5 + 2)),
        )
    )
    for i in range(COUNT)
]
FIELDS = {"x": "int64", "label": "int64", "t": "int64[*]"}


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


def keep(row: dict[str, Any]) -> bool:
    return bool(row["x"] % 2)


def twice(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [row, row]


VERBS: dict[str, Callable[[rm.Dataset], Any]] = {
    "select": lambda ds: ds.select("x", "label", "t"),
    "select numbers": lambda ds: ds.select([5, 3, 250]),
    "select a slice": lambda ds: ds.select(slice(10, -10)),
    "select a mask": lambda ds: ds.select(np.ones(COUNT, bool)),
    "filter": lambda ds: ds.filter(keep),
    "map": lambda ds: ds.map(same),
    "map in processes": lambda ds: ds.map(same, workers=2),
    "map of batches": lambda ds: ds.map(lambda columns: columns, batched=True),
    "shuffle": lambda ds: ds.shuffle(seed=1),
    "shuffle by windows": lambda ds: ds.shuffle(seed=1, window=16),
    "take": lambda ds: ds.take(200),
    "skip": lambda ds: ds.skip(7),
    "repeat": lambda ds: ds.repeat(2),
    "repeat forever": lambda ds: ds.repeat(),
    "rename": lambda ds: ds.rename({"x": "y"}).rename({"y": "x"}),
    "cast": lambda ds: ds.cast({"x": "int32"}),
    "split": lambda ds: ds.split({"a": 0.5, "b": 0.5})["a"],
    "split into counts": lambda ds: ds.split({"a": 10, "b": 20})["b"],
    "split by": lambda ds: ds.split({"a": 0.5, "b": 0.5}, by="x")["a"],
    "split stratified": lambda ds: ds.split({"a": 0.5, "b": 0.5}, stratify="label")["a"],
    "where": lambda ds: ds.where("label == 1"),
    "sample": lambda ds: ds.sample(seed=1),
    "sample some": lambda ds: ds.sample(5, replace=False, seed=1),
    "sample by weights": lambda ds: ds.sample(weights="x", seed=1),
    "sample by an array": lambda ds: ds.sample(weights=np.ones(COUNT), seed=1),
    "sample evenly": lambda ds: ds.sample(balance="label", seed=1),
    "sort": lambda ds: ds.sort("x", descending=True),
    "explode": lambda ds: ds.explode("t"),
    "flat_map": lambda ds: ds.flat_map(twice),
    "fill_null": lambda ds: ds.fill_null(0),
    "mask_null": lambda ds: ds.mask_null("x"),
    "drop_null": lambda ds: ds.drop_null("x"),
    "drop_null of all": lambda ds: ds.drop_null(),
    "concat": lambda ds: rm.concat(ds, ds),
    "mix": lambda ds: rm.mix(ds, ds),
    "mix by weights": lambda ds: rm.mix(ds, ds, weights=[0.5, 0.5]),
    "zip": lambda ds: rm.zip(ds.select("x"), ds.select("label", "t")),
    "prefetch": lambda ds: ds.prefetch(3),
    "batch": lambda ds: ds.batch(4),
    "take batches": lambda ds: ds.batch(4).take(3).skip(1),
    "shard": lambda ds: ds.batch(4).shard(0, 2),
    "bucket": lambda ds: ds.bucket("t", [3]).batch(4),
    "pack": lambda ds: ds.select("t").pack(8).batch(4),
}


# Functions are tried on the first rows if a verb after them has to know the columns.
CALLING = {"map", "map in processes", "map of batches", "flat_map"}
NEED_COLUMNS = {
    *("rename", "cast", "split by", "split stratified", "where", "sort", "explode"),
    *("sample by weights", "sample evenly", "fill_null", "mask_null", "drop_null"),
    *("drop_null of all", "concat", "mix", "mix by weights", "zip"),
}


def opened(kind: str) -> rm.Dataset:
    """Open files whose records nobody has counted."""
    return rm.open(written(kind, RECORDS), fields=FIELDS)


def written(kind: str, records: Sequence[bytes]) -> str:
    parts = [records[:100], records[100:]] if kind == "shards" else [records]
    suffix = ".tfrecord.gz" if kind == "gzip" else ".tfrecord"
    for number, part in enumerate(parts):
        data = b"".join(part)
        Path(f"x-{number}{suffix}").write_bytes(gzip.compress(data) if kind == "gzip" else data)
    return f"x-*{suffix}"


def cut_files() -> None:
    """Make every read fail."""
    for file in Path().glob("x-*"):
        os.truncate(file, 1)


@pytest.mark.parametrize("kind", ["plain", "gzip", "shards"])
@pytest.mark.filterwarnings("ignore::recmap.SlowOrderWarning")
def test_building_a_chain_and_showing_it_reads_nothing(kind: str) -> None:
    names = list(VERBS)
    for number, name in enumerate(names):
        ds = opened(kind)
        cut_files()
        made = VERBS[name](ds)
        assert "not counted yet" in repr(made) or "endless" in repr(made), name
        made._repr_html_()
        others = [names[(number + step) % len(names)] for step in (1, 9, 25)]
        for other in others if type(made) is rm.Dataset else ():
            if name in CALLING and other in NEED_COLUMNS:
                continue
            with suppress(rm.OptionError):  # some verbs refuse others before them
                repr(VERBS[other](made))
        if kind != "gzip":  # what was inflated to see the columns is still there
            with pytest.raises(rm.RecmapError):
                next(iter(made))


def test_verbs_that_need_columns_try_a_function_on_the_first_rows_only() -> None:
    called: set[int] = set()

    def noted(row: dict[str, Any]) -> dict[str, Any]:
        called.add(int(row["x"]))
        return row

    for name in sorted(NEED_COLUMNS - {"zip"}):
        ds = opened("plain")
        called.clear()
        VERBS[name](ds.map(noted))
        assert called <= {0, 1, 2, 3}, name


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::recmap.SlowOrderWarning")
def test_rows_are_the_same_counted_or_not() -> None:
    for name, verb in VERBS.items():
        if name == "map in processes":
            continue
        uncounted, counted = opened("shards"), opened("shards")
        assert len(counted) == COUNT
        found = [verb(ds).take(3) for ds in (uncounted, counted)]
        first, second = ([row["t"] for row in each] for each in found)
        assert list(map(str, first)) == list(map(str, second)), name
        if "repeat" not in name and "pack" not in name and "bucket" not in name:
            assert len(verb(uncounted)) == len(verb(counted)), name


def test_a_few_rows_are_found_without_counting_all() -> None:
    data = bytearray(b"".join(RECORDS))
    chains: list[Callable[[rm.Dataset], Any]] = [
        lambda ds: ds.take(20),
        lambda ds: ds.skip(10).take(10),
        lambda ds: ds.select([7, 0, 19]),
        lambda ds: ds.select(slice(5, 20, 3)),
        lambda ds: ds.map(same).take(20),
        lambda ds: ds.take(20).shuffle(seed=1),
        lambda ds: ds.take(20).batch(4),
    ]
    for chain in chains:
        Path("x.tfrecord").write_bytes(data)
        ds = rm.open("x.tfrecord", fields=FIELDS)
        with open("x.tfrecord", "r+b") as file:  # what comes later is no record
            file.seek(len(data) // 2)
            file.write(bytes(len(data) // 2))
        made = chain(ds)
        assert len(made) == len(list(made)) > 0
        with pytest.raises(rm.CorruptRecordError):
            len(ds)


STREAMS: dict[str, Callable[[rm.Dataset], Any]] = {
    "batch": lambda ds: ds.batch(2),
    "batch of many": lambda ds: ds.batch(2).map(lambda batch: batch),
    "drop_last": lambda ds: ds.batch(2, drop_last=True),
    "pad": lambda ds: ds.batch(2, pad="longest"),
    "map": lambda ds: ds.map(same),
    "filter": lambda ds: ds.filter(keep).batch(2),
    "take": lambda ds: ds.take(39),
    "take batches": lambda ds: ds.batch(2).take(19),
    "skip": lambda ds: ds.skip(1).batch(2),
    "skip and take": lambda ds: ds.skip(1).take(38).map(same),
    "select": lambda ds: ds.select("x").batch(2),
    "rename": lambda ds: ds.rename({"x": "y"}).batch(2),
    "fill_null": lambda ds: ds.fill_null(0).batch(2),
    "repeat": lambda ds: ds.batch(2).repeat(),
    "bucket": lambda ds: ds.bucket("t", [3]).batch(2),
    "run": lambda ds: ds.batch(2).run(2),
}


@pytest.mark.slow
def test_the_first_batch_comes_before_the_rows_are_counted() -> None:
    with rm.TFRecordWriter("large.tfrecord", index=False) as writer:
        big = np.zeros((40, 1 << 20), np.uint8)  # more than is scanned at a time
        ragged = rm.Ragged.from_rows([[i] for i in range(40)])
        writer.write({"x": np.arange(40), "big": big, "t": ragged})
    data = Path("large.tfrecord").read_bytes()
    Path("large.tfrecord.gz").write_bytes(gzip.compress(data, 1))
    for number in range(2):
        Path(f"shard-{number}.tfrecord").write_bytes(data)
    for path in ("large.tfrecord", "large.tfrecord.gz", "shard-*.tfrecord"):
        for name, stream in STREAMS.items():
            ds = rm.open(path, fields={"x": "int64", "t": "int64[*]"})
            next(iter(stream(ds.prefetch(0))))
            assert "rows not counted yet" in repr(ds), (path, name)


@pytest.mark.slow
def test_batches_and_states_are_the_same_counted_or_not() -> None:
    chains: dict[str, Callable[[rm.Dataset], Any]] = {
        "batch": lambda ds: ds.batch(7),
        "batch, exactly": lambda ds: ds.batch(50),
        "one batch": lambda ds: ds.batch(300),
        "one batch, not full": lambda ds: ds.batch(400),
        "drop_last": lambda ds: ds.batch(7, drop_last=True),
        "drop_last, exactly": lambda ds: ds.batch(50, drop_last=True),
        "drop_last, none": lambda ds: ds.batch(301, drop_last=True),
        "filter": lambda ds: ds.filter(keep).batch(8),
        "filter, take": lambda ds: ds.filter(keep).take(30).batch(8),
        "map": lambda ds: ds.map(same).skip(290).batch(3),
        "take, more than there are": lambda ds: ds.take(1000).batch(64),
        "skip, more than there are": lambda ds: ds.skip(1000).batch(64),
        "take batches": lambda ds: ds.batch(8).skip(2).take(3),
        "repeat": lambda ds: ds.batch(64).repeat(2),
        "bucket": lambda ds: ds.bucket("t", [3]).batch(16, pad="longest"),
        "pack": lambda ds: ds.select("t").pack(16).batch(4),
        "padded": lambda ds: ds.batch(16, pad={"t": 3}).map(lambda batch: batch),
    }
    for kind in ("plain", "gzip", "shards"):
        for name, chain in chains.items():
            pattern = written(kind, RECORDS)
            counted, uncounted, stopping = (rm.open(pattern, fields=FIELDS) for _ in range(3))
            assert len(counted) == COUNT
            first, second, third = (chain(ds) for ds in (counted, uncounted, stopping))
            wanted = [(flat(batch), first.state()) for batch in first]
            assert [flat(batch) for batch in second] == [batch for batch, _ in wanted], (kind, name)
            assert second.state() == first.state(), (kind, name)
            found = [(flat(batch), third.state()) for batch in third]
            assert found == wanted, (kind, name)


def flat(batch: Mapping[str, Any]) -> str:
    lists = {n: [np.asarray(row).tolist() for row in column] for n, column in batch.items()}
    return str(lists)


@pytest.mark.slow
def test_rows_before_damage_come_counted_or_not() -> None:
    for kind in ("plain", "gzip", "shards"):
        pattern = written(kind, [*RECORDS[:-1], RECORDS[-1][:-9]])
        for size in (7, 100, 250, 299):
            found: list[list[str]] = []
            for count in (True, False):
                ds = rm.open(pattern, fields=FIELDS)
                with pytest.raises(rm.CorruptRecordError) if count else nullcontext():
                    len(ds) if count else None
                found.append([])
                with pytest.raises(rm.CorruptRecordError) as error:
                    found[-1] += map(flat, ds.batch(size))
                found[-1].append(str(error.value))
            assert found[0] == found[1], (kind, size)


def test_bad_records_are_looked_for_when_rows_are_read() -> None:
    data = bytearray(b"".join(RECORDS))
    data[len(data) // 2] ^= 1
    for name, content in (("x.tfrecord", data), ("x.tfrecord.gz", gzip.compress(data))):
        Path(name).write_bytes(content)
        ds = rm.open(name, fields=FIELDS, errors="skip")
        assert "not counted yet" in repr(ds.map(same).batch(4))
        with pytest.warns(rm.SkippedRecordsWarning, match="1 bad record"):
            assert len(ds) == COUNT - 1
        again = rm.open(name, fields=FIELDS, errors="skip")
        with pytest.warns(rm.SkippedRecordsWarning, match="1 bad record"):
            assert sum(len(batch["x"]) for batch in again.batch(64)) == COUNT - 1
        listed = rm.open(name, fields=FIELDS, errors="skip")
        with pytest.warns(rm.SkippedRecordsWarning, match="1 bad record"):
            assert len(listed.skipped) == 1


@pytest.mark.filterwarnings("ignore::recmap.SlowOrderWarning")
def test_a_chain_on_objects_makes_no_requests(http_folder: HttpFolder) -> None:
    http_folder.put("x.tfrecord", b"".join(RECORDS))
    ds = rm.open(f"{http_folder.url}/x.tfrecord", fields=FIELDS, storage=http_folder.storage)
    http_folder.proxy.requests.clear()
    for verb in VERBS.values():
        repr(verb(ds))
    assert http_folder.proxy.requests == []
