"""Every layout that HDF5 has, compared with what h5py reads."""

from __future__ import annotations

import ctypes
import itertools
import random
import warnings
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np
import pytest

import recmap as rm
from recmap.errors import LeftOutWarning

UNLIMITED = h5py.h5s.UNLIMITED
VERSIONS = ["earliest", "v108", "v110", "v112", "latest"]
ALLOCATIONS = [
    h5py.h5d.ALLOC_TIME_DEFAULT,
    h5py.h5d.ALLOC_TIME_EARLY,
    h5py.h5d.ALLOC_TIME_LATE,
    h5py.h5d.ALLOC_TIME_INCR,
]
COLOR = h5py.enum_dtype({"red": 0, "green": 1}, "<i2")
DTYPES: list[Any] = ["<i4", ">i4", "<f8", ">f2", "u1", "?", "<c8", "S3", COLOR]
DTYPES += [[("a", "u1"), ("b", ">f4", (2,))], np.dtype([("a", "u1"), ("b", "<i8")], align=True)]


def random_dataset(rng: random.Random, path: str) -> str:
    """Write a file with one dataset ``x`` of a random layout, and describe it."""
    ndim = rng.randint(1, 4)
    shape = tuple(rng.randint(0 if rng.random() < 0.1 else 1, 9) for _ in range(ndim))
    most = tuple(rng.choice([n, n + rng.randint(0, 9), None]) for n in shape)
    dtype = np.dtype(rng.choice(DTYPES))
    layout = rng.choice(["chunked"] * 6 + ["contiguous", "compact", "external"])
    if layout != "chunked":
        most = shape
    longest = rng.choice([3, 12])
    chunk = tuple(rng.randint(1, longest if m is None else max(1, min(longest, m))) for m in most)
    filters = rng.sample(["gzip", "lzf", "shuffle", "fletcher"], rng.choice([0, 0, 1, 2, 3]))
    version = rng.choice(VERSIONS)
    allocation = rng.choice(ALLOCATIONS)
    whole_edges = rng.random() < 0.2
    storage = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if layout == "chunked":
        storage.set_chunk(chunk)
        storage.set_alloc_time(allocation)
        if whole_edges:
            leave_edges_unfiltered(storage)
        for name in filters:
            add_filter(storage, name)
    elif layout == "compact":
        storage.set_layout(h5py.h5d.COMPACT)
    elif layout == "external":
        size = int(np.prod(shape)) * dtype.itemsize
        storage.set_external(f"{path}.{rng.random()}".encode(), 0, max(size, 1))
    else:
        storage.set_alloc_time(allocation)
    if rng.random() < 0.3 and dtype.names is None and dtype.kind != "S":
        storage.set_fill_value(np.ones((), dtype))
    strategy = rng.choice([None, "fsm", "page", "aggregate", "none"])
    options: dict[str, Any] = {} if version == "v108" else {"fs_strategy": strategy}
    limits = tuple(UNLIMITED if m is None else m for m in most)
    block = rng.choice([0, 0, 512, 2048]) if strategy != "page" else 0
    with h5py.File(path, "w", libver=version, userblock_size=block, **options) as file:
        space = h5py.h5s.create_simple(shape, limits)
        kind = h5py.h5t.py_create(dtype, logical=True)
        dataset = h5py.Dataset(h5py.h5d.create(file.id, b"x", kind, space, storage))
        for _ in range(rng.randint(0, 3)):
            region = tuple(slice(a := rng.randint(0, n), rng.randint(a, n)) for n in dataset.shape)
            fill(rng, dataset, region)
            if layout == "chunked" and rng.random() < 0.4:
                dataset.resize(tuple(rng.randint(0, 14 if m is None else m) for m in most))
        if rng.random() < 0.5:
            fill(rng, dataset, tuple(slice(0, n) for n in dataset.shape))
        if layout == "chunked" and not filters and dataset.size and rng.random() < 0.2:
            mark = bytes(rng.randbytes(int(np.prod(chunk)) * dtype.itemsize))
            if dtype.kind not in "?b":
                dataset.id.write_direct_chunk((0,) * ndim, mark)
    return f"{version} {layout} {shape} of {most} in {chunk}: {dtype} {filters} {allocation=}"


def fill(rng: random.Random, dataset: Any, region: tuple[slice, ...]) -> None:
    shape = tuple(part.stop - part.start for part in region)
    if 0 in shape:
        return
    count = int(np.prod(shape)) * dataset.dtype.itemsize
    values = np.frombuffer(rng.randbytes(count), np.uint8)
    kinds = dataset.dtype.kind
    values = values % 2 if kinds == "b" or h5py.check_enum_dtype(dataset.dtype) else values
    dataset[region] = np.frombuffer(values.tobytes(), dataset.dtype).reshape(shape)


