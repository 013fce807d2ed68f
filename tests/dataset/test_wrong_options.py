"""A mistake in a call raises an error that names it, at that call."""

from __future__ import annotations

import io
import os
import pathlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

import recmap
from recmap.cli import main

# The calls below have the wrong types on purpose, so mypy must not check them.
rm: Any = recmap


def data() -> Any:
    return rm.from_arrays({"x": np.arange(6)})


def cast(dtype: Any) -> Any:
    return data().cast({"x": dtype})


def files() -> None:
    """Write the files that the calls below open."""
    np.save("x.npy", np.arange(6))
    np.arange(6, dtype="float32").tofile("x.bin")
    with rm.TFRecordWriter("x.tfrecord") as writer:
        writer.write({"x": np.arange(6)})


def tokens() -> Any:
    return rm.from_arrays({"t": rm.Ragged.from_rows([[1], [2, 3], []]), "x": np.arange(3)})


def to(name: Any, **options: Any) -> Callable[[], Any]:
    return lambda: rm.convert("x.npy", name, **options)


def opened(name: Any, **options: Any) -> Callable[[], Any]:
    return lambda: rm.open(name, **options)


def writer(**options: Any) -> Callable[[], Any]:
    return lambda: rm.TFRecordWriter("y.tfrecord", **options)


def write(batch: Any) -> None:
    with rm.TFRecordWriter("y.tfrecord") as opened:
        opened.write(batch)


SURROGATE = "a\udc80"
WHOLE = "whole number"

