"""Every format is read from every kind of store as it is read from disk."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import recmap as rm
from recmap.cli import main
from tests.buckets import S3Bucket
from tests.faulty_proxy import Hold, Status

if TYPE_CHECKING:
    from tests.buckets import Bucket

ROWS = 300


@cache
def columns(rows: int = ROWS, seed: int = 1) -> dict[str, Any]:
    """Return numbers, lists, strings and lists of strings."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 9, rows)
    ends = np.cumsum([0, *lengths])
    words = [rng.bytes(int(n)) for n in rng.integers(0, 12, int(ends[-1]))]
    return {
        "image": rng.integers(0, 256, (rows, 31, 7), np.uint8),
        "label": np.arange(rows),
        "tokens": rm.Ragged(rng.integers(0, 1 << 40, int(ends[-1])), ends),
        "name": rm.Ragged.from_bytes([rng.bytes(int(n)) for n in rng.integers(0, 40, rows)]),
        "words": rm.Ragged(rm.Ragged.from_bytes(words), ends),
    }


def fixed(rows: int = ROWS, seed: int = 1) -> dict[str, Any]:
    made = columns(rows, seed)
    return {"image": made["image"], "label": made["label"]}


@dataclass(frozen=True)
class Case:
    """A format: how the files of ``folder`` are made, and the path of the dataset in it."""

    name: str
    path: str
    make: Callable[[str], object]

    @property
    def is_zarr(self) -> bool:
        return self.name.startswith("zarr")


def saved(name: str, make: Callable[[], dict[str, Any]] = columns, **options: Any) -> Any:
    return lambda folder: rm.from_arrays(make()).save(f"{folder}/{name}", **options)


def texts() -> dict[str, Any]:
    """Return what CSV holds."""
    made = rm.Ragged.from_text([f'{i},"\n' * (i % 40) for i in range(ROWS)])
    return {"label": columns()["label"], "x": np.random.default_rng(5).random(ROWS), "text": made}


def zlib_records(folder: str) -> None:
    rm.from_arrays(columns()).save(f"{folder}/x.tfrecord.zlib", compression="zlib")


def gzip_stream(folder: str) -> None:
    """Write a file with one member, as other programs do."""
    import gzip

    rm.from_arrays(columns()).save(f"{folder}/plain.tfrecord")
    with open(f"{folder}/plain.tfrecord", "rb") as file:
        data = file.read()
    os.unlink(f"{folder}/plain.tfrecord")
    with gzip.open(f"{folder}/x.tfrecord.gz", "wb") as packed:
        packed.write(data)


def hdf5_layouts(folder: str) -> None:
    """Write contiguous, compact, chunked, virtual and compound datasets, and lists."""
    import h5py

    made = columns()
    with h5py.File(f"{folder}/x.h5", "w") as file:
        file["contiguous"] = made["image"]
        file["strings"] = [f"row {i}" for i in range(ROWS)]
        file["bytes"] = np.array([b"%d" % i for i in range(ROWS)])
        table = np.zeros(ROWS, [("a", "<i4"), ("b", "<f8", 3)])
        table["a"], table["b"] = made["label"], np.random.default_rng(2).random((ROWS, 3))
        file["table"] = table
        file.create_dataset("tiles", data=made["image"], chunks=(7, 16, 3), compression="lzf")
        file.create_dataset("big-endian", data=made["label"].astype(">i8"), chunks=(64,))
        file.create_dataset("scaled", data=made["label"], chunks=(64,), scaleoffset=0)
        lists = file.create_dataset("lists", ROWS, h5py.vlen_dtype("<i4"))
        for i in range(ROWS):
            lists[i] = np.arange(i % 5)
        whole = h5py.VirtualLayout(ROWS, "<i8")
        whole[:] = h5py.VirtualSource(".", "big-endian", ROWS)
        file.create_virtual_dataset("virtual", whole)


