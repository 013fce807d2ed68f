"""overwrite=True replaces what recmap wrote, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

import recmap as rm
from recmap.local.temporary import temporary_path

FORMATS = {
    "tfrecord": "x.tfrecord",
    "npy": "x.npy",
    "npz": "x.npz",
    "hdf5": "x.h5",
    "zarr": "x.zarr",
    "raw": "x.bin",
}


def ten() -> rm.Dataset:
    return rm.from_arrays({"x": np.arange(10)})


def tree(folder: str) -> dict[str, bytes]:
    """Return every file in a folder, and its content."""
    found = {}
    for at, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(at, name)
            found[path] = Path(path).read_bytes()
    return found


def a_folder_of_notes() -> None:
    os.makedirs("x.zarr/sub")
    Path("x.zarr/notes.txt").write_text("mine")
    Path("x.zarr/sub/thesis.tex").write_text("mine")


def a_store_of_others() -> None:
    zarr.create_group("x.zarr").create_array("a", data=np.arange(3))


def a_store_of_others_of_version_2() -> None:
    zarr.save_array("x.zarr", np.arange(3), zarr_format=2)


def a_file_beside_the_arrays() -> None:
    ten().save("x.zarr")
    Path("x.zarr/README.md").write_text("mine")


def a_file_inside_an_array() -> None:
    ten().save("x.zarr")
    Path("x.zarr/x/README.md").write_text("mine")


def a_file_among_the_chunks() -> None:
    ten().save("x.zarr")
    Path("x.zarr/x/c/notes").write_text("mine")


def a_file_among_chunks_of_version_2() -> None:
    ten().save("x.zarr", options={"version": 2})
    Path("x.zarr/x/0.txt").write_text("mine")


def another_array() -> None:
    ten().save("x.zarr")
    zarr.open_group("x.zarr").create_array("more", data=np.arange(3))


def another_group() -> None:
    ten().save("x.zarr")
    zarr.open_group("x.zarr").create_group("deep/er").create_array("more", data=np.arange(3))


def another_attribute() -> None:
    ten().save("x.zarr")
    zarr.open_group("x.zarr").attrs["measured"] = "in May"


def an_attribute_of_an_array() -> None:
    ten().save("x.zarr")
    zarr.open_group("x.zarr")["x"].attrs["unit"] = "metres"


def an_attribute_of_an_array_of_version_2() -> None:
    ten().save("x.zarr", options={"version": 2})
    zarr.open_group("x.zarr")["x"].attrs["unit"] = "metres"


def an_empty_folder_inside() -> None:
    ten().save("x.zarr")
    os.mkdir("x.zarr/later")


def a_link_inside() -> None:
    ten().save("x.zarr")
    Path("elsewhere").write_text("mine")
    os.symlink("../elsewhere", "x.zarr/.zattrs")


def a_store_whose_description_is_damaged() -> None:
    ten().save("x.zarr")
    Path("x.zarr/zarr.json").write_text("{")


CASES: list[Callable[[], None]] = [
    a_folder_of_notes,
    a_store_of_others,
    a_store_of_others_of_version_2,
    a_file_beside_the_arrays,
    a_file_inside_an_array,
    a_file_among_the_chunks,
    a_file_among_chunks_of_version_2,
    another_array,
    another_group,
    another_attribute,
    an_attribute_of_an_array,
    an_attribute_of_an_array_of_version_2,
    an_empty_folder_inside,
    a_link_inside,
    a_store_whose_description_is_damaged,
]


@pytest.mark.parametrize("case", CASES)
def test_a_folder_with_foreign_files_is_not_replaced(case: Callable[[], None]) -> None:
    case()
    before = tree(".")
    with pytest.raises(rm.OutputExistsError, match="x.zarr is not replaced"):
        ten().save("x.zarr", overwrite=True)
    assert tree(".") == before


def nested() -> rm.Dataset:
    return rm.from_arrays(
        {
            "a/b": np.arange(10),
            "text": [b"a" * i for i in range(10)],
            "lists": rm.Ragged.from_rows([np.arange(i) for i in range(10)]),
            "wide": np.zeros((10, 3, 2), np.float32),
            "we:ird": np.arange(10),
        }
    )


@pytest.mark.parametrize("version", [2, 3])
def test_a_store_that_recmap_wrote_is_replaced(version: int) -> None:
    for compression in ("zstd", "none"):
        options = {"version": version, "chunk_rows": 3}
        nested().save("x.zarr", compression=compression, options=options, overwrite=True)
        assert rm.open("x.zarr")[:]["a/b"].tolist() == list(range(10))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # version 3 does not specify it yet
        zarr.consolidate_metadata("x.zarr")
    nested().save("x.zarr", overwrite=True)
    assert sorted(os.listdir()) == ["x.zarr"]
    os.mkdir("empty.zarr")
    nested().save("empty.zarr", overwrite=True)
    assert len(rm.open("empty.zarr")) == 10


def test_a_file_added_to_a_store_during_the_conversion_stops_its_replacement() -> None:
    ten().save("x.zarr")

    def batches() -> Any:
        yield {"x": np.arange(3)}
        Path("x.zarr/README").write_text("mine")

    with pytest.raises(rm.OutputExistsError, match="README"):
        rm.from_batches(batches()).save("x.zarr", overwrite=True)
    assert Path("x.zarr/README").read_text() == "mine"
    assert rm.open("x.zarr")[:]["x"].tolist() == list(range(10))


@pytest.mark.parametrize("format", FORMATS)
def test_other_files_in_the_folder_stay(format: str) -> None:
    suffix = FORMATS[format][1:]
    ten().save("out/", format=format, shards=4)
    others = ["README", f"precious{suffix}", f"data-1-of-3{suffix}", ".hidden", f"data.old{suffix}"]
    for name in others:
        Path("out", name).write_text("mine")
    ten().save("out/", format=format, shards=2, overwrite=True)
    for name in others:
        assert Path("out", name).read_text() == "mine"
    shards = [n for n in os.listdir("out") if n.startswith("data-0000") and n.endswith(suffix)]
    assert sorted(shards) == [f"data-0000{i}-of-00002{suffix}" for i in range(2)]
    ten().save("out/", format=format, shards=3, overwrite=True)
    assert len([n for n in os.listdir("out") if n.endswith(f"-of-00002{suffix}")]) == 0


@pytest.mark.parametrize("format", FORMATS)
def test_an_old_shard_that_changed_is_not_deleted(format: str) -> None:
    ten().save("out/", format=format, shards=3)
    (last,) = Path("out").glob("data-00002-*3" + FORMATS[format][1:])
    if last.is_dir():
        last = last / "README"
    last.write_bytes(b"mine")
    before = tree("out")
    with pytest.raises(rm.OutputExistsError, match="data-00002-of-00003"):
        ten().save("out/", format=format, shards=2, overwrite=True)
    assert tree("out") == before


@pytest.mark.parametrize("key", ["files", "replaces"])
@pytest.mark.parametrize("name", ["thesis.npy", "../thesis.npy", "data.docx", "{cwd}/thesis.npy"])
def test_foreign_files_named_in_a_manifest_are_not_deleted(key: str, name: str) -> None:
    ten().save("out/", shards=2)
    name = name.format(cwd=os.getcwd())
    victim = Path("out", name)
    victim.write_text("mine")
    state = [victim.stat().st_size, victim.stat().st_mtime_ns]
    manifest = Path("out/_manifest.json")
    content = json.loads(manifest.read_text())
    content[key] = [{"file": name, "state": state, "start": 0, "stop": 10}]
    content |= {"states": [state], "complete": key == "files"}
    manifest.write_text(json.dumps(content))
    ten().save("out/", shards=3, overwrite=True)
    assert victim.read_text() == "mine"


def test_a_manifest_of_another_program_is_not_replaced() -> None:
    os.mkdir("out")
    Path("out/_manifest.json").write_text('{"files": []}')
    for overwrite in (False, True):
        with pytest.raises(rm.OutputExistsError, match="_manifest.json is not a manifest"):
            ten().save("out/", overwrite=overwrite)
    assert Path("out/_manifest.json").read_text() == '{"files": []}'
    assert os.listdir("out") == ["_manifest.json"]


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_with_the_name_of_a_description_is_not_replaced(format: str) -> None:
    name = FORMATS[format]
    Path(f"{name}.recmap.json").write_text('{"mine": 1}')
    for overwrite in (False, True):
        with pytest.raises(rm.OutputExistsError, match="recmap.json"):
            ten().save(name, overwrite=overwrite)
    assert Path(f"{name}.recmap.json").read_text() == '{"mine": 1}'


@pytest.mark.parametrize("format", [f for f in FORMATS if f != "zarr"])
def test_a_folder_is_not_replaced_by_a_file(format: str) -> None:
    zarr.save_array(FORMATS[format], np.arange(3))
    before = tree(".")
    with pytest.raises(rm.OutputExistsError, match="is a folder"):
        ten().save(FORMATS[format], overwrite=True)
    assert tree(".") == before


def test_a_writer_leaves_foreign_shards_alone() -> None:
    for i in range(3):
        rm.tfrecord.write_records(f"x-0000{i}-of-00003.tfrecord", [b"theirs"])
    Path("x-1-of-3.tfrecord").write_text("mine")
    before = tree(".")
    with pytest.raises(rm.OutputExistsError, match="x-00000-of-00003"):
        rm.TFRecordWriter("x.tfrecord", shards=2, overwrite=True)
    assert tree(".") == before


def test_a_foreign_file_that_recmap_indexed_is_not_replaced() -> None:
    with rm.TFRecordWriter("y.tfrecord", index=False) as writer:
        writer.write({"x": np.arange(3)})
    os.rename("y.tfrecord", "x-00000-of-00001.tfrecord")
    rm.index("x-00000-of-00001.tfrecord")
    before = tree(".")
    with pytest.raises(rm.OutputExistsError, match="x-00000-of-00001"):
        rm.TFRecordWriter("x.tfrecord", shards=2, overwrite=True)
    assert tree(".") == before


def test_a_writer_removes_its_old_shards_with_their_indexes() -> None:
    for shards in (4, 2):
        with rm.TFRecordWriter("x.tfrecord", shards=shards, overwrite=True) as writer:
            writer.write({"x": np.arange(10)})
    names = [f"x-0000{i}-of-00002.tfrecord" for i in range(2)]
    assert sorted(os.listdir()) == sorted([*names, *(f".{name}.recmap" for name in names)])


def test_the_output_file_itself_is_replaced_whoever_wrote_it() -> None:
    with h5py.File("x.h5", "w") as file:
        file["x"] = np.arange(3)
    with pytest.raises(rm.OutputExistsError):
        ten().save("x.h5")
    ten().save("x.h5", overwrite=True)
    assert len(rm.open("x.h5")) == 10


@pytest.mark.parametrize("format", FORMATS)
def test_a_pipe_or_a_device_is_not_replaced(format: str) -> None:
    name = FORMATS[format]
    os.mkfifo(name)
    for overwrite in (False, True):
        with pytest.raises(rm.OutputExistsError):
            ten().save(name, overwrite=overwrite)
    with pytest.raises(rm.OutputExistsError, match="is a pipe or a device"):
        rm.convert({"x": np.arange(3)}, name, format=format, overwrite=True)
    assert Path(name).is_fifo()
    assert os.listdir() == [name]


def test_records_do_not_replace_a_pipe() -> None:
    os.mkfifo("x.tfrecord")
    with pytest.raises(rm.OutputExistsError, match="is a pipe or a device"):
        rm.tfrecord.write_records("x.tfrecord", [b"a"], overwrite=True)
    with pytest.raises(rm.OutputExistsError, match="is a pipe or a device"):
        rm.TFRecordWriter("x.tfrecord", overwrite=True)
    assert Path("x.tfrecord").is_fifo()


@pytest.mark.parametrize("there", [True, False])
def test_a_link_to_a_store_stays_a_link(there: bool) -> None:
    os.mkdir("elsewhere")
    os.symlink("elsewhere/real.zarr", "x.zarr")
    if there:
        rm.from_arrays({"x": np.arange(3)}).save("elsewhere/real.zarr")
    ten().save("x.zarr", overwrite=there)
    assert os.readlink("x.zarr") == "elsewhere/real.zarr"
    assert rm.open("elsewhere/real.zarr")["x"][:].tolist() == list(range(10))
    assert sorted(os.listdir()) == ["elsewhere", "x.zarr"]
    assert os.listdir("elsewhere") == ["real.zarr"]


@pytest.mark.parametrize("format", ["npy", "tfrecord", "zarr"])
def test_an_overwrite_that_fails_at_once_leaves_the_old_output_known(format: str) -> None:
    class StopError(Exception): ...

    def stop(_: object) -> None:
        raise StopError

    np.save("x.npy", np.arange(4000))
    rm.convert("x.npy", "out/", format=format, shards=4)
    before = sorted(os.listdir("out"))
    with pytest.raises(StopError):
        rm.convert(
            "x.npy", "out/", format=format, shards=3, overwrite=True, workers=1, progress=stop
        )
    assert sorted(os.listdir("out")) == before
    assert len(rm.open("out/")) == 4000
    rm.convert("x.npy", "out/", format=format, shards=3, overwrite=True)
    assert len(rm.open("out/")) == 4000


def test_shards_of_another_number_without_a_manifest_are_refused() -> None:
    np.save("x.npy", np.arange(4000))
    rm.convert("x.npy", "out/", format="npy", shards=4)
    os.unlink("out/_manifest.json")
    for overwrite in (False, True):
        with pytest.raises(rm.OutputExistsError, match="data-0000.-of-00004.npy"):
            rm.convert("x.npy", "out/", format="npy", shards=3, overwrite=overwrite)
    rm.convert("x.npy", "out/data.npy")  # a single file is read alone
    assert len(os.listdir("out")) == 5


def test_an_overwrite_that_fails_at_once_leaves_the_older_files_to_the_next_one() -> None:
    """Otherwise rows of old shards would be read together with those of new ones."""
    rm.from_arrays({"x": np.arange(9)}).save("old.npy")
    rm.from_arrays({"x": np.arange(20)}).save("new.tfrecord", options={"index": False})
    data = Path("new.tfrecord").read_bytes()
    Path("bad.tfrecord").write_bytes(data[:20] + b"?" + data[21:])
    rm.convert("old.npy", "out/", shards=3)
    with pytest.raises(rm.CorruptRecordError):
        rm.convert("bad.tfrecord", "out/", shards=2, overwrite=True)
    assert rm.open("out/")["x"][:].tolist() == list(range(9))
    rm.convert("new.tfrecord", "out/", shards=2, overwrite=True)
    assert rm.open("out/")["x"][:].tolist() == list(range(20))
    assert not list(Path("out").glob("*-of-00003*"))


def test_an_old_zarr_shard_that_could_not_be_deleted_is_deleted_by_the_next_call() -> None:
    rm.convert({"n": np.arange(9)}, "d/", format="zarr", shards=3)
    # As after an error of the disk, in this process, which still runs.
    aside = temporary_path("d/data-00002-of-00003.zarr", ".gone")
    shutil.copytree("d/data-00002-of-00003.zarr", aside)
    rm.convert({"n": np.arange(8)}, "d/", format="zarr", shards=2, overwrite=True)
    assert sorted(os.listdir("d")) == [
        "_manifest.json",
        "data-00000-of-00002.zarr",
        "data-00001-of-00002.zarr",
    ]
