"""Folders with some of the files of an output: of a killed conversion, or with shards missing."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests import command
from tests.buckets import Bucket

ROWS = 1000


def save(folder: str, shards: int = 5, **options: Any) -> None:
    rm.from_arrays({"x": np.arange(ROWS)}).save(folder, shards=shards, **options)


def interrupt(manifest: str) -> None:
    """Make the manifest that of a conversion which was killed."""
    path = Path(manifest)
    content = json.loads(path.read_text())
    del content["states"], content["rows"], content["bytes"]
    path.write_text(json.dumps({**content, "complete": False, "replaces": []}))


@pytest.mark.parametrize("format", ["tfrecord", "npy", "parquet", "zarr"])
def test_a_missing_shard_is_a_warning_that_names_it(format: str) -> None:
    save("out/", format=format)
    name = f"data-00003-of-00005.{format}"
    os.rename(f"out/{name}", "elsewhere")
    for path in ("out", "out/", f"out/*.{format}", f"**/*.{format}"):
        with pytest.warns(rm.MissingShardsWarning, match=f"out/{name}: no such .* 1 is missing"):
            assert len(rm.open(path)) == 800


def test_shards_of_other_programs_are_counted_by_their_names() -> None:
    for i, digest in enumerate("abcd"):
        np.save(f"train-{i:05}-of-00006-{digest}.npy", np.arange(3))
    with pytest.warns(rm.MissingShardsWarning, match=r"6 shards, of which 2 are missing"):
        rm.open("train-*")
    for name in ("u_{:05}-of-00012.npy", "v-{}-of-12.npy", "w_{:02}_of_12.npy"):
        for i in (0, 1, 9, 11):
            np.save(name.format(i), np.arange(3))
        lost = name.format(2)
        with pytest.warns(rm.MissingShardsWarning, match=f"^{lost}: .* 12 shards, of which 8 are"):
            rm.open(f"{name[0]}*.npy")
    for i in range(1, 4):  # counted from 1
        Path("b").mkdir(exist_ok=True)
        np.save(f"b/part-{i:05}-of-00003.npy", np.arange(3))
        np.save("b/other.npy", np.arange(3))
    assert len(rm.open("b")) == 12


def test_files_that_were_chosen_by_name_are_not_counted() -> None:
    save("out/")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(rm.open("out/data-0000[0-2]-of-00005.tfrecord")) == 600  # the others are there
        os.unlink("out/data-00004-of-00005.tfrecord")
        names = [f"out/data-0000{i}-of-00005.tfrecord" for i in range(4)]
        assert len(rm.open(names)) == 800
        assert len(rm.open(names[0])) == 200


def test_a_folder_whose_conversion_was_killed_is_not_opened() -> None:
    save("out/")
    interrupt("out/_manifest.json")
    what = "out/?: its conversion is not finished, says _manifest.json.* Run the same conversion"
    for read in (rm.open, rm.verify, rm.index, lambda path: rm.convert(path, "y.npy")):
        with pytest.raises(rm.UnfinishedOutputError, match=what):
            read("out/")
    with pytest.raises(rm.UnfinishedOutputError, match=what):
        rm.open({"x": "out"})
    failed = command.run("head", "out")
    assert failed.returncode == 1
    assert "its conversion is not finished" in failed.stderr
    assert "'out/data*.tfrecord'" in failed.stderr
    with pytest.warns(rm.MissingShardsWarning, match="out/_manifest.json: the conversion"):
        assert len(rm.open("out/data*.tfrecord")) == ROWS
    assert len(rm.open("out/data-00000-of-00005.tfrecord")) == 200


def test_shards_beside_other_files_are_not_taken_for_whole() -> None:
    np.save("a.npy", np.arange(3))
    save("x.npy", 3)
    interrupt(".x.npy.manifest.json")
    with pytest.raises(rm.UnfinishedOutputError, match=r"says \.x\.npy\.manifest\.json"):
        rm.open(".")
    with pytest.warns(rm.MissingShardsWarning, match="not finished"):
        rm.open("x-*.npy")
    assert len(rm.open("a.npy")) == 3
    assert len(rm.open("a*")) == 3


def test_a_split_that_was_being_replaced_is_not_opened() -> None:
    for split in ("train", "test"):
        save("set/1.0.0", 2, format="tfds", options={"name": "set", "split": split})
    interrupt("set/1.0.0/.set-train.tfrecord.manifest.json")
    with pytest.raises(rm.UnfinishedOutputError, match="set/1.0.0: its conversion"):
        rm.open("set/1.0.0", split="train")
    assert len(rm.open("set/1.0.0", split="test")) == ROWS


def test_the_next_conversion_replaces_an_unfinished_folder() -> None:
    save("out/")
    interrupt("out/_manifest.json")
    save("out/", 3, overwrite=True)
    assert len(rm.open("out/")) == ROWS
    assert sorted(os.listdir("out"))[-3:] == [f"data-0000{i}-of-00003.tfrecord" for i in range(3)]


def test_folders_in_a_store_are_looked_at_like_those_on_disk(bucket: Bucket) -> None:
    url, storage = f"{bucket.url}/out/", bucket.storage
    rm.from_arrays({"x": np.arange(ROWS)}).save(url, shards=3, storage=storage)
    assert len(rm.open(url, storage=storage)) == ROWS
    save("out/", 3)
    interrupt("out/_manifest.json")
    bucket.put("out/_manifest.json", Path("out/_manifest.json").read_bytes())
    with pytest.raises(rm.UnfinishedOutputError, match="out/: its conversion is not finished"):
        rm.open(url, storage=storage)
    with pytest.warns(rm.MissingShardsWarning, match="not finished"):
        rm.open(f"{url}*.tfrecord", storage=storage)
    bucket.delete("out/_manifest.json")
    bucket.delete("out/data-00001-of-00003.tfrecord")
    for path in (url, f"{url}data*"):
        with pytest.warns(rm.MissingShardsWarning, match="data-00001-of-00003.tfrecord: no such"):
            rm.open(path, storage=storage)
