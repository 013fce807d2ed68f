"""Locations: what can be done with a path on disk can be done with one in a store."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

import recmap as rm
from recmap.local.local_path import LocalPath, located
from recmap.local.location import Location
from recmap.store.object_path import ObjectPath
from recmap.store.paths import as_location
from recmap.store.storage import Storage
from tests.buckets import Bucket


@pytest.fixture
def places(tmp_path: Path, bucket: Bucket) -> list[Location]:
    """Return an empty folder on disk, and one in a store."""
    (tmp_path / "place").mkdir()
    storage = Storage(bucket.storage)
    return [as_location(str(tmp_path / "place")), as_location(f"{bucket.url}/place/", "", storage)]


def test_small_files_are_written_read_and_removed_alike(places: list[Location]) -> None:
    for place in places:
        file = place.child("x.json")
        assert not file.exists()
        assert not file.is_file()
        assert file.content() is None
        assert file.read_whole(10) is None
        assert file.stats([file]) == [None]
        file.write_whole(b"one")
        assert file.anew().exists()
        assert file.anew().stat().size == 3
        assert file.anew().text(3) == "one"
        assert file.anew().read_whole(2) is None
        with pytest.raises(ValueError, match="too many"):
            file.anew().text(2)
        file.sibling("y.json").write_whole(b"other")
        assert sorted(file.folder.children()) == ["x.json", "y.json"]
        file.remove()
        file.remove()  # what is gone stays gone
        assert file.folder.children() == ["y.json"]


def test_parts_of_files_are_read_alike(places: list[Location]) -> None:
    data = np.random.default_rng(1).bytes(100_000)
    for place in places:
        output, file = place.child("x.bin").create(durable=False), place.child("x.bin")
        output.stream().write(data)
        output.finish()
        assert not file.exists()
        output.commit()
        for in_order in (False, True):
            with file.anew().open(in_order=in_order) as opened:
                assert opened.size == len(data)
                assert opened.pread(10, 99_995) == data[99_995:]
                assert opened.pread_many([(5, 0), (7, 50_000)]) == [data[:5], data[50_000:50_007]]
        with file.anew().seekable() as seekable:
            seekable.seek(-3, os.SEEK_END)
            assert seekable.read(3) == data[-3:]
        mapped = file.anew().map()
        with mapped.hold(10, 20):
            assert mapped.bytes[10:20].tobytes() == data[10:20]
        assert file.anew().load(1 << 20).tobytes() == data


def test_a_text_is_changed_by_several_one_after_the_other(places: list[Location]) -> None:
    for place in places:
        file = place.child("count.txt")
        for _ in range(3):
            file.anew().update(lambda text: str(int(text or 0) + 1))
        assert file.anew().text(9) == "3"


def test_a_path_on_disk_is_text_for_everybody_else(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(3))
    text = str(tmp_path / "x.npy")
    path = LocalPath(text).found()
    assert path == text
    assert hash(path) == hash(text)
    assert (str(path), repr(path), f"{path}", json.dumps(path)) == (
        text,
        repr(text),
        text,
        json.dumps(text),
    )
    sent = pickle.loads(pickle.dumps(path))
    assert (sent, sent.state) == (path, path.state)
    assert located(path) is path
    assert [type(file) for file in rm.open(text).files] == [str]
    own = set(vars(Location)) | set(vars(LocalPath)) | set(vars(ObjectPath))
    assert {name for name in own & set(dir(str)) if not name.startswith("__")} == set()
    # Libraries take what has one of these for an open file.
    for place in (path, as_location("s3://bucket/x.npy")):
        assert not any(hasattr(place, name) for name in ("read", "write", "seek", "close"))
    np.testing.assert_array_equal(np.load(path), np.arange(3))
