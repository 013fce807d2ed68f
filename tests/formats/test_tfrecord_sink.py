"""TFRecordWriter: what it accepts, what it refuses, and what it leaves behind."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import recmap as rm
from recmap.local.output import DiskOutput, OutputStream, Spooler

DTYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "datetime64[ns]",
    "datetime64[D]",
    "timedelta64[us]",
    "bfloat16",
    "float8_e4m3fn",
]


def sample(dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    made = np.dtype(getattr(ml_dtypes, dtype)) if hasattr(ml_dtypes, dtype) else np.dtype(dtype)
    count = int(np.prod(shape))
    raw = np.random.default_rng(1).integers(0, 256, count * made.itemsize, dtype=np.uint8)
    if made.kind == "b":
        raw %= 2
    return raw.view(made).reshape(shape)


@pytest.mark.parametrize("shape", [(), (3,), (2, 40)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_keeps_its_bits(dtype: str, shape: tuple[int, ...]) -> None:
    values = sample(dtype, (20, *shape))
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write({"x": values})
    back = rm.open("x.tfrecord")[:]["x"]
    assert back.dtype == values.dtype
    assert back.tobytes() == values.tobytes()
    with rm.TFRecordWriter("a.tfrecord", align=64) as w:
        w.write({"x": values})
    assert rm.open("a.tfrecord")[:]["x"].tobytes() == values.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_ragged_rows_of_every_dtype_keep_their_bits(dtype: str) -> None:
    values = sample(dtype, (190, 2))
    ragged = rm.Ragged(values, np.cumsum([0, *range(20)]))
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write({"x": ragged})
    back = rm.open("x.tfrecord")[:]["x"]
    assert back.values.tobytes() == values.tobytes()
    assert back.offsets.tolist() == ragged.offsets.tolist()


@pytest.mark.parametrize(
    ("dtype", "shape", "encoding"),
    [
        ("float32", (100,), "float_list"),
        ("int64", (100,), "int64_list"),
        ("int32", (), "int64_list"),
        ("int32", (16,), "int64_list"),
        ("int32", (17,), "raw"),
        ("bool", (), "int64_list"),
        ("uint8", (28, 28), "raw"),
        ("uint8", (), "int64_list"),
        ("uint64", (), "raw"),
        ("float64", (), "raw"),
        ("float16", (), "raw"),
    ],
)
def test_the_default_encoding_follows_from_dtype_and_shape(
    dtype: str, shape: tuple[int, ...], encoding: str
) -> None:
    from recmap.tfrecord.encoder import choose_encoding

    assert str(choose_encoding("x", rm.Field(dtype, shape))) == encoding


def test_columns_may_be_lists_arrays_or_generators() -> None:
    batch = {
        "numbers": [1, 2],
        "floats": (0.5, 1.5),
        "strings": ["é", "b"],
        "bytes": [b"\0", b""],
        "S": np.array([b"ab", b"c"]),
        "objects": np.array([b"x", b"yz\0"], dtype=object),
        "rows": [[1], [2, 3]],
        "arrays": [np.zeros(2, np.float32), np.ones(1, np.float32)],
        "words": [["a"], ["b", "c"]],
        "generated": (i for i in range(2)),
    }
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write(batch)
    ds = rm.open("x.tfrecord")
    assert ds.schema == {
        "numbers": "int64", "floats": "float64", "strings": "bytes", "bytes": "bytes",
        "S": "bytes", "objects": "bytes", "rows": "int64[*]", "arrays": "float32[*]",
        "words": "bytes[*]", "generated": "int64",
    }  # fmt: skip
    row = ds[1]
    assert row["strings"] == b"b"
    assert ds[0]["strings"] == "é".encode()
    assert row["objects"] == b"yz\0"
    assert row["rows"].tolist() == [2, 3]
    assert row["words"].tolist() == [b"b", b"c"]


def test_rows_are_fitted_to_the_schema() -> None:
    schema = {"x": "float32[2]", "n": "int8", "tokens": "int32[*]", "words": "bytes[2]"}
    with rm.TFRecordWriter("x.tfrecord", schema) as w:
        w.write({"x": [[1, 2]], "n": [3], "tokens": [[1, 2]], "words": [["a", "b"]]})
        w.write({"x": np.ones((2, 2), np.float32), "n": [4, 5], "tokens": np.array([[1], [2]]
            , np.int32), "words": [["c", "d"], ["e", "f"]]})  # fmt: skip
    ds = rm.open("x.tfrecord")
    assert ds.schema == schema
    assert ds[:]["tokens"].tolist() == [[1, 2], [1], [2]]
    assert ds[:]["words"].tolist() == [[b"a", b"b"], [b"c", b"d"], [b"e", b"f"]]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"x": np.zeros((2, 3), np.float32)}, r"lacks 'n'"),
        ({"x": np.zeros((1, 2), np.float32), "n": [1], "z": [1]}, "has unknown 'z'"),
        ({"x": np.zeros((1, 3), np.float32), "n": [1]}, r"'x' is float32\[2\].*float32\[3\]"),
        ({"x": np.zeros((1, 2), np.float64), "n": [1]}, r"'x'.*dtype float64.*astype"),
        ({"x": np.zeros((1, 2), np.float32), "n": [1, 2]}, "'x' has 1, 'n' has 2"),
        ({"x": np.zeros((1, 2), np.float32), "n": [300]}, "'n' is int8"),
        ({"x": np.zeros((1, 2), np.float32), "n": [b"a"]}, "'n' is int8, but the column is bytes"),
        ({"x": np.zeros((1, 2), np.float32), "n": 3}, "'n'.*every row"),
        ({"x": np.zeros((1, 2), np.float32), "n": "abc"}, "'n'.*every row"),
        ({"x": np.zeros((1, 2), np.float32), "n": [{}]}, "'n'"),
    ],
)
def test_a_batch_that_does_not_fit_says_why(batch: dict[str, Any], message: str) -> None:
    with pytest.raises(rm.ColumnError, match=message):
        with rm.TFRecordWriter("x.tfrecord", {"x": "float32[2]", "n": "int8"}) as w:
            w.write(batch)
    assert os.listdir() == []


@pytest.mark.parametrize("offsets", [[0, 2, 1], [0, 5], [-1, 1], [0, 2**62]], ids=str)
def test_a_ragged_column_with_wrong_offsets_is_refused(offsets: list[int]) -> None:
    column = rm.Ragged(np.zeros(3, np.float32), offsets)
    with pytest.raises(ValueError, match="offsets must ascend"):
        with rm.TFRecordWriter("x.tfrecord", {"x": "float32[*]"}) as w:
            w.write({"x": column})


@pytest.mark.parametrize("shards", [1, 3])
def test_an_exception_leaves_nothing_behind(shards: int) -> None:
    with pytest.raises(RuntimeError, match="stop"):
        with rm.TFRecordWriter("out/x.tfrecord", shards=shards) as w:
            w.write({"x": np.zeros((100_000, 100), np.float32)})
            raise RuntimeError("stop")
    assert os.listdir("out") == []


def test_a_writer_that_is_garbage_collected_leaves_nothing_behind() -> None:
    w = rm.TFRecordWriter("x.tfrecord")
    w.write({"x": np.zeros(10)})
    del w
    assert os.listdir() == []


class _Last(bytes):
    """A buffer that holds the last reference to its writer."""

    writer: rm.TFRecordWriter


def test_a_writer_may_be_garbage_collected_in_the_writing_thread() -> None:
    w = rm.TFRecordWriter("x.tfrecord")
    thread, file = w._spooler._thread, w._sinks[0].stream
    assert thread is not None
    piece = _Last(1 << 20)
    piece.writer = w
    del w
    file.write(piece)
    del piece
    thread.join(60)
    assert not thread.is_alive()
    assert os.listdir() == []


class _Slow(OutputStream):
    """A file on a slow disk."""

    def __init__(self, output: DiskOutput, spooler: Spooler) -> None:
        super().__init__(output, None, spooler)
        self.begun, self.go_on = threading.Event(), threading.Event()

    def write_now(self, piece: Any) -> None:
        self.begun.set()
        self.go_on.wait()
        super().write_now(piece)


def test_files_are_abandoned_without_waiting_for_pending_writes() -> None:
    spooler = Spooler()
    output = DiskOutput("x.tfrecord", durable=False)
    output.stream(spooler=spooler)
    file = _Slow(output, spooler)
    for _ in range(3):
        spooler.put(file, bytes(100))
    file.begun.wait()
    spooler.abandon([output])
    assert os.listdir() == []
    file.go_on.set()
    assert spooler._thread is not None
    spooler._thread.join()
    assert file.written == 100
    with pytest.raises(ValueError, match="closed"):
        file.reader()


def test_a_forked_process_does_not_remove_the_files() -> None:
    w = rm.TFRecordWriter("x.tfrecord")
    w.write({"x": np.arange(10)})
    child = os.fork()
    if child == 0:
        del w
        os._exit(0)
    os.waitpid(child, 0)
    w.commit()
    assert rm.open("x.tfrecord")[:]["x"].tolist() == list(range(10))


def test_a_full_disk_is_an_error_in_the_callers_thread() -> None:
    with pytest.raises(OSError, match="No space left"), rm.TFRecordWriter("x.tfrecord") as w:
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, w._sinks[0].stream.reader().fileno())
        os.close(full)
        for _ in range(5):
            w.write({"x": np.zeros((1000, 1000), np.float32)})
    assert os.listdir() == []


def test_no_file_appears_before_the_end() -> None:
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write({"x": np.zeros((1000, 1000), np.float32)})
        assert not os.path.exists("x.tfrecord")
    assert os.path.exists("x.tfrecord")
    with pytest.raises(rm.OptionError, match="closed"):
        w.write({"x": np.zeros((1, 1000), np.float32)})


def test_existing_files_are_not_overwritten_by_default() -> None:
    Path("x.tfrecord").write_text("mine")
    with pytest.raises(rm.OutputExistsError, match="overwrite=True"):
        rm.TFRecordWriter("x.tfrecord")
    with pytest.raises(FileExistsError):
        rm.TFRecordWriter("x.tfrecord")
    assert Path("x.tfrecord").read_text() == "mine"
    with rm.TFRecordWriter("x.tfrecord", overwrite=True) as w:
        w.write({"x": [1]})
    assert len(rm.open("x.tfrecord")) == 1


def test_shards_of_two_runs_do_not_mix() -> None:
    for shards in (4, 2):
        with rm.TFRecordWriter("x.tfrecord", shards=shards, overwrite=shards == 2) as w:
            w.write({"x": np.arange(10)})
        if shards == 4:
            with pytest.raises(rm.OutputExistsError):
                rm.TFRecordWriter("x.tfrecord", shards=3)
    names = [name for name in sorted(os.listdir()) if name[0] != "."]
    assert names == ["x-00000-of-00002.tfrecord", "x-00001-of-00002.tfrecord"]


@pytest.mark.parametrize("batch", [1, 3, 1000])
def test_rows_go_to_the_shards_in_turn(batch: int) -> None:
    with rm.TFRecordWriter("x.tfrecord", shards=4) as w:
        for start in range(0, 1000, batch):
            rows = np.arange(start, min(start + batch, 1000))
            w.write({"x": rows, "t": rm.Ragged(rows, np.arange(len(rows) + 1))})
    for shard in range(4):
        ds = rm.open(f"x-0000{shard}-of-00004.tfrecord")
        assert ds[:]["x"].tolist() == list(range(shard, 1000, 4))
        assert ds[:]["t"].values.tolist() == list(range(shard, 1000, 4))


@pytest.mark.parametrize("batch", [1, 7, 100])
def test_rows_stay_in_order_if_their_number_is_known(batch: int) -> None:
    with rm.TFRecordWriter("out/", shards=3, rows=100) as w:
        for start in range(0, 100, batch):
            w.write({"x": np.arange(start, min(start + batch, 100))})
    sizes = [len(rm.open(f"out/data-0000{i}-of-00003.tfrecord")) for i in range(3)]
    assert sizes == [33, 33, 34]
    assert rm.open("out")[:]["x"].tolist() == list(range(100))


@pytest.mark.parametrize("rows", [9, 11])
def test_a_number_of_rows_other_than_announced_is_an_error(rows: int) -> None:
    with pytest.raises(rm.ColumnError, match="announced"):
        with rm.TFRecordWriter("x.tfrecord", shards=2, rows=rows) as w:
            w.write({"x": np.arange(10)})
    assert os.listdir() == []


@pytest.mark.parametrize(
    ("path", "shards", "names"),
    [
        ("t.tfrecord", 2, ["t-00000-of-00002.tfrecord", "t-00001-of-00002.tfrecord"]),
        ("t", 2, ["t-00000-of-00002.tfrecord", "t-00001-of-00002.tfrecord"]),
        ("t.v1.tfrecord.gz", 1, ["t.v1.tfrecord.gz"]),
        ("t.record.gz", 2, ["t-00000-of-00002.record.gz", "t-00001-of-00002.record.gz"]),
    ],
)
def test_shards_are_named_after_the_path(path: str, shards: int, names: list[str]) -> None:
    with rm.TFRecordWriter(path, shards=shards, index=False) as w:
        w.write({"x": [1]})
    assert sorted(os.listdir()) == names


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"align": 48}, "power of two"),
        ({"align": 64, "compression": "gzip"}, "no use"),
        ({"shards": 0}, "1 or more"),
        ({"compression": "lz4"}, "gzip"),
        ({"encoding": {"nope": "raw"}}, "no column"),
        ({"encoding": {"x": "float"}}, "not one of"),
    ],
)
def test_meaningless_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(rm.OptionError, match=message):
        with rm.TFRecordWriter("x.tfrecord", **options) as w:
            w.write({"x": np.zeros(3)})
    assert os.listdir() == []


def test_align_needs_rows_of_one_size() -> None:
    with pytest.raises(rm.OptionError, match="needs rows of one size, but column 't' is bytes"):
        with rm.TFRecordWriter("x.tfrecord", align=64) as w:
            w.write({"t": [b"a"]})


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_compressed_files_are_read_back(compression: Any) -> None:
    x = np.arange(30_000, dtype=np.float64).reshape(-1, 3)
    with rm.TFRecordWriter("x.tfrecord", compression=compression, shards=2, rows=10_000) as w:
        w.write({"x": x})
    ds = rm.open("x-*.tfrecord")
    assert ds.info().compression == [compression]
    assert np.array_equal(ds[:]["x"], x)
    picked = [9_999, 0, 5_000, 4_999, 0]
    assert np.array_equal(ds[picked]["x"], x[picked])


@pytest.mark.slow
def test_small_writes_add_up() -> None:
    with rm.TFRecordWriter("x.tfrecord") as w:
        for i in range(2000):
            w.write({"x": [i], "s": [str(i)]})
    assert rm.open("x.tfrecord")[:]["x"].tolist() == list(range(2000))


def test_a_file_without_rows_keeps_its_schema() -> None:
    with rm.TFRecordWriter("x.tfrecord", {"x": "float32[3]"}):
        pass
    assert rm.open("x.tfrecord")[:]["x"].shape == (0, 3)


def test_three_ragged_levels_are_refused_with_a_way_out() -> None:
    rows = rm.Ragged.from_rows([[1, 2], [], [3]])
    for _ in range(2):
        rows = rm.Ragged(rows, np.array([0, 2, len(rows)]))
    ds = rm.from_arrays({"x": rows})
    assert ds.schema["x"].ragged == 3
    for name in ("x.tfrecord", "x.tfrecord.gz"):
        with pytest.raises(rm.ColumnError, match=r"3 ragged axes.*write \.npz"):
            ds.save(name)
    with pytest.raises(rm.ColumnError, match="3 ragged axes"):
        rm.TFRecordWriter("y.tfrecord", {"x": "int64[*,*,*]"})
    for name in ("x.npz", "x.h5", "x.zarr", "x.parquet", "x.arrow"):
        ds.save(name)
        assert rm.diff(name, ds).same


def test_shards_of_which_only_some_were_replaced_are_unfinished() -> None:
    def write(first: int, **options: Any) -> rm.TFRecordWriter:
        writer = rm.TFRecordWriter("d/x.tfrecord", shards=2, **options)
        writer.write({"n": np.arange(first, first + 8)})
        return writer

    write(0).commit()
    writer = write(100, overwrite=True)
    # A folder in the place of the second file, so that it cannot get its name.
    os.rename("d/x-00001-of-00002.tfrecord", "kept")
    os.mkdir("d/x-00001-of-00002.tfrecord")
    with pytest.raises(rm.OutputError, match="x-00001-of-00002"):
        writer.commit()
    os.rmdir("d/x-00001-of-00002.tfrecord")
    os.rename("kept", "d/x-00001-of-00002.tfrecord")
    with pytest.raises(rm.UnfinishedOutputError, match="not finished"):
        rm.open("d")

    # Whoever writes there next knows these files: a writer of fewer shards, or a conversion.
    unfinished = {path.name: path.read_bytes() for path in Path("d").iterdir()}
    np.save("new.npy", np.arange(5))
    with rm.TFRecordWriter("d/x.tfrecord", shards=3, overwrite=True) as other:
        other.write({"n": np.arange(6)})
    assert sorted(rm.open("d")["n"][:]) == list(range(6))
    for path in Path("d").iterdir():
        path.unlink()
    for name, data in unfinished.items():
        Path("d", name).write_bytes(data)
    rm.convert("new.npy", "d/x.tfrecord", shards=3, overwrite=True)
    assert len(rm.open("d")) == 5


def test_shards_that_cannot_all_appear_leave_what_was_there() -> None:
    rm.convert({"n": np.arange(4)}, "d/x.tfrecord", shards=3)
    before = {path.name: path.read_bytes() for path in Path("d").iterdir()}
    writer = rm.TFRecordWriter("d/x.tfrecord", shards=2, overwrite=True)
    writer.write({"n": np.arange(8)})
    os.mkdir("d/x-00001-of-00002.tfrecord")
    with pytest.raises(rm.OutputError, match="x-00001-of-00002"):
        writer.commit()
    os.rmdir("d/x-00001-of-00002.tfrecord")
    assert {path.name: path.read_bytes() for path in Path("d").iterdir()} == before
