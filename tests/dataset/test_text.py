"""Text columns of a dataset: indexing, comparing, casting, statistics, and how they print."""

from __future__ import annotations

import json

import numpy as np
import pytest

import recmap as rm
from tests.command import run

TEXTS = ["cat", "", "café", "漢字 " * 40, "tab\tnew\nline", "a\0b"]


@pytest.fixture
def ds() -> rm.Dataset:
    words = rm.Ragged(rm.Ragged.from_text(TEXTS), [0, 1, 1, 2, 3, 4, 6])
    columns = {"caption": rm.Ragged.from_text(TEXTS), "words": words, "n": np.arange(6)}
    rm.from_arrays(columns).save("x.npz")
    return rm.open("x.npz")


def test_a_column_of_text_is_compared_with_str_and_bytes(ds: rm.Dataset) -> None:
    caption = ds["caption"]
    for value in ("café", "café".encode()):
        assert (caption == value).tolist() == [text == "café" for text in TEXTS]
        assert (caption != value).tolist() == [text != "café" for text in TEXTS]
        assert value in caption
        assert value in ds["words"]
    assert "dog" not in caption
    assert "dog" not in ds["words"]
    assert caption[2] == "café"
    assert caption[[2, 0]].tolist() == ["café", "cat"]
    assert list(caption) == TEXTS
    assert ds["words"][5].tolist() == TEXTS[4:]
    with pytest.raises(rm.OptionTypeError, match="'caption' holds text, not numbers"):
        caption.sum()
    assert repr(caption).startswith("ColumnView('caption': text of ")


def test_text_is_cast_to_bytes_and_back(ds: rm.Dataset) -> None:
    as_bytes = ds.cast({"caption": "bytes", "words": "bytes"})
    assert as_bytes.schema == {"caption": "bytes", "words": "bytes[*]", "n": "int64"}
    assert as_bytes[2]["caption"] == "café".encode()
    back = as_bytes.cast({"caption": "text", "n": "float32"})
    assert back.schema == {"caption": "text", "words": "bytes[*]", "n": "float32"}
    assert back[:]["caption"].tolist() == TEXTS
    assert back.cast({"caption": "text"})[[2]]["caption"].tolist() == ["café"]
    as_bytes.cast({"caption": "text"}).save("y.tfrecord", verify="full")
    assert rm.open("y.tfrecord").schema["caption"] == rm.Field("text")
    latin = rm.from_arrays({"s": [b"a", b"\xe9"]}).cast({"s": "text"})
    with pytest.raises(rm.FieldMismatchError, match=r"row 1: column 's' is text.*not UTF-8"):
        latin[:]
    with pytest.raises(rm.OptionError, match="'caption' is text, which can be cast only to bytes"):
        ds.cast({"caption": "float32"})
    with pytest.raises(rm.OptionError, match="'n' is int64, which cannot be cast to 'text'"):
        ds.cast({"n": "text"})


def test_columns_side_by_side_are_read_as_text_if_asked(ds: rm.Dataset) -> None:
    np.save("s.npy", np.array([b"x", "é".encode()] * 3))
    assert ds.schema["caption"] == rm.Field("text")
    both = rm.open({"n": "x.npz", "s": "s.npy"}, {"s": "text", ...: None})
    assert both.schema == {"n": "int64", "s": "text"}
    assert both[1]["s"] == "é"
    assert rm.open("x.npz", {"caption": "text", "n": None}).schema["caption"].is_text
    with pytest.raises(rm.FieldMismatchError, match=r"'caption' is text, not text\[2\]"):
        rm.open("x.npz", {"caption": "text[2]"})


def test_statistics_count_the_bytes_of_text(ds: rm.Dataset) -> None:
    stats = ds.stats()["caption"]
    assert stats.values is None
    assert stats.sizes is not None
    assert stats.sizes.max == max(len(text.encode()) for text in TEXTS)
    parts = ds.split({"a": 0.5, "b": 0.5}, seed=0, by="caption")
    assert sum(map(len, parts.values())) == 6


@pytest.mark.slow
def test_text_is_shown_as_text(ds: rm.Dataset) -> None:
    assert "caption  text" in repr(ds)
    assert "text[*]" in ds._repr_html_()
    shown = run("head", "x.npz").stdout
    assert "'cat'" in shown
    assert "'café'" in shown
    assert "160" not in shown
    assert "120 characters" in shown
    lines = [json.loads(line) for line in run("head", "x.npz", "--json").stdout.splitlines()]
    assert [line["caption"] for line in lines] == TEXTS
    assert lines[5]["words"] == TEXTS[4:]
    assert "text[*]" in run("info", "x.npz").stdout
    run("convert", "x.npz", "x.tfrecord", "--cast", "words=bytes")
    assert rm.open("x.tfrecord").schema == {"caption": "text", "words": "bytes[*]", "n": "int64"}
    code = run("schema", "x.tfrecord", "--as", "tf").stdout
    assert "'caption': tf.io.FixedLenFeature([], tf.string)" in code
    assert "row['caption'],  # text" in run("schema", "x.tfrecord", "--as", "torch").stdout
