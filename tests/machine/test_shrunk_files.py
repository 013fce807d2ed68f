"""A file that shrinks while it is open is an error, never a signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import recmap as rm
from tests.forked import run_program

pytestmark = pytest.mark.slow

ROWS = 4_000
X = np.arange(ROWS * 8, dtype=np.float32).reshape(ROWS, 8)
Y = np.arange(ROWS)
NAMES = {
    "npy": "d.npy",
    "structured": "d.npy",
    "raw": "d.bin",
    "npz": "d.npz",
    "deflated": "d.npz",
    "ragged": "d.npz",
    "contiguous": "d.h5",
    "chunked": "d.h5",
    "tfrecord": "d.tfrecord",
}
WAYS = {
    "row": "ds[3_000]",
    "slice": "measure(ds[10:3_500])",
    "gather": "ds[[1, 3_999, 5]]",
    "column": "np.asarray(ds[name]).sum()",
    "part of a column": "np.asarray(ds[name][3_500:]).sum()",
    "batches": "for batch in ds.batches(100): measure(batch)",
    "rows": "for row in ds: pass",
    "stats": "ds.stats()",
    "pipeline": "for batch in ds.batch(64): measure(batch)",
    "shuffled": "for batch in ds.shuffle(seed=1).batch(64): measure(batch)",
    "threads": "for batch in ds.map(same, workers='threads:2').batch(64): measure(batch)",
    "processes": "for batch in ds.map(same, workers=2).batch(64): measure(batch)",
    "convert": "rm.convert(ds, 'out.npz')",
    "shuffled convert": "ds.shuffle(seed=1).save('out.tfrecord')",
}
PROGRAM = """
import os, sys
import numpy as np
import recmap as rm

def same(row):
    return row

def measure(batch):
    for column in batch.values():
        np.asarray(column.values if isinstance(column, rm.Ragged) else column).sum()

path, size, ways = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
ds = rm.open(path, **({"dtype": "float32", "shape": (-1, 8)} if path.endswith("bin") else {}))
len(ds), ds[0]
name = next(iter(ds.schema))
held = ds[name]
os.truncate(path, size)
for way in ways:
    try:
        exec(way)
        print("read")
    except rm.DataError as e:
        print(e)
"""

# The same, but each read finds the file complete when it checks, and truncated afterwards.
AFTER_THE_CHECK = (
    PROGRAM.partition("path, size")[0]
    + """
import shutil
from unittest import mock
from recmap.machine.mapped import MappedFile

path, size, ways = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
for number, way in enumerate(ways):
    name = shutil.copy(path, f"{number}-{path}")
    ds = rm.open(name, **({"dtype": "float32", "shape": (-1, 8)} if path.endswith("bin") else {}))
    len(ds), ds[0]
    with (
        mock.patch.object(MappedFile, "check_size", lambda *args: None),
        mock.patch.object(MappedFile, "check_sizes", lambda *args, by_page=False: None),
    ):
        os.truncate(name, size)
        try:
            exec(way)
            print("read")
        except rm.DataError as e:
            print(e)
