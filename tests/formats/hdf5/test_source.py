"""HDF5 files that h5py writes, compared with what h5py reads."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from threading import Event
from typing import Any

import h5py
import numpy as np
import pytest

import recmap as rm
from tests.chunks.test_codecs import bitshuffled, hdf5_lz4, lz4_block

ROWS = 1003
# Slices that begin and end anywhere in chunks of 100 rows.
SLICES = [(0, ROWS), (0, 100), (100, 300), (50, 51), (199, 201), (950, ROWS), (1000, ROWS), (5, 5)]


def made(columns: Mapping[str, Any] | None = None, **options: Any) -> h5py.File:
    """Create a file and leave it open; every dataset gets these options."""
    file = h5py.File("x.h5", "w")
    for name, values in (columns or {}).items():
        file.create_dataset(name, data=values, **options)
    return file


def numbers(*inner: int, dtype: str = "<f4") -> np.ndarray[Any, Any]:
    count = ROWS * int(np.prod(inner))
    return np.arange(count).reshape(ROWS, *inner).astype(dtype)


def same(name: str, expected: np.ndarray[Any, Any]) -> None:
    """Tell whether rows read in every way are those expected."""
    ds = rm.open("x.h5")
    for start, stop in SLICES:
        part = ds[start:stop][name]
        assert part.dtype == expected.dtype
        assert np.array_equal(part, expected[start:stop])
    rows = np.random.default_rng(0).integers(0, len(expected), 50)
    assert np.array_equal(ds[rows][name], expected[rows])
    assert np.array_equal(ds[ROWS - 1][name], expected[-1])
    assert np.array_equal(np.concatenate([b[name] for b in ds.batches(77)]), expected)


FILTERS = [
    dict(zip(("compression", "shuffle", "fletcher32"), chosen, strict=True))
    for chosen in product((None, "gzip", "lzf"), (False, True), (False, True))
]


@pytest.mark.parametrize("filters", FILTERS, ids=str)
@pytest.mark.parametrize("chunk", [(100, 3, 4), (100, 2, 3), (7, 1, 4), (ROWS, 3, 4)])
def test_every_filter_and_tiling_is_read(filters: dict[str, Any], chunk: tuple[int, ...]) -> None:
    x = numbers(3, 4)
    made({"x": x}, chunks=chunk, **filters).close()
    same("x", x)


@pytest.mark.parametrize("options", [{"scaleoffset": 2}, {"chunks": True, "scaleoffset": 0}])
def test_other_filters_are_left_to_the_library(options: dict[str, Any]) -> None:
    x = numbers(dtype="<i4" if options["scaleoffset"] == 0 else "<f4")
    made({"x": x}, **options).close()
    same("x", x)
    assert "scaleoffset, read through h5py" in rm.open("x.h5").info().notes["x"]


@pytest.mark.parametrize(
    "dtype", ["|i1", "<u2", ">i4", "<i8", "<f2", ">f8", "<c8", ">c16", "|b1", np.longdouble]
)
@pytest.mark.parametrize("options", [{}, {"chunks": (100,), "compression": "gzip"}])
def test_types_keep_their_bytes(dtype: Any, options: dict[str, Any]) -> None:
    x = (np.arange(ROWS) % 100).astype(dtype)
    made({"x": x}, **options).close()
    same("x", x)


def test_a_contiguous_dataset_is_mapped_in_place() -> None:
    x = numbers(5)
    made({"x": x}).close()
    ds = rm.open("x.h5")
    view = ds._source.column("x")
    assert isinstance(view, np.ndarray)
    assert not view.flags.owndata
    assert not view.flags.writeable
    assert np.array_equal(view, x)
    assert ds.info().mapped == ["x"]


@pytest.mark.parametrize("options", [{}, {"chunks": (100, 5)}, {"compression": "gzip"}])
def test_a_user_block_before_the_hdf5_data_is_skipped(options: dict[str, Any]) -> None:
    x = numbers(5)
    with h5py.File("x.h5", "w", userblock_size=2048) as file:
        file.create_dataset("x", data=x, **options)
    same("x", x)
    shutil.copy("x.h5", "without_a_known_ending")
    assert rm.open("without_a_known_ending").info().format == "hdf5"


def test_chunks_that_were_never_written_hold_the_fill_value() -> None:
    x = np.full((ROWS, 6), -7, "<i4")
    x[300:310, 1] = 5
    with made() as file:
        shape = {"shape": x.shape, "dtype": x.dtype, "fillvalue": -7}
        data = file.create_dataset("x", chunks=(100, 4), compression="gzip", **shape)
        data[300:310, 1] = 5
        file.create_dataset("none", **shape)
        file.create_dataset("zero", (ROWS, 6), "<i4", chunks=(100, 4))
    same("x", x)
    same("none", np.full((ROWS, 6), -7, "<i4"))
    same("zero", np.zeros((ROWS, 6), "<i4"))


def test_a_chunk_may_skip_filters() -> None:
    x = numbers(dtype="<i4")[:400]
    with made() as file:
        data = file.create_dataset("x", (400,), "<i4", chunks=(100,), compression=4, shuffle=True)
        shuffled = [
            x[i : i + 100].view("u1").reshape(-1, 4).T.tobytes() for i in range(0, 400, 100)
        ]
        # Bit 0 stands for shuffle, bit 1 for deflate.
        data.id.write_direct_chunk((0,), zlib.compress(shuffled[0]), 0b00)
        data.id.write_direct_chunk((100,), zlib.compress(x[100:200].tobytes()), 0b01)
        data.id.write_direct_chunk((200,), shuffled[2], 0b10)
        data.id.write_direct_chunk((300,), x[300:].tobytes(), 0b11)
    assert np.array_equal(rm.open("x.h5")[:]["x"], x)


@pytest.mark.parametrize("shuffle", [False, True])
def test_lzf_round_trips_all_kinds_of_values(shuffle: bool) -> None:
    rng = np.random.default_rng(0)
    runs = np.repeat(rng.integers(0, 9, 40), rng.integers(1, 900, 40))[:ROWS]
    columns = {
        "same": np.zeros(ROWS, "<i4"),
        "noise": rng.integers(0, 1 << 31, ROWS).astype(
            "<i4"
        ),  # incompressible, so stored unchanged
        "runs": np.resize(runs, ROWS).astype("<i4"),
        "near": (np.arange(ROWS) % 7).astype("<i4"),
        "some": np.where(rng.random(ROWS) < 0.9, 5, rng.integers(0, 99, ROWS)).astype("<i4"),
    }
    made(columns, chunks=(100,), compression="lzf", shuffle=shuffle).close()
    for name, values in columns.items():
        same(name, values)
    with h5py.File("x.h5") as file:
        masks = {name: file[name].id.get_chunk_info(0).filter_mask for name in columns}
    # The filter mask says whether the compressor, the second filter, was skipped.
    assert masks["noise"] == (2 if shuffle else 1)
    assert masks["same"] == 0


@pytest.mark.parametrize(
    ("number", "name"),
    [(32015, "zstd"), (32004, "lz4"), (32001, "blosc"), (32008, "bitshuffle")],
)
def test_filters_that_h5py_does_not_have_are_decoded(number: int, name: str) -> None:
    import numcodecs

    x = numbers(6)
    encode = {
        "zstd": numcodecs.Zstd().encode,
        "lz4": lambda data: hdf5_lz4(bytes(data), 1000),
        "blosc": numcodecs.Blosc("lz4").encode,
        "bitshuffle": lambda data: bitshuffled(bytes(data), 8, 64, lz4_block),
    }[name]
    options = (0, 4, 8, 64, 2) if name == "bitshuffle" else ()
    with h5py.File("x.h5", "w") as file:
        storage = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        storage.set_chunk((100, 6))
        storage.set_shuffle()
        storage.set_filter(number, h5py.h5z.FLAG_OPTIONAL, options)
        space, kind = h5py.h5s.create_simple(x.shape), h5py.h5t.py_create(x.dtype)
        dataset = h5py.h5d.create(file.id, b"x", kind, space, storage)
        for start in range(0, len(x), 100):
            chunk = np.zeros((100, 6), x.dtype)
            chunk[: len(x) - start] = x[start : start + 100]
            planes = chunk.view(np.uint8).reshape(-1, x.dtype.itemsize).T.copy()
            dataset.write_direct_chunk((start, 0), bytes(encode(planes.tobytes())))
    ds = rm.open("x.h5")
    assert np.array_equal(ds[:]["x"], x)
    assert np.array_equal(ds[[5, 900, 4]]["x"], x[[5, 900, 4]])
    assert name in ds.info().notes["x"]
    assert "h5py" not in ds.info().notes["x"]
    assert ds.save("y.npy", verify="full").rows == len(x)


def test_unfiltered_chunks_are_views_where_they_follow_one_another() -> None:
    x = numbers(4000)[:, :3000]
    made({"x": x}, chunks=(100, 3000)).close()
    ds = rm.open("x.h5")
    assert not ds[110:170]["x"].flags.owndata  # within a chunk
    rows = np.random.default_rng(0).permutation(len(x))
    assert np.array_equal(ds[rows]["x"], x[rows])
    assert np.array_equal(ds[:]["x"], x)
    assert "chunks of 100 x 3,000" in ds.info().notes["x"]


def test_rows_of_unfiltered_chunks_are_read_alone_in_the_order_of_any_chunks() -> None:
    made({"x": numbers(6)}, chunks=(100, 6), compression="gzip").close()
    os.rename("x.h5", "y.h5")
    made({"x": numbers(6)}, chunks=(100, 6)).close()
    plain, packed = rm.open("x.h5"), rm.open("y.h5")
    with warnings.catch_warnings():
        warnings.simplefilter("error", rm.SlowOrderWarning)
        rows = [batch["x"] for batch in plain.shuffle(seed=1).batch(50)]
    assert sorted(np.concatenate(rows)[:, 0]) == numbers(6)[:, 0].tolist()
    # Orders do not depend on how rows are read: they are the same in a store.
    orders = [ds.shuffle(window=300, seed=1)[:]["x"][:, 0].tolist() for ds in (plain, packed)]
    assert orders[0] == orders[1]


def test_chunks_of_a_row_group_are_inflated_once_for_partial_reads() -> None:
    x = numbers(6)
    with made({"x": x}, chunks=(100, 2), compression="gzip") as file:
        places = [file["x"].id.get_chunk_info(i) for i in range(file["x"].id.get_num_chunks())]
    ds = rm.open("x.h5")
    assert np.array_equal(ds[130:140]["x"], x[130:140])
    with open("x.h5", "r+b") as raw:
        for place in places:
            raw.seek(place.byte_offset)
            raw.write(bytes(place.size))
    assert np.array_equal(ds[140:200]["x"], x[140:200])
    with pytest.raises(rm.DataError):
        ds[140:201]


def test_strings_are_bytes() -> None:
    fixed = np.array([b"", b"a", b"abc", b"a\0b", b"xyz"] * 20, "S4")
    texts = ["", "é", "日本語", "x" * 300, "plain"] * 20
    with made({"fixed": fixed}) as file:
        file.create_dataset("chunked", data=fixed, chunks=(7,), compression="gzip")
        file.create_dataset("text", data=texts, dtype=h5py.string_dtype())
        file.create_dataset("ascii", data=[b"ab", b""] * 50, dtype=h5py.string_dtype("ascii"))
        utf8 = file.create_dataset("utf8", (100,), dtype=h5py.string_dtype("utf-8", 6))
        utf8[:] = np.array(["é", "e"] * 50, "O")
        pairs = np.array(texts * 2, "O").reshape(100, 2)
        file.create_dataset("pairs", data=pairs, dtype=h5py.string_dtype())
        padded = h5py.h5t.C_S1.copy()
        padded.set_size(4)
        padded.set_strpad(h5py.h5t.STR_SPACEPAD)
        space = h5py.h5s.create_simple((100,))
        data = h5py.h5d.create(file.id, b"padded", padded, space)
        data.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array([b"ab"] * 100, "S4"))
    batch = rm.open("x.h5")[:]
    assert batch["fixed"].tolist() == batch["chunked"].tolist() == fixed.tolist()
    assert batch["text"].tolist() == [text.encode() for text in texts]
    assert batch["ascii"].tolist() == [b"ab", b""] * 50
    assert batch["utf8"].tolist() == ["é".encode(), b"e"] * 50
    assert batch["padded"].tolist() == [b"ab"] * 100
    assert batch["pairs"][1].tolist() == ["日本語".encode(), ("x" * 300).encode()]
    assert rm.open("x.h5").schema["pairs"] == rm.Field("bytes", (2,))
    assert rm.open("x.h5")[[3, 1, 3]]["text"].tolist() == [b"x" * 300, "é".encode(), b"x" * 300]


@pytest.mark.parametrize("dtype", ["<i4", ">i4", "<f8", "|b1", "<f2"])
def test_lists_are_ragged(dtype: str) -> None:
    rows = [np.arange(i % 4).astype(dtype) for i in range(100)]
    with made() as file:
        data = file.create_dataset("x", (101,), h5py.vlen_dtype(np.dtype(dtype)), chunks=(30,))
        for i, row in enumerate(rows):
            data[i] = row
    ds = rm.open("x.h5")
    assert ds.schema["x"] == rm.Field(dtype, (None,))
    column = ds[:]["x"]
    assert column.dtype == np.dtype(dtype)
    assert column.tolist() == [row.tolist() for row in rows] + [[]]
    assert ds[[7, 2, 99]]["x"].tolist() == [rows[i].tolist() for i in (7, 2, 99)]
    assert ds[5:5]["x"].dtype == np.dtype(dtype)


COMPOUND = np.dtype(
    [("id", "<i4"), ("name", "S5"), ("at", [("x", ">f8"), ("y", "<f4", (2,))]), ("ok", "?")]
)


@pytest.mark.parametrize("options", [{}, {"chunks": (100,), "compression": "gzip", "shuffle": 1}])
def test_the_fields_of_a_compound_type_are_columns(options: dict[str, Any]) -> None:
    table = np.zeros(ROWS, COMPOUND)
    table["id"] = np.arange(ROWS)
    table["name"] = [str(i).encode() for i in range(ROWS)]
    table["at"]["x"] = np.arange(ROWS) / 2
    table["at"]["y"] = np.arange(ROWS * 2).reshape(ROWS, 2)
    table["ok"] = np.arange(ROWS) % 3 == 0
    made({"g/table": table}, **options).close()
    same("g/table.id", table["id"])
    same("g/table.at.x", table["at"]["x"])
    same("g/table.at.y", table["at"]["y"])
    same("g/table.ok", table["ok"])
    ds = rm.open("x.h5", ["g/table.name", "g/table.id"])
    assert list(ds.schema) == ["g/table.name", "g/table.id"]
    assert ds[998:]["g/table.name"].tolist() == [b"998", b"999", b"1000", b"1001", b"1002"]


def test_lists_and_strings_inside_compound_types_are_columns() -> None:
    dtype = np.dtype([("s", h5py.string_dtype()), ("n", "<i4"), ("v", h5py.vlen_dtype(">i2"))])
    with made() as file:
        data = file.create_dataset("t", (3,), dtype)
        for i in range(3):
            data[i] = (f"text {i}", i, np.arange(i, dtype=">i2"))
    # Twice: h5py crashes if such a file is opened twice and closed once.
    for _ in range(2):
        batch = rm.open("x.h5")[:]
        assert batch["t.s"].tolist() == [b"text 0", b"text 1", b"text 2"]
        assert batch["t.n"].tolist() == [0, 1, 2]
        assert batch["t.v"].tolist() == [[], [0], [0, 1]]


def test_enums_are_read_as_numbers_and_arrays_as_axes() -> None:
    enum = h5py.enum_dtype({"RED": 3, "BLUE": 7}, "<u2")
    arrays = np.arange(ROWS * 6).reshape(ROWS, 2, 3).astype("<i4")
    with made() as file:
        file.create_dataset("colour", data=np.array([3, 7, 3] * 20), dtype=enum)
        more = file.create_dataset("array", (60,), np.dtype(("<i4", (2, 3))), chunks=(7,))
        more[:] = arrays[:60]
    ds = rm.open("x.h5")
    assert ds.schema == {"colour": "uint16", "array": "int32[2,3]"}
    assert ds[:3]["colour"].tolist() == [3, 7, 3]
    assert np.array_equal(ds[:]["array"], arrays[:60])
    # The names of an enum must not reach .npy files: NumPy would warn about them.
    ds.save("x.npy")


def test_compact_virtual_and_external_datasets_are_read() -> None:
    x = numbers(2)
    with h5py.File("part.h5", "w") as part:
        part["data"] = x
    with made() as file:
        storage = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        storage.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple(x.shape)
        compact = h5py.h5d.create(file.id, b"compact", h5py.h5t.IEEE_F32LE, space, storage)
        compact.write(h5py.h5s.ALL, h5py.h5s.ALL, x)
        layout = h5py.VirtualLayout(x.shape, x.dtype)
        layout[:] = h5py.VirtualSource("part.h5", "data", x.shape)
        file.create_virtual_dataset("virtual", layout)
        file.create_dataset("external", data=x, external=[("raw.bin", 0, x.nbytes)])
    for name in ("compact", "virtual", "external"):
        same(name, x)
    assert rm.open("x.h5").info().notes["compact"] == "compact, read through h5py"


@pytest.mark.parametrize("options", [{}, {"chunks": (10, 2)}])
def test_empty_datasets_and_empty_rows_are_read(options: dict[str, Any]) -> None:
    with made() as file:
        file.create_dataset("x", (0, 2), "<f4", maxshape=(None, 2) if options else None, **options)
    ds = rm.open("x.h5")
    assert len(ds) == 0
    assert ds[:]["x"].shape == (0, 2)
    with h5py.File("y.h5", "w") as file:
        file.create_dataset("x", (5, 0), "<f4")
    assert rm.open("y.h5")[1:4]["x"].shape == (3, 0)


def test_info_says_how_columns_are_stored() -> None:
    x = np.zeros((2000, 28, 28), "u1")
    with made({"map": x}) as file:
        file.create_dataset("x", data=x, chunks=(1000, 28, 28), compression=1, shuffle=True)
        file.create_dataset("lzf", data=x, chunks=(1000, 28, 28), compression="lzf")
    ds = rm.open("x.h5")
    assert ds.info().mapped == ["map"]
    assert ds.info().notes == {
        "x": "chunks of 1,000 x 28 x 28, gzip+shuffle",
        "lzf": "chunks of 1,000 x 28 x 28, lzf",
    }
    assert ds._source.facts.chunk_rows() == 1000


@pytest.mark.slow
def test_many_threads_read_one_file() -> None:
    x, texts = numbers(4), [f"row {i}" for i in range(ROWS)]
    table = np.zeros(ROWS, [("a", "<i8"), ("b", "<f4")])
    table["a"] = np.arange(ROWS)
    with made({"x": x, "t": table}, chunks=True, compression="gzip") as file:
        file.create_dataset("s", data=texts, dtype=h5py.string_dtype())
        file.create_dataset("lzf", data=x, compression="lzf", chunks=(10, 4))
    ds = rm.open("x.h5")

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(20):
            start = int(rng.integers(0, ROWS))
            stop = min(ROWS, start + int(rng.integers(1, 200)))
            batch = ds[start:stop]
            assert np.array_equal(batch["x"], x[start:stop])
            assert np.array_equal(batch["lzf"], x[start:stop])
            assert np.array_equal(batch["t.a"], table["a"][start:stop])
            assert batch["s"][0] == texts[start].encode()
            rows = rng.integers(0, ROWS, 20)
            assert np.array_equal(ds[rows]["x"], x[rows])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


def test_a_forked_process_starts_its_own_threads() -> None:
    x = numbers(4)
    made({"x": x}, chunks=(10, 4), compression="gzip").close()
    ds = rm.open("x.h5")
    assert np.array_equal(ds[:]["x"], x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about forking with threads
        child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(ds[:]["x"], x) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_process_may_be_forked_while_threads_read_through_the_library() -> None:
    x = np.arange(64_000).reshape(1000, 64)
    made({"x": x}, chunks=(100, 64), scaleoffset=0).close()
    ds, ended = rm.open("x.h5"), Event()

    def read() -> None:
        while not ended.is_set():
            ds[5:900]

    with ThreadPoolExecutor(3) as pool, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about forking with threads
        reading = [pool.submit(read) for _ in range(3)]
        children = []
        for _ in range(4):
            time.sleep(0.05)
            child = os.fork()
            if child == 0:
                signal.alarm(60)  # ends a child that waits for ever
                os._exit(0 if np.array_equal(ds[:]["x"], x) else 1)
            children.append(child)
        found = [os.waitpid(child, 0)[1] for child in children]
        ended.set()
        for each in reading:
            each.result()
    assert found == [0, 0, 0, 0]


@pytest.mark.slow
def test_without_h5py_the_error_says_what_to_install() -> None:
    made({"x": np.arange(3)}).close()
    program = (
        "import sys; sys.modules['h5py'] = None; import recmap as rm\n"
        "for call in (lambda: rm.open('x.h5'), lambda: rm.from_arrays({'a': [1]}).save('y.h5')):\n"
        "    try: call()\n"
        "    except rm.MissingPackageError as e: print(e)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    wording = 'HDF5 files need h5py: pip install "h5py>=3.11"'
    assert done.stdout.splitlines() == [wording] * 2
