"""Conversions that are stopped by a kill, a full disk, an interrupt or a damaged row."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import recmap as rm
from tests.forked import run_program, start_program

pytestmark = pytest.mark.slow

ROWS, WIDTH, SHARDS = 50_000, 100, 7


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 MB of numbers."""
    path = tmp_path_factory.mktemp("source") / "x.npy"
    np.save(path, np.random.default_rng(0).random((ROWS, WIDTH), dtype=np.float32))
    return path


def call(source: Path, name: str, before: str = "", options: str = "") -> str:
    """Return a program that runs a conversion."""
    return f"""
import os, resource, signal, sys
import recmap as rm
{before}
report = rm.convert({str(source)!r}, {name!r}, shards={SHARDS}, memory="16MB", {options})
print(report.resumed)
"""


def run(program: str) -> str:
    """Run a program, and return what it prints."""
    done = run_program(program)
    assert done.returncode == 0, done.stderr
    return done.stdout


def digests(folder: Path) -> dict[str, str]:
    """Return the hash of every file, including hidden ones."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        # The index and the manifest hold the times of files.
        if path.is_file() and not path.name.endswith((".recmap", "manifest.json"))
    }


class Undisturbed:
    """Return the output of each conversion when nothing goes wrong, and how long it takes."""

    def __init__(self) -> None:
        self.digests: dict[str, dict[str, str]] = {}
        self.seconds: dict[str, float] = {}


@pytest.fixture(scope="module")
def undisturbed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    made = Undisturbed()
    for name in ("out/", "x.tfrecord.gz", "x.npy"):
        folder = tmp_path_factory.mktemp("undisturbed")
        begun = time.monotonic()
        with contextlib.chdir(folder):
            run(call(source, name))
        made.seconds[name] = time.monotonic() - begun
        made.digests[name] = digests(folder)
    return made


@pytest.mark.parametrize("name", ["out/", "x.tfrecord.gz", "x.npy"])
def test_a_conversion_killed_at_any_moment_resumes_with_the_same_bytes(
    name: str, source: Path, undisturbed: Undisturbed
) -> None:
    rng = random.Random(name)
    for _ in range(4):
        process = start_program(call(source, name))
        process.join(rng.uniform(0.1, 1) * undisturbed.seconds[name])
        if process.exitcode is None:
            process.kill()
            process.join()
            for path in Path().rglob("*.tfrecord"):  # a file with its final name is complete
                assert rm.verify(path).ok
        else:  # it was too fast: start again
            assert process.exitcode == 0
            assert digests(Path()) == undisturbed.digests[name]
            shutil.rmtree("out", ignore_errors=True)
            for path in Path().iterdir():
                path.unlink()
    run(call(source, name))
    assert digests(Path()) == undisturbed.digests[name]


def test_a_full_disk_is_one_clear_error_and_the_same_call_resumes(
    source: Path, undisturbed: Undisturbed
) -> None:
    # Limit files to 1.5 MB where 3 are needed. That is not a full disk, but the same error.
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, 1_500_000))"
    failed = run_program(call(source, "out/", limit))
    assert failed.returncode == 1
    assert "recmap.errors.OutputError: the disk is full" in failed.stderr
    assert "the same call" in failed.stderr
    assert digests(Path()) == {}
    run(call(source, "out/"))
    assert digests(Path()) == undisturbed.digests["out/"]


def test_an_interrupt_leaves_no_temporary_files_and_says_how_to_resume(
    source: Path, undisturbed: Undisturbed
) -> None:
    # Send the signal once a file is finished.
    watch = """
def watch(progress):
    if any(name.startswith("data-") for name in os.listdir("out")):
        os.kill(os.getpid(), signal.SIGINT)
"""
    stopped = run_program(call(source, "out/", watch, "progress=watch, workers=1"))
    assert stopped.returncode == -signal.SIGINT
    assert "KeyboardInterrupt: interrupted: " in stopped.stderr
    assert f"of {SHARDS} files are finished, and the same call resumes" in stopped.stderr
    assert not list(Path("out").glob("*.tmp"))
    assert not list(Path("out").glob(".*.tmp"))
    assert int(run(call(source, "out/"))) >= 1
    assert digests(Path()) == undisturbed.digests["out/"]


def test_an_error_in_the_middle_leaves_no_incomplete_file() -> None:
    rm.from_arrays({"x": np.arange(50_000)}).save("x.tfrecord", options={"index": False})
    data = bytearray(Path("x.tfrecord").read_bytes())
    data[-8] ^= 1
    Path("x.tfrecord").write_bytes(data)
    with pytest.raises(rm.CorruptRecordError, match="record 49,999"):
        rm.convert("x.tfrecord", "y.npy")
    assert os.listdir() == ["x.tfrecord"]
    with pytest.raises(rm.CorruptRecordError, match="record 49,999"):
        rm.convert("x.tfrecord", "out/", shards=3, workers=1)
    # Shards finished before the damage stay, and a second call resumes from them.
    assert sorted(p.name for p in Path("out").iterdir() if p.name[0] == "d") == [
        "data-00000-of-00003.tfrecord",
        "data-00001-of-00003.tfrecord",
    ]


def test_a_second_conversion_does_not_disturb_a_running_one(source: Path) -> None:
    wait = "def watch(progress): print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", call(source, "out/", wait, "progress=watch, workers=1")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        running.stdout.readline()  # it has begun
        with pytest.raises(rm.OutputExistsError, match=f"process {running.pid}"):
            rm.convert(source, "out/", shards=SHARDS, memory="16MB")
        running.communicate()
    assert running.returncode == 0
    assert len(rm.open("out/")) == ROWS
