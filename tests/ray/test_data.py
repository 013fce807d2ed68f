"""rm.ray.read and rm.ray.write on a real cluster."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import recmap as rm
from recmap.ray.staging import StagedShard, staged_output
from tests.frameworks import ray, tf

pytestmark = [
    pytest.mark.usefixtures("cluster"),
    # Ray leaves pipes and logs of its processes to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    # Ray reads settings that it has deprecated itself.
    pytest.mark.filterwarnings(r"ignore:.use_\w+. is deprecated:DeprecationWarning"),
]

ROWS = 60
FORMATS = ["tfrecord", "npz", "hdf5", "zarr"]
SUFFIX = {"tfrecord": "tfrecord", "npz": "npz", "hdf5": "h5", "zarr": "zarr"}


def columns(rows: int = ROWS) -> dict[str, Any]:
    """Return a column of every kind that all of these formats can store."""
    n = np.arange(rows)
    made: dict[str, Any] = {
        kind: (n[:, None] * 3 + np.arange(3)).astype(kind)
        for kind in ("float16", "float32", "float64", "uint8", "int16", "int64", "uint64")
    }
    return made | {
        "flags": (n[:, None] + np.arange(5)) % 3 == 0,
        "flag": n % 2 == 0,
        "image": np.arange(rows * 12, dtype="uint8").reshape(rows, 2, 2, 3),
        "number": n.astype("int32"),
        "time": n.astype("M8[ms]"),
        "tokens": rm.Ragged.from_rows([np.arange(i % 7) for i in n]),
        "boxes": rm.Ragged.from_rows([np.full((i % 3, 4), i, "float32") for i in n]),
        "name": rm.Ragged.from_bytes([b"n" * (i % 5) for i in n]),
        "words": rm.Ragged(
            rm.Ragged.from_bytes([b"w%d" % i for i in range(int((n % 3).sum()))]),
            np.concatenate([[0], np.cumsum(n % 3)]),
        ),
    }


def same(a: Any, b: Any) -> bool:
    if isinstance(a, rm.Ragged):
        return bool(a == b)
    return a.dtype == b.dtype and np.array_equal(a, b)


def check_row(row: dict[str, Any], i: int) -> None:
    """Check a row that Ray returned."""
    for name, column in columns().items():
        value, wanted = row[name], column[i]
        if name == "words":
            assert value == wanted.tolist()
        elif name == "time":
            assert np.datetime64(value) == wanted
        elif isinstance(wanted, np.ndarray) and name != "tokens":
            assert value.dtype == wanted.dtype
            assert value.shape == wanted.shape
            assert np.array_equal(value, wanted)
        else:
            assert np.array_equal(value, wanted)


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_is_read_with_its_types_and_written_with_them(format: str) -> None:
    rm.from_arrays(columns()).save(f"in.{SUFFIX[format]}", format=format)
    ds = rm.ray.read(f"in.{SUFFIX[format]}", override_num_blocks=3)
    for i, row in enumerate(ds.take_all()):
        check_row(row, i)

    report = rm.ray.write(ds, f"out.{SUFFIX[format]}")
    assert [os.path.basename(file) for file in report.files] == [
        f"out-0000{i}-of-00003.{SUFFIX[format]}" for i in range(3)
    ]
    back = rm.open(f"out-*.{SUFFIX[format]}")
    assert back.schema == rm.open(f"in.{SUFFIX[format]}").schema
    batch = back[:]
    assert report.rows == ROWS == len(back)
    assert all(same(column, batch[name]) for name, column in columns().items())


@pytest.mark.parametrize("name", ["x.npy", "x.bin"])
def test_arrays_are_read_and_written(name: str) -> None:
    x = np.arange(300, dtype=">f4").reshape(30, 10)
    rm.from_arrays({"x": x, "y": np.arange(30)}).save(name)
    ds = rm.ray.read(name, override_num_blocks=4)
    assert np.array_equal(ds.take_batch(30)["x"], x)
    written = rm.ray.write(ds, f"out/{name}", shards=2)
    assert len(written.files) == 2
    back = rm.open(written.files)
    assert str(back.schema) == "Schema(x: float32[10], y: int64)"
    assert np.array_equal(back[:]["x"], x)


def test_rows_schema_and_size_are_known_before_anything_is_read() -> None:
    rm.from_arrays(columns()).save("x.tfrecord")
    ds = rm.ray.read("x.tfrecord", columns=["float16", "tokens", "image"])
    os.unlink("x.tfrecord")
    assert ds.count() == ROWS
    assert ds.limit(7).count() == 7
    schema = ds.schema()
    assert schema.names == ["float16", "tokens", "image"]
    assert schema.types[0].shape == (3,)
    assert str(schema.types[0].storage_type.value_type) == "halffloat"
    assert str(schema.types[1]).startswith("list<")
    assert schema.types[2].shape == (2, 2, 3)
    assert ds.size_bytes() >= ROWS * (6 + 12)


def test_files_that_tensorflow_wrote_are_read() -> None:
    with tf.io.TFRecordWriter("x.tfrecord") as w:
        for i in range(20):
            features = {
                "x": tf.train.Feature(float_list=tf.train.FloatList(value=[i, i / 2])),
                "ids": tf.train.Feature(int64_list=tf.train.Int64List(value=range(i % 4))),
                "raw": tf.train.Feature(bytes_list=tf.train.BytesList(value=[bytes([i] * 8)])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            w.write(example.SerializeToString())
    fields = {"x": "float32[2]", "ids": "int64[*]", "raw": "uint8[2,4]"}
    rows = rm.ray.read("x.tfrecord", fields, override_num_blocks=3).take_all()
    assert [row["x"].tolist() for row in rows] == [[i, i / 2] for i in range(20)]
    assert [list(row["ids"]) for row in rows] == [list(range(i % 4)) for i in range(20)]
    assert rows[9]["raw"].tolist() == [[9] * 4] * 2


def test_tensorflow_reads_what_is_written() -> None:
    x = np.arange(24, dtype="float32").reshape(8, 3)
    ds = ray.data.from_numpy(x).rename_columns({"data": "x"})
    rm.ray.write(ds.repartition(2), "out/")
    names = sorted(str(path) for path in Path("out").glob("*.tfrecord"))
    assert names == [f"out/data-0000{i}-of-00002.tfrecord" for i in range(2)]
    parsed = tf.data.TFRecordDataset(names).map(
        lambda record: tf.io.parse_single_example(
            record, {"x": tf.io.FixedLenFeature([3], tf.float32)}
        )
    )
    assert np.array_equal([row["x"].numpy() for row in parsed], x)
    assert np.array_equal(rm.open("out/")[:]["x"], x)


def test_one_file_without_an_index_is_read_by_several_tasks() -> None:
    # Records of different sizes, with content that looks like records.
    rm.tfrecord.write_records("inner.tfrecord", [b"abc", b"defg"])
    inner = Path("inner.tfrecord").read_bytes()
    with rm.TFRecordWriter("x.tfrecord", index=False) as w:
        w.write({"i": np.arange(500), "data": [inner * (i % 9) for i in range(500)]})
    ds = rm.ray.read("x.tfrecord", override_num_blocks=5).materialize()
    assert ds.num_blocks() == 5
    rows = ds.take_all()
    assert [row["i"] for row in rows] == list(range(500))
    assert all(row["data"] == inner * (row["i"] % 9) for row in rows)


def test_a_task_yields_several_blocks_of_bounded_size(small_blocks: int) -> None:
    x = np.arange(1 << 20, dtype="float32").reshape(-1, 64)
    np.save("x.npy", x)
    ds = rm.ray.read("x.npy", override_num_blocks=1).materialize()
    assert ds.num_blocks() >= x.nbytes // small_blocks
    sizes = [block.nbytes for block in ray.get(ds.to_arrow_refs())]
    assert max(sizes) <= 1.5 * small_blocks
    assert np.array_equal(ds.take_batch(len(x))["data"], x)


@pytest.fixture
def small_blocks() -> Iterator[int]:
    context = ray.data.DataContext.get_current()
    before, context.target_max_block_size = context.target_max_block_size, 1 << 19
    yield 1 << 19
    context.target_max_block_size = before


def test_a_row_larger_than_a_block_is_a_block_of_its_own(small_blocks: int) -> None:
    rows = [bytes(small_blocks * 3), b"small"]
    rm.from_arrays({"x": rows}).save("x.tfrecord")
    assert [row["x"] for row in rm.ray.read("x.tfrecord").take_all()] == rows


def test_files_patterns_folders_and_chunks_are_read() -> None:
    parts = [np.arange(i * 10, i * 10 + 10 + i) for i in range(4)]
    for i, part in enumerate(parts):
        rm.from_arrays({"x": part}).save(f"in/{i}.zarr", options={"chunk_rows": 4})
    wanted = np.concatenate(parts).tolist()
    for path in ("in", "in/*.zarr", [f"in/{i}.zarr" for i in range(4)]):
        ds = rm.ray.read(path, override_num_blocks=7)
        assert ds.count() == len(wanted)
        assert ds.take_batch(99)["x"].tolist() == wanted


@pytest.mark.parametrize("counted", [True, False])
def test_each_compressed_file_is_read_by_one_task(counted: bool) -> None:
    for i in range(3):
        with rm.TFRecordWriter(f"{i}.tfrecord.gz", compression="gzip", index=counted) as w:
            w.write({"x": np.arange(i * 10, i * 10 + 10)})
    ds = rm.ray.read("*.tfrecord.gz", override_num_blocks=3)
    assert ds.count() == 30
    assert ds.materialize().num_blocks() == 3
    assert [row["x"] for row in ds.take_all()] == list(range(30))


def test_columns_from_several_files_and_open_datasets_are_read() -> None:
    np.save("x.npy", np.arange(8.0))
    np.save("y.npy", np.arange(8) * 2)
    ds = rm.ray.read(rm.open({"x": "x.npy", "y": "y.npy"}), override_num_blocks=2)
    assert ds.take(2) == [{"x": 0.0, "y": 0}, {"x": 1.0, "y": 2}]
    only = rm.ray.read(rm.open("x.npy"), columns=["data"])
    assert only.count() == 8


def test_columns_that_are_not_selected_are_not_decoded() -> None:
    with rm.TFRecordWriter("x.tfrecord", index=False) as w:
        w.write({"x": np.arange(3), "y": [b"a", b"bc", b"def"]})
    fields = {"x": "int64", "y": "uint8[1]"}
    with pytest.raises(rm.FieldMismatchError, match="'y'"):
        rm.ray.read("x.tfrecord", fields).take_all()
    ds = rm.ray.read("x.tfrecord", fields, columns=["x"])
    assert [row["x"] for row in ds.take_all()] == [0, 1, 2]


def test_tasks_read_the_file_that_was_found() -> None:
    for suffix in (".npy", ".tfrecord"):
        for name, value in (("old", 1), ("new", 2)):
            rm.from_arrays({"x": np.full(ROWS, value)}).save(f"{name}{suffix}")
        read = rm.ray.read(f"old{suffix}")
        os.replace(f"new{suffix}", f"old{suffix}")
        with pytest.raises(rm.FileChangedError, match=rf"old\{suffix}: was replaced"):
            read.sum("x")


def test_an_empty_file_has_a_schema() -> None:
    rm.from_arrays({"x": np.empty((0, 3), "float32")}).save("x.npy")
    ds = rm.ray.read("x.npy")
    assert ds.count() == 0
    assert ds.schema().names == ["x"]
    assert ds.take_all() == []


def damage(path: str) -> None:
    """Flip a bit in the last record."""
    content = bytearray(Path(path).read_bytes())
    content[-10] ^= 1
    Path(path).write_bytes(content)


@pytest.mark.parametrize("name", ["x.tfrecord", "x.tfrecord.gz"])
def test_a_damaged_record_is_named_or_skipped(name: str) -> None:
    with rm.TFRecordWriter("x.tfrecord", index=False) as w:
        w.write({"x": np.arange(30)})
    damage("x.tfrecord")
    if name.endswith("gz"):
        import gzip

        Path(name).write_bytes(gzip.compress(Path("x.tfrecord").read_bytes()))
    with pytest.raises(rm.CorruptRecordError, match=rf"{name}: record 29 at byte [\d,]+.*CRC"):
        rm.ray.read(name, override_num_blocks=3).take_all()
    with pytest.warns(rm.SkippedRecordsWarning):
        ds = rm.ray.read(name, errors="skip", override_num_blocks=3)
    assert [row["x"] for row in ds.take_all()] == list(range(29))


def test_wrong_input_is_refused_before_any_work() -> None:
    with pytest.raises(rm.PathNotFoundError, match=r"no\.npy"):
        rm.ray.read("no.npy")
    with pytest.raises(rm.OptionError, match="memory"):
        rm.ray.read(rm.from_arrays({"x": np.arange(3)}))
    np.save("x.npy", np.arange(3))
    with pytest.raises(rm.OptionError, match="Stream"):
        rm.ray.read(rm.open("x.npy").batch(2))  # type: ignore[arg-type]
    with pytest.raises(rm.FieldNotFoundError, match="'y'"):
        rm.ray.read("x.npy", columns=["y"])
    with pytest.raises(rm.OptionError, match=r"columns=\[\]"):
        rm.ray.read("x.npy", columns=[])
    with pytest.raises(rm.OptionError, match="shape"):
        rm.ray.read("x.npy", shape=(-1, 3))
    rm.from_arrays({"b": np.zeros(3, ml_dtypes.bfloat16)}).save("b.npy")
    with pytest.raises(rm.FieldMismatchError, match=r"'b' is bfloat16.*cast"):
        rm.ray.read("b.npy")


@pytest.mark.parametrize("dtype", ["S3", "V3"])
def test_strings_along_an_axis_of_length_0_are_refused_before_any_work(dtype: str) -> None:
    np.savez("x.npz", a=np.zeros((4, 0), dtype), b=np.arange(4), c=np.zeros((4, 0), "float32"))
    with pytest.raises(rm.FieldMismatchError, match=r"'a' is .*\[0\].*columns="):
        rm.ray.read("x.npz")
    assert rm.ray.read("x.npz", columns=["b", "c"]).take_all()[3]["c"].shape == (0,)


@pytest.mark.parametrize("columns", [False, True])
def test_an_open_dataset_is_read_where_it_was_opened(
    columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save("x.npy", np.arange(8))
    ds = rm.open({"data": "x.npy"} if columns else "x.npy")
    Path("other").mkdir()
    monkeypatch.chdir("other")
    assert rm.ray.read(ds).take_batch(8)["data"].tolist() == list(range(8))
    np.save("x.npy", np.zeros(8, "int64"))  # the same name, but not the file that was opened
    assert rm.ray.read(ds).take_batch(8)["data"].tolist() == list(range(8))


def test_the_examples_of_the_documentation_run(capsys: pytest.CaptureFixture[str]) -> None:
    rm.from_arrays({"x": np.arange(10)}).save("train-0.tfrecord")
    docs = Path(__file__).parents[2] / "docs" / "ray-data.md"
    reading, writing, _ = re.findall(r"```python\n(.*?)```", docs.read_text(), re.DOTALL)
    exec(reading, {})
    exec(writing, {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("10 Column")
    assert lines[-1] == "1000 4"


def test_pandas_blocks_and_text_are_written() -> None:
    ds = ray.data.from_items([{"n": i, "text": "é" * i} for i in range(6)])
    rm.ray.write(ds.map_batches(lambda frame: frame, batch_format="pandas"), "out/", shards=1)
    back = rm.open("out/")
    assert os.path.basename(back.files[0]) == "data.tfrecord"
    assert str(back.schema) == "Schema(n: int64, text: text)"
    assert back[4]["text"] == "é" * 4
    assert [row["text"] for row in rm.ray.read("out/").take_all()] == ["é" * i for i in range(6)]


def test_rows_of_different_shapes_need_their_field() -> None:
    images = [np.full((i % 3 + 1, i % 2 + 1, 3), i, "uint8") for i in range(12)]
    ds = ray.data.from_items([{"image": image} for image in images], override_num_blocks=2)
    with pytest.raises(rm.ColumnError, match=r"'image'.*columns="):
        rm.ray.write(ds, "out.npz")
    assert os.listdir(".") == []
    report = rm.ray.write(ds, "out.npz", columns={"image": "uint8[*,*,3]"})
    back = rm.open(report.files)
    assert [back[i]["image"].tolist() for i in range(12)] == [image.tolist() for image in images]
    with pytest.raises(rm.ColumnError, match=r"'image' is uint8\[\*,1,3\].* \[2,2,3\]"):
        rm.ray.write(ds, "bad.npz", columns={"image": "uint8[*,1,3]"})


def test_small_blocks_are_joined_into_larger_files() -> None:
    ds = ray.data.range(100, override_num_blocks=10)
    report = rm.ray.write(ds, "out/", min_rows_per_file=40)
    assert 2 <= len(report.files) <= 3
    assert rm.open("out/")[:]["id"].tolist() == list(range(100))


def test_a_task_that_fails_leaves_nothing() -> None:
    def fails(batch: dict[str, Any]) -> dict[str, Any]:
        if batch["id"][0] >= 50:
            raise ValueError("no more")
        return batch

    ds = ray.data.range(100, override_num_blocks=5).map_batches(fails, batch_size=10)
    with pytest.raises(Exception, match="no more"):
        rm.ray.write(ds, "out/")
    assert os.listdir("out") == []


def test_blocks_that_do_not_fit_together_are_an_error_that_names_the_column() -> None:
    def widened(batch: dict[str, Any]) -> dict[str, Any]:
        wide = batch["id"][0] >= 50
        return {"x": batch["id"].astype("float64" if wide else "int64")}

    def nothing(batch: dict[str, Any]) -> dict[str, Any]:
        return {"x": np.array([None if i == 7 else i for i in batch["id"]])}

    ds = ray.data.range(100, override_num_blocks=2)
    with pytest.raises(
        rm.ColumnError, match=r"out/: column 'x' is float64 in task 1, but int64 in task 0"
    ):
        rm.ray.write(ds.map_batches(widened, batch_size=50), "out/")
    with pytest.raises(rm.ColumnError, match=r"out/ \(task 0\): column 'x' has 1 rows"):
        rm.ray.write(ds.map_batches(nothing), "out/")
    assert os.listdir("out") == []
    rm.ray.write(ds.map_batches(widened, batch_size=50), "out/", columns={"x": "float64"})
    assert rm.open("out/")[:]["x"].tolist() == list(range(100))


def test_existing_files_are_replaced_only_with_overwrite() -> None:
    ds = ray.data.range(20)
    rm.ray.write(ds, "out/", shards=3)
    with pytest.raises(rm.OutputExistsError, match="overwrite=True"):
        rm.ray.write(ds, "out/", shards=2)
    assert len(rm.open("out/").files) == 3
    rm.ray.write(ds, "out/", shards=2, overwrite=True)
    assert sorted(os.listdir("out")) == [
        ".data-00000-of-00002.tfrecord.recmap",
        ".data-00001-of-00002.tfrecord.recmap",
        "_manifest.json",
        "data-00000-of-00002.tfrecord",
        "data-00001-of-00002.tfrecord",
    ]
    assert rm.open("out/")[:]["id"].tolist() == list(range(20))


def test_a_killed_worker_does_not_duplicate_rows() -> None:
    mark = os.path.abspath("killed")

    def dies_once(batch: dict[str, Any]) -> dict[str, Any]:
        if batch["id"][0] >= 90 and not os.path.exists(mark):
            Path(mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    # One task maps and writes. When it dies, part of its file is written.
    ds = ray.data.range(100, override_num_blocks=1).map_batches(dies_once, batch_size=10)
    rm.ray.write(ds, "out/")
    assert os.path.exists(mark)
    assert sorted(os.listdir("out")) == [
        ".data.tfrecord.recmap",
        "_manifest.json",
        "data.tfrecord",
    ]
    assert rm.open("out/")[:]["id"].tolist() == list(range(100))


def test_an_empty_dataset_becomes_an_empty_file() -> None:
    nothing = ray.data.range(5).map_batches(lambda batch: {"id": batch["id"][:0]})
    with pytest.raises(rm.OptionError, match="columns"):
        rm.ray.write(nothing, "out.npy")
    rm.ray.write(nothing, "out.npy", columns={"id": "int64"})
    assert len(rm.open("out.npy")) == 0


def test_either_all_files_are_published_or_none() -> None:
    rm.from_arrays({"x": np.arange(3)}).save("out/", shards=2)
    before = {path: path.read_bytes() for path in Path("out").iterdir()}
    output = staged_output("out/", "tfrecord", overwrite=True, durable=False)
    with output.staged() as stage:
        rm.from_arrays({"x": np.arange(9)}).save(f"{stage}/0.tfrecord")
        schema = rm.Schema({"x": "int64"})
        staged = [
            StagedShard(0, f"{stage}/0.tfrecord", 9, schema),
            StagedShard(1, f"{stage}/none", 1, schema),
        ]
        with pytest.raises(FileNotFoundError):
            output.publish(staged, stage)
    assert {path: path.read_bytes() for path in Path("out").iterdir()} == before


def test_a_folder_of_files_is_read_with_its_labels() -> None:
    for i in range(6):
        Path(f"photos/{i % 2}").mkdir(parents=True, exist_ok=True)
        Path(f"photos/{i % 2}/{i}.jpg").write_bytes(b"%d" % i)
    Path("labels.csv").write_text("id,age\n" + "".join(f"{i},{i * i}\n" for i in range(6)))
    rows = rm.ray.read(rm.open("photos", labels="labels.csv")).take_all()
    found = sorted((bytes(row["image"]), row["age"]) for row in rows)
    assert found == [(b"%d" % i, i * i) for i in range(6)]
    assert len(rm.ray.read("photos", format="files").take_all()) == 6
