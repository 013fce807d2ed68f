"""Temporary files: which process owns them, and who may remove them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import recmap as rm
from recmap.conversion.cleanup import clear_temporary
from recmap.local.temporary import (
    Process,
    acting_for,
    names_of,
    process_of,
    temporary_path,
    this_process,
)


def test_temporary_names_are_unique_and_identify_their_process() -> None:
    names = {temporary_path("out/x.npy") for _ in range(100)}
    assert len(names) == 100
    assert {process_of(name) for name in names} == {this_process()}
    other = Process("elsewhere", 17)
    with acting_for(other):
        assert process_of(temporary_path("x.npy")) == other
    assert process_of(temporary_path("x.npy")) == this_process()


def test_files_of_a_dead_process_are_removed_even_if_its_number_is_reused() -> None:
    # The parent process is running, but the file is from another machine.
    elsewhere = Process("elsewhere", os.getppid())
    with acting_for(elsewhere):
        left = temporary_path("x.npy")
    Path(left).touch()
    clear_temporary(["x.npy"])
    assert os.listdir() == []
    here = Process(this_process().machine, os.getppid())
    with acting_for(here):
        kept = temporary_path("x.npy")
    Path(kept).touch()
    with pytest.raises(rm.OutputExistsError, match=f"process {os.getppid()}"):
        clear_temporary(["x.npy"])
    clear_temporary(["x.npy"], here)  # this process acts for that one
    assert os.listdir() == []


def test_a_conversion_that_was_taken_over_commits_nothing() -> None:
    def take_over(_: object) -> None:
        for name in os.listdir("out"):
            if ".running." in name:
                os.unlink(f"out/{name}")

    with pytest.raises(rm.OutputExistsError, match="taken over"):
        rm.from_arrays({"x": np.arange(10)}).save("out/", progress=take_over)
    assert not [name for name in os.listdir("out") if name.endswith(".tfrecord")]


@pytest.mark.parametrize("purpose", ["", ".recmap", ".running", ".shuffle", ".write-0123456789ab"])
def test_temporary_files_of_an_output_with_a_longer_name_are_kept(purpose: str) -> None:
    own = temporary_path("a.tfrecord", purpose)
    Path(own).touch()
    other = temporary_path("a.tfrecord.gz", purpose)
    Path(other).touch()
    clear_temporary(["a.tfrecord", ".a.tfrecord.manifest.json"])
    assert os.listdir() == [other]


def test_a_truncated_description_is_removed_with_its_file() -> None:
    Path(temporary_path("x.bin.recmap.json")).touch()
    clear_temporary(["x.bin"])
    assert os.listdir() == []


def test_files_whose_names_share_a_prefix_are_written_at_once() -> None:
    def meanwhile(_: object) -> None:
        if not os.path.exists("a.tfrecord"):
            rm.from_arrays({"x": np.arange(5)}).save("a.tfrecord")

    rm.from_arrays({"x": np.arange(1000)}).save("a.tfrecord.gz", progress=meanwhile)
    assert len(rm.open("a.tfrecord")) == 5
    assert len(rm.open("a.tfrecord.gz")) == 1000


@pytest.mark.parametrize("end", ["fghij", "abcdE", "abcde.example.org", "abcd-e", "abcd_e"])
def test_hosts_with_similar_names_are_told_apart(end: str) -> None:
    program = f"""
import socket
socket.gethostname = lambda: "raycluster-prod-worker-group-{end}"
from recmap.local.temporary import temporary_path
print(temporary_path("x.npy"))
"""
    names = [
        subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, check=True
        ).stdout.strip()
        for text in (program, program.replace(end, "abcde"))
    ]
    one, other = map(process_of, names)
    assert one is not None
    assert other is not None
    assert one.machine != other.machine


@pytest.mark.parametrize("letter", ["x", "ä", "漢"])
@pytest.mark.parametrize("size", [180, 181, 214, 255])
def test_a_name_may_be_as_long_as_the_system_allows(letter: str, size: int) -> None:
    name = letter * ((size - 4) // len(letter.encode())) + ".npy"
    values = np.arange(10)
    rm.from_arrays({"data": values}).save(name)
    assert os.listdir() == [name]
    assert np.array_equal(np.load(name), values)


def test_temporary_files_of_long_names_are_removed_and_told_apart() -> None:
    one, other = "x" * 230 + "1.npy", "x" * 230 + "2.npy"
    for name in (one, f"{one}.recmap.json"):
        Path(temporary_path(name)).touch()
    Path(temporary_path(one, ".running")).touch()
    kept = temporary_path(other)
    Path(kept).touch()
    clear_temporary([one])
    assert os.listdir() == [kept]


def left_by(process: Process, path: str = "x.npy", purpose: str = "") -> str:
    with acting_for(process):
        left = temporary_path(path, purpose)
    Path(left).touch()
    return left


@pytest.fixture
def stranger() -> Iterator[int]:
    """Run a process unrelated to recmap, and return its number."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process.pid
        process.kill()


