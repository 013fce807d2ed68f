"""The option progress= means the same in every call."""

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.model.progress import Bar, Counter, Progress

CALLS: dict[str, Callable[[Any], Any]] = {
    "convert": lambda progress: rm.convert("x.tfrecord", "y.npz", progress=progress),
    "save": lambda progress: rm.open("x.tfrecord").save("y.npz", progress=progress),
    "stats": lambda progress: rm.open("x.tfrecord").stats(progress=progress),
    "index": lambda progress: rm.index("x.tfrecord", progress=progress),
    "verify": lambda progress: rm.verify("x.tfrecord", progress=progress),
    "repair": lambda progress: rm.repair("x.tfrecord", "y.tfrecord", progress=progress),
}


@pytest.fixture(autouse=True)
def data() -> None:
    rm.from_arrays({"x": np.arange(100)}).save("x.tfrecord")


@pytest.mark.parametrize("call", CALLS)
def test_a_function_is_called_until_everything_is_done(call: str) -> None:
    told: list[Progress] = []
    CALLS[call](told.append)
    assert all(isinstance(now, Progress) for now in told)
    assert told[-1].fraction == 1.0
    assert told[-1].left == 0.0


@pytest.mark.parametrize("call", CALLS)
def test_true_draws_a_bar_on_standard_error(call: str, capsys: pytest.CaptureFixture[str]) -> None:
    CALLS[call](True)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("[########################] ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("progress", [None, False])
def test_none_and_false_draw_nothing(
    call: str, progress: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    CALLS[call](progress)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("call", CALLS)
def test_anything_else_is_refused(call: str) -> None:
    with pytest.raises(rm.OptionTypeError, match="progress='yes'.*True.*function"):
        CALLS[call]("yes")


def test_rate_and_time_left_are_computed_or_unknown() -> None:
    assert Progress(bytes=100, seconds=4.0).rate == 25.0
    assert Progress(rows=1).fraction is None
    assert Progress(rows=1).left is None
    assert Progress(rows=0, total_rows=10, seconds=1.0).left is None
    assert Progress(bytes=25, total_bytes=100, seconds=2.0).left == 6.0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal_is_redrawn_in_place() -> None:
    out = Terminal()
    bar = Bar(out)
    bar(Progress(rows=1, total_rows=2))
    bar(Progress(rows=2, total_rows=2))
    bar.close()
    bar.close()
    assert out.getvalue().count("\r") == 2
    assert out.getvalue().count("\n") == 1


def test_a_bar_ends_its_line_after_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), Counter(10, True) as counter:
        counter.add(3, 30)
        raise ZeroDivisionError
    assert capsys.readouterr().err.endswith("\n")