def add_filter(storage: Any, name: str) -> None:
    if name == "gzip":
        storage.set_deflate(1)
    elif name == "lzf":
        storage.set_filter(h5py.h5z.FILTER_LZF, h5py.h5z.FLAG_OPTIONAL)
    elif name == "shuffle":
        storage.set_shuffle()
    else:
        storage.set_fletcher32()


def leave_edges_unfiltered(storage: Any) -> None:
    """Set H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS, which h5py does not offer."""
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "/libhdf5-" in line or "/libhdf5.so" in line}
    for path in paths:
        ask: Callable[..., int] = ctypes.CDLL(path).H5Pset_chunk_opts
        ask.argtypes = [ctypes.c_int64, ctypes.c_uint]  # type: ignore[attr-defined]
        ask(storage.id, 2)


def bitfield(size: int) -> Any:
    """Return the type that PyTables uses for booleans, which h5py does not."""
    return {1: h5py.h5t.STD_B8LE, 2: h5py.h5t.STD_B16LE, 4: h5py.h5t.STD_B32LE}[size]


def random_table(rng: random.Random, path: str) -> np.ndarray[Any, Any]:
    """Write a table ``x`` as PyTables does, or with gaps between members; return its values."""
    members: list[tuple[str, Any, int]] = []
    at = 0
    for i in range(rng.randint(1, 6)):
        kind = rng.choice(["u1", "i1", "<u2", ">i2", "<f4", ">f8", "S1", "S2", "S3", "b1", "b2"])
        size = 1 if kind == "b1" else 2 if kind == "b2" else np.dtype(kind).itemsize
        at += rng.choice([0, 0, 1, 3])
        stored = bitfield(size) if kind[0] == "b" else h5py.h5t.py_create(np.dtype(kind))
        members.append((f"m{i}", stored, at))
        at += size
    size = at + rng.choice([0, 0, 1, 2, 5])
    whole = h5py.h5t.create(h5py.h5t.COMPOUND, size)
    order = rng.sample(members, len(members))
    for name, stored, offset in order:
        whole.insert(name.encode(), offset, stored)
    rows = rng.randint(0, 20)
    raw = bytes(rng.choice(b"\0\1az") for _ in range(rows * size))
    dtype = np.dtype(
        {
            "names": [name for name, _, _ in order],
            "formats": [kind.dtype for _, kind, _ in order],
            "offsets": [offset for _, _, offset in order],
            "itemsize": size,
        }
    )
    values = np.frombuffer(raw, dtype)
    with h5py.File(path, "w") as file:
        space = h5py.h5s.create_simple((rows,), (UNLIMITED,))
        storage = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        storage.set_chunk((7,))
        if rng.random() < 0.5:
            storage.set_deflate(1)
        dataset = h5py.h5d.create(file.id, b"x", whole, space, storage)
        if rows:
            dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, values, whole)
    return values


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_tables_with_small_or_padded_members_are_read(first: int) -> None:
    for seed in range(first, first + 20):
        path = f"{seed}.h5"
        values = random_table(random.Random(seed), path)
        read = rm.open(path)[:]
        assert list(read) == [f"x.{name}" for name in values.dtype.names or ()], path
        for name, column in read.items():
            wanted = values[name.removeprefix("x.")]
            if wanted.dtype.kind == "S":
                assert [bytes(value) for value in column] == wanted.tolist(), path
            else:
                assert np.asarray(column).tobytes() == wanted.tobytes(), path


@pytest.mark.parametrize("last", ["?", "i1", "<i2", "S1", "S2", "S3", ("u1", (3,))], ids=str)
def test_tables_with_strings_and_a_small_last_member_are_read(last: Any) -> None:
    dtype = np.dtype([("text", h5py.string_dtype()), ("list", h5py.vlen_dtype("i2")), ("z", last)])
    values = np.zeros(3, dtype)
    values["text"] = [b"", b"ab", b"c" * 300]
    for row, items in zip(values, ([], [1, 2], range(9)), strict=True):
        row["list"] = np.array(items, "i2")
    with h5py.File("x.h5", "w") as file:
        file["x"] = values
    ds = rm.open("x.h5")
    assert list(ds.schema) == ["x.text", "x.list", "x.z"]
    assert [bytes(text) for text in ds[:]["x.text"]] == values["text"].tolist()
    assert [row.tolist() for row in ds[:]["x.list"]] == [row.tolist() for row in values["list"]]
    assert rm.convert("x.h5", "y.tfrecord", verify="full").rows == 3


def as_h5py(path: str) -> Any:
    with h5py.File(path) as file:
        return file["x"][...]


