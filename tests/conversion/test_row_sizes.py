"""Rows of very different sizes: slabs are limited by bytes, not by the number of rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

import recmap as rm
from recmap.model.ragged import Ragged
from recmap.model.row_sizes import measure
from tests.limited import MB, run_limited

pytestmark = pytest.mark.slow

SMALL, LARGE, SIZE = 20_000, 20, 2_000_000
ROWS = 2 * SMALL + LARGE
# Room for rows of 2 MB, and for ten threads, whose stacks count even if mostly unused.
MEMORY = "28MB"
LIMIT = 28 * MB + 10 * 8 * MB


def uneven(dtype: str) -> Iterator[dict[str, Any]]:
    """Yield rows of one byte, then of 2 MB, then of one byte again."""
    ones = np.ones(SMALL, dtype)
    width = SIZE // np.dtype(dtype).itemsize
    yield {"x": Ragged(ones, np.arange(SMALL + 1))}
    for i in range(LARGE):
        yield {"x": Ragged(np.full(width, i + 1, dtype), [0, width])}
    yield {"x": Ragged(ones, np.arange(SMALL + 1))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write 40 MB of such rows in every format that can store them."""
    folder = tmp_path_factory.mktemp("uneven")
    for name in ("s.tfrecord", "s.tfrecord.gz", "s.npz", "s.zarr", "s.h5"):
        options = {"index": False} if "tfrecord" in name else {}
        rm.from_batches(uneven("S1")).save(folder / name, options={"durable": False, **options})
    rm.from_batches(uneven("int64")).save(
        folder / "i.tfrecord", options={"durable": False, "index": False}
    )
    return folder


def converted(
    folder: Path, name: str, to: str, memory: str = MEMORY, verb: str = "", **options: Any
) -> str:
    given = {"memory": memory, "options": {"durable": False}, **options}
    body = f"""
report = rm.open({str(folder / name)!r}){verb}.save({to!r}, **{given!r})
print(report.rows)
"""
    # Zarr starts its own threads, and HDF5 holds more copies of a list.
    more = 8 * 8 * MB * ("zarr" in name + to) + 32 * MB * (".h5" in name)
    return run_limited(body, LIMIT + more)


@pytest.mark.parametrize(
    ("name", "to"),
    [
        ("s.tfrecord", "y.tfrecord"),
        ("s.tfrecord", "y.h5"),
        ("s.tfrecord", "y.zarr"),
        ("i.tfrecord", "y.npz"),
        ("i.tfrecord", "y.h5"),
        ("s.npz", "y.tfrecord"),
    ],
)
def test_large_rows_after_small_ones_stay_within_the_budget(
    folder: Path, name: str, to: str
) -> None:
    assert converted(folder, name, to) == str(ROWS)


@pytest.mark.parametrize(
    ("name", "to", "memory"),
    [
        ("s.tfrecord.gz", "y.npz", MEMORY),
        ("s.tfrecord.gz", "y.tfrecord.gz", MEMORY),
        ("s.zarr", "y.tfrecord", MEMORY),
        # The HDF5 library holds several copies of a list while it reads it.
        ("s.h5", "y.tfrecord", "60MB"),
    ],
)
def test_large_rows_that_must_be_decoded_stay_within_the_budget(
    folder: Path, name: str, to: str, memory: str
) -> None:
    assert converted(folder, name, to, memory) == str(ROWS)


@pytest.mark.parametrize("to", ["y.tfrecord", "y.npz"])
def test_comparing_large_rows_stays_within_the_budget(folder: Path, to: str) -> None:
    assert converted(folder, "s.tfrecord", to, verify="full") == str(ROWS)


@pytest.mark.parametrize("name", ["s.tfrecord", "s.tfrecord.gz"])
def test_shuffling_large_rows_stays_within_the_budget(folder: Path, name: str) -> None:
    assert converted(folder, name, "y.tfrecord", verb=".shuffle(seed=3)") == str(ROWS)


def test_passes_over_large_rows_stay_below_the_limit(folder: Path) -> None:
    body = f"""
ds = rm.open({str(folder / "s.tfrecord")!r})
print(sum(int(batch["x"].lengths.sum()) for batch in ds.batches(8)), ds.stats()["x"].sizes.max)
"""
    assert run_limited(body) == f"{2 * SMALL + LARGE * SIZE} {SIZE}"


@pytest.mark.parametrize("name", ["s.tfrecord", "s.tfrecord.gz", "s.npz", "s.zarr", "s.h5"])
def test_the_error_names_the_row_that_does_not_fit(folder: Path, name: str) -> None:
    with pytest.raises(rm.OptionError, match=r"row 20,000 takes .* give memory=\"\d+MB\" or more"):
        rm.convert(folder / name, "y.npz", memory="10MB")
    assert not list(Path().iterdir())


