"""What tells the functions of ``cache()`` apart: their code, and all that it uses."""

from __future__ import annotations

import enum
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from recmap.pipeline.function_digest import function_fingerprint
from tests.processes import running

SCALE = 2


class Mode(enum.Enum):
    NEAREST = 1
    LINEAR = 2


class Resize:
    """An object that is called like a function."""

    def __init__(self, mode: Mode, *, size: int = 3) -> None:
        self.mode, self.size = mode, size
        self.table = np.arange(size)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return {"x": row["x"] * self.size}


def power(row: dict[str, Any], by: int = 1) -> dict[str, Any]:
    return power(row, by - 1) if by else {"x": row["x"] * SCALE}


def adds(number: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda row: {"x": row["x"] + number}


def test_what_a_function_uses_tells_it_from_others() -> None:
    functions: list[Callable[..., Any]] = [
        power,
        partial(power, by=2),
        adds(1),
        adds(2),
        adds(np.arange(3)),
        adds(np.arange(3) + 1),
        adds({"a", "b"}),
        adds({"a", "c"}),
        Resize(Mode.NEAREST),
        Resize(Mode.LINEAR),
        Resize(Mode.LINEAR, size=4),
        Resize(Mode.LINEAR).__call__,
        lambda row: {"x": row["x"] * SCALE},
        lambda row: {"x": row["x"] - SCALE},
        np.sqrt,
        np.square,
        len,
    ]
    found = [function_fingerprint(each) for each in functions]
    assert None not in found
    assert len(set(found)) == len(functions)
    assert [function_fingerprint(each) for each in functions] == found
    assert function_fingerprint(adds(1)) == function_fingerprint(adds(1))


def test_a_global_that_changes_is_noticed(monkeypatch: Any) -> None:
    before = function_fingerprint(power)
    monkeypatch.setitem(globals(), "SCALE", 3)
    assert function_fingerprint(power) != before


def test_what_cannot_be_pickled_has_no_fingerprint() -> None:
    assert function_fingerprint(adds(threading.Lock())) is None
    with open(os.devnull, "rb") as file:
        assert function_fingerprint(file.read) is None


@pytest.mark.slow
def test_it_is_the_same_in_every_process(monkeypatch: Any) -> None:
    program = """
from recmap.pipeline.function_digest import function_fingerprint
from tests.pipeline.test_function_digest import Mode, Resize, adds, power

def f(row):
    return {"x": Resize(Mode.LINEAR)(power(row)) if row["id"] in {"a", "b", "c"} else None}

print(*map(function_fingerprint, (f, Resize(Mode.LINEAR), adds({"x", "y", "z"}))))
"""
    found = set()
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        with running(program) as process:
            out, err = process.communicate()
        assert out, err
        assert "None" not in out
        found.add(out)
    assert len(found) == 1
