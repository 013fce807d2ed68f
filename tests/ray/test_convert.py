"""Conversions on a Ray cluster of several nodes, some of which die."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import recmap as rm
from recmap.model.progress import Progress
from recmap.ray.cluster import Driver
from recmap.ray.parallel_index import find_records
from recmap.tfrecord.plain_file import PlainFile
from tests import command
from tests.frameworks import ray
from tests.jobs import alive, deadline, meanwhile, until

ROWS, SHARDS = 12_000, 6
# Slow to write, so that there is time to disturb it.
SLOW: dict[str, Any] = {"compression": "gzip", "options": {"level": 9}}


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    with deadline(120):
        yield


@pytest.fixture(scope="module")
def undisturbed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what the slow conversion writes in this process."""
    folder = tmp_path_factory.mktemp("undisturbed")
    rm.convert(source, folder / "x.h5", shards=SHARDS, **SLOW)
    return digests(folder)


def digests(folder: Path | str) -> dict[str, str]:
    """Return the hash of every file, including hidden ones."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(Path(folder).rglob("*"))
        # The index and the manifest hold the times of files.
        if path.is_file() and not path.name.endswith((".recmap", "manifest.json"))
    }


def manifest(path: str) -> dict[str, Any]:
    """Return a manifest without the times of files."""
    content: dict[str, Any] = json.loads(Path(path).read_text())
    content["states"] = [size for size, _ in content["states"]]
    return content


def both(src: Any, dst: str, **options: Any) -> rm.Dataset:
    """Run a conversion here and on the cluster, and compare the files."""
    rm.convert(src, f"local/{dst}", **options)
    report = rm.convert(src, f"ray/{dst}", engine="ray", **options)
    assert digests("local") == digests("ray")
    return rm.open(report.files)


@pytest.mark.usefixtures("cluster")
def test_workers_run_the_code_under_test() -> None:
    where = ray.remote(lambda: __import__("recmap").__file__)
    assert ray.get(where.remote()) == rm.__file__


@pytest.mark.parametrize("dst", ["out/", "x.tfrecord.gz", "x.npz", "x.h5", "x.zarr", "x.bin"])
@pytest.mark.usefixtures("cluster")
def test_the_files_match_those_of_the_local_engine(source: Path, dst: str) -> None:
    both(rm.open(source).take(6000), dst, shards=SHARDS)


@pytest.mark.usefixtures("cluster")
def test_the_manifest_matches_that_of_the_local_engine(source: Path) -> None:
    both(source, "out/", shards=SHARDS)
    assert manifest("local/out/_manifest.json") == manifest("ray/out/_manifest.json")
    # Either engine resumes what the other has started.
    assert rm.convert(source, "ray/out/", shards=SHARDS).resumed == SHARDS


@pytest.mark.parametrize(
    ("verbs", "options"),
    [
        (lambda ds: ds.select("data").select(slice(10, 9000, 3)).rename({"data": "x"}), {}),
        (lambda ds: ds.take(5000).cast({"data": "float64"}), {"verify": "full"}),
        (lambda ds: ds.take(10_000).shuffle(seed=3), {}),
        (
            lambda ds: ds,
            {"workers": 1, "verify": False, "options": {"durable": False}, "memory": "16MB"},
        ),
    ],
    ids=["chosen", "cast and verified", "shuffled", "one at a time"],
)
@pytest.mark.usefixtures("cluster")
def test_tasks_apply_the_verbs_of_rows_and_columns(
    source: Path, verbs: Callable[[rm.Dataset], rm.Dataset], options: dict[str, Any]
) -> None:
    both(verbs(rm.open(source)), "out/", shards=4, **options)


@pytest.mark.usefixtures("cluster")
def test_shuffling_a_compressed_file_gives_the_same_bytes_and_a_warning() -> None:
    words = [b"w" * (i % 50) for i in range(20_000)]
    rm.from_arrays({"word": words, "i": np.arange(20_000)}).save("x.tfrecord.gz")
    mixed = rm.open("x.tfrecord.gz").shuffle(seed=1)
    with pytest.warns(rm.SlowOrderWarning, match="x.tfrecord.gz: a compressed file cannot be spl"):
        shuffled = both(mixed, "out/", shards=3, memory="2MB")
    assert sorted(shuffled["i"][:].tolist()) == list(range(20_000))


@pytest.mark.usefixtures("cluster")
def test_rows_in_memory_are_sent_to_tasks() -> None:
    both(rm.from_arrays({"x": np.arange(1000), "s": [b"a"] * 1000}), "out/", shards=3)


@pytest.mark.usefixtures("cluster")
def test_nulls_stay_nulls_in_files_that_tasks_write() -> None:
    rows = {"x": [1, None, 3, None], "t": ["a", None, "", "d"], "l": [[1], None, [], [2, 3]]}
    rm.open(pa.table(rows)).save("x.parquet")
    ds = rm.open("x.parquet")
    ds.save("out/", format="parquet", shards=2, engine="ray")
    assert rm.open("out/").schema == ds.schema
    assert rm.diff("out/", ds).same


@pytest.mark.usefixtures("cluster")
def test_verbs_and_their_functions_are_sent_to_tasks() -> None:
    np.savez("x.npz", x=np.arange(9))
    ds = rm.open("x.npz")
    parts = ds.flat_map(lambda row: [{"x": row["x"] + i} for i in range(int(row["x"]) % 3)])
    chain = rm.concat(parts, ds.filter(lambda row: row["x"] > 4).map(lambda row: row))
    chain.save("out/", shards=2, engine="ray")
    assert rm.diff("out/", chain).same
    for _ in range(2):
        ds.save("out/", shards=2, engine="ray", append=True)
        assert len(rm.open("out/")) == len(chain) + 9


@pytest.mark.usefixtures("cluster")
def test_relative_paths_start_at_the_folder_of_the_driver(source: Path) -> None:
    os.symlink(source, "here.npy")
    assert rm.open("here.npy").save("there.npy", engine="ray").files == ["there.npy"]
    assert Path("there.npy").read_bytes() == source.read_bytes()


@pytest.mark.usefixtures("cluster")
def test_progress_counts_the_rows_of_all_tasks_while_they_run(source: Path) -> None:
    for _ in range(5):
        seen: list[Progress] = []
        rm.convert(
            source,
            "x.h5",
            shards=2,
            **SLOW,
            memory="2MB",
            engine="ray",
            overwrite=True,
            progress=seen.append,
        )
        rows = [progress.rows for progress in seen]
        assert rows == sorted(rows)
        assert rows[-1] == ROWS
        assert {progress.total_rows for progress in seen} == {ROWS}
        # Not only when a file is finished. On a busy machine, a report may come too late.
        if {count % (ROWS // 2) for count in rows} > {0}:
            return
    raise AssertionError("no task reported before its file was finished")


@pytest.mark.usefixtures("cluster")
def test_a_damaged_record_is_the_same_error_as_without_a_cluster() -> None:
    rm.from_arrays({"x": np.arange(50_000)}).save("x.tfrecord", options={"index": False})
    data = bytearray(Path("x.tfrecord").read_bytes())
    data[-8] ^= 1
    Path("x.tfrecord").write_bytes(data)
    errors = []
    for engine in ("local", "ray"):
        with pytest.raises(rm.CorruptRecordError) as raised:
            rm.convert("x.tfrecord", f"{engine}.npy", engine=engine)
        errors.append(raised.value)
        assert not list(Path().glob("*.npy"))
        assert not list(Path().glob(".*.tmp"))
    local, remote = errors
    assert type(remote) is type(local)
    assert str(remote) == str(local).replace("local.npy", "ray.npy")
    assert (remote.file, remote.record, remote.byte) == ("x.tfrecord", 49_999, local.byte)


@pytest.mark.usefixtures("cluster")
def test_an_input_that_changes_meanwhile_is_an_error_as_without_a_cluster() -> None:
    np.save("x.npy", np.zeros((ROWS, 64), np.float32))
    np.save("y.npy", np.ones((ROWS, 64), np.float32))

    def rewrite(_: Progress) -> None:
        with open("x.npy", "r+b") as file:  # which never shrinks
            file.write(Path("y.npy").read_bytes())

    with pytest.raises(rm.FileChangedError, match=r"x\.npy"):
        rm.convert("x.npy", "out/x.h5", shards=SHARDS, engine="ray", progress=rewrite, **SLOW)


@pytest.mark.usefixtures("cluster")
def test_after_an_error_the_other_tasks_are_stopped(source: Path) -> None:
    rm.from_arrays({"x": np.arange(ROWS)}).save("y.tfrecord", options={"index": False})
    data = bytearray(Path("y.tfrecord").read_bytes())
    data[8 + 4 + 3] ^= 1
    Path("y.tfrecord").write_bytes(data)
    ds = rm.open({"data": source, "x": rm.open("y.tfrecord", {"x": "int64"})})
    with pytest.raises(rm.CorruptRecordError, match="record 0 "):
        ds.save("x.h5", shards=3, **SLOW, engine="ray")
    assert not list(Path().glob(".*.tmp"))


@pytest.mark.parametrize("shards", [1, SHARDS])
@pytest.mark.usefixtures("cluster")
def test_a_conversion_that_was_taken_over_says_so(source: Path, shards: int) -> None:
    def take_over(_: Progress) -> None:
        for lock in Path("out").glob(".*.running.*"):
            lock.unlink()

    with pytest.raises(rm.OutputExistsError, match="taken over"):
        rm.convert(
            source,
            "out/x.h5",
            shards=shards,
            **SLOW,
            engine="ray",
            progress=take_over,
            workers=1,
        )
    assert len(list(Path("out").glob("*.h5"))) < shards


# Processes that die.


def writer(folder: Path, among: Callable[[int], bool] = lambda _: True) -> int | None:
    """Suspend a process that is writing a shard to a folder, and return its number."""
    for process in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        if not among(process) or _writing(process, folder) is None:
            continue
        os.kill(process, signal.SIGSTOP)
        until(lambda: _state(process) in "TZX")  # noqa: B023 - called at once
        # It may have finished just before.
        if _writing(process, folder) is not None:
            return process
        os.kill(process, signal.SIGCONT)
    return None


def _writing(process: int, folder: Path) -> str | None:
    """Return the unfinished file that a process has open."""
    try:
        for link in os.listdir(f"/proc/{process}/fd"):
            path = os.readlink(f"/proc/{process}/fd/{link}")
            if os.path.dirname(path) == str(folder.resolve()) and path.endswith(".tmp"):
                return path
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return None  # it is gone, or not ours
    return None


def _state(process: int) -> str:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def _parent(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def is_task(process: int) -> bool:
    """Return whether a process is a worker, and not the driver."""
    return process != os.getpid() and _parent(process) != os.getpid()


@pytest.mark.usefixtures("cluster")
def test_a_killed_worker_does_not_change_the_output(
    source: Path, undisturbed: dict[str, str]
) -> None:
    killed: list[int] = []
    here = Path.cwd()

    def found() -> bool:
        process = writer(here, is_task)
        killed.extend([process] if process else [])
        return process is not None

    with meanwhile(found, lambda: os.kill(killed[0], signal.SIGKILL)):
        report = rm.convert(source, "x.h5", shards=SHARDS, **SLOW, engine="ray")
    assert report.rows == ROWS
    assert not alive(killed[0])
    # Nothing that it wrote is left behind.
    assert digests(here) == undisturbed


def test_a_dead_node_does_not_change_the_output(
    cluster: Any, source: Path, undisturbed: dict[str, str]
) -> None:
    # Not the driver's own node: the driver would die as well.
    mine = ray.get_runtime_context().get_node_id()
    others = [node for node in cluster.homes if node.node_id != mine]
    nodes = {node.all_processes["raylet"][0].process.pid: node for node in others}
    here, stopped, died = Path.cwd(), list[int](), list[Any]()

    def found() -> bool:
        process = writer(here, lambda process: _parent(process) in nodes)
        stopped.extend([process] if process else [])
        return process is not None

    def die() -> None:
        died.append(nodes[_parent(stopped[0])])
        cluster.kill_node(died[0])
        with suppress(ProcessLookupError):  # older releases of Ray leave it there
            os.kill(stopped[0], signal.SIGKILL)

    with meanwhile(found, die):
        report = rm.convert(source, "x.h5", shards=SHARDS, **SLOW, engine="ray")
    assert report.rows == ROWS
    assert not alive(stopped[0])
    assert digests(here) == undisturbed
    cluster.start_node()


def driver(cluster: Any, source: Path) -> list[str]:
    """Return the command of a separate driver."""
    program = f"""