CASES = [
    Case("tfrecord", "x.tfrecord", saved("x.tfrecord")),
    Case("tfrecord-shards", "x-*.tfrecord", saved("x.tfrecord", shards=3)),
    Case("tfrecord-gzip", "x.tfrecord.gz", saved("x.tfrecord.gz")),
    Case("tfrecord-gzip-stream", "x.tfrecord.gz", gzip_stream),
    Case("tfrecord-gzip-shards", "x-*", saved("x.tfrecord.gz", shards=3)),
    Case("tfrecord-zlib", "x.tfrecord.zlib", zlib_records),
    Case("npy", "x.npy", saved("x.npy", fixed)),
    Case("npz", "x.npz", saved("x.npz")),
    Case("npz-shards", "x-*.npz", saved("x.npz", shards=3)),
    Case("npz-deflated", "x.npz", saved("x.npz", compression="deflate")),
    Case("hdf5", "x.h5", saved("x.h5", options={"chunk_rows": 16})),
    Case("hdf5-gzip", "x.h5", saved("x.h5", compression="gzip")),
    Case("hdf5-shards", "x-*.h5", saved("x.h5", shards=3)),
    Case("hdf5-layouts", "x.h5", hdf5_layouts),
    Case("zarr", "x.zarr", saved("x.zarr", options={"chunk_rows": 100})),
    Case("zarr-2", "x.zarr", saved("x.zarr", options={"version": 2})),
    Case("zarr-shards", "x-*.zarr", saved("x.zarr", shards=2)),
    Case("raw-shards", "x-*.bin", saved("x.bin", fixed, shards=3)),
    Case("parquet", "x-*.parquet", saved("x.parquet", options={"row_group_rows": 40}, shards=2)),
    Case("webdataset", "x-*.tar", saved("x.tar", fixed, shards=2)),
    Case("csv-shards", "x-*.csv", saved("x.csv", texts, shards=2)),
    Case("jsonl-zstd", "x.jsonl.zst", saved("x.jsonl.zst", texts)),
    Case("arrow", "x.arrow", saved("x.arrow", options={"row_group_rows": 70})),
]
ONCE = ("tfrecord-shards", "tfrecord-gzip", "npy", "npz", "hdf5", "zarr", "raw-shards", "parquet")
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
some_cases = pytest.mark.parametrize(
    "case",
    [
        each
        for each in CASES
        if each.name
        in ("tfrecord-gzip", "npy", "npz-shards", "hdf5-layouts", "zarr-shards", "raw-shards")
    ],
    ids=lambda case: case.name,
)


def uploaded(store: Bucket, folder: str) -> list[str]:
    """Upload a folder, and return the keys."""
    keys = []
    for inside, _, names in os.walk(folder):
        for name in sorted(names, reverse=True):  # an index after its data
            path = os.path.join(inside, name)
            key = os.path.relpath(path, folder)
            with open(path, "rb") as file:
                store.put(key, file.read())
            keys.append(key)
    return sorted(keys)


def urls(store: Bucket, case: Case, folder: str) -> str | list[str]:
    """Return what opens the dataset; an HTTP server has no patterns."""
    if store.listed or "*" not in case.path:
        return store.url_of(case.path)
    names = rm.open(f"{folder}/{case.path}").files
    return [store.url_of(os.path.relpath(name, folder)) for name in names]


def assert_same(found: Any, wanted: Any) -> None:
    if isinstance(wanted, dict):
        assert list(found) == list(wanted)
        for name in wanted:
            assert_same(found[name], wanted[name])
    elif isinstance(wanted, rm.Ragged):
        assert isinstance(found, rm.Ragged)
        assert found.lengths.tolist() == wanted.lengths.tolist()
        assert_same(found.flat, wanted.flat)
    else:
        wanted = np.asarray(wanted)
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        assert found.tobytes() == wanted.tobytes()


# Every case in one kind of store, and every format in every kind.
@pytest.mark.parametrize(
    ("any_store", "case"),
    [
        *(("bucket", case) for case in CASES),
        *itertools.product(
            ["azure_container", "gcs_bucket", "http_folder"],
            [case for case in CASES if case.name in ONCE],
        ),
    ],
    indirect=["any_store"],
    ids=lambda each: each if isinstance(each, str) else each.name,
)
@pytest.mark.filterwarnings("ignore::recmap.errors.SlowOrderWarning")
def test_rows_in_a_store_equal_those_on_disk(any_store: Bucket, case: Case) -> None:
    os.mkdir("local")
    case.make("local")
    uploaded(any_store, "local")
    ds = rm.open(urls(any_store, case, "local"), storage=any_store.storage)
    local = rm.open(f"local/{case.path}")
    assert ds.schema == local.schema
    assert len(ds) == len(local) == ROWS
    rng = np.random.default_rng(2)
    for a, b in [(0, ROWS), (0, 1), (ROWS - 1, ROWS), *np.sort(rng.integers(0, ROWS, (3, 2)))]:
        assert_same(ds[int(a) : int(b)], local[int(a) : int(b)])
    for count in (1, 7, 200):
        rows = rng.integers(0, ROWS, count)
        assert_same(ds[rows], local[rows])
    batches = zip(ds.shuffle(seed=3).batch(64), local.shuffle(seed=3).batch(64), strict=True)
    for batch, wanted in batches:
        assert_same(dict(batch), dict(wanted))
    info, wanted_info = ds.info(), local.info()
    assert (info.format, info.rows) == (wanted_info.format, wanted_info.rows)
    if any_store.listed or not case.is_zarr:  # a server does not tell the size of a folder
        assert info.size == wanted_info.size