# Each call, the error it raises, and a word of its message.
WRONG: dict[str, tuple[Callable[[], Any], type[recmap.RecmapError], str]] = {
    # Paths.
    "open an int": (opened(3), rm.OptionTypeError, "give a path"),
    "open a URL": (opened("hdfs://host/x.tfrecord"), rm.UnknownSchemeError, "local or mounted"),
    "open URLs": (opened(["ftp://x.org/x.npy"]), rm.UnknownSchemeError, "local or mounted"),
    "write to a URL": (to("hdfs://host/out/"), rm.UnknownSchemeError, "local or mounted"),
    "a writer of a URL": (
        lambda: rm.TFRecordWriter("ftp://host/x.tfrecord"),
        rm.UnknownSchemeError,
        "local or mounted",
    ),
    "open a dataset as a format": (
        lambda: rm.open(data(), format="npy"),
        rm.OptionError,
        "Dataset is already open",
    ),
    "open a pipeline": (lambda: rm.open(data().batch(2)), rm.OptionTypeError, "from_batches"),
    "convert a pipeline": (
        lambda: rm.convert(data().batch(2), "y.npy"),
        rm.OptionTypeError,
        "from_batches",
    ),
    "open an array as a shape": (
        opened(np.zeros((3, 2)), shape=(-1, 2)),
        rm.OptionError,
        "shape= says how to read a file, but ndarray",
    ),
    "open arrays": (opened([np.zeros(9999)]), rm.OptionTypeError, "numpy.concatenate"),
    "verify an array": (lambda: rm.verify(np.zeros(3)), rm.OptionTypeError, "save(path)"),
    "verify a table": (
        lambda: rm.verify(pd.DataFrame({"x": [1]})),
        rm.OptionTypeError,
        "not DataFrame",
    ),
    "index a dict": (lambda: rm.index({"x": "x.npy"}), rm.OptionTypeError, "not dict"),
    "nulls": (opened("x.npy", nulls="drop"), rm.OptionError, "mask"),
    "nulls of a dataset": (
        lambda: rm.convert(data(), "y.npy", nulls="fill"),
        rm.OptionError,
        "already open, so give nulls",
    ),
    "open field=": (opened("x.npy", field=["x"]), rm.OptionTypeError, "use 'columns'"),
    "open column=": (opened("x.npy", column=["x"]), rm.OptionTypeError, "use 'columns'"),
    "a buffer by name": (
        lambda: data().shuffle(buffer_size=1000),
        rm.OptionError,
        "exact and needs no buffer",
    ),
    "a wrong name": (lambda: data().shuffle(sed=1), rm.OptionTypeError, "did you mean 'seed'"),
    "compression in options": (
        to("y.tfrecord", options={"compression": "gzip"}),
        rm.OptionError,
        "write compression='gzip'",
    ),
    "durable in options": (
        lambda: data().save("y.tfrecord", options={"durable": "no"}),
        rm.OptionTypeError,
        "durable='no': use True or False",
    ),
    "an option the format lacks": (
        to("y.npy", align=64),
        rm.OptionError,
        "npy files: there is no option 'align'",
    ),
    "encoding of arrays": (
        to("y.npz", encoding={"x": "raw"}),
        rm.OptionError,
        "npz files: there is no option 'encoding'",
    ),
    "to is format": (to("y.npy", to="npy"), rm.OptionTypeError, "format='npy'"),
    "save to is format": (
        lambda: data().save("y.npy", to="npy"),
        rm.OptionTypeError,
        "format='npy'",
    ),
    "rows_per_shard is shards": (
        to("y.npy", rows_per_shard=5),
        rm.OptionTypeError,
        "shards='5 rows'",
    ),
    "shard_size is shards": (to("y.npy", shard_size="1MB"), rm.OptionTypeError, "shards='1MB'"),
    "address is engine": (to("y.npy", address="a:1"), rm.OptionTypeError, "engine='ray:a:1'"),
    "dtype of a file that tells its own": (to("y.tfrecord", dtype="f4"), rm.OptionError, "dtype"),
    "engine": (to("y.npy", engine="spark"), rm.OptionError, '"ray:ADDRESS"'),
    "engine without an address": (to("y.npy", engine="ray:"), rm.OptionError, '"ray:ADDRESS"'),
    "source": (to("y.npy", source=3), rm.OptionTypeError, "source=3"),
    "source of a dataset": (
        lambda: rm.convert(data(), "y.npy", dtype="f4"),
        rm.OptionError,
        "give dtype to rm.open",
    ),
    "open ints": (opened([1, 2]), rm.OptionTypeError, "give a path"),
    "open a file object": (opened(io.BytesIO()), rm.OptionTypeError, "give the path"),
    "open a null character": (opened("a\0b"), rm.OptionError, "null character"),
    "open nothing": (opened([]), rm.PathNotFoundError, "empty"),
    "convert to an int": (to(3), rm.OptionTypeError, "dst=3"),
    "convert to a null character": (to("a\0.npy"), rm.OptionError, "null character"),
    "convert to a file": (to(io.BytesIO()), rm.OptionTypeError, "dst="),
    "write to an int": (lambda: rm.TFRecordWriter(3), rm.OptionTypeError, "path=3"),
    "index an int": (lambda: rm.index(3), rm.OptionTypeError, "path=3"),
    "verify an int": (lambda: rm.verify(3), rm.OptionTypeError, "path=3"),
    "repair an int": (lambda: rm.repair(3, "y.tfrecord"), rm.OptionTypeError, "path=3"),
    "repair to an int": (lambda: rm.repair("x.tfrecord", 3), rm.OptionTypeError, "dst=3"),
    # Opening.
    "open typo": (opened("x.npy", dtpye="f4"), rm.OptionTypeError, "did you mean 'dtype'"),
    "errors": (opened("x.npy", errors="bogus"), rm.OptionError, "skip"),
    "format": (opened("x.npy", format=[]), rm.OptionError, "tfrecord"),
    "compression": (opened("x.tfrecord", compression=3), rm.OptionError, "gzip"),
    "verify": (opened("x.tfrecord", verify="no"), rm.OptionTypeError, "True or False"),
    "one axis": (opened("x.bin", dtype="f4", shape=10), rm.OptionError, "-1, 10"),
    "shape of text": (opened("x.bin", dtype="f4", shape="a"), rm.OptionTypeError, "shape='a'"),
    "shape of floats": (opened("x.bin", dtype="f4", shape=(-1, 1.5)), rm.OptionError, WHOLE),
    "offset": (opened("x.bin", dtype="f4", offset="a"), rm.OptionTypeError, "offset='a'"),
    "offset below 0": (opened("x.bin", dtype="f4", offset=-1), rm.OptionError, "offset=-1"),
    "fields of an array": (opened("x.npy", fields=np.array("a")), rm.OptionTypeError, "fields"),
    "dtype": (opened("x.bin", dtype="bogus"), rm.OptionError, "float32"),
    "index of no file": (opened("x.tfrecord", index="no.idx"), rm.PathNotFoundError, "no.idx"),
    "index of an int": (opened("x.tfrecord", index=3), rm.OptionTypeError, "index=3"),
    "fields": (opened("x.tfrecord", fields=3), rm.OptionTypeError, "fields=3"),
    "fields of ints": (opened("x.tfrecord", fields=[3]), rm.OptionTypeError, "list of names"),
    "field of an int": (opened("x.tfrecord", fields={"x": 3}), rm.OptionError, "'x'"),
    # Converting.
    "save typo": (lambda: data().save("y.npy", shard=3), rm.OptionTypeError, "'shards'"),
    "convert typo": (to("y.npy", dtpye="f4"), rm.OptionTypeError, "'dtype'"),
    "overwrite typo": (to("y.npy", overwrit=True), rm.OptionTypeError, "'overwrite'"),
    "sink typo": (
        to("y.h5", options={"chunkrows": 3}),
        rm.OptionTypeError,
        "did you mean 'chunk_rows'",
    ),
    "sink option of another": (to("y.npy", options={"level": 3}), rm.OptionError, "'level'"),
    "sink option of recmap": (to("y.h5", options={"expected": 3}), rm.OptionError, "'expected'"),
    "output format": (to("y.npy", format=["npy"]), rm.OptionError, "format="),
    "options": (to("y.npy", options=[1]), rm.OptionTypeError, "options="),
    "chunk rows": (to("y.h5", options={"chunk_rows": "a"}), rm.OptionTypeError, WHOLE),
    "zarr chunk rows": (to("y.zarr", options={"chunk_rows": 1.5}), rm.OptionTypeError, WHOLE),
    "npz compression": (to("y.npz", compression=[]), rm.OptionError, "deflate"),
    "rows of text": (lambda: data().select(slice("a")), rm.OptionTypeError, "slice"),
    "rows by 0": (lambda: data().select(slice(None, None, 0)), rm.OptionError, "step"),
    "columns": (lambda: data().select(3), rm.OptionError, "names of columns"),
    "rename": (lambda: data().rename(["a"]), rm.OptionTypeError, "names="),
    "rename badly": (lambda: data().rename({"x": SURROGATE}), rm.ColumnError, "surrogate"),
    "cast": (lambda: data().cast("f4"), rm.OptionTypeError, "dtypes='f4'"),
    **{
        f"cast to {dtype}": (partial(cast, dtype), rm.OptionError, "'x'")
        for dtype in ("V4", object, str, "U3", "S3", bytes, "M8", "bogus", [("a", "i4")])
    },
    "cast what is not there": (lambda: data().cast({"z": "f4"}), rm.FieldNotFoundError, "'z'"),
    "memory": (to("y.npy", memory=None), rm.OptionError, "512MB"),
    "memory below 0": (to("y.npy", memory=-5), rm.OptionError, "memory=-5"),
    "memory without end": (to("y.npy", memory="9" * 400), rm.OptionError, "512MB"),
    "workers": (to("y.npy", workers="x"), rm.OptionError, '"threads:4"'),
    "no workers": (to("y.npy", workers=0), rm.OptionError, "workers=0"),
    "shards": (to("y.npy", shards=1.5), rm.OptionTypeError, "shards=1.5"),
    "no shards": (to("y.npy", shards=0), rm.OptionError, "shards=0"),
    "too many shards": (to("y.npy", shards=10**12), rm.OptionError, "up to"),
    "no rows per shard": (to("y.npy", shards="0 rows"), rm.OptionError, "shards=0"),
    "shards of text": (to("y.npy", shards="x"), rm.OptionError, "'10_000 rows'"),
    "shuffle": (lambda: data().shuffle("a"), rm.OptionError, "shuffle"),
    "seed": (lambda: data().shuffle(seed=1.5), rm.OptionTypeError, "seed=1.5"),
    "seed below 0": (lambda: data().shuffle(seed=-1), rm.OptionError, "seed=-1"),
    "overwrite": (to("y.npy", overwrite="no"), rm.OptionTypeError, "True or False"),
    "verify conversion": (to("y.npy", verify="bogus"), rm.OptionError, '"full"'),
    "progress": (to("y.npy", progress=3), rm.OptionTypeError, "function"),
    # Writing.
    "writer typo": (writer(compresion="gzip"), rm.OptionTypeError, "'compression'"),
    "writer shards": (writer(shards=1.5), rm.OptionTypeError, "shards=1.5"),
    "writer shards of text": (writer(shards="a"), rm.OptionTypeError, "shards='a'"),
    "writer rows": (writer(rows=-1), rm.OptionError, "rows=-1"),
    "writer align": (writer(schema={"x": "int64"}, align="a"), rm.OptionTypeError, "align='a'"),
    "writer compression": (writer(compression="lz4"), rm.OptionError, "gzip"),
    "writer encoding": (writer(encoding="raw"), rm.OptionTypeError, "encoding='raw'"),
    "writer encodings": (
        writer(schema={"x": "int64"}, encoding={"x": 1}),
        rm.OptionTypeError,
        "'x'",
    ),
    "writer schema": (writer(schema=3), rm.OptionError, "schema"),
    "write an int": (lambda: write(3), rm.ColumnError, "dict"),
    "records": (
        lambda: rm.tfrecord.write_records("y.tfrecord", ["a"]),
        rm.ColumnError,
        "record 0",
    ),
    # Columns.
    "arrays": (lambda: rm.from_arrays(3), rm.OptionTypeError, "dict"),
    "batches": (lambda: rm.from_batches(3), rm.OptionTypeError, "list"),
    "batch of an int": (lambda: rm.from_batches([3]), rm.ColumnError, "dict"),
    "name of an int": (lambda: rm.from_arrays({1: [2]}), rm.ColumnError, "text"),
    "name": (lambda: rm.from_arrays({SURROGATE: [2]}), rm.ColumnError, "surrogate"),
    "text": (lambda: rm.from_arrays({"s": ["\ud800"]}), rm.ColumnError, "UTF-8"),
    "schema": (lambda: rm.Schema({"x": 3}), rm.OptionError, "float32"),
    "schema of ints": (lambda: rm.Schema({3: "int64"}), rm.OptionError, "text"),
    "field shape": (lambda: rm.Field("f4", "abc"), rm.FieldTextError, "shape='abc'"),
    "field shape of floats": (lambda: rm.Field("f4", (1.5,)), rm.FieldTextError, "1.5"),
    "field parse": (lambda: rm.Field.parse(3), rm.FieldTextError, "3"),
    "ragged offsets": (lambda: rm.Ragged([1], [0, "a"]), rm.ColumnError, "offsets"),
    "ragged offsets, floats": (lambda: rm.Ragged([1], [0, 0.5]), rm.ColumnError, "offsets"),
    "ragged text": (lambda: rm.Ragged.from_bytes(["a"]), rm.ColumnError, "encode"),
    "ragged int": (lambda: rm.Ragged.from_rows(3), rm.OptionTypeError, "rows=3"),
    "ragged row": (lambda: rm.Ragged.from_rows([[1]])["a"], rm.RowNotFoundError, "1 rows"),
    "ragged rows": (lambda: rm.Ragged.from_rows([[1]])[[5]], rm.RowNotFoundError, "5"),
    "ragged slice": (lambda: rm.Ragged.from_rows([[1]])["a":], rm.OptionTypeError, "slice"),
    "ragged pad fill": (lambda: rm.Ragged.from_rows([[1]]).pad(2, [1, 2]), rm.OptionError, "fill"),
    "ragged pad out": (lambda: rm.Ragged.from_rows([[1]]).pad(out=3), rm.OptionTypeError, "out"),
    "ragged pad": (lambda: rm.Ragged.from_rows([[1]]).pad("a"), rm.OptionTypeError, "length"),
    # Pipelines.
    "batches of floats": (lambda: data().batches(2.5), rm.OptionTypeError, "size=2.5"),
    "batches of 0": (lambda: data().batches(0), rm.OptionError, "size=0"),
    "batch of floats": (lambda: data().batch(2.5), rm.OptionTypeError, "size=2.5"),
    "batch of a bool": (lambda: data().batch(True), rm.OptionTypeError, "size=True"),
    "drop_last": (lambda: data().batch(2, drop_last="no"), rm.OptionTypeError, "drop_last"),
    "prefetch": (lambda: data().batch(2).prefetch(2, memory=-5), rm.OptionError, "memory"),
    "prefetch threads": (lambda: data().prefetch(2, threads=1.5), rm.OptionTypeError, "threads"),
    "shard": (lambda: data().shard(0, 1.5), rm.OptionTypeError, "count=1.5"),
    "shard of text": (lambda: data().shard("a", 2), rm.OptionTypeError, "index='a'"),
    "map fields": (lambda: data().map(dict, fields=3), rm.OptionError, "fields=3: give a dict"),
    "map no function": (lambda: data().map(3), rm.RecmapError, "function"),
    "repeat": (lambda: data().repeat(2**80), rm.OptionError, "times"),
    "take": (lambda: data().take(1.5), rm.OptionTypeError, "count=1.5"),
    "bucket": (lambda: tokens().bucket("t", 3), rm.OptionTypeError, "boundaries=3"),
    "bucket unsorted": (lambda: tokens().bucket("t", [5, 2]), rm.OptionError, "increasing"),
    "bucket by an int": (lambda: tokens().bucket(3, [2]), rm.OptionTypeError, "by=3"),
    "bucket by nothing": (lambda: tokens().bucket("z", [2]), rm.FieldNotFoundError, "'z'"),
    "pack": (lambda: tokens().pack(4, 3), rm.OptionTypeError, "columns=3"),
    "pack fill": (lambda: tokens().pack(4, fill="a"), rm.OptionError, "fill"),
    "pack nothing": (lambda: tokens().pack(4, ["z"]), rm.OptionError, "'z'"),
    "pad nothing": (lambda: tokens().batch(2, pad={"z": 3}), rm.OptionError, "'z'"),
    "pad too far": (lambda: tokens().batch(2, pad=2**80), rm.OptionError, "cannot pad"),
    "pad side": (lambda: rm.Pad(side=["left"]), rm.OptionError, "side"),
    "split by a list": (lambda: data().split({"a": 0.5}, by=[]), rm.FieldNotFoundError, "x"),
    "stats": (lambda: data().stats(progress=3), rm.OptionTypeError, "function"),
    "mix until": (lambda: rm.mix(data(), until=3), rm.OptionError, "until=3"),
    "pack of 0": (lambda: tokens().pack(0), rm.OptionError, "length=0"),
    "pack long": (lambda: tokens().pack(4, long="bogus"), rm.OptionError, "split"),
    "select": (lambda: data().select(slice("a")), rm.OptionTypeError, "slice"),
    "decode": (lambda: data().decode_image("x", dtype="bogus"), rm.OptionError, "dtype"),
    "decode size": (lambda: data().decode_image("x", size="ab"), rm.OptionError, "size"),
    "mix an int": (lambda: rm.mix(3), rm.OptionTypeError, "datasets"),
    "mix a list": (lambda: rm.mix([data()]), rm.OptionTypeError, "rm.mix(a, b)"),
    "zip ints": (lambda: rm.zip(3), rm.OptionTypeError, "datasets"),
    "weights": (lambda: rm.mix(data(), data(), weights=["a", 1]), rm.OptionTypeError, "weights"),
    "weights as text": (lambda: rm.mix(data(), weights="a"), rm.OptionTypeError, "weights"),
    "records view": (lambda: rm.tfrecord.records("x.tfrecord", view=2), rm.OptionTypeError, "view"),
    "records verify": (
        lambda: rm.tfrecord.records("x.tfrecord", verify=None),
        rm.OptionTypeError,
        "verify",
    ),
    "records errors": (
        lambda: rm.tfrecord.records("x.tfrecord", errors=np.arange(2)),
        rm.OptionError,
        "errors",
    ),
    "records packed": (
        lambda: rm.tfrecord.records("x.tfrecord", compression=np.arange(2)),
        rm.OptionError,
        "compression",
    ),
    "engine of an array": (to("y.npy", engine=np.arange(2)), rm.OptionError, "engine"),
    "index progress": (lambda: rm.index("x.tfrecord", progress={}), rm.OptionError, "progress"),
    "verify progress": (lambda: rm.verify("x.tfrecord", progress={}), rm.OptionError, "progress"),
    "repair progress": (
        lambda: rm.repair("x.tfrecord", "y.tfrecord", progress={}),
        rm.OptionError,
        "progress",
    ),
    "repair durable": (
        lambda: rm.repair("x.tfrecord", "y.tfrecord", durable=None),
        rm.OptionError,
        "durable",
    ),
    "run epochs": (lambda: data().batch(2).run(1.5), rm.OptionTypeError, "epochs"),
    "run progress": (lambda: data().batch(2).run(progress="no"), rm.OptionTypeError, "progress"),
    "restore check": (
        lambda: data().batch(2).restore(data().batch(2).state(), check="no"),
        rm.OptionTypeError,
        "check",
    ),
    "restore version": (
        lambda: data().batch(2).restore({"version": np.arange(2)}),
        rm.OptionError,
        "version",
    ),
    "schema names": (lambda: rm.Schema({}).select(None), rm.OptionTypeError, "names"),
    "dtype of a comma": (opened("x.bin", dtype=","), rm.OptionTypeError, "dtype"),
    "field of a comma": (lambda: rm.Field(","), rm.FieldTextError, "dtype"),
    "cast to a comma": (lambda: cast(","), rm.OptionError, "dtype"),
    "rows of a comma": (lambda: rm.Ragged.from_rows([[1]], dtype=","), rm.OptionError, "dtype"),
    "length without end": (lambda: len(data().repeat()), rm.OptionTypeError, "length"),
}


