"""Conversions lose no existing file, and mistake none for their own."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.forked import run_program


def hundred() -> rm.Dataset:
    return rm.from_arrays({"x": np.arange(100)})


def data_files(folder: str) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name[0] not in "._")


def test_a_folder_is_not_converted_into_itself() -> None:
    hundred().save("out/", shards=4)
    with pytest.raises(rm.OptionError, match="while it is read"):
        rm.convert("out/", "out/", shards=2, overwrite=True)
    assert rm.open("out/")[:]["x"].tolist() == list(range(100))


def test_a_zarr_store_inside_a_folder_does_not_touch_its_shards() -> None:
    hundred().save("out/", shards=4)
    hundred().save("out/x.zarr")
    manifest = Path("out/_manifest.json").read_bytes()
    hundred().save("out/x.zarr", overwrite=True)
    assert len(data_files("out")) == 5
    assert Path("out/_manifest.json").read_bytes() == manifest


@pytest.mark.parametrize(
    ("ds", "options"),
    [
        (hundred, {"options": {"nope": 1}}),
        (lambda: rm.from_batches([{"x": np.arange(3)}]), {"verify": "full"}),
        (lambda: rm.from_arrays({"x": rm.Ragged.from_rows([[1], [1, 2]])}), {}),
        (lambda: rm.from_arrays({"x": np.arange(1000)}).cast({"x": "int8"}), {}),
    ],
)
def test_an_old_file_stays_if_the_conversion_fails(ds: Any, options: dict[str, Any]) -> None:
    rm.from_arrays({"x": np.array([1000, 2000])}).save("d.npy")
    with pytest.raises(rm.RecmapError):
        ds().save("d.npy", overwrite=True, **options)
    assert np.load("d.npy").tolist() == [1000, 2000]


@pytest.mark.parametrize("name", ["..", ".", "", "../victim", "/victim"])
def test_a_forged_manifest_removes_nothing_outside_its_folder(name: str) -> None:
    os.makedirs("a/b")
    Path("a/victim").touch()
    hundred().save("a/b/", shards=2)
    content = json.loads(Path("a/b/_manifest.json").read_text())
    content["files"] = [{"file": name}]
    Path("a/b/_manifest.json").write_text(json.dumps(content))
    hundred().save("a/b/", shards=3, overwrite=True)
    assert Path("a/victim").exists()
    # The manifest no longer names the old shards, but the indexes beside them show who wrote them.
    assert len(data_files("a/b")) == 3


def test_old_shards_are_removed_with_their_descriptions() -> None:
    rm.from_arrays({"x": np.arange(9)}).save("out/", format="raw", shards=3)
    rm.from_arrays({"x": np.arange(9)}).save("out/", format="raw", shards=2, overwrite=True)
    assert data_files("out") == [
        f"data-0000{i}-of-00002.bin{end}" for i in range(2) for end in ("", ".recmap.json")
    ]


def test_a_conversion_of_rows_in_memory_is_never_resumed() -> None:
    np.save("a.npy", np.arange(4))
    rm.convert({"a": "a.npy", "y": np.zeros(4)}, "out/")
    with pytest.raises(rm.OutputExistsError):
        rm.convert({"a": "a.npy", "y": np.ones(4)}, "out/")
    rm.convert({"a": "a.npy", "y": np.ones(4)}, "out/", overwrite=True)
    assert rm.open("out/")[:]["y"].tolist() == [1.0] * 4


def test_another_column_of_the_same_file_is_a_different_conversion() -> None:
    np.savez("f.npz", a=np.zeros(4), b=np.ones(4))
    rm.convert({"x": rm.open("f.npz", fields=["a"])}, "out/")
    with pytest.raises(rm.OutputExistsError):
        rm.convert({"x": rm.open("f.npz", fields=["b"])}, "out/")


def test_many_threads_count_the_rows_of_many_files_once() -> None:
    for i in range(4):
        with rm.TFRecordWriter(f"{i}.tfrecord", index=False) as w:
            w.write({"x": np.arange(i * 30_000, (i + 1) * 30_000)})
    ds = rm.open("*.tfrecord")
    rows = np.array([5, 30_005, 60_005, 90_005])
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: ds[rows]["x"].tolist(), range(32)))
    assert found == [rows.tolist()] * 32


@pytest.mark.slow
def test_an_error_in_a_compressed_file_is_raised_every_time() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (8, 1 << 20), dtype=np.uint8)
    with rm.TFRecordWriter("x.tfrecord.gz", compression="gzip", index=False) as w:
        w.write({"x": noise})
    data = Path("x.tfrecord.gz").read_bytes()
    Path("x.tfrecord.gz").write_bytes(data[: 6 << 20])
    ds = rm.open("x.tfrecord.gz", fields={"x": f"uint8[{1 << 20}]"})
    for _ in range(3):
        with pytest.raises(rm.CompressionError):
            ds[0:8]
        with pytest.raises(rm.CompressionError):
            len(ds)
    assert np.array_equal(ds[0:2]["x"], noise[:2])


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (np.int64(2**63 - 1), "float64"),
        (np.uint64(2**64 - 1), "float64"),
        (np.int32(2**31 - 1), "float32"),
        (np.float64(2.0**63), "int64"),
        (np.float32(2.0**31), "int32"),
        (np.float64(-1.0), "uint8"),
        (np.float64("inf"), "int64"),
    ],
)
def test_a_cast_that_rounds_is_refused(value: Any, dtype: str) -> None:
    with pytest.raises(rm.FieldMismatchError, match="would lose values"):
        rm.from_arrays({"x": np.array([value])}).cast({"x": dtype}).save("x.npy")


def test_the_description_of_an_old_file_does_not_describe_the_new_one() -> None:
    hundred().save("foo", format="raw")
    hundred().save("foo", format="tfrecord", overwrite=True)
    assert rm.open("foo")[:]["x"].tolist() == list(range(100))


def killed(call: str) -> None:
    """Run a conversion in a process that is killed before it renames any file."""
    program = f"""
