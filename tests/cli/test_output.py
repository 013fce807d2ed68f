"""What the command prints in a terminal and in a pipe."""

from __future__ import annotations

import random

import numpy as np
import pytest

import recmap as rm
from recmap.cli import main
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


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["info", "head", "stats"])
def test_tables_are_coloured_in_a_terminal_and_plain_in_a_pipe(verb: str) -> None:
    code, drawn = run_in_terminal(verb, "x.tfrecord", columns=160)
    assert code == 0
    assert "\x1b[1m" in drawn
    done = run(verb, "x.tfrecord")
    assert done.returncode == 0
    for output in (drawn, done.stdout):
        # Brackets are not markup, and names cannot change colours.
        assert "[bold]" in output
        assert "\x1b[31m" not in output
        assert r"\x1b[31mred" in output
    assert all(line.isprintable() for line in done.stdout.splitlines())
    assert done.stderr == ""


def in_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int, *args: str
) -> str:
    """Return what the command prints in a terminal without colours."""
    monkeypatch.setattr("recmap.cli.output.on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(list(args)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("columns", [40, 80, 100, 200])
def test_tables_fit_the_terminal_and_lose_nothing_in_a_pipe(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "a/very/long/path/to/the/column/of/labels"
    strings = rm.Ragged.from_bytes([b"letters " * 6] * 2 + [b"w"])
    numbers = np.array([1.23456789e-5, -1.5e300, 7])
    rm.from_arrays({name: numbers, "strings": strings, "n": np.array([1, 2, 2])}).save("wide.h5")
    for verb in ("info", "head", "stats"):
        assert main([verb, "wide.h5"]) == 0
        assert name in capsys.readouterr().out
        with monkeypatch.context() as patched:
            shown = in_terminal(patched, capsys, columns, verb, "wide.h5")
        assert max(map(len, shown.splitlines())) <= columns
        assert "labels" in shown
        assert "\x1b" not in shown


_COLUMNS = {
    "float": np.linspace(0, 1, 50),
    "vector": np.linspace(0, 1, 150, dtype=np.float32).reshape(50, 3),
    "integer": np.arange(50) % 7,
    "large": np.arange(50) * (1 << 56),
    "flag": np.arange(50) % 2 == 0,
    "nan": np.full(50, np.nan),
    "text": rm.Ragged.from_text(["é" * (i % 5) for i in range(50)]),
    "bytes": rm.Ragged.from_bytes([bytes([255] * i) for i in range(50)]),
    "ragged": rm.Ragged.from_rows([np.arange(i % 4) for i in range(50)]),
    "moment": np.arange(50).astype("M8[s]"),
    "fine moment": np.array(["2020-01-01T00:00:00.123456789"] * 50, "M8[ns]"),
    "complex": np.arange(50) * 1j,
    "empty": np.zeros((50, 0)),
    "a" * 90: np.arange(50.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("rows", [0, 1, 50])
def test_any_columns_are_shown_at_any_width(
    rows: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(rows)
    choices = [[name] for name in _COLUMNS]
    choices += [chance.sample(list(_COLUMNS), chance.randint(2, 8)) for _ in range(10)]
    for names in choices:
        rm.from_arrays({name: _COLUMNS[name][:rows] for name in names}).save(
            "any.npz", overwrite=True
        )
        for verb in ("info", "head", "stats"):
            columns = chance.choice([40, 60, 80, 100, 200])
            with monkeypatch.context() as patched:
                shown = in_terminal(patched, capsys, columns, verb, "any.npz")
            assert max(map(len, shown.splitlines()), default=0) <= columns, (verb, columns, names)
        assert main(["view", "any.npz", "--html", "report.html", "--overwrite"]) == 0
        assert main(["diff", "any.npz", "any.npz"]) == 0
        capsys.readouterr()


def test_rows_too_wide_for_the_terminal_are_shown_one_value_per_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = in_terminal(monkeypatch, capsys, 30, "head", "x.tfrecord").splitlines()
    assert lines[0] == "row 0"
    assert lines[1].split() == ["x", "[4]", "0", "1", "2", "3"]
    assert len(lines) == 12


@pytest.mark.slow
def test_verify_shows_progress() -> None:
    code, shown = run_in_terminal("verify", "x.tfrecord")
    assert code == 0
    assert "\x1b[2K" in shown
    assert shown.rstrip().endswith("3 sound records, 0 damaged, in 1 file, 254 bytes")


@pytest.mark.slow
def test_index_shows_progress() -> None:
    code, shown = run_in_terminal("index", "x.tfrecord")
    assert code == 0
    assert "\x1b[2K" in shown
    assert shown.rstrip().endswith(".x.tfrecord.recmap")


@pytest.mark.slow
def test_errors_are_one_line_in_a_terminal_too() -> None:
    code, shown = run_in_terminal("stats", "nope")
    assert code == 2
    assert shown.startswith("recmap stats: nope: no such file or folder")
    assert shown.count("\n") == 1
