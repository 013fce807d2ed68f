"""Rows of coming batches are fetched from a store while those before are worked on."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recmap as rm
from recmap.errors import StoreError
from recmap.model.batch import Positions
from recmap.model.fetching import Fetching
from recmap.model.source import VaryingRows
from recmap.pipeline.workers.lookahead import Lookahead
from recmap.pipeline.workers.pool import Request
from tests.buckets import Bucket
from tests.fetched import drop_ahead, held_bytes
from tests.processes import WITH_WORKERS

pytestmark = WITH_WORKERS

SHARDS, ROWS, ROW = 6, 20, 50_000


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECMAP_CACHE_SIZE", "0")


class Hold:
    closed = 0

    def close(self) -> None:
        self.closed += 1


@VaryingRows.register
class FakeRows:
    """Rows of 1,000 bytes that note what is fetched. ``failing`` positions cannot be."""

    def __init__(self, failing: int | None = None) -> None:
        self.begun: list[tuple[list[int], int, Hold]] = []
        self.failing, self.epoch = failing, 0

    def at_epoch(self, epoch: int) -> FakeRows:
        self.epoch = epoch
        return self

    def row_bytes(self) -> int:
        return 1000

    def fetch_ahead(self, positions: Positions) -> Fetching:
        if self.failing in positions:
            raise StoreError("cannot be fetched")
        hold = Hold()
        self.begun.append((positions.tolist(), self.epoch, hold))
        return Fetching(1000 * len(positions), 1, [hold])

    @property
    def held(self) -> int:
        return sum(len(positions) for positions, _, hold in self.begun if not hold.closed)


def lookahead(rows: FakeRows, most: int) -> Lookahead:
    return Lookahead(rows, most)  # type: ignore[arg-type]  # only what is used


def requests(sizes: list[int], epochs: int = 1) -> list[Request]:
    made: list[Request] = []
    for epoch in range(epochs):
        at = 0
        for size in sizes:
            made.append(Request(len(made), epoch, np.arange(at, at + size)))
            at += size
    return made


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=60),
    st.integers(1, 3),
    st.integers(1, 300_000),
    st.integers(1, 8),
)
def test_every_request_comes_once_in_order_and_is_fetched_before(
    sizes: list[int], epochs: int, most: int, behind: int
) -> None:
    rows, wanted = FakeRows(), requests(sizes, epochs)
    ahead = lookahead(rows, most)
    read: list[Request] = []
    given_out: list[Request] = []
    for request in ahead.over(wanted):
        # Others read at the same time, and are done a little later.
        given_out.append(request)
        fetched = [
            (at, epoch)
            for positions, epoch, hold in rows.begun
            if not hold.closed
            for at in positions
        ]
        planned = {(at, request.epoch) for at in request.positions.tolist()}
        # If there is no room, reading it fetches it.
        assert planned <= set(fetched) or not planned & set(fetched)
        assert rows.held * 1000 <= most + 2 * (max(most // 4, 1) + 40_000)
        read.append(request)
        if len(given_out) > behind:
            ahead.done(given_out.pop(0))
    for request in given_out:
        ahead.done(request)
    assert [request.number for request in read] == list(range(len(wanted)))
    assert all(hold.closed == 1 for _, _, hold in rows.begun)


def test_little_is_fetched_before_the_first_request_is_read() -> None:
    rows = FakeRows()
    batches = lookahead(rows, 64 << 20).over(requests([10] * 1000))
    next(batches)
    assert rows.held == 10
    next(batches)
    assert rows.held <= 50
    for _ in range(100):
        next(batches)
    assert rows.held >= 2000


def test_rows_of_small_requests_are_fetched_together() -> None:
    rows = FakeRows()
    ahead = lookahead(rows, 64 << 20)
    for request in ahead.over(requests([1] * 20_000)):
        ahead.done(request)
    assert max(len(positions) for positions, _, _ in rows.begun) > 1000
    assert len(rows.begun) < 40


def test_closing_gives_up_everything_and_later_rows_too() -> None:
    rows = FakeRows()
    ahead = lookahead(rows, 1 << 20)
    batches = ahead.over(requests([10] * 100))
    for _ in range(10):
        next(batches)
    ahead.close()
    assert not rows.held
    next(batches)  # another thread may be about to
    ahead.begin([Request(500, 0, np.arange(5))])
    assert not rows.held


def test_an_error_of_the_requests_comes_after_those_before_it() -> None:
    def failing() -> Iterator[Request]:
        yield from requests([10] * 30)
        raise rm.OptionError("no more")

    batches = lookahead(FakeRows(), 1 << 20).over(failing())
    assert [next(batches).number for _ in range(30)] == list(range(30))
    with pytest.raises(rm.OptionError, match="no more"):
        next(batches)


def test_rows_that_cannot_be_fetched_ahead_are_left_to_the_reader() -> None:
    rows = FakeRows(failing=55)
    ahead = lookahead(rows, 1 << 20)
    for request in ahead.over(requests([10] * 30)):
        ahead.done(request)
    assert not any(55 in positions for positions, _, _ in rows.begun)
    assert not rows.held


# The same in a store.


@pytest.fixture
def local() -> rm.Dataset:
    rng = np.random.default_rng(5)
    shape = (SHARDS * ROWS, ROW)
    x = rng.integers(0, 255, shape, np.uint8)
    return rm.from_arrays({"id": np.arange(SHARDS * ROWS), "x": x})


@pytest.fixture(params=["tfrecord", "npy"])
def ds(bucket: Bucket, local: rm.Dataset, request: pytest.FixtureRequest) -> rm.Dataset:
    """Return the same rows, in objects of a megabyte."""
    for shard in range(SHARDS):
        rows = local[shard * ROWS : (shard + 1) * ROWS]
        name = f"x-{shard}.{request.param}"
        if request.param == "tfrecord":
            with rm.TFRecordWriter(name) as w:
                w.write(rows)
            with open(name, "rb") as file:
                bucket.put(name, file.read())
        else:
            made = np.empty(ROWS, [("id", "<i8"), ("x", "u1", ROW)])
            made["id"], made["x"] = rows["id"], rows["x"]
            data = io.BytesIO()
            np.save(data, made)
            bucket.put(name, data.getvalue())
    return rm.open(bucket.url_of(f"x-*.{request.param}"), storage=bucket.storage)


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


def fail(row: dict[str, Any]) -> dict[str, Any]:
    if row["id"] == 17:
        raise ValueError("seventeen")
    return row


PIPELINES: dict[str, Callable[[rm.Dataset], rm.Stream]] = {
    "in order": lambda ds: ds.batch(7),
    "shuffled": lambda ds: ds.shuffle(seed=1).batch(7),
    "in windows": lambda ds: ds.shuffle(seed=1, window=40).batch(7),
    "repeated rows": lambda ds: ds.shuffle(seed=1).repeat(2).batch(7),
    "repeated batches": lambda ds: ds.shuffle(seed=1).batch(7).repeat(2),
    "one rank": lambda ds: ds.batch(7).shard(1, 3),
    "picked": lambda ds: ds.select([5, 99, 3, 4, 5]).batch(2),
    "sliced": lambda ds: ds.skip(15).take(60).batch(7),
    "filtered": lambda ds: ds.shuffle(seed=1).filter(lambda row: row["id"] % 3 == 0).batch(7),
    "mapped": lambda ds: ds.shuffle(seed=1).map(same).batch(7),
    "rows": lambda ds: ds.shuffle(seed=1).pipeline(),
    "mixed": lambda ds: rm.mix(ds.shuffle(seed=1), ds, weights=[2, 1]).batch(7),
    "zipped": lambda ds: rm.zip(ds.select("id"), ds.select("x")).shuffle(seed=2).batch(7),
    "in the main thread": lambda ds: ds.shuffle(seed=1).batch(7).prefetch(0),
    "a thread": lambda ds: ds.shuffle(seed=1).map(same, workers="threads:3").batch(7),
    "little memory": lambda ds: ds.shuffle(seed=1).batch(7).prefetch(memory="2MB"),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_batches_are_those_of_the_same_rows_in_memory(
    ds: rm.Dataset, local: rm.Dataset, name: str
) -> None:
    make = PIPELINES[name]
    for ours, theirs in zip(make(ds), make(local), strict=True):
        assert ours["id"].tolist() == theirs["id"].tolist()
        assert np.array_equal(ours["x"], theirs["x"])
    assert held_bytes() == 0


def test_coming_batches_are_fetched_without_being_asked_for(ds: rm.Dataset, bucket: Bucket) -> None:
    pipeline = ds.shuffle(seed=1).batch(4)
    len(pipeline)
    drop_ahead()
    bucket.proxy.reset()
    batches = iter(pipeline.prefetch(0))
    for _ in range(10):
        next(batches)
    deadline = time.monotonic() + 30
    while bucket.proxy.body_bytes < 80 * ROW and time.monotonic() < deadline:
        time.sleep(0.01)
    assert bucket.proxy.body_bytes >= 80 * ROW  # 40 rows were asked for
    del batches
    assert held_bytes() == 0


@pytest.mark.parametrize("workers", [0, "threads:2"])
def test_nothing_is_held_after_an_error(ds: rm.Dataset, workers: int | str) -> None:
    with pytest.raises(rm.MapError, match="seventeen"):
        list(ds.shuffle(seed=1).map(fail, workers=workers).batch(4))
    assert held_bytes() == 0


def test_an_error_of_the_store_comes_in_its_turn(ds: rm.Dataset, bucket: Bucket) -> None:
    pipeline = ds.batch(ROWS)
    len(pipeline)
    gone = bucket.keys()[-2]
    data = bucket.get(gone)
    bucket.delete(gone)
    drop_ahead()
    batches = iter(pipeline)
    for shard in range(SHARDS - 2):
        assert next(batches)["id"].tolist() == list(range(shard * ROWS, shard * ROWS + ROWS))
    with pytest.raises(rm.PathNotFoundError, match=gone):
        list(batches)
    del batches
    assert held_bytes() == 0
    bucket.put(gone, data)
    assert sum(len(batch["id"]) for batch in pipeline) == SHARDS * ROWS


def test_ranks_fetch_only_their_own_rows(ds: rm.Dataset, bucket: Bucket) -> None:
    pipeline = ds.batch(4).shard(0, 4)
    len(pipeline)
    bucket.proxy.reset()
    list(pipeline)
    rows = SHARDS * ROWS // 4
    assert bucket.proxy.body_bytes < 1.5 * rows * ROW


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_window_shuffle_of_an_arrow_file_is_the_same_in_a_store(
    bucket: Bucket, compression: str | None
) -> None:
    rm.from_arrays({"x": np.arange(1200)}).save(
        "x.arrow", compression=compression or "none", options={"row_group_rows": 300}
    )
    bucket.put("x.arrow", Path("x.arrow").read_bytes())
    url = bucket.url_of("x.arrow")
    for here, there in (("x.arrow", url), (["x.arrow", "x.arrow"], [url, url])):
        local, stored = (
            np.concatenate([batch["x"] for batch in ds.shuffle(window=80, seed=3).batch(64)])
            for ds in (rm.open(here), rm.open(there, storage=bucket.storage))
        )
        np.testing.assert_array_equal(local, stored)