def test_a_table_in_memory_is_a_dataset() -> None:
    table = pd.DataFrame({"a": [1, 2], "b": [0.5, 1.5], "name": ["x", "y"]})
    ds = rm.from_arrays(table)
    assert str(ds.schema) == "Schema(a: int64, b: float64, name: text)"
    assert ds[1] == {"a": 2, "b": 1.5, "name": "y"}


def test_the_batches_of_a_pipeline_can_be_saved() -> None:
    rm.from_batches(data().batch(4)).save("y.npy")
    assert np.load("y.npy").tolist() == list(range(6))


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_option_is_refused_by_the_call_that_takes_it(what: str) -> None:
    files()
    call, error, word = WRONG[what]
    with pytest.raises(error) as caught:
        call()
    assert word in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("suffix", ["tfrecord", "npz", "h5", "zarr"])
def test_names_that_no_file_can_hold_are_refused_before_anything_is_written(suffix: str) -> None:
    column = rm.from_arrays({"x": np.arange(2)})
    with pytest.raises(rm.ColumnError, match="surrogate"):
        column.rename({"x": SURROGATE}).save(f"y.{suffix}")
    mapped = rm.Schema({SURROGATE: "int64"})
    with pytest.raises(rm.ColumnError, match="surrogate"):
        rm.from_batches(iter([]), mapped).save(f"y.{suffix}")
    assert os.listdir() == []