def test_the_memory_that_the_error_asks_for_is_enough(folder: Path) -> None:
    with pytest.raises(rm.MemoryLimitError, match='give memory="27MB"'):
        rm.convert(folder / "s.npz", "y.npz", memory="10MB")
    assert (
        rm.convert(folder / "s.npz", "y.npz", memory="27MB", options={"durable": False}).rows
        == ROWS
    )


def test_fewer_files_are_written_at_a_time_if_rows_are_large(folder: Path) -> None:
    report = rm.convert(
        folder / "s.npz", "out/", memory="30MB", shards=2, workers=2, options={"durable": False}
    )
    assert "1 file at a time" in report.explanation
    assert "the largest row 2 MB" in report.explanation


def some_rows() -> dict[str, Any]:
    lengths = np.random.default_rng(7).permutation(np.repeat([0, 1, 30, 3000], 100))
    ends = np.concatenate([[0], np.cumsum(lengths)])
    strings = Ragged(np.full(int(ends[-1]), b"x"), ends)
    return {
        "s": strings,
        "i": Ragged(np.arange(ends[-1]), ends),
        "l": Ragged(Ragged.from_bytes([b"ab", b""] * len(lengths)), np.arange(401) * 2),
        "d": np.arange(len(lengths)),
    }


@pytest.mark.parametrize("name", ["x.tfrecord", "x.tfrecord.gz", "x.npz", "x.zarr", "x.h5"])
def test_limited_reads_return_every_row_within_the_limit(name: str) -> None:
    rm.from_arrays(some_rows()).save(name)
    within_limit(rm.open(name), 200_000)


def test_limited_reads_of_combined_sources_return_every_row() -> None:
    rows = some_rows()
    rm.from_arrays(rows).save("a.npz")
    rm.from_arrays({"e": np.zeros((400, 50))}).save("b.npy")
    within_limit(rm.from_arrays(rows), 100_000)
    within_limit(rm.open(["a.npz", "a.npz"]), 100_000)
    rm.convert("a.npz", "a.tfrecord")
    within_limit(rm.open(["a.tfrecord", "a.tfrecord"]), 100_000)
    within_limit(rm.open({"s": rm.open("a.npz", ["s"]), "e": "b.npy"}), 100_000)


def test_a_stream_of_batches_is_divided_at_the_limit() -> None:
    rows = some_rows()
    source = rm.from_batches([rows, rows])._source
    lengths, at = [], 0
    while read := measure(source.read(at, at + 1000, 100_000)):
        if read[0] == 0:
            break
        assert read[1] <= 100_000 + 8 * 5  # and the last offset of each column
        lengths.append(read[0])
        at += read[0]
    assert at == 800
    assert len(lengths) > 10


def within_limit(ds: rm.Dataset, limit: int) -> None:
    at, batches = 0, []
    while True:
        read = ds._source.read(at, at + 1000, limit)
        rows, size = measure(read)
        if not rows:
            break
        assert size <= limit + 8 * 5  # and the last offset of each column
        batches.append(read)
        at += rows
    whole = ds[:]
    assert len(batches) > 3
    for name, column in whole.items():
        joined = [row for batch in batches for row in list(batch[name])]
        assert len(joined) == len(column)
        for a, b in zip(joined, column, strict=True):
            same = a.tolist() == b.tolist() if isinstance(a, np.ndarray | Ragged) else a == b
            assert same


@pytest.mark.parametrize("layout", ["contiguous", "chunked", "gzip", "compound"])
def test_hdf5_lists_are_measured_by_their_references(layout: str) -> None:
    texts = ["a" * int(n) for n in np.random.default_rng(3).permutation([0, 5, 9000] * 50)]
    options: dict[str, Any] = {"chunked": {"chunks": (16,)}}.get(layout, {})
    if layout == "gzip":
        options = {"chunks": (16,), "compression": "gzip", "shuffle": True}
    with h5py.File("x.h5", "w") as file:
        if layout == "compound":
            kind = [("n", "i4"), ("a", h5py.string_dtype()), ("s", h5py.string_dtype())]
            table = np.array([(i, "b", text) for i, text in enumerate(texts)], kind)
            file.create_dataset("x", data=table)
        else:
            file.create_dataset("x", data=texts, dtype=h5py.string_dtype(), **options)
    ds = rm.open("x.h5")
    name = "x.s" if layout == "compound" else "x"
    first = len(ds._source.read(0, 150, 100_000)[name])
    assert 1 < first < 50
    within_limit(ds, 100_000)


def test_zarr_strings_are_measured_by_the_chunk() -> None:
    texts = np.array(["é" * n for n in [1, 2000] * 50], dtype=object)
    array = zarr.create_array("x.zarr", shape=(100,), chunks=(10,), dtype="str")
    array[:] = texts
    within_limit(rm.open("x.zarr"), 30_000)
