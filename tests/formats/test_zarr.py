"""Zarr stores, compared with what the zarr package reads and writes."""

from __future__ import annotations

import gzip
import os
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, BytesCodec, GzipCodec, TransposeCodec, ZstdCodec

import recmap as rm
from recmap.formats.registry import create_sink

RNG = np.random.default_rng(7)
VERSIONS = pytest.mark.parametrize("version", [2, 3])


def group(version: int = 3) -> Any:
    return zarr.create_group("x.zarr", zarr_format=version)


def chunk_files(path: str) -> list[str]:
    found = [os.path.join(d, name) for d, _, names in os.walk(path) for name in names]
    return sorted(f for f in found if "json" not in f and "/.z" not in f)


@VERSIONS
def test_arrays_of_a_group_are_columns_and_nested_ones_have_paths(version: int) -> None:
    images = RNG.integers(0, 255, (20, 4, 5), dtype=np.uint8)
    root = group(version)
    root.create_array("image", data=images, chunks=(7, 2, 5))
    root.create_array("meta/deep/label", data=np.arange(20))
    ds = rm.open("x.zarr")
    assert ds.schema == {"image": "uint8[4,5]", "meta/deep/label": "int64"}
    assert np.array_equal(ds["image"][:], images)
    assert np.array_equal(ds[[19, 0, 8, 8]]["image"], images[[19, 0, 8, 8]])
    assert np.array_equal(ds[5:15]["meta/deep/label"], np.arange(5, 15))


@VERSIONS
def test_a_store_that_is_one_array_is_one_column(version: int) -> None:
    zarr.create_array("x.zarr", data=np.arange(6.0).reshape(3, 2), zarr_format=version)
    assert rm.open("x.zarr").schema == {"data": "float64[2]"}
    zarr.open_array("x.zarr").attrs["name"] = "speed"
    assert rm.open("x.zarr")[1]["speed"].tolist() == [2, 3]


@pytest.mark.parametrize(
    "codec",
    [
        *(ZstdCodec(), GzipCodec(), BloscCodec(cname="lz4"), BloscCodec(shuffle="bitshuffle")),
        None,
    ],
    ids=["zstd", "gzip", "lz4", "bitshuffle", "none"],
)
def test_codecs_of_version_3_are_read(codec: Any) -> None:
    values = RNG.random((50, 6))
    group().create_array("x", data=values, chunks=(8, 4), compressors=codec)
    assert np.array_equal(rm.open("x.zarr")[3:47]["x"], values[3:47])