import os, signal
import recmap as rm
os.replace_, os.replace = os.replace, lambda a, b: (
    os.replace_(a, b) if "manifest" in b else os.kill(os.getpid(), signal.SIGKILL)
)
{call}
"""
    done = run_program(program)
    assert done.returncode == -signal.SIGKILL


def test_a_file_written_by_others_is_not_mistaken_for_a_finished_shard() -> None:
    np.save("s.npy", np.arange(10))
    killed('rm.convert("s.npy", "d.npy")')
    np.save("d.npy", np.arange(2))
    with pytest.raises(rm.OutputExistsError):
        rm.convert("s.npy", "d.npy")
    assert len(np.load("d.npy")) == 2
    rm.convert("s.npy", "d.npy", overwrite=True)
    assert len(np.load("d.npy")) == 10


def test_resuming_a_killed_shuffle_removes_its_buckets() -> None:
    hundred().save("s.tfrecord.gz")
    killed('rm.open("s.tfrecord.gz").shuffle(seed=1).save("out/", shards=2)')
    assert [name for name in os.listdir("out") if "shuffle" in name]
    rm.open("s.tfrecord.gz").shuffle(seed=1).save("out/", shards=2)
    left = [name for name in os.listdir("out") if name[0] == "." and not name.endswith(".recmap")]
    assert left == []


def test_batches_of_large_rows_are_read_one_by_one() -> None:
    taken: list[int] = []

    def batches() -> Any:
        for i in range(50):
            taken.append(i)
            yield {"x": [bytes(1 << 20)]}

    seen: list[int] = []
    rm.from_batches(batches()).save(
        "x.tfrecord", memory="20MB", progress=lambda _: seen.append(len(taken))
    )
    assert seen[0] < 10


def test_numpy_integers_are_accepted_as_options() -> None:
    hundred().save("s.npy")
    rows = slice(np.int64(0), np.int64(10))
    rm.open("s.npy").select(rows).shuffle(seed=np.int64(3)).save("o.tfrecord")  # type: ignore[arg-type]
    assert len(rm.open("o.tfrecord")) == 10


def test_two_threads_do_not_write_to_the_same_place() -> None:
    hundred().save("s.npy")
    errors: list[Exception] = []

    def again(_: Any) -> None:
        try:
            rm.convert("s.npy", "o.npy")
        except rm.OutputExistsError as e:
            errors.append(e)

    rm.convert("s.npy", "o.npy", progress=again)
    assert errors
    assert len(np.load("o.npy")) == 100


def test_a_disk_that_is_full_when_the_manifest_is_written_is_one_clear_error() -> None:
    program = """
import resource
import numpy as np
import recmap as rm
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
rm.from_arrays({"x": np.arange(3000)}).save("o/", shards=1000)
"""
    done = run_program(program)
    assert "recmap.errors.OutputError: the disk is full" in done.stderr
    assert os.listdir("o") == []


@pytest.mark.parametrize("name", ["out.npy", "out.npz", "out.bin", "out.tfrecord", "out.h5"])
def test_a_file_that_is_replaced_keeps_its_permissions_and_its_link(name: str) -> None:
    os.mkdir("elsewhere")
    target = f"elsewhere/{name}"
    rm.from_arrays({"x": np.arange(3)}).save(target)
    os.chmod(target, 0o640)
    os.symlink(target, name)
    rm.from_arrays({"x": np.arange(5)}).save(name, overwrite=True)
    assert os.path.islink(name)
    assert os.stat(target).st_mode & 0o777 == 0o640
    assert os.path.getsize(name) == os.path.getsize(target)
    assert rm.open(name)[:]["x"].tolist() == [0, 1, 2, 3, 4]