def test_paths_may_be_bytes_and_begin_with_a_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    home = pathlib.Path("home").absolute()
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    data().save("~/x.npy")
    assert (home / "x.npy").exists()
    assert len(rm.open("~/x.npy")) == len(rm.open(b"home/x.npy")) == 6
    assert len(rm.open({"x": "~/x.npy"})) == len(rm.open(["~/*.npy", b"home/x.npy"])) / 2 == 6
    rm.convert(pathlib.Path("~/x.npy"), b"~/x.tfrecord")
    with rm.TFRecordWriter("~/y.tfrecord") as written:
        written.write({"x": np.arange(6)})
    assert rm.index("~/y.tfrecord", text=True) == [str(home / "y.tfrecord.idx")]
    assert len(rm.open("~/y.tfrecord", index="~/y.tfrecord.idx")) == 6
    assert rm.verify("~/*.tfrecord").ok
    assert rm.repair("~/x.tfrecord", "~/z.tfrecord").records == 6
    assert main(["convert", "~/z.tfrecord", "~/z.npy"]) == 0
    assert (home / "z.npy").exists()
    np.save("~.npy", np.arange(2))
    assert len(rm.open("~.npy")) == 2


@pytest.mark.parametrize("integer", [np.int64, np.uint8, np.int32])
def test_numpy_numbers_are_accepted(integer: Callable[[int], Any]) -> None:
    files()
    two = integer(2)
    rm.convert("x.npy", "y.npy", shards=two, workers=two, memory=np.int64(10**8))
    rm.convert("x.npy", "z.h5", shards=two, options={"chunk_rows": two})
    rm.TFRecordWriter("y.tfrecord", shards=two, rows=two).abort()
    assert rm.open("x.bin", dtype="f4", shape=(-1, two))[0]["data"].tolist() == [0, 1]
    assert len(list(data().batches(two))) == len(list(data().batch(two))) == 3
    assert len(data().take(integer(5)).skip(integer(1)).shard(integer(1), two)) == 2
    assert len(data().repeat(two).batch(two).prefetch(two, threads=two)) == 6
    assert rm.Ragged.from_rows([[1]]).pad(two).tolist() == [[1, 0]]
    assert rm.Field("f4", two).shape == (2,)


