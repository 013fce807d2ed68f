"""TFDS folders on the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest

import recmap as rm
from recmap.cli import main


@pytest.fixture(autouse=True)
def _folder(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))
    np.savez("train.npz", x=np.arange(20, dtype="float32").reshape(10, 2), label=np.arange(10))
    write = ["convert", "train.npz", "data", "--format", "tfds", "--option", "name=mine"]
    assert main([*write, "--option", "split=train", "--shards", "2"]) == 0
    assert main([*write, "--option", "split=test", "--rows", ":3"]) == 0


def test_info_and_head_show_a_split(capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["info", "data/mine/1.0.0", "--split", "train[:50%]"]) == 0
    out = capsys.readouterr().out
    assert "format   TFDS" in out
    assert "rows     5" in out
    assert "x      float32[2]" in out
    assert main(["head", "data/mine/1.0.0", "--split", "test", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["label"] for row in rows] == [0, 1, 2]
    assert main(["info", "data/mine/1.0.0", "--split", "all", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 13


def test_convert_reads_a_split() -> None:
    assert main(["convert", "data/mine/1.0.0", "test.npz", "--split", "test+train[8:]"]) == 0
    assert np.load("test.npz")["label"].tolist() == [0, 1, 2, 8, 9]


def test_errors_name_the_splits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "data/mine/1.0.0"]) == 2
    assert "which split? There are: 'train' (10 rows), 'test' (3 rows)" in capsys.readouterr().err
    assert main(["info", "data/mine"]) == 2
    assert "data/mine/1.0.0: 'train' (10 rows)" in capsys.readouterr().err
    assert main(["head", "data/mine/1.0.0", "--split", "test", "--unit", "steps"]) == 2
    assert "--unit steps is for datasets of episodes" in capsys.readouterr().err


def test_a_folder_that_was_converted_is_opened_in_python() -> None:
    assert len(rm.open("data/mine/1.0.0", split="all")) == 13
