"""Outputs: what is written appears on commit, all of it or nothing, on disk and in a store."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

import recmap as rm
from recmap.local.local_path import located
from recmap.local.location import Location
from recmap.local.output import Output, Spooler
from recmap.store.paths import as_location
from recmap.store.storage import Storage
from tests.buckets import Bucket


@pytest.fixture
def places(tmp_path: Path, bucket: Bucket) -> list[tuple[Location, bool]]:
    """Return folders on disk and in a store, and whether an output there must be seekable."""
    (tmp_path / "place").mkdir()
    disk = as_location(str(tmp_path / "place"))
    store = as_location(f"{bucket.url}/place/", "", Storage(bucket.storage))
    return [(disk, False), (store, False), (store, True)]


def beside(path: str) -> str:
    return located(path).sibling(f"{located(path).name}.note")


def note_size(data: str, path: str) -> None:
    located(beside(path)).write_whole(str(located(data).stat().size).encode())


def test_nothing_is_there_before_commit_or_after_abort(
    places: list[tuple[Location, bool]],
) -> None:
    for number, (place, seekable) in enumerate(places):
        file = place.child(f"{number}.bin")
        for ends in ("abort", "commit"):
            output = file.create(seekable=seekable, durable=False)
            output.accompany(beside, note_size)
            output.stream().write(b"abc")
            output.finish()
            output.finish()  # a second time changes nothing
            assert bool(output.path) == (seekable or os.path.isabs(file))
            assert not file.exists()
            assert not located(beside(file)).exists()
            getattr(output, ends)()
            assert not output.path or not os.path.exists(output.path)
        assert file.anew().text(9) == "abc"
        assert located(beside(file)).anew().text(9) == "3"
    assert sorted(os.listdir(places[0][0])) == ["0.bin", "0.bin.note"]


def test_leaving_the_context_commits_or_aborts(places: list[tuple[Location, bool]]) -> None:
    for number, (place, seekable) in enumerate(places):
        file = place.child(f"{number}.gz")
        with pytest.raises(KeyError), file.create(seekable=seekable) as output:
            output.stream("gzip").write(b"abc")
            raise KeyError
        assert not file.exists()
        with file.create(seekable=seekable) as output:
            output.stream("gzip").write(b"abc")
        assert gzip.decompress(file.anew().content() or b"") == b"abc"


def test_a_folder_appears_whole_and_replaces_another(tmp_path: Path) -> None:
    for text in ("old", "new"):
        output = located(str(tmp_path / "x.zarr/")).create()
        os.makedirs(os.path.join(output.path, "a", "b"))
        Path(output.path, "a", "b", text).write_text(text)
        assert os.path.exists(tmp_path / "x.zarr") == (text == "new")
        output.commit()
        assert os.listdir(tmp_path) == ["x.zarr"]
        assert os.listdir(tmp_path / "x.zarr" / "a" / "b") == [text]


def test_a_description_does_not_stay_if_its_file_gets_no_name(tmp_path: Path) -> None:
    output = located(str(tmp_path / "x.bin")).create()
    output.accompany(beside, note_size)
    output.stream().write(b"abc")
    output.accompany(lambda path: f"{path}.lost", _lose)
    with pytest.raises(rm.OutputError, match=r"x\.bin cannot be written: No such file"):
        output.commit()
    output.abort()
    assert os.listdir(tmp_path) == []


def _lose(data: str, path: str) -> None:
    """Write nothing, and remove the file that was to be renamed."""
    del path
    os.unlink(data)


def test_scratch_files_have_no_name_and_go_with_the_output(
    places: list[tuple[Location, bool]],
) -> None:
    for place, seekable in (places[0], places[2]):
        output = place.child("x.bin").create(seekable=seekable)
        spooler = Spooler()
        some, more = output.scratch(spooler), output.scratch(spooler)
        some.write(b"some")
        more.write(b"more")
        # The second is written here: the thread that both share has ended.
        for stream, wanted in ((some, b"some"), (more, b"more")):
            stream.finish()
            assert stream.reader().read() == wanted
        assert os.listdir(os.path.dirname(output.path)) == []
        output.abort()
        with pytest.raises(ValueError, match="closed"):
            some.reader()


def test_several_outputs_appear_together(places: list[tuple[Location, bool]]) -> None:
    for number, (place, seekable) in enumerate(places):
        files = [place.child(f"{number}-{i}.bin") for i in range(11)]
        outputs: list[Output] = []
        for i, file in enumerate(files):
            outputs.append(file.create(seekable=seekable, durable=False))
            outputs[i].accompany(beside, note_size)
            outputs[i].stream().write(b"." * i)
            outputs[i].finish()
        outputs[0].commit_all(outputs)
        assert [file.anew().stat().size for file in files] == list(range(11))
        notes = [located(beside(file)).anew().text(9) for file in files]
        assert notes == [str(i) for i in range(11)]


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        *("x.npy", "x.npz", "x.dat", "x.tfrecord", "x.h5", "x.zarr"),
        *("x.parquet", "x.arrow", "x.csv", "x.jsonl", "x.tar", "out/"),
    ],
)
def test_what_is_saved_is_on_disk_unless_durable_is_false(
    name: str, durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda file: synced.add(os.fstat(file).st_ino))
    rm.from_arrays({"x": np.arange(1000)}).save(name, options={"durable": durable})
    paths = [path for path in [Path(name), *Path(name).rglob("*")] if path.is_file()]
    # Not the manifest, which is always synced, nor the index, which can be made again.
    files = {path.stat().st_ino for path in paths if path.name[0] not in "._"}
    assert files
    assert files <= synced if durable else not files & synced