import recmap as rm
rm.convert({str(source)!r}, "x.h5", shards={SHARDS}, **{SLOW},
           engine={"ray:" + cluster.address!r})
"""
    return [sys.executable, "-c", program]


def finished() -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in Path().glob("x-*.h5")}


def test_a_killed_driver_resumes(cluster: Any, source: Path, undisturbed: dict[str, str]) -> None:
    here, before = Path.cwd(), dict[str, int]()
    for _ in range(5):
        with subprocess.Popen(driver(cluster, source)) as process:
            until(lambda: len(finished()) > 0 and any(Path().glob(".x-*.tmp")))
            process.kill()
        before = finished()
        if len(before) < SHARDS:
            break
        for path in [*Path().iterdir()]:  # it was faster than the kill
            path.unlink()
    assert 0 < len(before) < SHARDS
    report = rm.convert(source, "x.h5", shards=SHARDS, **SLOW, engine="ray")
    assert report.resumed >= len(before)
    assert before.items() <= finished().items()  # not written again
    assert digests(here) == undisturbed


def interrupted(command: list[str]) -> tuple[int, str]:
    """Interrupt a driver that has written some files; return its exit code and what it said."""
    code, said = 0, ""
    for _ in range(5):
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            until(lambda: len(finished()) > 0 and any(Path().glob(".x-*.tmp")))
            process.send_signal(signal.SIGINT)
            _, said = process.communicate()
        code = process.returncode
        if code != 0:
            break
        for name in finished():  # it was faster than the signal
            os.unlink(name)
    return code, said


def test_an_interrupt_stops_the_tasks_and_says_how_to_resume(
    cluster: Any, source: Path, undisturbed: dict[str, str]
) -> None:
    code, said = interrupted(driver(cluster, source))
    assert code == -signal.SIGINT, said
    assert f"of {SHARDS} files are finished, and the same call resumes" in said
    assert not list(Path().glob(".x-*.tmp"))
    rm.convert(source, "x.h5", shards=SHARDS, **SLOW, engine="ray")
    assert digests(Path.cwd()) == undisturbed


# Refused before anything is done.


# Finding the records of one file.


@pytest.mark.parametrize("nested", [False, True], ids=["plain", "holding records"])
@pytest.mark.usefixtures("cluster")
def test_all_nodes_find_the_records_of_one_file(nested: bool) -> None:
    words = [bytes(i % 97) for i in range(3000)]
    if nested:
        rm.tfrecord.write_records("inner.tfrecord", words[:200])
        words = [Path("inner.tfrecord").read_bytes()] * 20 + words
    rm.from_arrays({"word": words}).save("x.tfrecord", options={"index": False})
    local = PlainFile("x.tfrecord", verify=True)
    source = rm.open("x.tfrecord")._source
    find_records(ray, Driver.here(), source, span_bytes=10_000)
    (shard,) = source.facts.record_files
    assert shard.known_count() == local.count() == len(words)
    rows = np.arange(local.count())
    data = np.fromfile("x.tfrecord", np.uint8)
    assert np.array_equal(
        shard.index.offsets(data, rows, 1)[0], local.index.offsets(data, rows, 1)[0]
    )
    assert shard.index.longest == local.index.longest


# From the command line.


def test_recmap_convert_finds_the_cluster_like_ray_does(cluster: Any, source: Path) -> None:
    args = ["convert", str(source), "out/", "--explain", "--ray"]
    done = command.run_in_new_interpreter(*args, env={"RAY_ADDRESS": cluster.address})
    assert done.returncode == 0, done.stderr
    assert "a Ray task for each file, on 2 nodes with 2 CPUs: --shards 2 or more" in done.stdout
    assert f"{ROWS:,} rows in out/data.tfrecord" in done.stdout
    assert done.stderr == ""
    assert len(rm.open("out/")) == ROWS
