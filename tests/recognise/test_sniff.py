"""Formats that recmap does not read, and files with misleading names."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import json
import lzma
import os
import pathlib
import pickle
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recmap as rm
from recmap.cli import main
from recmap.cli.output import worded
from tests import wire

EXAMPLES = [wire.example(a=wire.int64_list(i)) for i in range(50)]
RECORDS = b"".join(map(wire.frame, EXAMPLES))
VERBS = ("info", "head", "stats", "schema", "bench", "tune", "verify", "index")


def packed(write: Callable[[Any], None]) -> bytes:
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


def zipped(*names: str) -> bytes:
    def write(buffer: Any) -> None:
        with zipfile.ZipFile(buffer, "w") as archive:
            for name in names:
                archive.writestr(name, b"content of " + name.encode())

    return packed(write)


def tarred() -> bytes:
    def write(buffer: Any) -> None:
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for name in ("000.cls", "000.jpg"):
                info = tarfile.TarInfo(name)
                info.size = 3
                archive.addfile(info, io.BytesIO(b"abc"))

    return packed(write)


def image(kind: str) -> bytes:
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (8, 9, 3), np.uint8)
    return packed(lambda buffer: Image.fromarray(pixels).save(buffer, kind))


def arrow(kind: str) -> bytes:
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet

    table = pa.table({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]})
    sink = pa.BufferOutputStream()
    if kind == "parquet":
        pyarrow.parquet.write_table(table, sink)
    elif kind == "feather":
        pyarrow.feather.write_feather(table, sink)
    else:
        opened = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
        with opened(sink, table.schema) as writer:
            writer.write_table(table)
    return bytes(sink.getvalue())


def matlab(version: str = "5") -> bytes:
    import scipy.io  # type: ignore[import-untyped]

    x = np.arange(6.0).reshape(3, 2)
    return packed(lambda buffer: scipy.io.savemat(buffer, {"x": x}, format=version))


def netcdf() -> bytes:
    import scipy.io

    scipy_file = scipy.io.netcdf_file("made.nc", "w")
    scipy_file.createDimension("row", 4)
    scipy_file.createVariable("x", "f4", ("row",))[:] = np.arange(4)
    scipy_file.close()
    return Path("made.nc").read_bytes()


def sqlite() -> bytes:
    import sqlite3

    with sqlite3.connect("made.db") as base:
        base.execute("create table t (a int)")
    return Path("made.db").read_bytes()


def torch_file(*, zipped: bool = True) -> bytes:
    import torch

    x, options = torch.arange(5), {"_use_new_zipfile_serialization": zipped}
    return packed(lambda buffer: torch.save({"x": x}, buffer, **options))


def idx(shape: tuple[int, ...]) -> bytes:
    head = bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)
    return head + bytes(int(np.prod(shape)))


CSV = b"a,b\n" + b"".join(b"%d,%.1f\n" % (i, i / 2) for i in range(2000))
JSON_LINES = b"".join(b'{"a": %d, "b": "x"}\n' % i for i in range(2000))
PICKLED = {"x": np.arange(5), "y": [1, "two"]}

KINDS: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "latin-1": ("a.csv", lambda: "naïve,b\né,2\nü,3\n".encode("latin-1"), "CSV that is not UTF-8"),
    "utf-16": ("a.csv", lambda: "naïve,b\né,2\nü,3\n".encode("utf-16"), "CSV that is not UTF-8"),
    "latin-1 text": (
        "a.txt",
        lambda: "Gr\xfc\xdfe aus K\xf6ln".encode("latin-1"),
        "text that is not UTF-8",
    ),
    "json": ("a.json", lambda: json.dumps({"a": list(range(9999))}).encode(), "JSON"),
    "json on lines": ("a.json", lambda: json.dumps([{"a": 1}], indent=1).encode(), "JSON"),
    "text": ("notes.txt", "Grüße, nothing more.\n".encode, "text"),
    "html": ("x.tfrecord", lambda: b"<!DOCTYPE html><html>404</html>", "an HTML page"),
    "git lfs": (
        "x.tfrecord",
        lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
        "a Git LFS pointer",
    ),
    "encrypted parquet": ("a.parquet", lambda: b"PARE" * 9, "encrypted Parquet"),
    "old feather": ("a.feather", lambda: b"FEA1" + bytes(99), "Feather of version 1"),
    **{
        f"pickle {protocol}": (
            "a.pkl",
            lambda protocol=protocol: pickle.dumps(PICKLED, protocol),  # type: ignore[misc]
            "a pickle",
        )
        for protocol in range(6)
    },
    **{
        f"pickle {protocol} of a large array": (
            "a.pkl",
            lambda protocol=protocol: pickle.dumps(np.arange(9999.0), protocol),  # type: ignore[misc]
            "a pickle",
        )
        for protocol in range(6)
    },
    **{
        f"gzip of pickle {protocol}": (
            "a.pkl.gz",
            lambda protocol=protocol: gzip.compress(pickle.dumps(PICKLED, protocol)),  # type: ignore[misc]
            "a pickle, compressed with gzip",
        )
        for protocol in range(6)
    },
    "joblib": ("a.joblib", lambda: zlib.compress(pickle.dumps(PICKLED)), "a pickle, compressed"),
    "pickle named bin": ("a.bin", lambda: pickle.dumps(PICKLED), "a pickle"),
    "small pickle": ("a.pkl", lambda: pickle.dumps(1), "a pickle"),
    "zip": ("a.zip", lambda: zipped("a.txt", "b.txt"), "a zip archive"),
    "keras": ("a.keras", lambda: zipped("config.json", "model.weights.h5"), "a Keras model"),
    "excel": ("a.xlsx", lambda: zipped("[Content_Types].xml", "xl/workbook.xml"), "an Excel file"),
    "torch": ("a.pt", torch_file, "a PyTorch file"),
    "torch named bin": ("pytorch_model.bin", torch_file, "a PyTorch file"),
    "old torch": ("a.pt", lambda: torch_file(zipped=False), "an old PyTorch file"),
    "lmdb": ("data.mdb", lambda: bytes(16) + b"\xde\xc0\xef\xbe" + bytes(99), "an LMDB database"),
    "mat": ("a.mat", matlab, "a MATLAB .mat file"),
    "mat 4": ("a.mat", lambda: matlab("4"), "a MATLAB .mat file"),
    "netcdf": ("a.nc", netcdf, "netCDF-3"),
    "sqlite": ("a.db", sqlite, "an SQLite database"),
    "mnist": ("train-images-idx3-ubyte", lambda: idx((3, 4, 4)), "IDX, the format of MNIST"),
    **{
        kind: (f"a.{kind.lower()}", lambda kind=kind: image(kind), f"a {kind} image")  # type: ignore[misc]
        for kind in ("PNG", "JPEG", "GIF", "BMP", "WebP")
    },
    "tiff": ("a.tif", lambda: image("TIFF"), "a TIFF image"),
    "jpeg 2000": ("a.jp2", lambda: image("JPEG2000"), "a JPEG 2000 image"),
    "avif": ("a.avif", lambda: b"\0\0\0\x1cftypavif" + bytes(99), "an AVIF image"),
    "ppm": ("a.ppm", lambda: image("PPM"), "a PPM, PGM or PBM image"),
    "ico": ("a.ico", lambda: image("ICO"), "an ICO image"),
    "gzip of npy": (
        "a.npy.gz",
        lambda: gzip.compress(packed(lambda f: np.save(f, np.eye(9)))),
        "npy, compressed with gzip",
    ),
    "gzip of HDF5 behind a user block": (
        "a.h5.gz",
        lambda: gzip.compress(bytes(512) + b"\x89HDF\r\n\x1a\n" + bytes(99)),
        "HDF5, compressed with gzip",
    ),
    "gzip of parquet": ("a.gz", lambda: gzip.compress(arrow("parquet")), "Parquet, compressed"),
    "gzip of numbers": (
        "a.bin.gz",
        lambda: gzip.compress(np.random.default_rng(0).bytes(9999)),
        "data compressed with gzip",
    ),
    "bzip2": ("a.csv.bz2", lambda: bz2.compress(CSV), "CSV, compressed with bzip2"),
    "xz": ("a.csv.xz", lambda: lzma.compress(CSV), "CSV, compressed with xz"),
    "xz of records": ("a.tfrecord.xz", lambda: lzma.compress(RECORDS), "TFRecord, compressed"),
    "zstd": ("a.zst", lambda: b"\x28\xb5\x2f\xfd" + bytes(99), "data compressed with zstd"),
    "zlib": ("a.z", lambda: zlib.compress(CSV), "CSV, compressed with zlib"),
    "nothing": ("a.csv", lambda: b"", "an empty file"),
    "nothing named npy": ("a.npy", lambda: b"", "an empty file"),
}

TEXTS: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "csv": ("a.csv", lambda: CSV, "csv"),
    "csv without its name": ("data", lambda: CSV, "csv"),
    "csv named dat": ("a.dat", lambda: CSV, "csv"),
    "semicolons": ("a.txt", lambda: CSV.replace(b",", b";"), "csv"),
    "one column": ("a.csv", lambda: b"a\n1\n2\n", "csv"),
    "quoted": ("a.csv", lambda: b'a,b\n"x, y",2\n"z\xc3\xa9",3\n', "csv"),
    "with a byte order mark": ("a.csv", lambda: b"\xef\xbb\xbf" + CSV, "csv"),
    "spaces of all kinds": ("a", "a\xa0b,c\n\u200b1,2\u2009\n".encode, "csv"),
    "tsv": ("a.tsv", lambda: CSV.replace(b",", b"\t"), "tsv"),
    "an index without a name": ("a.txt", lambda: b"\ta\tb\n0\t1\t2\n1\t3\t4\n", "tsv"),
    "json lines": ("a.jsonl", lambda: JSON_LINES, "jsonl"),
    "json lines without a name": ("a", lambda: JSON_LINES, "jsonl"),
    "gzip of csv": ("a.csv.gz", lambda: gzip.compress(CSV), "csv"),
    "gzip of json": ("a.json.gz", lambda: gzip.compress(JSON_LINES), "jsonl"),
    "gzip of csv in members": (
        "a.csv.gz",
        lambda: b"".join(gzip.compress(part) for part in (b"", CSV[:5], b"", CSV[5:], b"")),
        "csv",
    ),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_text_is_opened_whatever_its_name(kind: str) -> None:
    name, make, format = TEXTS[kind]
    Path(name).write_bytes(make())
    ds = rm.open(name)
    assert ds.info().format == format
    assert len(ds) == {"one column": 2, "quoted": 2, "spaces of all kinds": 1}.get(
        kind, 2 if "index" in kind else 2000
    )


def test_a_tar_file_in_gzip_is_opened_whatever_its_name() -> None:
    for name in ("a.tar.gz", "a.tgz", "a", "a.npy.gz"):
        Path(name).write_bytes(gzip.compress(tarred()))
        assert rm.open(name)["jpg"][:].tolist() == [b"abc"]


def test_gzip_files_may_consist_of_members_of_any_size() -> None:
    plain = tarred()
    for i, ends in enumerate([(0,), (100,), (0, 0, 257, 257), (512, len(plain))]):
        cuts = [0, *ends, len(plain)]
        members = [plain[a:b] for a, b in itertools.pairwise(cuts)]
        Path(f"{i}.tar.gz").write_bytes(b"".join(map(gzip.compress, members)))
        for _ in range(2):  # the second time with the index
            assert rm.open(f"{i}.tar.gz")["jpg"][:].tolist() == [b"abc"]
        assert Path(f".{i}.tar.gz.recmap-gz").exists()


@pytest.mark.parametrize("kind", ["parquet", "feather", "file", "stream"])
@pytest.mark.parametrize("name", ["a", "a.tfrecord", "a.npy"])
def test_parquet_and_arrow_are_recognised_whatever_their_name(kind: str, name: str) -> None:
    Path(name).write_bytes(arrow(kind))
    ds = rm.open(name)
    assert ds.info().format == ("parquet" if kind == "parquet" else "arrow")
    assert ds[:]["b"].tolist() == [0.5, 1.5, 2.5]


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_another_format_is_named(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, make, what = KINDS[kind]
    Path(name).write_bytes(make())
    with pytest.raises(rm.UnknownFormatError) as caught:
        rm.open(name)
    assert caught.value.file == name
    sentence = str(caught.value)
    assert sentence.startswith(f"{name}: not a format recmap reads (looks like {what}")
    commands = [[verb, name] for verb in VERBS]
    if what != "an empty file":
        commands.append(["repair", name, "out.tfrecord"])
    for command in [*commands, ["convert", name, "out.npy"]]:
        if what == "an empty file" and command[0] in ("verify", "index"):
            continue
        assert main(command) == 2, command
        assert (
            capsys.readouterr().err
            == f"recmap {command[0]}: {worded(caught.value.wording, command[0])}\n"
        )
    assert not Path("out.tfrecord").exists()


ADVISED = [
    "latin-1", "utf-16", "latin-1 text", "mat 4", "jpeg 2000", "ppm", "old torch",
    "json", "json on lines", "text", "torch", "mat", "PNG", "JPEG", "tiff",
]  # fmt: skip


@pytest.mark.parametrize("kind", ADVISED)
def test_the_advice_for_a_file_of_another_format_works(kind: str) -> None:
    import pandas as pd  # type: ignore[import-untyped]
    import PIL.Image
    import pyarrow.ipc
    import scipy.io
    import torch

    name, make, _ = KINDS[kind]
    Path(name).write_bytes(make())
    with pytest.raises(rm.UnknownFormatError) as caught:
        rm.open(name)
    code = re.search(r"Try (rm\..*?\))(, with.*)?$", str(caught.value))
    assert code is not None, str(caught.value)
    names = {"rm": rm, "pandas": pd, "PIL": PIL, "pyarrow": pyarrow, "numpy": np}
    ds = eval(code[1], {**names, "pathlib": pathlib, "scipy": scipy, "torch": torch})
    assert len(next(iter(ds.take(1).batch(1)))) >= 1


def test_the_advice_for_mnist_works(capsys: pytest.CaptureFixture[str]) -> None:
    Path("images").write_bytes(idx((3, 4, 4)))
    advice = 'Give dtype="uint8", shape=(3, 4, 4), offset=16'
    with pytest.raises(rm.UnknownFormatError, match=re.escape(advice)):
        rm.open("images")
    assert rm.open("images", dtype="uint8", shape=(3, 4, 4), offset=16)[:]["data"].shape == (
        3,
        4,
        4,
    )
    assert main(["info", "images"]) == 2
    assert "Give --dtype uint8 --shape 3,4,4 --offset 16" in capsys.readouterr().err


def test_known_formats_are_recognised_under_any_name() -> None:
    arrays = {"x": np.arange(5), "y": np.arange(5) / 2}
    np.save("one.npy", arrays["x"])
    np.savez("two.npz", **arrays)  # type: ignore[arg-type]
    with h5py.File("three.h5", "w", userblock_size=512) as file:
        file["x"] = arrays["x"]
    Path("four.tfrecord").write_bytes(RECORDS)
    Path("five.tfrecord.gz").write_bytes(gzip.compress(RECORDS))
    for name in ("one.npy", "two.npz", "three.h5", "four.tfrecord", "five.tfrecord.gz"):
        rows = len(rm.open(name))
        for other in ("data", "data.bin", "data.csv", "data.tfrecord", "data.npy", "data.h5"):
            os.replace(name, other)
            assert len(rm.open(other)) == rows, (name, other)
            os.replace(other, name)


def test_a_file_of_one_byte_is_not_recognised() -> None:
    for byte in range(256):
        path = f"x{byte}"
        Path(path).write_bytes(bytes([byte]))
        with pytest.raises(rm.UnknownFormatError, match="neither its name nor its first bytes"):
            rm.open(path)
        assert rm.open(path, dtype="uint8")["data"].tolist() == [byte]


@pytest.mark.parametrize("name", ["x.tfrecord", "x.tfrecord-00000-of-00002", "x", "x.bin", "x.dat"])
def test_a_damaged_tfrecord_file_is_still_recognised(name: str) -> None:
    damaged = bytearray(RECORDS)
    damaged[3] ^= 0xFF
    Path(name).write_bytes(damaged)
    with pytest.raises(rm.CorruptRecordError, match=r"record 0 at byte 0: length CRC"):
        rm.open(name)
    assert rm.verify(name).records == len(EXAMPLES) - 1
    assert rm.repair(name, "sound.tfrecord", overwrite=True).records == len(EXAMPLES) - 1
    with pytest.warns(rm.SkippedRecordsWarning):
        assert len(rm.open(name, errors="skip")) == len(EXAMPLES) - 1


@pytest.mark.parametrize("left", [13, 17, 61, len(RECORDS) - 1])
def test_a_truncated_tfrecord_file_is_still_recognised(left: int) -> None:
    for name in ("x.tfrecord", "x", "x.bin"):
        Path(name).write_bytes(RECORDS[:left])
        with pytest.raises(rm.CorruptRecordError):
            rm.open(name)[:]


def test_a_tfrecord_file_without_a_sound_record_is_recognised_by_its_name() -> None:
    content = np.random.default_rng(0).bytes(5000)
    Path("x.tfrecord").write_bytes(content)
    Path("x.anything").write_bytes(content)
    with pytest.raises(rm.CorruptRecordError):
        rm.open("x.tfrecord")
    for call in (rm.open, rm.verify, rm.index, lambda name: list(rm.tfrecord.records(name))):
        with pytest.raises(rm.UnknownFormatError, match="neither its name nor its first bytes"):
            call("x.anything")
    with pytest.raises(rm.CorruptRecordError):
        rm.open("x.anything", format="tfrecord")


def test_the_error_for_a_folder_with_metadata_says_how_to_open_the_data() -> None:
    os.mkdir("data")
    Path("data/dataset_info.json").write_text(json.dumps({"name": "mnist"}))
    Path("data/schema.json").write_text(json.dumps({"x": 1}))
    Path("data/mnist-train.tfrecord-00000-of-00001").write_bytes(RECORDS)
    with pytest.raises(rm.DataError, match=r"dataset_info.json lists no splits") as caught:
        rm.open("data")
    code = re.search(r"rm\.open\([^;]*\)$", str(caught.value))
    assert code is not None
    assert len(eval(code[0], {"rm": rm})) == len(EXAMPLES)


def test_errors_for_folders_without_data_say_what_they_contain() -> None:
    os.makedirs("empty")
    os.makedirs("above/train")
    os.makedirs("above/test")
    os.makedirs("x.zarr/x")
    Path("above/train/x.tfrecord").write_bytes(RECORDS)
    os.mkdir("images")
    Path("images/1.png").write_bytes(image("PNG"))
    with pytest.raises(rm.PathNotFoundError, match="empty: an empty folder"):
        rm.open("empty")
    with pytest.raises(rm.PathNotFoundError, match=r"above: only folders.*test, train"):
        rm.open("above")
    with pytest.raises(rm.PathNotFoundError, match=r"x.zarr: not a Zarr store"):
        rm.open("x.zarr")
    with pytest.raises(rm.UnknownFormatError, match="looks like a PNG image"):
        rm.open("images")


def test_opening_a_pipe_does_not_block() -> None:
    os.mkfifo("pipe")
    with pytest.raises(rm.RecmapError):
        rm.open("pipe")
    with pytest.raises(rm.RecmapError):
        rm.open("pipe", dtype="float32")


@given(st.binary(max_size=600), st.sampled_from(["x", "x.bin", "x.npy", "x.tfrecord", "x.csv.gz"]))
def test_arbitrary_bytes_raise_only_recmap_errors(content: bytes, name: str) -> None:
    Path(name).write_bytes(content)
    with suppress(rm.RecmapError):
        rm.open(name)
    for call in (rm.verify, lambda name: rm.open(name, dtype="uint8")):
        with suppress(rm.RecmapError):
            call(name)
