"""Peak memory of conversions, besides mapped files: no more than ``memory=``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

import recmap as rm
from tests.conversion.test_row_sizes import uneven
from tests.limited import peak_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write rows of one byte and of 2 MB, and tables in chunks of 1 MB and of 10 MB."""
    folder = tmp_path_factory.mktemp("peak")
    for name, options in (("s.tfrecord.gz", {"index": False}), ("s.zarr", {})):
        rm.from_batches(uneven("S1")).save(folder / name, options={"durable": False, **options})
    packed: dict[str, Any] = {"compression": "gzip", "compression_opts": 1, "shuffle": True}
    table = np.random.default_rng(0).integers(0, 50, (30_000, 250)).astype("f4")
    for name, rows in (("small", 1_000), ("large", 10_000)):
        store = zarr.create_group(folder / f"{name}.zarr")
        with h5py.File(folder / f"{name}.h5", "w") as file:
            for column in "ab" if name == "small" else "a":
                file.create_dataset(column, data=table, chunks=(rows, 250), **packed)
                store.create_array(column, data=table, chunks=(rows, 250))
    return folder


def peak(folder: Path, name: str, to: str, memory: str, verb: str = "", **options: Any) -> int:
    """Return the peak memory of a conversion, in MB."""
    given = {"memory": memory, "options": {"durable": False}, **options}
    size = peak_of(f"rm.open({str(folder / name)!r}){verb}.save({to!r}, **{given!r})")
    return size // 10**6


def test_recompressing_stays_within_the_budget(folder: Path) -> None:
    assert peak(folder, "s.tfrecord.gz", "y.tfrecord.gz", "28MB") < 28


def test_shuffling_a_compressed_file_stays_within_the_budget(folder: Path) -> None:
    assert peak(folder, "s.tfrecord.gz", "y.tfrecord", "28MB", ".shuffle(seed=3)") < 28


def test_comparing_long_lists_stays_within_the_budget(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every thread that decodes takes up to 200 KB of its own, which no budget this small has.
    monkeypatch.setenv("RECMAP_THREADS", "2")
    assert peak(folder, "s.zarr", "y.h5", "34MB", verify="full") < 34


def test_long_lists_are_refused_if_comparing_them_needs_more_memory(folder: Path) -> None:
    assert rm.convert(folder / "s.zarr", "y.h5", memory="28MB", options={"durable": False}).rows
    with pytest.raises(rm.MemoryLimitError, match=r'11 times by 1 worker; give memory="33MB"'):
        rm.convert(folder / "s.zarr", "z.h5", memory="28MB", verify="full")


@pytest.mark.parametrize(("name", "to"), [("small.zarr", "y.h5"), ("small.h5", "y.zarr")])
def test_chunks_are_kept_within_the_budget(folder: Path, name: str, to: str) -> None:
    assert peak(folder, name, to, "28MB", verify="full") < 28


@pytest.mark.parametrize("name", ["large.zarr", "large.h5"])
def test_chunks_larger_than_a_slab_stay_within_the_budget(folder: Path, name: str) -> None:
    assert peak(folder, name, "y.npy", "62MB", verify="full") < 62


def test_counting_rows_does_not_load_a_record_that_does_not_fit() -> None:
    rows = [np.zeros(size, "S1") for size in (10, 50 * 10**6, 10)]
    batches = ({"x": [row.tobytes()]} for row in rows)
    rm.from_batches(batches).save("x.tfrecord.gz", options={"index": False})
    refused = """
    with np.testing.assert_raises_regex(rm.MemoryLimitError, "row 1 takes 50 MB"):
        rm.convert("x.tfrecord.gz", "y.npz", memory="28MB")"""
    assert peak_of(refused) < 28 * 10**6
    assert not Path("y.npz").exists()


@pytest.mark.parametrize("name", ["large.zarr", "large.h5"])
def test_chunks_that_do_not_fit_are_refused_before_any_is_decoded(folder: Path, name: str) -> None:
    refused = f"""
    with np.testing.assert_raises_regex(rm.OptionError, "chunks of 10 MB .*=.62MB. or more"):
        rm.convert({str(folder / name)!r}, "y.npy", memory="28MB")"""
    assert peak_of(refused) < 10 * 10**6
    assert not list(Path().iterdir())


@pytest.mark.parametrize("name", ["x.zarr", "x.h5"])
def test_a_mostly_empty_chunk_counts_in_full(name: str) -> None:
    if name == "x.h5":
        with h5py.File(name, "w") as file:
            options: dict[str, Any] = {"chunks": (10_000, 250), "maxshape": (None, 250)}
            file.create_dataset("a", data=np.ones((10, 250)), compression="gzip", **options)
    else:
        zarr.create_array(name, data=np.ones((10, 250)), chunks=(10_000, 250))
    with pytest.raises(rm.OptionError, match="chunks of 20 MB that are decoded whole"):
        rm.convert(name, "y.npy", memory="50MB")
    assert rm.convert(name, "y.npy").rows == 10


WIDE = "rm.from_arrays({{f'c{{i}}': np.arange(60.0) + i for i in range({columns})}})"


@pytest.mark.parametrize("verify", [True, "full"])
def test_a_thousand_hdf5_columns_stay_within_the_budget(verify: bool | str) -> None:
    # Checking the file also opens all of its columns.
    source = WIDE.format(columns=1_000)
    given = {"memory": "60MB", "options": {"durable": False}, "verify": verify}
    size = peak_of(f"{source}.save('y.h5', **{given!r})")
    assert size < 60 * 10**6


def test_comparing_hundreds_of_ragged_columns_stays_within_the_budget() -> None:
    offsets = np.arange(61) * 2
    # Each is two datasets, and there are more of them than the reader keeps open.
    columns = {f"c{i}": rm.Ragged(np.arange(120.0) + i, offsets) for i in range(400)}
    rm.from_arrays(columns).save("x.npz", options={"durable": False})
    with pytest.raises(rm.MemoryLimitError, match=r"for so many columns; give memory=") as e:
        rm.convert("x.npz", "y.h5", memory="15MB", verify="full")
    enough = str(e.value).split('memory="')[-1].split('"')[0]
    size = peak_of(f"rm.convert('x.npz', 'y.h5', memory={enough!r}, verify='full')")
    assert size < int(enough.removesuffix("MB")) * 10**6


def test_columns_that_do_not_fit_are_refused_with_the_memory_they_need() -> None:
    columns = {f"c{i}": np.arange(3.0) for i in range(1_000)}
    with pytest.raises(rm.MemoryLimitError, match=r"for so many columns; give memory=") as e:
        rm.from_arrays(columns).save("y.h5", memory="15MB", options={"durable": False})
    enough = str(e.value).split('memory="')[-1].split('"')[0]
    source = WIDE.format(columns=1_000)
    size = peak_of(f"{source}.save('y.h5', memory={enough!r}, options={{'durable': False}})")
    assert size < int(enough.removesuffix("MB")) * 10**6
