"""The command line, run for real."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import recmap as rm
from recmap.cli import main
from tests import wire


def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write({"x": np.zeros((3, 4), np.float32), "t": [b"a", b"bcd", b""]})
    assert main(["info", "x.tfrecord"]) == 0
    out = capsys.readouterr().out
    assert "rows     3" in out
    assert "x  float32[4]" in out


def test_info_with_types_for_raw_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    wire.write("x.tfrecord", wire.example(d=wire.bytes_list(bytes(40))))
    assert main(["info", "x.tfrecord", "--field", "d=float32[10]"]) == 0
    assert "d  float32[10]  (mapped in place)" in capsys.readouterr().out


def test_index_and_verify(capsys: pytest.CaptureFixture[str]) -> None:
    wire.write("x.tfrecord", *[wire.example(a=wire.int64_list(1))] * 3)
    assert main(["index", "x.tfrecord"]) == 0
    assert main(["index", "--text", "x.tfrecord"]) == 0
    assert capsys.readouterr().out.split() == [".x.tfrecord.recmap", "x.tfrecord.idx"]
    assert main(["verify", "x.tfrecord"]) == 0
    assert "3 sound records, 0 damaged" in capsys.readouterr().out


def test_verify_lists_damage_and_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    frame = wire.frame(wire.example(a=wire.int64_list(1)))
    bad = bytearray(frame * 4)
    bad[len(frame) + 13] ^= 1
    bad[2 * len(frame) + 1] ^= 1
    Path("x.tfrecord").write_bytes(bad)
    assert main(["verify", "x.tfrecord"]) == 1
    out = capsys.readouterr().out
    assert f"x.tfrecord: record 1 at byte {len(frame)}: data CRC" in out
    assert f"x.tfrecord: record 2 at byte {2 * len(frame)}: length CRC" in out
    assert "2 sound records, 2 damaged" in out


def test_errors_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "nope.tfrecord"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("recmap info: nope.tfrecord: no such file or folder")
    assert error.count("\n") == 1
    with pytest.raises(rm.PathNotFoundError):
        main(["--debug", "info", "nope.tfrecord"])
    wire.write("raw.tfrecord", b"hello")
    assert main(["info", "raw.tfrecord"]) == 1


@pytest.mark.parametrize("verb", ["info", "index", "verify"])
def test_every_verb_has_help_with_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main([verb, "--help"])
    assert done.value.code == 0
    assert "examples:" in capsys.readouterr().out


def test_wrong_usage_exits_with_2() -> None:
    for argv in ([], ["nope"], ["info"]):
        with pytest.raises(SystemExit) as done:
            main(argv)
        assert done.value.code == 2


def test_python_dash_m() -> None:
    wire.write("x.tfrecord", wire.example(a=wire.int64_list(1)))
    run = subprocess.run(
        [sys.executable, "-m", "recmap", "verify", "x.tfrecord"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "1 sound records" in run.stdout