"""
)


def write(kind: str) -> str:
    path = NAMES[kind]
    if kind == "npy":
        np.save(path, X)
    elif kind == "structured":
        rows = np.zeros(ROWS, [("y", "i8"), ("x", "f4", 3)])
        np.save(path, rows)
    elif kind == "raw":
        X.tofile(path)
    elif kind == "npz":
        np.savez(path, x=X, y=Y)
    elif kind == "deflated":
        np.savez_compressed(path, x=X, y=Y)
    elif kind == "ragged":
        lengths = rm.Ragged(np.arange(2 * ROWS), np.arange(ROWS + 1) * 2)
        rm.from_arrays({"x": lengths}).save(path)
    elif kind == "tfrecord":
        rm.from_arrays({"x": X, "y": Y}).save(path)
    else:
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=X, chunks=(1000, 8) if kind == "chunked" else None)
            file["y"] = Y
    return path


def run(path: str, size: int, ways: list[str], program: str = PROGRAM) -> list[str]:
    done = run_program(program, path, str(size), *ways)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("kind", "size"), [*((kind, 3000) for kind in NAMES), ("npy", 0), ("tfrecord", 0)]
)
def test_a_truncated_file_is_an_error_in_every_read(kind: str, size: int) -> None:
    path = write(kind)
    before = os.path.getsize(path)
    said = run(path, size, list(WAYS.values()))
    shrank = f"{path}: the file shrank from {before:,} to {size:,} bytes while it was open"
    for way, line in zip(WAYS, said, strict=True):
        if way == "processes":  # they open the file themselves
            assert f"{path}: " in line, line
        else:
            assert line.startswith(shrank), (way, line)


@pytest.mark.parametrize("kind", [k for k in NAMES if k not in ("deflated", "chunked")])
def test_a_file_truncated_during_a_read_is_an_error(kind: str) -> None:
    path = write(kind)
    before = os.path.getsize(path)
    # Leave out the reads that return views of the file: measure() would touch those itself.
    ways = [WAYS[way] for way in ("gather", "stats", "shuffled", "convert", "shuffled convert")]
    shrank = f"{path}: the file shrank from {before:,} to 0 bytes while it was open"
    said = run(path, 0, ways, AFTER_THE_CHECK)
    for number, (way, line) in enumerate(zip(ways, said, strict=True)):
        # A conversion looks at its input before it reads it.
        converts = "convert" in way or ".save(" in way
        changed = f"{path}: was changed after it was opened" if converts else shrank
        assert line.startswith((f"{number}-{shrank}", f"{number}-{changed}")), (way, line)
    assert not Path("out.npz").exists()


def test_a_view_of_a_truncated_file_raises_a_bus_error() -> None:
    # Zeros would be worse: nobody would notice.
    done = run_program(PROGRAM, write("npy"), "0", "held.sum()")
    assert done.returncode == -signal.SIGBUS


@pytest.mark.parametrize("kind", ["npy", "npz", "contiguous", "tfrecord"])
def test_a_file_that_lost_its_last_bytes_is_an_error(kind: str) -> None:
    path = write(kind)
    before = os.path.getsize(path)
    (said,) = run(path, before - 1, ["ds[0:1]"])
    assert f"shrank from {before:,} to {before - 1:,} bytes" in said


@pytest.mark.parametrize("size", [0, 3200])
def test_workers_report_missing_rows(size: int) -> None:
    (said,) = run(write("raw"), size, [WAYS["processes"]])
    assert "d.bin: was changed after it was opened" in said


def test_one_truncated_file_of_several_is_named() -> None:
    for i in range(100):
        np.save(f"{i:03}.npy", np.arange(3))
    ds = rm.open("*.npy")
    assert len(ds) == 300
    assert ds[210]["data"] == 0
    os.truncate("070.npy", 140)
    assert ds[0]["data"] == 0
    with pytest.raises(rm.DataError, match="070.npy: the file shrank from 152 to 140 bytes"):
        ds[210]


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("lost", [1, 8_000])
def test_a_shuffle_over_several_files_names_the_one_that_shrank(verify: bool, lost: int) -> None:
    for i in range(3):
        rm.from_arrays({"x": np.arange(1000.0)}).save(f"{i}.tfrecord")
    size = os.path.getsize("1.tfrecord")
    ds = rm.open("?.tfrecord", verify=verify)
    order = np.random.default_rng(0).permutation(len(ds))
    assert np.array_equal(ds[order]["x"], order % 1000)
    os.truncate("1.tfrecord", size - lost)
    with pytest.raises(rm.DataError, match=f"1.tfrecord: the file shrank from {size:,} to"):
        ds[order]


def test_the_old_content_of_a_replaced_file_is_read() -> None:
    np.save("d.npy", X)
    ds = rm.open("d.npy")
    np.save("other.npy", X[:5])
    os.replace("other.npy", "d.npy")
    assert np.array_equal(ds[ROWS - 1]["data"], X[-1])
    os.unlink("d.npy")
    assert np.array_equal(ds[:]["data"], X)


def test_a_file_is_still_found_after_changing_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save("d.npy", X)
    ds = rm.open("d.npy")
    place = os.path.abspath("d.npy")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    np.save("d.npy", X[:5])
    assert np.array_equal(ds[ROWS - 1]["data"], X[-1])
    os.truncate(place, 200)
    with pytest.raises(rm.DataError, match="shrank from 128,128 to 200 bytes"):
        ds[0]


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel for single pages")
def test_a_file_that_was_renamed_and_truncated_is_an_error() -> None:
    np.save("d.npy", X)
    ds: Any = rm.open("d.npy")
    os.rename("d.npy", "e.npy")
    assert np.array_equal(ds[ROWS - 1]["data"], X[-1])
    os.truncate("e.npy", 3 * 4096 + 1)
    with pytest.raises(rm.DataError, match=r"d.npy: the file shrank from 128,128 to \d+,\d+ bytes"):
        ds[0]


ALONGSIDE = """
import os, sys, threading
import numpy as np
import recmap as rm

def cut_another(batch):
    # In the middle of the read of a good file, others run into a bad one, and handle that.
    for _ in range(2):
        bad = rm.open(np_file())
        held = rm.open({"x": bad["data"]})
        os.truncate(bad.files[0], 4096)
        def read():
            try:
                held[[0, 9_999]]
            except rm.DataError as e:
                told.append(str(e))
        if in_thread:
            thread = threading.Thread(target=read)
            thread.start()
            thread.join()
        else:
            read()
    return batch

def np_file():
    numbers.append(0)
    name = f"bad-{len(numbers)}.npy"
    np.save(name, np.zeros((10_000, 8)))
    return name

numbers = []
for in_thread in (False, True):
    for workers in (None, "threads:2"):
        told = []
        ds = rm.open(sys.argv[1]).map(cut_another, batched=True, workers=workers)
        rows = sum(len(next(iter(batch.values()))) for batch in ds.batch(1000))
        print(rows, len(told) > 0, all("bad-" in text for text in told))
"""


@pytest.mark.parametrize("kind", ["npy", "tfrecord"])
def test_a_good_file_is_not_blamed_for_a_bad_one(kind: str) -> None:
    done = run_program(ALONGSIDE, write(kind))
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert done.stdout.splitlines() == [f"{ROWS} True True"] * 4


@pytest.mark.parametrize("previous", ["nothing", "faulthandler before", "faulthandler after"])
def test_a_bus_error_sent_from_outside_ends_the_process(previous: str) -> None:
    enable = "import faulthandler; faulthandler.enable()"
    lines = [
        "import os, signal, sys, recmap as rm",
        enable if previous == "faulthandler before" else "",
        "ds = rm.open(sys.argv[1]); ds[0]",
        enable if previous == "faulthandler after" else "",
        "other = rm.open(sys.argv[1]); other[0]",
        "os.kill(os.getpid(), signal.SIGBUS)",
        "print('swallowed')",
    ]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines), write("npy")],
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGBUS, b"")
