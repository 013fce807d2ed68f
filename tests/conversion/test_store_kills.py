"""Conversions to a store that are killed at any moment, or run beside each other."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import recmap as rm
from tests.buckets import S3Bucket, as_written_locally
from tests.faulty_proxy import Status

pytestmark = pytest.mark.slow

SHARDS = 2
# Each shard has three parts of 5 MiB.
_PROGRAM = """
    import json, sys
    import recmap as rm
    from recmap.store import object_writer
    parts = object_writer.UploadParts(5 << 20, 2)
    for name in ("conversion.budget", "conversion.engine"):
        module = __import__("recmap." + name, fromlist=["choose_parts"])
        module.choose_parts = lambda *_: parts
    source, dst, storage, seed = json.loads(sys.argv[1])
    try:
        ds = rm.open(source)
        ds = ds if seed is None else ds.shuffle(seed=seed)
        print(ds.save(dst, shards=2, storage=storage))
    except rm.OutputExistsError as e:
        print("refused:", e)
        sys.exit(3)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "in.npy"
    np.save(path, np.random.default_rng(0).normal(size=(650, 5000)))
    return path


def _start(
    source: Path, bucket: S3Bucket, suffix: str, seed: int | None = None
) -> subprocess.Popen[str]:
    dst = f"{bucket.url}/d/x{suffix}"
    given = json.dumps([str(source), dst, bucket.storage, seed])
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(_PROGRAM), given],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _assert_complete(bucket: S3Bucket, folder: Path) -> None:
    wanted = {path.name: path.read_bytes() for path in folder.iterdir()}
    found = {
        key.removeprefix("d/"): as_written_locally(key, bucket.get(key))
        for key in bucket.keys()  # noqa: SIM118
    }
    assert sorted(found) == sorted(wanted)
    for name, data in wanted.items():
        if "manifest" not in name:
            assert found[name] == data, name
    manifest = next(data for name, data in found.items() if "manifest" in name)
    assert json.loads(manifest)["complete"] is True
    assert bucket.uploads() == []


def _kill_at(process: subprocess.Popen[str], bucket: S3Bucket, requests: int) -> None:
    """Kill a process once it has made this many requests, unless it ends before."""
    while len(bucket.proxy.requests) < requests:
        with contextlib.suppress(subprocess.TimeoutExpired):  # the proxy needs the time meanwhile
            process.wait(0.001)
            break
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


@pytest.mark.parametrize("suffix", [".tfrecord", ".h5"])
def test_a_killed_conversion_is_completed_by_the_next(
    bucket: S3Bucket, source: Path, tmp_path: Path, suffix: str
) -> None:
    rng = random.Random(suffix)
    (tmp_path / "d").mkdir()
    rm.convert(source, tmp_path / "d" / f"x{suffix}", shards=SHARDS)
    for _ in range(3):
        bucket.proxy.requests.clear()
        _kill_at(_start(source, bucket, suffix), bucket, rng.randrange(1, 30))
        shards = [key for key in bucket.keys() if key.endswith(suffix)]  # noqa: SIM118
        for key in shards:  # none is half written
            found = as_written_locally(key, bucket.get(key))
            assert found == (tmp_path / key).read_bytes()
    process = _start(source, bucket, suffix)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    _assert_complete(bucket, tmp_path / "d")


def test_parts_of_a_killed_conversion_are_aborted_by_the_next(
    bucket: S3Bucket, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "d").mkdir()
    rm.convert(source, tmp_path / "d/x.tfrecord", shards=SHARDS)
    process = _start(source, bucket, ".tfrecord")
    while process.poll() is None and not bucket.uploads():
        continue
    process.kill()
    process.communicate()
    assert bucket.uploads() != []
    rm.convert(source, f"{bucket.url}/d/x.tfrecord", shards=SHARDS, storage=bucket.storage)
    _assert_complete(bucket, tmp_path / "d")


@pytest.mark.parametrize("seed", [None, 5])
def test_of_two_conversions_at_once_exactly_one_wins(
    bucket: S3Bucket, source: Path, tmp_path: Path, seed: int | None
) -> None:
    """The second makes the same shards, or shards with the same names and other rows."""
    (tmp_path / "d").mkdir()
    processes = [_start(source, bucket, ".tfrecord", s) for s in (None, seed)]
    outputs = [""] * 2

    def wait(number: int) -> None:
        outputs[number] = processes[number].communicate(timeout=300)[0]

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    codes = [process.returncode for process in processes]
    # If one ends before the other begins, that finds the output of the first.
    same = seed is None and codes == [0, 0] and "already finished" in "".join(outputs)
    assert same or sorted(codes) == [0, 3], outputs
    winner_seed = (None, seed)[codes.index(0)]
    won = rm.open(source)
    won = won if winner_seed is None else won.shuffle(seed=winner_seed)
    won.save(tmp_path / "d/x.tfrecord", shards=SHARDS)
    _assert_complete(bucket, tmp_path / "d")
    if not same:
        refused = outputs[codes.index(3)]
        assert "is being written by process" in refused or "already exists" in refused


@pytest.mark.filterwarnings("ignore:the run lock:UserWarning")
@pytest.mark.filterwarnings("ignore:unfinished uploads:UserWarning")
@pytest.mark.parametrize(("version", "answered"), [(2, [20]), (3, [10, 18, 30])])
def test_half_a_zarr_store_is_never_read_as_a_whole_one(
    bucket: S3Bucket, version: int, answered: list[int]
) -> None:
    """A store that answers no more leaves what a killed process leaves."""
    storage = {**bucket.storage, "retries": 0}
    url = f"{bucket.url}/d/x.zarr"
    numbers = np.arange(4000)

    def save(rows: int, first: int, **options: Any) -> None:
        columns = {"x": numbers[:rows] + first, "words": [b"a" * (i % 5) for i in range(rows)]}
        more = {"version": version, "chunk_rows": 500, **options}
        rm.from_arrays(columns).save(url, overwrite=True, storage=storage, options=more)

    def seen() -> str:
        """Tell what recmap sees, and check what zarr sees."""
        copy = _downloaded(bucket)
        for path in ("x", "words/values", "words/offsets"):
            with contextlib.suppress(FileNotFoundError):
                array = zarr.open_array(str(copy), path=path, mode="r")
                files = [each for each in (copy / path).rglob("*") if each.is_file()]
                assert sum(each.name[0] not in "z." for each in files) == array.nchunks, path
        try:
            values = rm.open(url, storage=storage)[:]["x"]
        except rm.PathNotFoundError:
            return "none"
        assert np.array_equal(values, numbers + int(values[0]))
        return "old" if values[0] == 0 else "new"

    found = []
    for passed in answered:
        save(4000, 0)
        bucket.proxy.faults.extend([None] * passed + [Status(403)] * 500)
        with pytest.raises(rm.StoreError):
            save(4000, 10_000)
        bucket.proxy.faults.clear()
        found.append(seen())
    assert "none" in found
    # The next conversion, with other options, replaces what is left.
    save(4000, 10_000, chunk_rows=1000)
    assert seen() == "new"


def _downloaded(bucket: S3Bucket) -> Path:
    folder = Path("copy")
    shutil.rmtree(folder, ignore_errors=True)
    for key in bucket.keys():  # noqa: SIM118
        if key.startswith("d/x.zarr/"):
            target = folder / key.removeprefix("d/x.zarr/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(bucket.get(key))
    return folder