def test_schemas_can_be_compared_with_anything() -> None:
    schema = rm.Schema({"x": "int64", "y": "bytes"})
    turned = rm.Schema({"y": "bytes", "x": "int64"})
    assert schema == turned
    assert hash(schema) == hash(turned)
    assert schema == {"x": "int64", "y": "bytes"}
    assert schema not in ({"x": 3}, {1: 2}, {"x": "no[field"}, None, 3, "x")
    others: list[Any] = [{}, [], None, 3, b"x", ("x",)]
    for nothing in others:
        assert nothing not in schema
        assert nothing not in data()


@pytest.mark.parametrize("fill", [0, [1, 2], (1, 2), np.array([1, 2]), float("nan")], ids=str)
def test_fields_with_a_fill_value_can_be_compared_and_hashed(fill: Any) -> None:
    field = rm.Field("float32", (2,), fill=fill)
    again = rm.Field("float32", (2,), fill=list(np.broadcast_to(np.array(fill, "f4"), 2)))
    assert field == again
    assert hash(field) == hash(again)
    assert {field: 1}[again] == 1
    assert rm.Schema({"x": field}) == {"x": again}
    assert field not in (rm.Field("float32", (2,)), rm.Field("float32", (2,), fill=5), None)


@pytest.mark.parametrize(
    "wrong", [None, "a", -1, 2**80, {}, 1.5, [[1]], {"tail": "a", "runs": 3}], ids=str
)
def test_a_damaged_state_is_refused(wrong: Any) -> None:
    train = data().batch(2)
    next(iter(train))
    state = train.state()
    for key in ("epoch", "turn", "at", "given", "kept", "rank", "world", "block", "held", "left"):
        with pytest.raises(rm.OptionError, match=key):
            data().batch(2).restore({k: v for k, v in state.items() if k != key})
        if (key == "left" and wrong is None) or (key == "held" and isinstance(wrong, list | dict)):
            continue
        with pytest.raises(rm.OptionError, match="damaged"):
            data().batch(2).restore({**state, key: wrong})


def test_a_message_about_a_name_that_is_no_text_can_be_printed() -> None:
    for given in (b"x\xff.npy", np.array([b"x\xff.npy"])):
        with pytest.raises(rm.PathNotFoundError, match=r"x\\udcff\.npy: no such file") as error:
            rm.open(given)
        str(error.value).encode()
