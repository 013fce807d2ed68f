"""What a user gets wrong is answered by an error that says so, where it was written."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import recmap as rm


def data() -> Any:
    return rm.from_arrays({"x": np.arange(6)})


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: data().save("x.npy", shard=3), "shards"),
    (lambda: rm.convert("x.npy", "y.npy", overwrit=True), "overwrite"),
    (lambda: rm.convert("x.npy", "y.npy", dtpye="f4"), "dtype"),
    (lambda: data().save("x.npy", rows=[1, 2]), "slice"),
    (lambda: data().save("x.npy", memory=None), "512MB"),
    (lambda: data().batch(2).prefetch(2, memory=-5), "memory"),
    (lambda: data().shard(0, 1.5), "1.5"),
    (lambda: data().shard("a", 2), "whole number"),
    (lambda: rm.from_arrays({"s": ["\ud800"]}), "UTF-8"),
    (lambda: rm.Schema({"x": 3}), "float32"),  # type: ignore[dict-item]
    (lambda: data().map(dict, fields=3), "schema"),
    (lambda: rm.open("x.npy", errors="bogus"), "skip"),  # type: ignore[arg-type]
    (lambda: rm.open("x.bin", dtype="f4", shape=10), "-1, 10"),  # type: ignore[arg-type]
    (lambda: rm.open(b"x.npy"), "fsdecode"),  # type: ignore[arg-type]
    (lambda: rm.open(3), "path"),  # type: ignore[arg-type]
    (lambda: rm.open(io.BytesIO()), "path"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "word"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_option_is_refused_where_it_is_given(call: Callable[[], Any], word: str) -> None:
    with pytest.raises(rm.RecmapError, match=word):
        call()


def test_schemas_compare_with_anything() -> None:
    schema = rm.Schema({"x": "int64", "y": "bytes"})
    turned = rm.Schema({"y": "bytes", "x": "int64"})
    assert schema == turned
    assert hash(schema) == hash(turned)
    assert schema == {"x": "int64", "y": "bytes"}
    assert schema not in ({"x": 3}, {1: 2}, {"x": "no[field"}, None, 3, "x")


@pytest.mark.parametrize(
    "wrong", [None, "a", -1, 2**80, {}, 1.5, [[1]], {"tail": "a", "runs": 3}], ids=str
)
def test_a_damaged_state_is_refused(wrong: Any) -> None:
    train = data().batch(2)
    next(iter(train))
    state = train.state()
    for key in ("epoch", "turn", "at", "given", "kept", "rank", "world", "block", "held", "left"):
        with pytest.raises(rm.OptionError, match=key):
            data().batch(2).restore({k: v for k, v in state.items() if k != key})
        if (key == "left" and wrong is None) or (key == "held" and isinstance(wrong, list | dict)):
            continue
        with pytest.raises(rm.OptionError, match="damaged"):
            data().batch(2).restore({**state, key: wrong})