@pytest.mark.parametrize(
    "codec",
    [numcodecs.Blosc(), numcodecs.Zlib(), numcodecs.LZ4(), numcodecs.BZ2(), numcodecs.LZMA()],
    ids=lambda codec: str(codec.codec_id),
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_codecs_filters_and_orders_of_version_2_are_read(codec: Any, order: Any) -> None:
    values = RNG.integers(0, 1000, (50, 6), dtype=np.int32)
    group(2).create_array(
        "x",
        data=values,
        chunks=(8, 4),
        compressors=codec,
        order=order,
        filters=[numcodecs.Delta(dtype="i4")],
    )
    assert np.array_equal(rm.open("x.zarr")[3:47]["x"], values[3:47])


def test_shards_transposed_and_big_endian_chunks_are_read() -> None:
    values = RNG.random((40, 6))
    root = group()
    root.create_array("shards", data=values, chunks=(4, 6), shards=(20, 6))
    root.create_array("swapped", data=values, chunks=(9, 6), serializer=BytesCodec(endian="big"))
    root.create_array("turned", data=values, chunks=(9, 6), filters=[TransposeCodec(order=(1, 0))])
    ds = rm.open("x.zarr")
    for name in ds.schema:
        assert np.array_equal(ds[2:39][name], values[2:39])


def test_big_endian_arrays_of_version_2_keep_their_order() -> None:
    group(2).create_array("x", data=np.arange(9, dtype=">i4"))
    assert rm.open("x.zarr").schema == {"x": ">i4"}
    assert rm.open("x.zarr")[:]["x"].tolist() == list(range(9))


@VERSIONS
def test_text_of_any_length_becomes_byte_strings(version: int) -> None:
    text = np.array(["a", "größe", "", "d" * 300], dtype=object)
    root = group(version)
    root.create_array("text", shape=4, chunks=3, dtype=str)[:] = text
    ds = rm.open("x.zarr")
    assert ds.schema == {"text": "bytes"}
    assert ds[:]["text"].tolist() == [item.encode() for item in text]
    assert ds[[3, 1]]["text"].tolist() == [b"d" * 300, "größe".encode()]


def test_fixed_width_strings_and_structured_arrays_of_version_2_are_read() -> None:
    table = np.zeros(5, [("x", "<f4"), ("n", "<i8")])
    table["x"], table["n"] = RNG.random(5), np.arange(5)
    root = group(2)
    root.create_array("s", data=np.array([b"a", b"", b"ccc", b"d", b"e"]))
    root.create_array("t", data=table, chunks=(2,))
    ds = rm.open("x.zarr")
    assert ds.schema == {"s": "bytes", "t.x": "float32", "t.n": "int64"}
    assert ds[:]["s"].tolist() == [b"a", b"", b"ccc", b"d", b"e"]
    assert np.array_equal(ds[1:]["t.x"], table["x"][1:])
    assert np.array_equal(ds[[4, 0]]["t.n"], [4, 0])


def test_chunks_that_were_never_written_hold_the_fill_value() -> None:
    array = group().create_array("x", shape=(10,), chunks=(4,), dtype="i4", fill_value=-7)
    array[0:2] = [1, 2]
    assert rm.open("x.zarr")[:]["x"].tolist() == [1, 2, *[-7] * 8]


def test_arrays_of_other_lengths_are_left_out_by_name() -> None:
    root = group()
    root.create_array("a", data=np.arange(5))
    root.create_array("b", data=np.arange(5))
    root.create_array("mean", data=np.arange(3))
    root.create_array("rate", data=np.array(0.5))
    with pytest.warns(rm.LeftOutWarning, match="'mean' has 3 rows; 'rate' holds a single value"):
        assert list(rm.open("x.zarr").schema) == ["a", "b"]
    assert rm.open("x.zarr", ["mean"])[:]["mean"].tolist() == [0, 1, 2]
    with pytest.raises(rm.FieldNotFoundError, match="no column 'c'; there are: a, b, mean"):
        rm.open("x.zarr", ["c"])


def test_info_tells_chunks_and_compression() -> None:
    group().create_array("x", data=np.zeros((3000, 28, 28), "u1"), chunks=(1000, 28, 28))
    info = rm.open("x.zarr").info()
    assert info.notes == {"x": "chunks of 1,000 x 28 x 28, zstd"}
    assert rm.open("x.zarr")._source.facts.chunk_rows() == 1000


@VERSIONS
def test_zarr_reads_the_stores_of_recmap(version: int) -> None:
    columns: dict[str, Any] = {
        "x": RNG.random((100, 3)),
        "tokens": rm.Ragged(np.array([1, 2, 3]), [0, 2, *[3] * 99]),
        "name": [b"a\0", *[b""] * 99],
    }
    rm.from_arrays(columns).save("x.zarr", options={"version": version, "chunk_rows": 30})
    root = zarr.open_group("x.zarr", mode="r")
    assert root.metadata.zarr_format == version
    assert root["x"].chunks == (30, 3)
    assert np.array_equal(root["x"][:], columns["x"])
    assert root["tokens/values"][:].tolist() == [1, 2, 3]
    assert root["tokens/offsets"][:].tolist() == [0, 2, *[3] * 99]
    assert root["name/values"][:].tobytes() == b"a\0"
    listed = root.attrs["recmap"]["columns"]
    assert [c["field"] for c in listed] == ["float64[3]", "int64[*]", "bytes"]


@VERSIONS
def test_gzip_does_not_store_the_time(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source = rm.from_arrays({"x": np.arange(3000), "s": [b"abc"] * 3000})
    written = []
    for seconds in (1e9, 1.5e9):
        monkeypatch.setattr(time, "time", lambda now=seconds: now)
        options = {"version": version}
        source.save("x.zarr", compression="gzip", options=options, overwrite=True)
        written.append([Path(file).read_bytes() for file in chunk_files("x.zarr")])
    assert written[0] == written[1]
    assert gzip.decompress(written[0][-1])[:24] == np.arange(3).tobytes()
    array = zarr.open_group("x.zarr", mode="r")["x"]
    assert np.array_equal(array[:], np.arange(3000))
    assert array.compressors[0] == (GzipCodec(level=5) if version == 3 else numcodecs.GZip(level=5))


def test_names_that_no_folder_can_have_are_kept() -> None:
    names = ["..", "", "zarr.json", "a/b", "a", "A", "x" * 300, "__x", "nul\0", "x/values", "ü ß"]
    rm.from_arrays({name: np.full(3, i) for i, name in enumerate(names)}).save("x.zarr")
    ds = rm.open("x.zarr")
    assert list(ds.schema) == names
    for i, name in enumerate(names):
        assert ds[:][name].tolist() == [i] * 3


@pytest.mark.parametrize("dtype", ["longdouble", "V5", "datetime64", "clongdouble"])
def test_dtypes_that_zarr_does_not_have_are_kept(dtype: str) -> None:
    raw = RNG.integers(0, 2, 6 * np.dtype(dtype).itemsize, dtype=np.uint8)
    np.save("x.npy", raw.view(dtype).reshape(3, 2))
    rm.convert("x.npy", "x.zarr", verify="full")
    assert rm.open("x.zarr").schema == rm.open("x.npy").schema
    assert rm.open("x.zarr")[:]["data"].tobytes() == raw.tobytes()


def test_zeros_of_either_sign_are_kept() -> None:
    values = np.array([complex(-0.0, -0.0), complex(0.0, -0.0)])
    rm.from_arrays({"x": values}).save("x.zarr")
    assert rm.open("x.zarr")[:]["x"].tobytes() == values.tobytes()


def test_a_row_larger_than_a_chunk_is_cut() -> None:
    schema = rm.Schema({"small": "float64[3]", "large": "float64[3,5242880]"})
    sink = create_sink("x.zarr", "zarr", schema)
    sink.commit()
    root = zarr.open_group("x.zarr", mode="r")
    assert root["small"].chunks == (43690, 3)
    assert root["large"].chunks == (1, 1, 5242880)


def test_reads_across_chunks_are_right() -> None:
    values = RNG.random((1000, 3))
    group().create_array("x", data=values, chunks=(64, 2))
    ds = rm.open("x.zarr")
    at = 0
    for size in (1, 62, 1, 1, 64, 100, 200, 3, 500, 68):
        assert np.array_equal(ds[at : at + size]["x"], values[at : at + size])
        at += size
    assert at == len(values)


def test_a_chunk_that_spans_batches_is_decoded_once() -> None:
    group().create_array("x", data=np.arange(1000.0), chunks=(500,))
    ds = rm.open("x.zarr")
    assert ds[:10]["x"].tolist() == list(range(10))
    for file in chunk_files("x.zarr"):
        os.unlink(file)
    assert ds[10:400]["x"].tolist() == list(range(10, 400))
    assert ds[[3, 499]]["x"].tolist() == [3, 499]


@pytest.mark.parametrize("shards", [None, (200, 3)])
def test_uncompressed_chunks_are_gathered_from_mapped_files(shards: Any) -> None:
    values = RNG.random((1000, 3))
    options = {"chunks": (100, 2 if shards is None else 3), "shards": shards, "compressors": None}
    x = group().create_array("x", shape=values.shape, dtype="f8", fill_value=5.0, **options)
    x[:700] = values[:700]
    values[700:] = 5
    ds = rm.open("x.zarr")
    rows = RNG.permutation(1000)
    assert np.array_equal(ds[rows]["x"], values[rows])
    assert np.array_equal(ds[95:105]["x"], values[95:105])
    assert np.array_equal(ds[:]["x"], values)
    for file in chunk_files("x.zarr"):
        os.truncate(file, os.path.getsize(file) - 1)
    with pytest.raises(rm.DataError, match="shrank"):
        ds[[3, 500]]
    with pytest.raises(rm.DataError, match=r"'x' cannot be read: the chunk at \(0, 0\), c/0/0: "):
        rm.open("x.zarr")[:]


@pytest.mark.parametrize("at", ["start", "end"])
@pytest.mark.parametrize("where", ["x.zarr", "memory"])
def test_shards_are_read_in_part_and_whole_from_any_store(at: Any, where: str) -> None:
    from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, ZstdCodec

    sharding = ShardingCodec(
        chunk_shape=(10, 2),
        codecs=[BytesCodec(), ZstdCodec()],
        index_codecs=[BytesCodec(), Crc32cCodec()],
        index_location=at,
    )
    values = RNG.integers(0, 99, (100, 5))
    store: Any = zarr.storage.MemoryStore() if where == "memory" else where
    x = zarr.create_group(store).create_array(
        "x",
        shape=values.shape,
        chunks=(40, 4),
        dtype=values.dtype,
        serializer=sharding,
        compressors=None,
        fill_value=3,
    )
    x[:75] = values[:75]
    values[75:] = 3
    ds = rm.open(x if where == "memory" else where)
    for rows in (slice(5, 7), slice(0, 40), slice(33, 91), slice(None), [99, 3, 41, 3]):
        assert np.array_equal(ds[rows]["x"], values[rows])
    if where != "memory":
        for file in chunk_files(where):
            size = os.path.getsize(file)
            with open(file, "r+b") as shard:
                shard.seek(size - 9 if at == "end" else 3)
                shard.write(b"\x01\x02")
        with pytest.raises(rm.DataError, match=r"c/0/0: the index of its shard: its checksum is"):
            rm.open(where)[:1]


def test_info_says_which_arrays_only_zarr_can_decode() -> None:
    made = group(2)
    made.create_array("x", data=np.arange(10), compressors=numcodecs.BZ2())
    made.create_array("y", data=np.arange(10), compressors=numcodecs.LZ4())
    ds = rm.open("x.zarr")
    assert ds.info().notes == {
        "x": "chunks of 10, bz2, read through zarr",
        "y": "chunks of 10, lz4",
    }
    assert ds[:]["x"].tolist() == ds[:]["y"].tolist() == list(range(10))


def test_many_threads_read_one_store() -> None:
    values = RNG.integers(0, 100, (5000, 4))
    group().create_array("x", data=values, chunks=(300, 4))
    ds = rm.open("x.zarr")

    def part(start: int) -> bool:
        rows = range(start, start + 1000, 90)
        return all(np.array_equal(ds[r : r + 90]["x"], values[r : r + 90]) for r in rows)

    with ThreadPoolExecutor(5) as pool:
        assert all(pool.map(part, range(0, 5000, 1000)))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"compression": "lz4"}, 'compression=\'lz4\': use one of "zstd", "blosc"'),
        ({"options": {"version": 1}}, "version=1: use 2 or 3"),
        ({"options": {"chunk_rows": 0}}, "chunk_rows=0: give a whole number of 1 or more"),
        ({"options": {"level": 3}}, "no option 'level'"),
    ],
)
def test_meaningless_options_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(rm.OptionError, match=why):
        rm.from_arrays({"x": [1]}).save("x.zarr", **options)
    assert os.listdir() == []


def test_without_zarr_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group()
    monkeypatch.setitem(sys.modules, "zarr", None)
    for name in [name for name in sys.modules if name.startswith("recmap.formats.zarr")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(rm.MissingPackageError, match=r'zarr: pip install "zarr>=3.1"'):
        rm.open("x.zarr")


@VERSIONS
@pytest.mark.parametrize("folder", ["", "inner.zarr/"])
@pytest.mark.parametrize("format", [None, "zarr"])
def test_a_zipped_store_is_refused_with_a_way_to_open_it(
    version: int, folder: str, format: str | None
) -> None:
    group(version).create_array("x.npy", data=np.arange(6))
    with zipfile.ZipFile("x.zarr.zip", "w") as archive:
        for file in sorted(Path("x.zarr").rglob("*")):
            archive.write(file, f"{folder}{file.relative_to('x.zarr')}")
    with pytest.raises(rm.UnknownFormatError, match="a zipped Zarr store.*unzip ") as e:
        rm.open("x.zarr.zip", format=format)
    assert e.value.file == "x.zarr.zip"
    with zipfile.ZipFile("x.zarr.zip") as archive:
        archive.extractall("data.zarr")
    assert rm.open(f"data.zarr/{folder}")[3]["x.npy"] == 3