@pytest.mark.parametrize("purpose", ["", ".running", ".shuffle"])
def test_a_reused_process_number_does_not_protect_old_files(stranger: int, purpose: str) -> None:
    left_by(replace(this_process(), number=stranger), purpose=purpose)
    rm.from_arrays({"data": np.arange(3)}).save("x.npy")
    assert os.listdir() == ["x.npy"]


def test_a_process_number_from_before_a_reboot_does_not_count() -> None:
    left_by(Process(this_process().machine, os.getppid(), "01234567"))
    clear_temporary(["x.npy"])
    assert os.listdir() == []


def test_a_running_conversion_is_named_and_left_alone() -> None:
    program = (
        "import sys\nfrom recmap.local.temporary import temporary_path\n"
        "open(temporary_path('x.npy', '.running'), 'w').close()\nprint(flush=True)\n"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        (left,) = os.listdir()
        with pytest.raises(rm.OutputExistsError, match=f"written by process {other.pid}; wait"):
            clear_temporary(["x.npy"])
        assert os.listdir() == [left]
        other.kill()
        # The process has ended, but nobody has collected it, so its number is still in use.
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        clear_temporary(["x.npy"])
    assert os.listdir() == []


def test_advice_never_names_a_process_that_may_be_unrelated(stranger: int) -> None:
    # recmap 0.1 used such names.
    old = f".x.npy.running.{this_process().machine}-{stranger}-0123456789ab.tmp"
    Path(old).touch()
    with pytest.raises(rm.OutputExistsError, match="otherwise remove") as error:
        clear_temporary(["x.npy"])
    assert "stop" not in str(error.value)
    assert os.listdir() == [old]


@pytest.mark.parametrize("number", [0, 99_999_999, 10**17])
def test_files_of_an_older_version_are_removed_when_their_process_is_gone(number: int) -> None:
    old = f".x.npy.{this_process().machine}-{number}-0123456789ab.tmp"
    Path(old).touch()
    assert process_of(old) == Process(this_process().machine, number)
    clear_temporary(["x.npy"])
    assert os.listdir() == []


def test_files_of_an_older_version_under_this_process_number_are_removed() -> None:
    # This happens in containers, where the first process always has the number 1.
    Path(f".x.npy.{this_process().machine}-{os.getpid()}-0123456789ab.tmp").touch()
    clear_temporary(["x.npy"])
    assert os.listdir() == []


def test_a_fork_is_a_different_process() -> None:
    parent = this_process()
    child = os.fork()
    if child == 0:
        own = this_process()
        os._exit(0 if own.number == os.getpid() and own.started != parent.started else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_what_a_killed_call_left_is_removed_by_the_next_one() -> None:
    """Not what another process still writes."""
    dead = Process(this_process().machine, 2**22 + 5, "0" * 8)
    rm.tfrecord.write_records("in.tfrecord", [b"a"])

    def leave(*names: str) -> None:
        for process in (dead, this_process()):
            with acting_for(process):
                for name in names:
                    Path(temporary_path(name)).touch()

    leave("out.tfrecord", "other.tfrecord")
    rm.tfrecord.write_records("out.tfrecord", [b"a"])
    assert _owners() == {"out.tfrecord": 1, "other.tfrecord": 2}
    leave("out.tfrecord")
    rm.repair("in.tfrecord", "out.tfrecord", overwrite=True)
    assert _owners() == {"out.tfrecord": 2, "other.tfrecord": 2}
    leave("in.tfrecord.idx")
    rm.index("in.tfrecord", text=True)
    assert _owners()["in.tfrecord.idx"] == 1
    leave("data-00001-of-00007.npy", "dataset_info.json", "data.h5")
    rm.from_arrays({"x": [1, 2]}).save("data.npy", shards=2)
    left = _owners()
    assert [left[n] for n in ("data-00001-of-00007.npy", "dataset_info.json", "data.h5")] == [1] * 3


def _owners() -> Counter[str]:
    return Counter(min(names_of(n)) for n in os.listdir() if process_of(n) is not None)
