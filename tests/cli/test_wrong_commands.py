"""A mistake in a command is an error that names it, in one line."""

from __future__ import annotations

import numpy as np
import pytest

import recmap as rm
from recmap.cli import main

COMMANDS = [
    "info no.npy",
    "info x.npy --dtype bogus",
    "info x.bin --dtype ,",
    "info x.bin --dtype 1,a",
    "info x.bin --dtype \udc80",
    "repair x.tfrecord y.tfrecord --report a\0b",
    "info x.bin --dtype f4 --shape a",
    "info x.npy --format bogus",
    "head x.npy -n -1",
    "head x.npy --field z",
    "stats no.npy",
    "schema no.npy",
    "convert x.npy y.bogus",
    "convert x.npy y.npy --shards 0",
    "convert x.npy y.npy --workers -1",
    "convert x.npy y.npy --memory lots",
    "convert x.npy y.npy --cast data=V4",
    "convert x.npy y.npy --cast data",
    "convert x.npy y.npy --rows a:b",
    "convert x.npy y.npy --columns z",
    "convert x.npy y.tfrecord --option compresion=gzip",
    "convert x.npy y.h5 --option chunk_rows=a",
    "convert x.npy y.tfrecord --align 3",
    "index no.tfrecord",
    "verify no.tfrecord",
    "verify x.tfrecord --workers 0",
    "repair no.tfrecord y.tfrecord",
    "bench x.npy --batch 0",
    "tune x.npy --batch 0",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_command_is_an_error_in_one_line(
    command: str, capfd: pytest.CaptureFixture[str]
) -> None:
    np.save("x.npy", np.arange(6))
    np.arange(6, dtype="float32").tofile("x.bin")
    with rm.TFRecordWriter("x.tfrecord") as writer:
        writer.write({"x": np.arange(6)})
    assert main(command.split()) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(f"recmap {command.split(maxsplit=1)[0]}: ")
    assert err.count("\n") == 1
