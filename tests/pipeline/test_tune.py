"""recmap tune: several ways to read a file, tried one after another."""

from __future__ import annotations

import json

import numpy as np
import pytest

import recmap as rm
from recmap.cli import main
from recmap.pipeline import tune
from recmap.pipeline.tune import Choice, Measurement, _choose


@pytest.fixture(autouse=True)
def _short_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "_SHORTEST", 0.01)


def _write(rows: int = 3000) -> None:
    np.save("x.npy", np.arange(rows * 16, dtype=np.float32).reshape(rows, 16))


def test_the_printed_line_reads_all_rows(capsys: pytest.CaptureFixture[str]) -> None:
    _write()
    assert main(["tune", "x.npy", "--seconds", "0.1"]) == 0
    *table, line = capsys.readouterr().out.splitlines()
    assert table[0].split() == ["tried", "rm.open(...)", "rows/s", "bytes/s"]
    train = eval(line.strip(), {"rm": rm})
    assert sum(len(batch["data"]) for batch in train) == 3000


def test_every_stage_has_one_best_choice(capsys: pytest.CaptureFixture[str]) -> None:
    _write()
    assert main(["tune", "x.npy", "--seconds", "0.1", "--json", "--cold"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cold"] is True
    trials = found["trials"]
    stages = list(dict.fromkeys(trial["stage"] for trial in trials))
    assert stages[:2] == ["order", "batch"]
    for stage in stages:
        assert [t["chosen"] for t in trials if t["stage"] == stage].count(True) == 1
    assert all(trial["rows_per_second"] > 0 for trial in trials)


def test_a_compressed_file_is_shuffled_by_windows(capsys: pytest.CaptureFixture[str]) -> None:
    _write()
    rm.convert("x.npy", "x.tfrecord.gz")
    assert main(["tune", "x.tfrecord.gz", "--seconds", "0.1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    orders = [trial["chain"] for trial in found["trials"] if trial["stage"] == "order"]
    assert orders
    assert all("window=" in chain for chain in orders)


def test_given_options_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    _write()
    assert main(["tune", "x.npy", "--seconds", "0.1", "--batch", "7", "--in-order"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert ".batch(7)" in line
    assert "shuffle" not in line


def test_an_empty_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", np.empty((0, 2)))
    assert main(["tune", "x.npy"]) == 2
    assert "no rows" in capsys.readouterr().err


def test_a_larger_choice_must_be_clearly_faster() -> None:
    tried = [
        Measurement("threads", Choice(1, threads=n), rate, 0) for n, rate in ((1, 100), (2, 105))
    ]
    assert _choose(tried, 1.1) is tried[0]
    faster = Measurement("threads", Choice(1, threads=4), 120, 0)
    assert _choose([*tried, faster], 1.1) is faster


@pytest.mark.parametrize("rows", [1, 5, 31])
def test_a_file_of_few_rows_is_one_batch(rows: int, capsys: pytest.CaptureFixture[str]) -> None:
    _write(rows)
    assert main(["tune", "x.npy", "--seconds", "0.1"]) == 0
    assert f".batch({rows})" in capsys.readouterr().out.splitlines()[-1]


def test_a_single_choice_is_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    _write()
    rm.convert("x.npy", "x.tfrecord.gz")
    call = ["tune", "x.tfrecord.gz", "--batch", "4", "--in-order", "--seconds", "0.1"]
    assert main(call) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(".batch(4)")


def test_a_given_batch_size_larger_than_the_file_is_kept(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _write(100)
    assert main(["tune", "x.npy", "--batch", "5000", "--seconds", "0.1"]) == 0
    assert ".batch(5000)" in capsys.readouterr().out.splitlines()[-1]
