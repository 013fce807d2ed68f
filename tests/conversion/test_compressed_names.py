"""Compressed TFRecord files are called .tfrecord.gz where recmap chooses the name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.cli import main


def data() -> rm.Dataset:
    return rm.from_arrays({"x": np.arange(100)})


def names(folder: str = "out") -> list[str]:
    return sorted(name for name in os.listdir(folder) if name[0] not in "._")


def read(path: str) -> list[int]:
    return sorted(rm.open(path)["x"][:].tolist())


def renamed_plainly(folder: str) -> None:
    """Make an output look like one of an older version, which called all files .tfrecord."""
    for path in sorted(Path(folder).glob("*.gz")):
        plain = path.with_suffix("")
        path.rename(plain)
        sidecar = path.with_name(f".{path.name}.recmap")
        if sidecar.exists():
            sidecar.rename(plain.with_name(f".{plain.name}.recmap"))
    manifest = Path(folder, "_manifest.json")
    manifest.write_text(manifest.read_text().replace(".tfrecord.gz", ".tfrecord"))


def test_compressed_shards_say_so_in_their_names() -> None:
    data().save("out/", compression="gzip", shards=2)
    assert names() == ["data-00000-of-00002.tfrecord.gz", "data-00001-of-00002.tfrecord.gz"]
    data().save("one/", compression="gzip")
    data().save("zlib/", compression="zlib")
    assert [names("one"), names("zlib")] == [["data.tfrecord.gz"], ["data.tfrecord.zlib"]]
    files = data().save("x.tfrecord", compression="gzip", shards=2).files
    assert files == ["x-00000-of-00002.tfrecord.gz", "x-00001-of-00002.tfrecord.gz"]
    files = data().save("y.tfrecord.gz", shards=2).files
    assert files == ["y-00000-of-00002.tfrecord.gz", "y-00001-of-00002.tfrecord.gz"]
    # A name that was given, and those of files that are not compressed as a whole, stay.
    assert data().save("z.tfrecord", compression="gzip").files == ["z.tfrecord"]
    data().save("h5/", format="hdf5", compression="gzip")
    assert names("h5") == ["data.h5"]
    for path in ("out/", "one/", "zlib/", "x-*.tfrecord.gz", "y-*", "z.tfrecord", "h5/"):
        assert read(path) == list(range(100))


def test_the_command_line_and_workers_give_the_same_names() -> None:
    np.save("x.npy", np.arange(100))
    command = ["convert", "x.npy", "out/", "--shards", "2", "--compression", "gzip"]
    assert main([*command, "--workers", "threads:2"]) == 0
    assert names() == ["data-00000-of-00002.tfrecord.gz", "data-00001-of-00002.tfrecord.gz"]
    assert rm.verify("out/").ok


def test_files_are_read_whatever_their_names_say() -> None:
    data().save("out/", compression="gzip")
    os.rename("out/data.tfrecord.gz", "plain.tfrecord")
    data().save("b.tfrecord")
    os.rename("b.tfrecord", "b.tfrecord.gz")
    assert read("plain.tfrecord") == read("b.tfrecord.gz") == list(range(100))


@pytest.mark.parametrize("shards", [None, 3])
def test_an_output_of_an_older_version_is_complete_as_it_is(shards: int | None) -> None:
    np.save("x.npy", np.arange(100))
    given: dict[str, Any] = {"compression": "gzip", "shards": shards}
    before = rm.convert("x.npy", "out/", **given)
    renamed_plainly("out")
    found = names()
    again = rm.convert("x.npy", "out/", **given)
    assert again.resumed == len(before.files)
    assert names() == found
    assert not any(name.endswith(".gz") for name in found)


def test_an_unfinished_output_of_an_older_version_is_resumed() -> None:
    np.save("x.npy", np.arange(100))
    given: dict[str, Any] = {"compression": "gzip", "shards": 3}
    rm.convert("x.npy", "out/", **given)
    renamed_plainly("out")
    manifest = Path("out/_manifest.json")
    content = json.loads(manifest.read_text())
    states = content.pop("states")
    content |= {"complete": False}
    manifest.write_text(json.dumps(content))
    done = Path("out/.._manifest.json.done-0123456789ab".replace("..", "."))
    done.write_text("".join(f"{json.dumps([n, *state])}\n" for n, state in enumerate(states[:2])))
    os.remove("out/data-00002-of-00003.tfrecord")
    for overwrite in (False, True):
        report = rm.convert("x.npy", "out/", overwrite=overwrite, **given)
        assert rm.open("out/")["data"][:].tolist() == list(range(100))
        assert len(names()) == 3
        if not overwrite:
            assert report.resumed == 2
            assert all(name.endswith(".tfrecord") for name in names())
    assert all(name.endswith(".tfrecord.gz") for name in names())


@pytest.mark.parametrize("manifest", [True, False])
@pytest.mark.parametrize("shards", [None, 2])
def test_rows_are_never_there_twice_under_two_names(manifest: bool, shards: int | None) -> None:
    data().save("out/", shards=shards)
    if not manifest:
        os.remove("out/_manifest.json")
    with pytest.raises(rm.OutputExistsError):
        data().save("out/", compression="gzip", shards=3)
    data().save("out/", compression="gzip", shards=3, overwrite=True)
    assert all(name.endswith(".tfrecord.gz") for name in names())
    assert read("out/") == list(range(100))
    data().save("out/", shards=2, overwrite=True)
    assert names() == ["data-00000-of-00002.tfrecord", "data-00001-of-00002.tfrecord"]
    assert read("out/") == list(range(100))
