"""What the command prints in a terminal and in a pipe."""

from __future__ import annotations

import numpy as np
import pytest

import recmap as rm
from tests.command import run, run_in_terminal


@pytest.fixture(autouse=True)
def _some_rows() -> None:
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write(
            {
                "x": np.arange(12, dtype=np.float32).reshape(3, 4),
                "[bold]": [b"[red]a[/red]", b"b", b"c"],
                "\x1b[31mred": [1, 2, 3],
            }
        )


@pytest.mark.parametrize("verb", ["info", "head", "stats"])
def test_tables_are_drawn_in_a_terminal_and_plain_in_a_pipe(verb: str) -> None:
    code, drawn = run_in_terminal(verb, "x.tfrecord", columns=160)
    assert code == 0
    assert "╭" in drawn
    assert "\x1b[1m" in drawn
    done = run(verb, "x.tfrecord")
    assert done.returncode == 0
    assert "╭" not in done.stdout
    for output in (drawn, done.stdout):
        # Brackets are not markup, and names cannot change colours.
        assert "[bold]" in output
        assert "\x1b[31m" not in output
        assert r"\x1b[31mred" in output
    assert all(line.isprintable() for line in done.stdout.splitlines())
    assert done.stderr == ""


def test_rows_too_wide_for_the_terminal_are_shown_one_value_per_line() -> None:
    code, shown = run_in_terminal("head", "x.tfrecord", columns=40)
    assert code == 0
    lines = shown.replace("\r", "").splitlines()
    assert lines[0] == "row 0"
    assert lines[1].split() == ["x", "[4]", "0", "1", "2", "3"]
    assert len(lines) == 12


def test_verify_shows_progress() -> None:
    code, shown = run_in_terminal("verify", "x.tfrecord")
    assert code == 0
    assert "\x1b[2K" in shown
    assert shown.rstrip().endswith("3 sound records, 0 damaged, in 1 file of 254 bytes")


def test_index_shows_progress() -> None:
    code, shown = run_in_terminal("index", "x.tfrecord")
    assert code == 0
    assert "\x1b[2K" in shown
    assert shown.rstrip().endswith(".x.tfrecord.recmap")


def test_errors_are_one_line_in_a_terminal_too() -> None:
    code, shown = run_in_terminal("stats", "nope")
    assert code == 2
    assert shown.startswith("recmap stats: nope: no such file or folder")
    assert shown.count("\n") == 1