def compare(rng: random.Random, path: str) -> None:
    """Read a file in every way, and compare the values with h5py's."""
    try:
        whole = as_h5py(path)
    except OSError:  # such as an external file that was never written
        with pytest.raises(rm.RecmapError):
            rm.open(path)[:]
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeftOutWarning)
        ds = rm.open(path)
    rows = len(whole)
    assert len(ds) == rows
    some = [rng.randrange(rows) for _ in range(5)] if rows else []
    start, stop = sorted((rng.randint(0, rows), rng.randint(0, rows)))
    for name in ds.schema:
        expected = whole
        for field in name.split(".")[1:]:
            expected = expected[field]
        if expected.dtype.kind == "S":
            read = ds[0:rows][name]
            assert [bytes(b) for b in np.ravel(np.array(list(map(list_of, read)), object))] == [
                bytes(b) for b in np.ravel(expected)
            ]
            continue
        plain = expected.view(np.dtype(expected.dtype.str))
        for key in (slice(start, stop), slice(0, rows), some):
            read = ds[key][name]
            wanted = plain[key]
            assert read.dtype == wanted.dtype
            assert read.shape == wanted.shape
            assert read.tobytes() == wanted.tobytes()


def list_of(value: Any) -> Any:
    return value if isinstance(value, bytes) else [list_of(inner) for inner in value]


@pytest.mark.parametrize("first", range(0, 100, 10))
def test_any_layout_is_read_as_h5py_reads_it(first: int) -> None:
    for seed in range(first, first + 10):
        rng = random.Random(seed)
        made = random_dataset(rng, f"{seed}.h5")
        print(made)  # shown if the test fails
        compare(rng, f"{seed}.h5")


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_any_axis_may_be_unlimited(version: str) -> None:
    values = np.arange(16, dtype="<i4").reshape(4, 4)
    chunks = [(2, 1), (1, 1), (4, 1), (1, 4), (3, 3)]
    limits = [(4, None), (None, 4), (None, None), (4, 4), (8, None)]
    with h5py.File("x.h5", "w", libver=version) as file:
        for chunk, most in itertools.product(chunks, limits):
            file.create_dataset(f"{chunk} {most}", data=values, chunks=chunk, maxshape=most)
    ds = rm.open("x.h5")
    assert len(ds.schema) == 25
    rm.convert("x.h5", "y.npz", verify="full")
    written = np.load("y.npz")
    for name in ds.schema:
        np.testing.assert_array_equal(ds[:][name], values)
        np.testing.assert_array_equal(ds[[3, 0, 3]][name], values[[3, 0, 3]])
        np.testing.assert_array_equal(ds[name][1:3], values[1:3])
        np.testing.assert_array_equal(written[name], values)


@pytest.mark.parametrize("block", [0, 512, 4096])
def test_a_dataset_that_was_never_written_holds_its_fill_value(block: int) -> None:
    with h5py.File("x.h5", "w", userblock_size=block) as file:
        file.create_dataset("x", (3, 2), "<i4", fillvalue=7)
        file.create_dataset("y", (3, 2), "<i4")[1] = 5
    read = rm.open("x.h5")[:]
    np.testing.assert_array_equal(read["x"], np.full((3, 2), 7))
    np.testing.assert_array_equal(read["y"], [[0, 0], [5, 5], [0, 0]])


def test_a_chunk_table_with_swapped_places_is_not_trusted() -> None:
    values = np.arange(9, dtype="<i8").reshape(3, 3)
    with h5py.File("x.h5", "w", libver="latest") as file:
        file.create_dataset("x", data=values, chunks=(1, 1), maxshape=(3, None))
    np.testing.assert_array_equal(rm.open("x.h5")[:]["x"], values)


def test_unfiltered_chunks_at_the_edges_are_read() -> None:
    storage = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    storage.set_chunk((4, 4))
    leave_edges_unfiltered(storage)
    storage.set_shuffle()
    values = np.arange(6 * 7, dtype="<i4").reshape(6, 7)
    words = [b"w" * i for i in range(6)]
    with h5py.File("x.h5", "w") as file:
        space = h5py.h5s.create_simple(values.shape)
        h5py.Dataset(h5py.h5d.create(file.id, b"x", h5py.h5t.STD_I32LE, space, storage))[:] = values
        storage.set_chunk((4,))
        kind = h5py.h5t.py_create(h5py.string_dtype(), logical=True)
        space = h5py.h5s.create_simple((6,))
        h5py.Dataset(h5py.h5d.create(file.id, b"w", kind, space, storage))[:] = words
    read = rm.open("x.h5")[:]
    np.testing.assert_array_equal(read["x"], values)
    assert [bytes(word) for word in read["w"]] == words
    rm.convert("x.h5", "y.tfrecord", verify="full")
    assert len(rm.open("y.tfrecord")) == 6
