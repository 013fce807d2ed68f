"""Text on its way through a pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.processes import WITH_WORKERS

pytestmark = WITH_WORKERS

TEXTS = ["plain", "", "café", "\ufeffmarked", "a\0b\0", "漢字", "🦜🦜", "\U0010ffff"] * 4


@pytest.fixture
def ds() -> rm.Dataset:
    words = rm.Ragged(rm.Ragged.from_text(TEXTS), [0, 0, *np.arange(3, 33), 32])
    rm.from_arrays(
        {"caption": rm.Ragged.from_text(TEXTS), "words": words, "n": np.arange(32)}
    ).save("x.tfrecord")
    return rm.open("x.tfrecord")


def shout(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "caption": row["caption"] + "!"}


def shout_all(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "caption": [text + "!" for text in batch["caption"]]}


def as_it_is(row: dict[str, Any]) -> dict[str, Any]:
    return row


def test_shuffled_and_batched_text_stays_text(ds: rm.Dataset) -> None:
    rows = [row for batch in ds.shuffle(seed=1).batch(5) for row in batch["caption"].tolist()]
    assert rows != TEXTS
    assert sorted(rows) == sorted(TEXTS)
    kept = ds.filter(lambda row: row["caption"].startswith("\ufeff")).batch(10)
    assert next(iter(kept))["caption"].tolist() == ["\ufeffmarked"] * 4
    for batch in ds.bucket("caption", [4]).batch(4):
        assert len({len(text.encode()) < 4 for text in batch["caption"].tolist()}) == 1


@pytest.mark.parametrize("workers", [0, "threads:2", "fork:2"])
def test_a_function_gets_str_and_its_str_is_text(ds: rm.Dataset, workers: Any) -> None:
    shouted = [text + "!" for text in TEXTS]
    for pipeline in (
        ds.map(shout, workers=workers).batch(8),
        ds.map(shout_all, batched=True, workers=workers).batch(8),
        ds.batch(8).map(shout_all, workers=workers),
    ):
        batches = list(pipeline)
        assert [text for batch in batches for text in batch["caption"].tolist()] == shouted
        assert all(batch["words"].values.is_text for batch in batches)
    same = list(ds.map(as_it_is, workers=workers).batch(8))
    assert [row for batch in same for row in batch["words"].tolist()] == ds[:]["words"].tolist()


def test_bytes_stay_bytes_and_fields_decide(ds: rm.Dataset) -> None:
    encoded = ds.map(lambda row: {"caption": row["caption"].encode()}).batch(32)
    assert next(iter(encoded))["caption"].tolist() == [text.encode() for text in TEXTS]
    new = ds.map(lambda row: {"upper": row["caption"].upper()}).batch(2)
    assert next(iter(new))["upper"].tolist() == ["PLAIN", ""]
    new = ds.map(lambda row: {"upper": row["caption"].upper()}, columns={"upper": "bytes"}).batch(2)
    assert next(iter(new))["upper"].tolist() == [b"PLAIN", b""]
    wrong = ds.map(lambda row: {**row, "caption": row["caption"] + "\ud800"}).batch(2)
    with pytest.raises(rm.RecmapError, match="'caption'"):
        next(iter(wrong))


def test_a_state_goes_on_with_text(ds: rm.Dataset) -> None:
    def made() -> rm.Stream:
        return ds.shuffle(seed=3).map(shout).batch(4)

    pipeline = made()
    batches = iter(pipeline)
    for _ in range(3):
        next(batches)
    state = pipeline.state()
    again = made()
    again.restore(state)
    rest = [batch["caption"].tolist() for batch in again]
    assert rest == [batch["caption"].tolist() for batch in made()][3:]
    as_bytes = rm.open("x.tfrecord", {"caption": "bytes"}).shuffle(seed=3).batch(4)
    with pytest.raises(rm.OptionError, match="text"):
        as_bytes.restore(state)


def test_padding_beside_text_leaves_it_as_it_is() -> None:
    tokens = rm.Ragged.from_rows([[1] * (i % 3) for i in range(32)])
    rm.from_arrays({"caption": rm.Ragged.from_text(TEXTS), "tokens": tokens}).save("y.tfrecord")
    ds = rm.open("y.tfrecord")
    batches = list(ds.batch(8, pad="longest"))
    assert [text for batch in batches for text in batch["caption"].tolist()] == TEXTS
    with pytest.raises(rm.OptionError, match="cannot pad 'caption': it is text"):
        ds.batch(8, pad={"caption": 4})
