"""``save(append=True)`` and ``recmap convert --append``: add files to a folder."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.buckets import Bucket
from tests.command import run

FORMATS = ["tfrecord", "npz", "npy", "parquet", "arrow", "hdf5", "zarr", "raw"]


def rows(start: int, stop: int) -> rm.Dataset:
    """Return numbered rows of a file, which a conversion knows again."""
    name = f"rows-{start}-{stop}.npz"
    if not os.path.exists(name):
        np.savez(name, data=np.arange(start, stop), y=np.arange(start, stop) / 2)
    return rm.open(name)


def numbers(path: Any, **options: Any) -> list[int]:
    found: list[int] = rm.open(path, **options)["data"][:].tolist()
    return found


@pytest.mark.parametrize("format", FORMATS)
def test_appended_rows_come_after_the_old_ones(format: str) -> None:
    one = ("npy", "raw")  # formats of one column
    old, more, last = (
        each.select("data") if format in one else each
        for each in (rows(0, 10), rows(10, 16), rows(16, 20))
    )
    old.save("out/", format=format, shards=3)
    before = {name: os.stat(Path("out", name)).st_mtime_ns for name in os.listdir("out")}
    for _ in range(2):  # the second time, everything is finished
        assert more.save("out/", append=True, shards=2).rows == 6
        assert numbers("out/") == list(range(16))
    last.save("out/", append=True)
    assert numbers("out/") == list(range(20))
    assert rm.open("out/").schema == old.schema
    for name, time in before.items():
        assert os.stat(Path("out", name)).st_mtime_ns == time  # no old file is touched
    assert rm.verify("out/") is not None
    old.save("out/", format=format, overwrite=True)
    assert numbers("out/") == list(range(10))
    assert not [name for name in os.listdir("out") if "append" in name]


def test_the_first_append_writes_the_folder() -> None:
    for _ in range(2):
        rows(0, 3).save("out/", append=True, format="npz")
        assert numbers("out/") == [0, 1, 2]
    rows(3, 5).save("out/", append=True)
    assert numbers("out/") == list(range(5))
    assert all(name.endswith((".npz", ".json")) for name in os.listdir("out"))


def test_rows_in_memory_are_appended_every_time() -> None:
    held = rm.from_arrays({"data": np.arange(2)})
    for count in range(1, 4):
        held.save("out/", append=True)
        assert numbers("out/") == [0, 1] * count
    rows(0, 2).select("data").save("out/", append=True)
    rows(0, 2).select("data").save("out/", append=True, resume=False)
    assert numbers("out/") == [0, 1] * 5


def test_other_columns_are_refused_by_name() -> None:
    ds = rows(0, 4)
    ds.save("out/", shards=2)
    for wrong, text in (
        (ds.cast({"y": "float32"}), "out/ has float64 in column 'y', and the new rows float32"),
        (ds.select("y"), "'data', which the new rows do not have"),
        (rm.zip(ds, ds.select("y").rename({"y": "z"})), "has no column 'z'"),
    ):
        with pytest.raises(rm.FieldMismatchError, match=text):
            wrong.save("out/", append=True)
    assert numbers("out/") == [0, 1, 2, 3]
    ds.select("y", "data").save("out/", append=True)  # the order is that of the folder
    assert rm.open("out/").columns == ["data", "y"]
    assert numbers("out/") == [0, 1, 2, 3] * 2
    wrong_calls: list[tuple[dict[str, Any], str]] = [
        ({"dst": "x.npz"}, "adds files to a folder"),
        ({"dst": "out/", "overwrite": True}, "give one of them"),
        ({"dst": "out/", "format": "npz"}, "has tfrecord files"),
    ]
    for wrong_call, text in wrong_calls:
        with pytest.raises(rm.OptionError, match=text):
            ds.save(**{"append": True, **wrong_call})


def test_a_column_that_may_hold_nulls_takes_one_that_does_not() -> None:
    nullable = rm.from_arrays({"data": np.ma.array([0, 1], mask=[False, True])})
    nullable.save("out/", format="parquet")
    rows(2, 4).select("data").save("out/", append=True)
    assert numbers("out/") == [0, None, 2, 3]


def test_files_of_others_stay_first() -> None:
    os.mkdir("out")
    np.savez("out/train-1.npz", data=np.arange(3))
    np.savez("out/train-2.npz", data=np.arange(3, 5))
    rows(5, 9).select("data").save("out/", append=True, shards=2)
    assert numbers("out/") == list(range(9))
    rows(9, 12).select("data").save("out/", append=True)
    assert numbers("out/") == list(range(12))
    Path("out/train-2_append00003.npz").write_bytes(b"mine")
    with pytest.raises(rm.RecmapError):
        rows(0, 1).select("data").save("out/", append=True)
    assert Path("out/train-2_append00003.npz").read_bytes() == b"mine"


def unfinish(folder: str) -> None:
    """Make the last append look as if it had been killed before its manifest was complete."""
    (path,) = Path(folder).glob(".data_append*.manifest.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "complete": False}))


def test_an_append_that_was_killed_is_not_read_and_resumes() -> None:
    rows(0, 4).save("out/", shards=2)
    rows(4, 10).save("out/", append=True, shards=3)
    unfinish("out")
    assert numbers("out/") == list(range(4))
    with pytest.warns(rm.MissingShardsWarning, match="not finished"):
        rm.open("out/*.tfrecord")
    rows(4, 10).save("out/", append=True, shards=3)
    assert numbers("out/") == list(range(10))
    assert len([n for n in os.listdir("out") if n.startswith("data_append")]) == 3
    unfinish("out")
    os.remove("out/data_append00001-00001-of-00003.tfrecord")
    assert numbers("out/") == list(range(4))
    rows(10, 12).save("out/", append=True)  # another one takes its place
    assert numbers("out/") == [*range(4), 10, 11]
    assert len([n for n in os.listdir("out") if n.startswith("data_append")]) == 1


def test_an_unfinished_folder_is_not_appended_to() -> None:
    rows(0, 4).save("out/", shards=2)
    manifest = Path("out/_manifest.json")
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "complete": False}))
    with pytest.raises(rm.UnfinishedOutputError):
        rows(4, 6).save("out/", append=True)


def test_only_one_of_two_appends_at_a_time_lands() -> None:
    rows(0, 4).save("out/")
    inside, leave = threading.Event(), threading.Event()

    def wait(_: Any) -> None:
        inside.set()
        leave.wait(60)

    first = threading.Thread(
        target=lambda: rows(4, 6).save("out/", append=True, shards=2, progress=wait)
    )
    first.start()
    assert inside.wait(60)
    both: list[dict[str, Any]] = [{"append": True}, {"overwrite": True}]
    for options in both:
        with pytest.raises(rm.OutputExistsError, match="another thread"):
            rows(6, 8).save("out/", **options)
    assert numbers("out/") == list(range(4))
    leave.set()
    first.join()
    rows(6, 8).save("out/", append=True)
    assert numbers("out/") == list(range(8))


def test_splits_by_hash_keep_every_old_row() -> None:
    ds = rows(0, 200)
    ds.save("out/")
    parts = {"train": 0.7, "val": 0.3}
    before = rm.open("out/").split(parts, by="data")
    rows(200, 300).save("out/", append=True, shards=2)
    for name, after in rm.open("out/").split(parts, by="data").items():
        found = after["data"][:].tolist()
        assert [x for x in found if x < 200] == before[name]["data"][:].tolist()
        assert any(x >= 200 for x in found)


def test_types_that_only_the_manifest_knows_are_those_of_the_old_files() -> None:
    first, second = (rows(*span).cast({"data": "uint8"}) for span in ((0, 4), (4, 6)))
    first.save("out/", options={"describe": False})
    second.save("out/", append=True, options={"describe": False})
    for index in Path("out").glob(".*.recmap"):
        index.unlink()
    assert rm.open("out/").schema == first.schema
    assert numbers("out/") == list(range(6))


def test_the_command_line_appends() -> None:
    rows(0, 3)
    rows(3, 5)
    for name in ("rows-0-3.npz", "rows-3-5.npz", "rows-3-5.npz"):
        assert run("convert", name, "out/", "--append").returncode == 0
    assert numbers("out/") == list(range(5))


def test_objects_in_a_store_are_appended(bucket: Bucket) -> None:
    url, storage = f"{bucket.url}/out/", bucket.storage
    rows(0, 4).save(url, shards=2, storage=storage)
    for _ in range(2):
        rows(4, 7).save(url, append=True, shards=2, storage=storage)
        assert numbers(url, storage=storage) == list(range(7))
    rows(7, 8).save(url, append=True, storage=storage)
    assert numbers(url, storage=storage) == list(range(8))
    rows(0, 2).save(url, overwrite=True, storage=storage)
    assert numbers(url, storage=storage) == [0, 1]
