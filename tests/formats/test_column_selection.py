"""Columns that are not chosen are not read: damage in them does not matter."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import recmap as rm
from recmap.formats import lazy_files

ROWS = 40
X = np.arange(ROWS)
Y = np.random.default_rng(1).integers(0, 1 << 60, (ROWS, 64))


def tfrecord(name: str, **options: Any) -> rm.Dataset:
    # Three values instead of two, so that this row does not decode.
    rows = [[1, 2]] * (ROWS - 1) + [[1, 2, 3]]
    with rm.TFRecordWriter(name, index=False, overwrite=True, **options) as writer:
        writer.write({"x": X, "y": rm.Ragged.from_rows(rows)})
    return rm.open(name, fields={"x": "int64", "y": "int64[2]"})


def hdf5(name: str = "d.h5") -> rm.Dataset:
    with h5py.File(name, "w") as file:
        file["x"] = X
        data = file.create_dataset("y", data=Y, chunks=(ROWS, 64), compression="gzip")
        place = data.id.get_chunk_info(0).byte_offset
    scribble(name, place)
    return rm.open(name)


def zarr() -> rm.Dataset:
    rm.from_arrays({"x": X, "y": Y}).save("d.zarr")
    chunks = [path for path in Path("d.zarr/y").rglob("*") if path.is_file() and "c" in path.parts]
    assert chunks
    for chunk in chunks:
        chunk.write_bytes(b"no chunk")
    return rm.open("d.zarr")


def npz(name: str = "d.npz") -> rm.Dataset:
    # Longer than the part that is read to find the header.
    np.savez_compressed(name, x=X, y=np.tile(Y, 64))
    with zipfile.ZipFile(name) as archive:
        member = archive.getinfo("y.npy")
    scribble(name, member.header_offset + member.compress_size - 100)
    return rm.open(name)


def side_by_side() -> rm.Dataset:
    np.save("x.npy", X)
    npz()
    return rm.open({"x": "x.npy", "y": rm.open("d.npz", fields=["y"])})


def end_to_end(count: int) -> rm.Dataset:
    for i in range(count):
        hdf5(f"part-{i:03}.h5")
    return rm.open("part-*.h5")


def scribble(name: str, place: int) -> None:
    with open(name, "r+b") as file:
        file.seek(place)
        file.write(b"\xa5" * 64)


DAMAGED: dict[str, Callable[[], rm.Dataset]] = {
    "tfrecord": lambda: tfrecord("d.tfrecord"),
    "gzip": lambda: tfrecord("d.tfrecord.gz", compression="gzip"),
    "hdf5": hdf5,
    "zarr": zarr,
    "npz": npz,
    "side_by_side": side_by_side,
    "end to end": lambda: end_to_end(2),
    "too many to be open": lambda: end_to_end(9),
}


@pytest.fixture(params=DAMAGED)
def ds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> rm.Dataset:
    monkeypatch.setattr(lazy_files, "_MAX_OPEN", 8)
    made = DAMAGED[request.param]()
    with pytest.raises(rm.DataError):
        list(made.batch(8))
    return made


def numbers(pipeline: Any) -> list[int]:
    return [int(n) for batch in pipeline for n in np.atleast_1d(batch["x"])]


def test_only_chosen_columns_are_read(ds: rm.Dataset) -> None:
    expected = list(range(ROWS)) * (len(ds) // ROWS)
    assert numbers(ds.select("x").batch(8)) == expected
    assert sorted(numbers(ds.shuffle(seed=1, window=16).select("x").batch(8))) == sorted(expected)
    assert numbers(ds.take(12).select("x")) == list(range(12))
    assert numbers(ds.batch(8).select("x")) == expected


@pytest.mark.parametrize("workers", ["fork:2", "spawn:2", "threads:2"])
def test_workers_read_only_chosen_columns(workers: str) -> None:
    train = hdf5().select("x").shuffle(seed=1).map(doubled, workers=workers).batch(8)
    assert sorted(numbers(train)) == [2 * n for n in range(ROWS)]


def doubled(row: dict[str, Any]) -> dict[str, Any]:
    return {"x": row["x"] * 2}


def test_a_conversion_reads_only_its_columns(ds: rm.Dataset) -> None:
    ds.select("x").select(slice(4, 20)).rename({"x": "z"}).save("out.npy")
    assert np.load("out.npy").tolist() == list(range(4, 20))


def test_a_column_of_a_dataset_is_read_alone(ds: rm.Dataset) -> None:
    assert ds["x"][3] == 3
    assert np.asarray(ds["x"])[:5].tolist() == [0, 1, 2, 3, 4]


def test_zipped_pipelines_without_a_chosen_column_are_not_read() -> None:
    def refuse(row: dict[str, Any]) -> dict[str, Any]:
        if row["y"] > 10:
            raise AssertionError
        return row

    x, y, z = (rm.from_arrays({name: X}) for name in "xyz")
    both = rm.zip(x, y.map(refuse), z)
    assert list(next(iter(both.select("z", "x").batch(2)))) == ["z", "x"]
    assert numbers(both.select("z", "x").batch(8)) == list(range(ROWS))
    with pytest.raises(rm.FieldNotFoundError, match="'y'"):
        both.select("x").select("y")


def test_a_mix_reads_only_chosen_columns() -> None:
    assert sorted(numbers(rm.mix(hdf5("a.h5"), hdf5("b.h5")).select("x").batch(8))) == sorted(
        [*range(ROWS), *range(ROWS)]
    )


def test_a_state_restores_in_a_pipeline_with_chosen_columns() -> None:
    def pipeline() -> rm.Stream:
        return rm.from_arrays({"x": X, "y": Y}).shuffle(seed=1).batch(8).select("x")

    train = pipeline()
    whole = numbers(train)
    train.epoch = 0
    running = iter(train)
    assert numbers([next(running)]) == whole[:8]
    assert numbers(pipeline().restore(train.state())) == whole[8:]


def test_columns_are_not_chosen_between_bucket_and_batch() -> None:
    ds = rm.from_arrays({"x": X, "t": rm.Ragged.from_rows([[1] * (i % 5) for i in range(ROWS)])})
    with pytest.raises(rm.OptionError, match="followed by batch"):
        ds.bucket("t", [2]).select("x")


def test_fields_of_several_files_read_no_other_columns() -> None:
    np.save("wide.npy", np.zeros((4, 1000)))
    np.save("narrow.npy", np.arange(4))
    dataset = rm.open({"wide": "wide.npy", "narrow": "narrow.npy"}, fields=["narrow"])
    assert dataset._source.row_bytes() == 8
    assert dataset[:]["narrow"].tolist() == [0, 1, 2, 3]


@pytest.mark.slow
def test_sizes_of_many_files_count_only_chosen_columns() -> None:
    for number in range(70):
        with h5py.File(f"{number:02}.h5", "w") as file:
            file["label"] = np.arange(4)
            file.create_dataset(
                "image", data=np.zeros((4, 1000)), chunks=(4, 1000), compression="gzip"
            )
    whole = rm.open("*.h5")._source
    chosen = whole.select(["label"])
    for source, expected in ((chosen, (8, 0, 1)), (whole, (8008, 32_000, 4))):
        facts = source.facts
        assert (source.row_bytes(), facts.largest_chunk().size, facts.chunk_rows()) == expected
    assert len(chosen.read(0, 280)["label"]) == 280


@pytest.mark.parametrize("files", [1, 65])
def test_fields_may_be_a_generator(files: int) -> None:
    for number in range(files):
        np.savez(f"{number:02}.npz", a=np.arange(3), b=np.arange(3), c=np.arange(3))
    dataset = rm.open("*.npz", fields=(name for name in ["a", "b"]))
    assert list(dataset.schema) == ["a", "b"]
    assert len(dataset[:]["b"]) == 3 * files
