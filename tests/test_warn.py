"""Warnings blame the line of the program, however deep in recmap they are made."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

import recmap as rm
from recmap.machine.threads import Threads
from recmap.warn import warn
from tests.forked import run_program


def damaged(path: str) -> str:
    """Write records of which the second has a wrong checksum."""
    with rm.TFRecordWriter(path, describe=False) as file:
        file.write({"x": np.arange(3)})
    data = bytearray(Path(path).read_bytes())
    size = len(data) // 3
    data[size + 13] ^= 1
    Path(path).write_bytes(data)
    return path


def stale(path: str) -> str:
    """Write an index that does not fit its file."""
    rm.from_arrays({"x": np.arange(4)}).save(path)
    rm.index(path)
    rm.from_arrays({"x": np.arange(9)}).save("other.tfrecord")
    Path(path).write_bytes(Path("other.tfrecord").read_bytes())
    return path


CALLS: dict[str, Callable[[], Any]] = {
    "open": lambda: rm.open(damaged("x.tfrecord"), errors="skip"),
    "open columns": lambda: rm.open({"a": damaged("x.tfrecord")}, errors="skip"),
    "open several": lambda: rm.open([damaged("x.tfrecord")], errors="skip"),
    "convert": lambda: rm.convert(damaged("x.tfrecord"), "x.npz", errors="skip"),
    "stale index": lambda: rm.open(stale("x.tfrecord"))[:],
    "stale index of a column": lambda: rm.open({"a": stale("x.tfrecord")})[:],
    "shuffle": lambda: compressed("x.tfrecord.gz").shuffle(seed=1).batch(2),
    "frame": lambda: rm.open(pd.DataFrame({"x": [1, 2]}, index=pd.Index([1, 2], name="i"))),
}


def compressed(path: str) -> rm.Dataset:
    rm.from_arrays({"x": np.arange(9)}).save(path)
    return rm.open(path)


@pytest.mark.parametrize("name", CALLS)
def test_the_line_of_the_program_is_blamed(name: str) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        CALLS[name]()
    line = inspect.getsourcelines(CALLS[name])[1]
    ours = [each for each in seen if each.category.__module__.startswith("recmap")]
    assert ours
    for each in ours:
        assert (each.filename, each.lineno) == (__file__, line)


def test_a_warning_from_a_thread_of_recmap_blames_the_main_thread() -> None:
    def deep() -> None:
        inner: dict[str, Any] = {"warn": warn}
        # Code that seems to be part of recmap, for a thread without a frame of the program.
        exec(compile("def tell(_): warn('slow', Note)", rm.__file__, "exec"), inner, inner)
        inner["Note"] = Note
        with Threads(1, "test") as pool:
            assert list(pool.map(inner["tell"], [0])) == [None]

    with pytest.warns(Note) as seen:
        deep()
    assert seen[0].filename == __file__


def test_a_thread_of_the_program_is_blamed_itself() -> None:
    lines: list[int] = []

    def own() -> None:
        warn("own", Note)
        lines.append(inspect.currentframe().f_lineno)  # type: ignore[union-attr]

    thread = Thread(target=own)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        thread.start()
        thread.join()
    assert (seen[0].filename, seen[0].lineno) == (__file__, lines[0] - 1)


def test_the_helpers_of_python_are_not_blamed() -> None:
    @contextmanager
    def opened() -> Any:
        tell()
        yield

    inner: dict[str, Any] = {"warn": warn, "Note": Note}
    exec(compile("def tell(): warn('slow', Note)", rm.__file__, "exec"), inner, inner)
    tell = inner["tell"]
    with pytest.warns(Note) as seen, opened():
        pass
    assert seen[0].filename == __file__


def test_equal_warnings_from_one_line_are_shown_once() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for _ in range(3):
            warn("again", Note)
        warn("again", Note)
    assert len(seen) == 2


class Note(UserWarning):
    """A warning of these tests."""


@pytest.mark.slow
def test_looking_at_another_thread_waits_for_nobody() -> None:
    """A collection at the wrong moment stopped Python before 3.11.8 for ever."""
    program = """
import gc, os, threading, time
from recmap.warn import frame_of
class Slow:
    def __del__(self):
        time.sleep(0)
def start_others():
    while True:
        other = threading.Thread(target=bool)
        other.start()
        other.join()
gc.set_threshold(1)
for _ in range(4):
    threading.Thread(target=start_others, daemon=True).start()
for _ in range(3000):
    garbage = Slow()
    garbage.itself = garbage
    del garbage
    assert frame_of(threading.main_thread().ident) is not None
assert gc.isenabled()
os._exit(0)
"""
    assert run_program(program).returncode == 0
