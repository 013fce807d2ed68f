"""Rows with nulls in streams: resumed anywhere, on ranks, in workers and from stores."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recmap as rm

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.buckets import Bucket

ROWS = 23

pytestmark = pytest.mark.filterwarnings("ignore::recmap.SlowOrderWarning")


def nullable_table() -> pa.Table:
    rng = random.Random(3)

    def values(make: Any) -> list[Any]:
        return [None if rng.random() < 0.3 else make() for _ in range(ROWS)]

    lists = values(lambda: [None if rng.random() < 0.3 else rng.randrange(9) for _ in range(3)])
    return pa.table(
        {
            "id": pa.array(range(ROWS)),
            "n": pa.array(values(lambda: rng.randrange(9)), pa.int64()),
            "t": pa.array(values(lambda: rng.choice("abc")), pa.string()),
            "pair": pa.array(values(lambda: [1.5, rng.randrange(9)]), pa.list_(pa.float32(), 2)),
            "l": pa.array(lists, pa.list_(pa.int64())),
        }
    )


TABLE = nullable_table()
WANTED = TABLE.to_pylist()


def plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def rows(ds: Iterable[Any]) -> list[dict[str, Any]]:
    return [{name: plain(value) for name, value in row.items()} for row in ds]


def written() -> list[str]:
    files = []
    for number, start in enumerate((0, 9, 18)):
        files.append(f"{number}.parquet")
        pq.write_table(TABLE.slice(start, 9), files[-1], row_group_size=4)
    return files


def same(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as it is. Workers import it."""
    return row


def marked(row: dict[str, Any]) -> dict[str, Any]:
    """Say what is null, in other columns."""
    inside = row["l"] is None or any(item is None for item in row["l"])
    return {"id": row["id"], "n": row["n"] is None, "text": row["t"] or "-", "inside": inside}


def expected_marks() -> list[dict[str, Any]]:
    return [plain(marked(row)) for row in WANTED]


@pytest.mark.slow
def test_a_stream_of_rows_with_nulls_resumes_at_every_row() -> None:
    files = written()

    def stream() -> rm.Dataset:
        return rm.open(files).shuffle(seed=4).map(same)

    whole, running = rows(stream()), stream()
    assert sorted(whole, key=lambda row: row["id"]) == WANTED
    for number, _ in enumerate(running, 1):
        if number % 4 == 1:
            assert rows(stream().restore(running.state())) == whole[number:]


@pytest.mark.slow
def test_batches_resume_at_every_batch_after_nulls_are_decided() -> None:
    files = written()

    def stream() -> rm.Stream:
        ds = rm.open(files).mask_null("n").fill_null({"t": "", "pair": 0.0, "l": -1})
        return ds.shuffle(seed=4).batch(4, pad={"l": "longest"})

    whole, running = rows(stream()), stream()
    assert [n for batch in whole for n in batch["n/is_null"]].count(True) == sum(
        row["n"] is None for row in WANTED
    )
    for number, _ in enumerate(running, 1):
        if number < len(whole):  # then comes the next epoch
            assert rows(stream().restore(running.state())) == whole[number:]


def test_ranks_share_rows_with_nulls() -> None:
    found: list[Any] = []
    for rank in range(3):
        found += rows(rm.open(written()).shuffle(seed=2).shard(rank, 3))
    by_number = {row["id"]: row for row in found}
    assert [by_number[number] for number in range(ROWS)] == WANTED


@pytest.mark.parametrize("workers", ["threads:2", "fork:2", "spawn:1"])
def test_workers_pass_nulls_on(workers: str) -> None:
    given = written() if workers == "fork:2" else TABLE
    if workers != "spawn:1":  # which takes seconds
        assert rows(rm.open(given).map(same, workers=workers)) == WANTED
    (batch,) = rows(rm.open(given).map(marked, workers=workers).batch(ROWS))
    found = [dict(zip(batch, each, strict=True)) for each in zip(*batch.values(), strict=True)]
    assert found == expected_marks()


def test_nulls_are_saved_by_workers() -> None:
    ds = rm.open(written())
    ds.map(same).save("a/", format="parquet", shards=3, workers=2)
    assert rows(rm.open("a/")) == WANTED
    rm.open("a/").select("id", "n", "t", "pair").save("b/", shards=2, workers=2)
    assert rows(rm.open("b/")) == [{n: row[n] for n in ("id", "n", "t", "pair")} for row in WANTED]


def test_nulls_come_from_a_store_and_go_there(bucket: Bucket) -> None:
    url, storage = bucket.url, bucket.storage
    for ending in (".parquet", ".npz", ".tfrecord"):
        names = ["id", "n", "t", "pair"] if ending == ".tfrecord" else TABLE.column_names
        wanted = [{name: row[name] for name in names} for row in WANTED]
        path = f"{url}/x{ending}"
        rm.open(TABLE.select(names)).save(path, storage=storage)
        ds = rm.open(path, storage=storage)
        assert rows(ds) == wanted
        picked = ds.select(np.array([20, 1, 1, 5]))
        assert rows(picked) == [wanted[i] for i in (20, 1, 1, 5)]
        assert rows(ds.where(rm.col("n").is_null())) == [r for r in wanted if r["n"] is None]
        assert rm.verify(path, storage=storage).ok
    masked = rm.open(f"{url}/x.parquet", nulls="mask", columns=["n"], storage=storage)
    assert masked["n/is_null"][:].tolist() == [row["n"] is None for row in WANTED]


def test_lists_of_strings_keep_their_nulls_through_map() -> None:
    for kind, value in ((pa.string(), ["a", "b"]), (pa.binary(), [b"a", b"b"])):
        rows = [*[value] * 20, None, value]  # no null where the function is tried
        ds = rm.open(pa.table({"t": pa.array(rows, pa.list_(kind, 2))}))
        for made in (ds.map(dict), ds.map(lambda row: {"t": row["t"]}), ds.map(dict, batched=True)):
            assert made.schema["t"].nullable
            assert [row["t"] is None for row in made] == [row is None for row in rows]
            assert made[20]["t"] is None