def opened_local(case: Case, store: Bucket) -> rm.Dataset:
    """Write the files of a case, upload them, and open the local ones."""
    os.makedirs("local", exist_ok=True)
    case.make("local")
    uploaded(store, "local")
    return rm.open(f"local/{case.path}")


def use_environment(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the options of a bucket of S3 in the environment."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.storage["endpoint"])
    for name in ("access_key_id", "secret_access_key", "region"):
        monkeypatch.setenv(f"AWS_{name.upper()}", bucket.storage[name])


@some_cases
def test_the_command_line_reads_urls(
    bucket: Bucket,
    case: Case,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    opened_local(case, bucket)
    use_environment(bucket, monkeypatch)

    def told(verb: str, place: str) -> tuple[int, str]:
        code = main([verb, f"{place}/{case.path}"])
        out = capsys.readouterr().out
        for name in (bucket.url, "local", os.path.abspath("local")):
            out = out.replace(f"{name}/", "")
        # Objects are not mapped, and the path of a Zarr store ends with a slash.
        return code, re.sub(r"  \(mapped in place\)|(?<=\.zarr)/", "", out)

    for verb in ("info", "head", "stats", "schema", "verify"):
        assert told(verb, bucket.url) == told(verb, "local"), verb


@some_cases
def test_files_in_a_store_are_verified(bucket: Bucket, case: Case) -> None:
    opened_local(case, bucket)
    url, storage = bucket.url_of(case.path), bucket.storage
    for workers in (1, "processes:2") if case.name == "npz-shards" else (1,):
        found = rm.verify(url, storage=storage, workers=workers)
        wanted = rm.verify(f"local/{case.path}")
        assert (found.ok, found.files, found.records) == (True, wanted.files, wanted.records)
        assert (found.size, len(found.unchecked)) == (wanted.size, len(wanted.unchecked))


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.name.startswith("tfrecord")], ids=lambda case: case.name
)
def test_records_in_a_store_are_read_and_repaired(bucket: Bucket, case: Case) -> None:
    files = opened_local(case, bucket).files
    url, storage = bucket.url_of(case.path), bucket.storage
    wanted = list(rm.tfrecord.records(f"local/{case.path}"))
    assert list(rm.tfrecord.records(url, storage=storage)) == wanted
    views = list(rm.tfrecord.records(url, storage=storage, view=True))
    assert [bytes(view) for view in views] == wanted
    with open(files[0], "r+b") as file:
        file.seek(os.path.getsize(files[0]) // 2)
        file.write(b"damage")
    uploaded(bucket, "local")
    rm.repair(f"local/{case.path}", "repaired.tfrecord")
    done = rm.repair(url, "from-store.tfrecord", storage=storage)
    assert done.damage
    assert str(done.damage[0].file).startswith(bucket.url)
    with open("repaired.tfrecord", "rb") as a, open("from-store.tfrecord", "rb") as b:
        assert a.read() == b.read()
    found = rm.verify(url, storage=storage)
    local = rm.verify(f"local/{case.path}")
    assert [(each.record, each.byte) for each in found.damage] == [
        (each.record, each.byte) for each in local.damage
    ]


@pytest.mark.parametrize("text", [False, True])
def test_an_index_is_written_beside_its_object(any_store: Bucket, text: bool) -> None:
    rm.from_arrays(columns()).save("x.tfrecord")
    for index in Path().glob(".*.recmap"):
        index.unlink()
    uploaded(any_store, ".")
    url, storage = any_store.url_of("x.tfrecord"), any_store.storage
    if not any_store.writable:
        with pytest.raises(rm.OptionError, match="does not write"):
            rm.index(url, text=text, storage=storage)
        return
    made = rm.index(url, text=text, storage=storage)
    name = "x.tfrecord.idx" if text else ".x.tfrecord.recmap"
    assert made == [any_store.url_of(name)]
    rm.index("x.tfrecord", text=text)
    ds = rm.open(url, storage=storage)
    assert_same(ds[5:9], rm.open("x.tfrecord")[5:9])
    if text:
        assert any_store.get(name) == Path(name).read_bytes()
    else:
        assert "index" in ds.info().origin


def test_an_indexed_row_costs_few_requests(any_bucket: Bucket) -> None:
    rm.from_arrays(columns()).save("x.tfrecord")
    rm.index("x.tfrecord")
    uploaded(any_bucket, ".")
    any_bucket.proxy.reset()
    ds = rm.open(any_bucket.url_of("x.tfrecord"), storage=any_bucket.storage)
    assert len(ds) == ROWS
    opening = any_bucket.proxy.count()
    assert ds[ROWS // 2]["label"] == ROWS // 2
    assert any_bucket.proxy.count() - opening <= 1
    assert opening <= 7


@pytest.mark.slow
def test_opening_many_objects_takes_few_requests(gcs_bucket: Bucket) -> None:
    rm.from_arrays(columns(600)).save("x.tfrecord", shards=200)
    uploaded(gcs_bucket, ".")
    gcs_bucket.proxy.reset()
    ds = rm.open(gcs_bucket.url_of("x-*.tfrecord"), storage=gcs_bucket.storage)
    assert len(ds.files) == 200
    assert ds[0]["label"] == 0
    assert gcs_bucket.proxy.count() < 400


def test_chunks_are_fetched_together(gcs_bucket: Bucket) -> None:
    """A gather from many chunks waits for about one request, not for one after another."""
    import h5py

    data = np.random.default_rng(1).integers(0, 256, (400, 50_000), np.uint8)
    with h5py.File("x.h5", "w") as file:
        file.create_dataset("x", data=data, chunks=(4, 50_000))
    uploaded(gcs_bucket, ".")
    ds = rm.open(gcs_bucket.url_of("x.h5"), storage=gcs_bucket.storage)
    rows = np.arange(44, 400, 40)
    ds[0]
    gcs_bucket.proxy.reset()
    together = threading.Barrier(len(rows), timeout=60)  # passed only by all at once
    gcs_bucket.proxy.faults.extend([Hold(together.wait)] * len(rows))
    np.testing.assert_array_equal(ds[rows]["x"], data[rows])
    assert gcs_bucket.proxy.count("GET") == len(rows)


def test_values_in_other_files_are_refused(gcs_bucket: Bucket) -> None:
    import h5py

    with h5py.File("other.h5", "w") as other:
        other["y"] = np.arange(6)
    with h5py.File("x.h5", "w") as file:
        file["x"] = np.arange(6)
        file["linked"] = h5py.ExternalLink("other.h5", "/y")
        elsewhere = h5py.VirtualLayout(6, "<i8")
        elsewhere[:] = h5py.VirtualSource("other.h5", "y", 6)
        file.create_virtual_dataset("virtual", elsewhere)
        file.create_dataset("external", (6,), "<i8", external=[("other.h5", 0, 48)])
    uploaded(gcs_bucket, ".")
    url, storage = gcs_bucket.url_of("x.h5"), gcs_bucket.storage
    with pytest.warns(rm.LeftOutWarning):
        assert list(rm.open(url, storage=storage).schema) == ["x"]
    for name in ("virtual", "external"):
        with pytest.raises(rm.DataError, match=r"other\.h5; open that one"):
            rm.open(url, [name], storage=storage)
    with pytest.raises(rm.FieldNotFoundError):
        rm.open(url, ["linked"], storage=storage)


def test_arrays_in_fortran_order_are_refused(gcs_bucket: Bucket) -> None:
    array = np.asfortranarray(np.arange(12).reshape(4, 3))
    np.save("x.npy", array)
    np.savez("x.npz", x=array)
    np.savez_compressed("deflated.npz", x=array)
    os.rename("deflated.npz", "deflated")
    uploaded(gcs_bucket, ".")
    for name in ("x.npy", "x.npz"):
        with pytest.raises(rm.DataError, match="Fortran order"):
            rm.open(gcs_bucket.url_of(name), storage=gcs_bucket.storage)
    ds = rm.open(gcs_bucket.url_of("deflated"), storage=gcs_bucket.storage)
    np.testing.assert_array_equal(ds[:]["x"], array)


def test_zarr_on_a_server_needs_consolidated_metadata(http_folder: Bucket) -> None:
    import zarr

    group = zarr.open_group("x.zarr", mode="w")
    group.create_array("a/b", data=np.arange(6), chunks=(2,))
    group.create_array("c", data=np.arange(6.0), chunks=(6,))
    uploaded(http_folder, ".")
    url, storage = http_folder.url_of("x.zarr"), http_folder.storage
    with pytest.raises(rm.OptionError, match="consolidated metadata"):
        rm.open(url, storage=storage)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not in version 3 of the specification
        zarr.consolidate_metadata("x.zarr")
    uploaded(http_folder, ".")
    for given in (url, f"{url}/"):
        assert_same(rm.open(given, storage=storage)[:], rm.open("x.zarr")[:])
    assert_same(rm.open(f"{url}/c", storage=storage)[:], rm.open("x.zarr/c")[:])
    with pytest.raises(rm.PathNotFoundError, match="no such object"):
        rm.open(http_folder.url_of("y.zarr"), storage=storage)


def test_folders_and_patterns_find_zarr_stores(any_bucket: Bucket) -> None:
    for name in ("x-1.zarr", "other.zarr", ".hidden.zarr"):
        rm.from_arrays(fixed(6)).save(f"d/{name}")
    os.rename("d/other.zarr", "d/other")
    uploaded(any_bucket, ".")
    storage = any_bucket.storage
    for pattern in ("d", "d/", "d/*", "*/*.zarr", "**/x-*", "d/o*"):
        local = rm.open(pattern)
        ds = rm.open(any_bucket.url_of(pattern), storage=storage)
        names = [file.removeprefix(f"{any_bucket.url}/").rstrip("/") for file in ds.files]
        assert names == [os.path.relpath(file) for file in local.files]
        assert_same(ds[:], local[:])


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if c.name in ("npz-deflated", "hdf5-gzip", "hdf5-layouts", "zarr")],
    ids=lambda case: case.name,
)
def test_failed_requests_are_errors_of_the_store_and_show_no_secrets(
    bucket: Bucket, case: Case
) -> None:
    opened_local(case, bucket)
    storage = {**bucket.storage, "retries": 0}
    secret = str(bucket.storage["secret_access_key"])
    ends = 0
    for passed in [*range(30), *range(30, 500, 30)]:
        bucket.proxy.faults.clear()
        bucket.proxy.faults.extend([None] * passed + [Status(403)] * 500)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", rm.LeftOutWarning)
                ds = rm.open(bucket.url_of(case.path), storage=storage)
                ds[:]
        except rm.AccessDeniedError as e:
            text = "".join(traceback.format_exception(e))
            assert secret not in text
            assert "obstore" not in text.replace("zarr/storage/_obstore", "")
        else:
            ends += 1
            if ends > 1:
                break
    bucket.proxy.faults.clear()
    assert ends > 1


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if c.name in ("npz", "npz-deflated", "hdf5-gzip", "zarr")],
    ids=lambda case: case.name,
)
def test_a_conversion_from_a_store_is_verified_fully(gcs_bucket: Bucket, case: Case) -> None:
    local = opened_local(case, gcs_bucket)
    ds = rm.open(gcs_bucket.url_of(case.path), storage=gcs_bucket.storage)
    ds.save("out.tfrecord", verify="full")
    local.save("local.tfrecord")
    with open("out.tfrecord", "rb") as a, open("local.tfrecord", "rb") as b:
        assert a.read() == b.read()


def test_a_process_ends_while_a_virtual_dataset_is_open(bucket: S3Bucket) -> None:
    import h5py

    with h5py.File("x.h5", "w") as file:
        file["x"] = np.arange(6)
        virtual = h5py.VirtualLayout(6, "<i8")
        virtual[:] = h5py.VirtualSource(".", "x", 6)
        file.create_virtual_dataset("y", virtual)
    bucket.put("x.h5", Path("x.h5").read_bytes())
    program = f"""
import ctypes
import recmap as rm
ds = rm.open({bucket.url + "/x.h5"!r}, storage={bucket.storage!r})
ctypes.pythonapi.Py_IncRef(ctypes.py_object(ds))  # nothing frees it
print(ds[3]["y"])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
