"""recmap info describes files that cannot be opened as a whole."""

from __future__ import annotations

import json
import os
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

import recmap as rm
from recmap.cli import main
from tests import wire


def test_datasets_that_are_no_columns_are_listed_with_shape_and_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with h5py.File("x.h5", "w") as file:
        file["a"], file["b"], file["group/c"] = np.zeros((4, 2)), np.zeros(4), np.zeros((3, 5))
        file["one"] = 7.5
    assert main(["info", "x.h5"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    lines = [" ".join(line.split()) for line in shown.out.splitlines()]
    assert "group/c float64 (3, 5) it has 3 rows, not 4" in lines
    assert any(line.startswith("one float64 () ") for line in lines)
    assert main(["info", "x.h5", "--json"]) == 0
    left_out = json.loads(capsys.readouterr().out)["left_out"]
    assert left_out["group/c"] == {"what": "float64 (3, 5)", "why": "it has 3 rows, not 4"}


def test_a_terminal_shows_groups_as_a_tree(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("recmap.cli.output.on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    with h5py.File("x.h5", "w") as file:
        file["a"], file["deep/er/b"], file["deep/c"] = np.zeros((4, 2)), np.zeros(4), np.zeros(3)
        file["last"] = np.zeros(4, "int16")
    assert main(["info", "x.h5"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[lines.index("column type notes") + 1 :] == [
        "├─ a float64[2] mapped in place",
        "├─ deep/",
        "│ ├─ er/",
        "│ │ └─ b float64 mapped in place",
        "│ └─ c float64 (3,) not a column: it has 3 rows, not 4",
        "└─ last int16 mapped in place",
    ]


def test_files_without_any_column_are_described(capsys: pytest.CaptureFixture[str]) -> None:
    with h5py.File("x.h5", "w") as file:
        file["one"] = 7.5
    zarr.create_group("x.zarr").create_array("one", shape=(), dtype="float32")
    h5py.File("empty.h5", "w").close()
    for name, told in {"x.h5": "float64 ()", "x.zarr": "float32 ()", "empty.h5": "no data"}.items():
        assert main(["info", name]) == 0
        out = capsys.readouterr().out
        assert out.startswith(f"{name}\n  format   ")
        assert told in out


def test_arrays_without_rows_are_described(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("one.npy", np.int32(7))
    np.save("objects.npy", np.array([{}, 1, "a"], object), allow_pickle=True)
    for name, line in (
        ("one.npy", "data int32 () holds a single value"),
        ("objects.npy", "data object (3,) holds Python objects"),
    ):
        assert main(["info", name]) == 0
        assert line in " ".join(capsys.readouterr().out.split())
        with pytest.raises(rm.DataError, match="holds"):
            rm.open(name)
    np.save("o-1.npy", np.arange(3))
    np.save("o-2.npy", np.int32(7))
    assert main(["info", "o-*.npy"]) == 1
    assert "o-2.npy: holds a single value" in capsys.readouterr().err


def test_records_that_are_no_examples_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    wire.write("raw.tfrecord", b"hello", b"hi", b"hey")
    assert main(["info", "raw.tfrecord"]) == 0
    out = capsys.readouterr().out
    assert "records  3 of 2 to 5 bytes, mean 3" in out
    assert "not a tf.train.Example" in out


def test_what_is_left_of_a_truncated_file_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    wire.write("x.tfrecord", *[wire.example(a=wire.int64_list(1))] * 3)
    os.truncate("x.tfrecord", Path("x.tfrecord").stat().st_size - 1)
    assert main(["info", "x.tfrecord"]) == 1
    out = capsys.readouterr().out
    assert "rows     2" in out
    assert "a  int64" in out
    assert "record 2 at byte " in out
    assert "this file is damaged" in out
    np.save("x.npy", np.zeros((100, 10)))
    os.truncate("x.npy", 4000)
    assert main(["info", "x.npy"]) == 1
    shown = capsys.readouterr()
    assert "size     4 kB (4,000 bytes)" in shown.out
    assert "(100, 10) of float64" in shown.err
    assert main(["info", "x.npy", "--json"]) == 1
    problem = json.loads(capsys.readouterr().out)["problem"]
    assert problem.endswith("but the file has 4,000, with 48 whole rows")
